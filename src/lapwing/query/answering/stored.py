"""How an answer lies in the ledger: the noisy numbers as they left the mechanisms, and what was asked.

Everything that people see is computed from these for nothing, at any confidence, as often as they like.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.query.answering.noising import Noisy
from lapwing.query.answering.shares import Wanted

FORMAT = 2
_ASKED = '"asked":'  # stands before the question in the bytes of an answer
SHAPE = 3  # of questions that are known by their form, whatever they call their columns


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, as far as it decides what is released. All of it is the analyst's own, or public."""

    sql: str  # in one normal form
    version: int
    epsilon: Fraction
    delta: Fraction
    noise: str
    rows: int | None
    mechanisms: str  # a digest of them: whether they can be found again from all the above
    meaning: str = ""  # of the text under the policy and public tables of then
    data: int = 0  # the ledger's number of the data set; 0: stored before it was noted
    form: str = ""  # the meaning without names of columns and tables; "": stored before it was noted

    @property
    def shape(self) -> str:
        """The question without its price: answers of one shape can be combined."""
        if self.form:
            return json.dumps([SHAPE, self.version, self.rows, self.form, self.data])
        parts = [FORMAT, self.sql, self.version, self.rows, self.meaning]
        parts += [self.data] if self.data else []
        return json.dumps(parts, ensure_ascii=False)

    @property
    def price(self) -> tuple[Fraction, Fraction, str, str]:
        """What tells answers of one shape apart."""
        return self.epsilon, self.delta, self.noise, self.mechanisms

    def to_json(self) -> dict[str, Any]:
        """As it is stored and digested."""
        return {
            "sql": self.sql, "version": self.version, "epsilon": str(self.epsilon),
            "delta": str(self.delta), "noise": self.noise, "rows": self.rows,
            "mechanisms": self.mechanisms, "meaning": self.meaning, "data": self.data,
            "form": self.form,
        }  # fmt: skip

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Asked:
        """As it was stored."""
        return cls(
            found["sql"], found["version"], Fraction(found["epsilon"]), Fraction(found["delta"]),
            found["noise"], found["rows"], found["mechanisms"], found["meaning"], found.get("data", 0),
            found.get("form", ""),
        )  # fmt: skip


def to_bytes(asked: Asked, noisy: Sequence[Noisy]) -> bytes:
    """The bytes of an answer."""
    groupings = [
        {
            "groups": one.groups,
            "keys": one.keys,
            "parts": [_packed(part) for part in one.parts],
            "codes": [
                [want.spectrum, want.function, _text(want.fraction), _packed(codes)]
                for want, codes in one.codes.items()
            ],
        }
        for one in noisy
    ]
    content = {"format": FORMAT, "asked": asked.to_json(), "groupings": groupings}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def from_bytes(content: bytes) -> tuple[Asked, list[Noisy]]:
    """What `to_bytes` was given."""
    found = json.loads(content)
    noisy = [
        Noisy(
            tuple(_unpacked(part) for part in one["parts"]),
            {
                Wanted(spectrum, function, None if fraction is None else Fraction(fraction)): _unpacked(
                    codes
                )
                for spectrum, function, fraction, codes in one["codes"]
            },
            None if one["keys"] is None else [tuple(key) for key in one["keys"]],
            one["groups"],
        )
        for one in found["groupings"]
    ]
    return Asked.from_json(found["asked"]), noisy


def words_of(content: bytes) -> str | None:
    """The question of a stored answer, from the first bytes of it; None if it is of something else."""
    text = content.decode("utf-8", errors="ignore")
    begin = text.find(_ASKED, 0, 40)
    if begin < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text, begin + len(_ASKED))
        return str(found["sql"])
    except (ValueError, KeyError, TypeError):
        return None


def _text(fraction: Fraction | None) -> str | None:
    return None if fraction is None else str(fraction)


def _packed(values: NDArray[np.int64]) -> str:
    return base64.b64encode(values.astype("<i8").tobytes()).decode("ascii")


def _unpacked(text: str) -> NDArray[np.int64]:
    return np.frombuffer(base64.b64decode(text), dtype="<i8").astype(np.int64)
