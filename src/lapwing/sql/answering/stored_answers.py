"""The stored bytes of an answer: the request, and the noisy numbers as they left the mechanisms.

A batch is stored as the answers of its questions, each with its request.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.sql.answering.noisy_numbers import NoisyGrouping
from lapwing.sql.pricing.request import ANSWER_FORMAT, QueryRequest
from lapwing.sql.question.bound_query import WantedCode

BATCH_FORMAT = "batch 1"
_ASKED = '"asked":'  # precedes the request in the bytes of an answer


def answer_to_bytes(asked: QueryRequest, noisy: Sequence[NoisyGrouping]) -> bytes:
    """Return the stored bytes of an answer."""
    return _bytes({"format": ANSWER_FORMAT, "asked": asked.to_json(), "groupings": _packed_all(noisy)})


def answer_from_bytes(content: bytes) -> tuple[QueryRequest, list[NoisyGrouping]]:
    """Read the stored bytes of an answer."""
    found = json.loads(content)
    return QueryRequest.from_json(found["asked"]), _unpacked_all(found["groupings"])


BatchAnswers = Sequence[tuple[QueryRequest, Sequence[NoisyGrouping]]]


def batch_to_bytes(answers: BatchAnswers) -> bytes:
    """Return the stored bytes of the answers of a batch: all of them, under one charge."""
    words = "; ".join(asked.sql for asked, _ in answers)
    each = [{"asked": asked.to_json(), "groupings": _packed_all(noisy)} for asked, noisy in answers]
    return _bytes({"format": BATCH_FORMAT, "asked": {"sql": words}, "batch": each})


def batch_from_bytes(content: bytes) -> list[tuple[QueryRequest, list[NoisyGrouping]]]:
    """Read the stored bytes of the answers of a batch."""
    return [
        (QueryRequest.from_json(one["asked"]), _unpacked_all(one["groupings"]))
        for one in json.loads(content)["batch"]
    ]


def requests_in(content: bytes) -> list[QueryRequest]:
    """Return the request of a stored answer; of a batch, that of each question."""
    stored = json.loads(content)
    each = stored["batch"] if stored["format"] == BATCH_FORMAT else [stored]
    return [QueryRequest.from_json(one["asked"]) for one in each]


def _bytes(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _packed_all(noisy: Sequence[NoisyGrouping]) -> list[dict[str, Any]]:
    return [
        {
            "groups": grouping.groups,
            "keys": grouping.keys,
            "parts": [_packed(part) for part in grouping.parts],
            "codes": [
                [want.spectrum, want.function, fraction, _packed(codes)]
                for want, codes in grouping.codes.items()
                for fraction in [None if want.fraction is None else str(want.fraction)]
            ],
        }
        for grouping in noisy
    ]


def _unpacked_all(groupings: list[dict[str, Any]]) -> list[NoisyGrouping]:
    return [
        NoisyGrouping(
            tuple(_unpacked(part) for part in grouping["parts"]),
            {
                WantedCode(spectrum, function, fraction and Fraction(fraction)): _unpacked(codes)
                for spectrum, function, fraction, codes in grouping["codes"]
            },
            None if grouping["keys"] is None else [tuple(key) for key in grouping["keys"]],
            grouping["groups"],
        )
        for grouping in groupings
    ]


def stored_question(content: bytes) -> str | None:
    """Return the question of a stored answer from its first bytes; None if it is no answer to SQL."""
    text = content.decode("utf-8", errors="ignore")
    begin = text.find(_ASKED, 0, 40)
    if begin < 0:
        return None
    try:
        asked, _ = json.JSONDecoder().raw_decode(text, begin + len(_ASKED))
        return str(asked["sql"])
    except (ValueError, KeyError, TypeError):
        return None


def _packed(values: NDArray[np.int64]) -> str:
    return base64.b64encode(values.astype("<i8").tobytes()).decode("ascii")


def _unpacked(text: str) -> NDArray[np.int64]:
    return np.frombuffer(base64.b64decode(text), dtype="<i8").astype(np.int64)
