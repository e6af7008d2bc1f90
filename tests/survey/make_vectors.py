"""Writes vectors.json: random bytes in, message out, and the words and prices that go with it.

Run it after a change of the format, and say so in the changelog: python tests/survey/make_vectors.py
The bytes come from a hash, so the file is the same every time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.survey.message_words import odds_in_words, sent_in_words
from lapwing.survey.offered import OfferedQuestion, billionths, offered_question
from lapwing.survey.randomize import ByteCoins

PLACE = Path(__file__).parent / "vectors.json"
ODDS = 1 << 48
THROWS = 6
NONE = "no answer"

Question = dict[str, Any]


def one_of(options: list[str], recipe: Question, **more: Any) -> Question:
    return {"kind": "choice", "labels": [*options, NONE], "no_answer": True, "recipe": recipe, **more}


def number(low: str, high: str, step: str, recipe: Question, **more: Any) -> Question:
    ends = {"low": low, "high": high, "step": step}
    return {
        "kind": "number",
        "labels": [],
        "no_answer": bool(_none(recipe)),
        "recipe": recipe,
        **ends,
        **more,
    }


def _none(recipe: Question) -> int:
    return int(recipe["window"]["none"] if recipe["kind"] == "hybrid" else recipe.get("none", 1))


def window(steps: int, stride: int, width: int, none: int, favoured: int) -> Question:
    sizes = {"steps": steps, "stride": stride, "width": width, "none": none}
    return {"kind": "window", **sizes, "favoured": favoured}


def duchi(steps: int, none: int, favoured: int) -> Question:
    return {"kind": "duchi", "steps": steps, "none": none, "favoured": favoured}


def hybrid(odds: int, wide: Question, ends: Question) -> Question:
    return {"kind": "hybrid", "odds": odds, "window": wide, "duchi": ends}


LETTERS = [chr(ord("A") + k) for k in range(26)]
PROJECTIVE = {
    "kind": "projective",
    "prime": 149,
    "dimension": 3,
    "options": 22000,
    "favoured": ODDS // 2 + 5,
}
QUESTIONS: list[Question] = [
    {
        "kind": "yes_no", "labels": ["yes", "no"], "no_answer": False,
        "recipe": {"kind": "choice", "options": 2, "favoured": 3 * ODDS // 4},
    },
    one_of(["red", "green", "blue"], {"kind": "choice", "options": 4, "favoured": ODDS // 3}),
    one_of([f"place {k}" for k in range(299)], {"kind": "choice", "options": 300, "favoured": ODDS // 50}),
    one_of(LETTERS, {"kind": "subset", "options": 27, "chosen": 7, "favoured": 3 * ODDS // 7}),
    one_of(["1", "2"], {"kind": "subset", "options": 3, "chosen": 1, "favoured": ODDS // 2}, kind="rating"),
    number("0", "4998", "1", {"kind": "hadamard", "bits": 13, "options": 5000, "favoured": 5 << 45}),
    number("0", "21998", "1", PROJECTIVE),
    one_of(
        ["a", "b", "c", "d", "e"],
        {"kind": "projective", "prime": 2, "dimension": 3, "options": 6, "favoured": 5 << 45},
    ),
    one_of(LETTERS[:19], {"kind": "unary", "options": 20, "one": 1 << 47, "zero": ODDS // 5}),
    {
        "kind": "several", "labels": ["sport", "books", "friends", NONE], "no_answer": True,
        "recipe": {"kind": "bits", "options": 4, "favoured": 9 << 44},
    },
    {
        "kind": "several", "labels": ["tea", "coffee", "water"], "no_answer": False,
        "recipe": {"kind": "subset", "options": 8, "chosen": 2, "favoured": ODDS // 2},
    },
    {
        "kind": "ranking", "labels": ["time", "money", "health", "fun", NONE], "no_answer": True,
        "recipe": {"kind": "subset", "options": 25, "chosen": 6, "favoured": ODDS // 2},
    },
    number("0", "12", "0.5", window(24, 1, 9, 1, ODDS // 2 + 1)),
    number("-40", "50.5", "0.5", window(181, 7, 400, 0, 5 << 45)),
    number("-1", "1", "0.25", duchi(8, 0, 5 << 45)),
    number("18", "99", "1", duchi(81, 1, ODDS // 2)),
    number(
        "0", "100", "1",
        hybrid(ODDS // 5, window(100, 3, 70, 1, 5 << 45), duchi(100, 1, 1 << 47)),
    ),
    number(
        "0", "10", "0.1",
        hybrid(0, window(100, 3, 70, 0, 5 << 45), duchi(100, 0, 5 << 45)),
    ),
    {
        "kind": "date", "labels": [], "no_answer": True,
        "low": "2020-01-31", "high": "2026-06-30", "step": "7",
        "recipe": window((date(2026, 6, 30) - date(2020, 1, 31)).days // 7, 1, 101, 1, 1 << 47),
    },
    {
        "kind": "word", "labels": [], "no_answer": True, "letters": 12,
        "recipe": {
            "kind": "prefixes", "letters": 12, "levels": [1, 2, 4, 12],
            "inner": [
                {"kind": "subset", "options": 32, "chosen": 9, "favoured": 1 << 47},
                {"kind": "projective", "prime": 5, "dimension": 6, "options": 1 << 10, "favoured": 1 << 47},
                {"kind": "hadamard", "bits": 21, "options": 1 << 20, "favoured": 5 << 45},
                {"kind": "hadamard", "bits": 61, "options": 1 << 60, "favoured": 5 << 45},
            ],
        },
    },
]  # fmt: skip
# What a person gives, as the page reads it from its controls: a label's place, places, a text, or nothing.
GIVEN: list[tuple[int, list[Any]]] = [
    (0, [0, 1]), (1, [2, None]), (9, [[], [0], [1, 2], [0, 1, 2], None]), (10, [[], [0, 2]]),
    (11, [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], None]), (12, ["0", "12", "7.5", None]),
    (13, ["-40", "-0.5", "50.5"]), (14, ["0.25", "-1"]),
    (18, ["2020-01-31", "2020-02-06", "2024-02-29", None]),
    (19, ["a", "Zebra", "new  york", "o'neill-smyth"[:12], None]),
]  # fmt: skip


class Hashed:
    """Bytes that look random and are the same every time; `taken` has all that were asked for."""

    def __init__(self, name: str) -> None:
        self._stream = self._bytes(name)
        self.taken = b""

    @staticmethod
    def _bytes(name: str) -> Iterator[int]:
        block = 0
        while True:
            yield from hashlib.sha256(f"{name} {block}".encode()).digest()
            block += 1

    def take(self, size: int) -> bytes:
        piece = bytes(next(self._stream) for _ in range(size))
        self.taken += piece
        return piece


def throws(place: int, question: OfferedQuestion) -> Iterator[dict[str, str]]:
    """Answers from the first to the last, each with its own coins."""
    last = question.randomizer.inputs - 1
    for k in range(THROWS):
        answer, coins = last * k // (THROWS - 1), Hashed(f"vectors {place} {k}")
        message = question.randomizer.randomize(answer, ByteCoins(coins.take))
        yield {
            "answer": str(answer), "said": question.coding.text_of(answer), "coins": coins.taken.hex(),
            "message": message.hex(), "sent": sent_in_words(question, message),
        }  # fmt: skip


def labelled(question: Question, given: Any) -> Any:
    """An answer as Python takes it, from what the page reads."""
    labels = question["labels"]
    if isinstance(given, list):
        return [labels[place] for place in given]
    return labels[given] if isinstance(given, int) else given


def _code(question: OfferedQuestion, public: Question, given: Any) -> int:
    return question.coding.code(labelled(public, given))


def vectors() -> dict[str, Any]:
    """The content of the file."""
    questions = [offered_question({"name": "q", "text": "?", **public}) for public in QUESTIONS]
    total = sum((question.randomizer.loss.epsilon for question in questions), Fraction(0))
    return {
        "about": "Random bytes in, message out. Made by make_vectors.py; Python and the page must agree.",
        "all": str(billionths(total)),
        "questions": [
            {
                "question": public,
                "price": str(billionths(question.randomizer.loss.epsilon)),
                "odds": odds_in_words(question),
                "throws": list(throws(place, question)),
            }
            for place, (public, question) in enumerate(zip(QUESTIONS, questions, strict=True))
        ],
        "answers": [
            {"question": place, "given": each, "code": str(_code(questions[place], QUESTIONS[place], each))}
            for place, every in GIVEN
            for each in every
        ],
    }  # fmt: skip


def text() -> str:
    """The file as it is stored."""
    return json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text())
