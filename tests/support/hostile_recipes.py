"""Random recipes as a hostile owner might write them, as JSON texts: some good, most of them not quite."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from support.coins import SMALL

HALF = 1 << 47
LARGE: list[dict[str, Any]] = [
    {"kind": "hadamard", "bits": 61, "options": 1 << 60, "favoured": HALF + 1},
    {"kind": "projective", "prime": 2147483647, "dimension": 2, "options": 1 << 31, "favoured": HALF},
    {"kind": "bits", "options": 62, "favoured": (1 << 48) - 1},
    {"kind": "window", "steps": 1 << 40, "stride": 3, "width": 1 << 30, "none": 1, "favoured": HALF},
    {
        "kind": "prefixes", "letters": 12, "levels": [1, 12],
        "inner": [
            {"kind": "subset", "options": 32, "chosen": 9, "favoured": HALF},
            {"kind": "hadamard", "bits": 61, "options": 1 << 60, "favoured": 5 << 45},
        ],
    },
]  # fmt: skip
NUMBERS = [
    0, 1, 2, 3, 4, 5, 7, 12, 13, 31, 32, 61, 62, 63, 255, 1 << 16, (1 << 16) + 1, 1 << 31, (1 << 31) + 1,
    1 << 40, (1 << 40) + 1, HALF - 1, HALF, HALF + 1, (1 << 48) - 1, 1 << 48, (1 << 48) + 1, (1 << 53) - 1,
    1 << 53, (1 << 53) + 1, 3 << 52, 1 << 60, (1 << 60) + 1, 1 << 62, (1 << 62) + 1, 1 << 63, 1 << 64,
    10**30, -1, -2, -HALF,
]  # fmt: skip
STRANGE: list[Any] = [
    None, True, False, "", "1", "NaN", "window", 0.5, 1.0, 1e300, float("nan"), float("inf"), [], {}, [1],
    [[1]], ["choice"], {"kind": "choice"}, {"valueOf": 1}, {"length": 2, "0": 1},
]  # fmt: skip
KINDS = [
    "choice", "subset", "hadamard", "projective", "bits", "unary", "window", "duchi", "hybrid", "prefixes",
    "__proto__", "constructor", "toString", "Window", "window ",
]  # fmt: skip
NAMES = [
    "kind", "options", "chosen", "favoured", "bits", "prime", "dimension", "one", "zero", "steps", "stride",
    "width", "none", "odds", "window", "duchi", "letters", "levels", "inner", "__proto__", "extra",
]  # fmt: skip


def hostile_recipes(count: int, seed: int) -> Iterator[str]:
    """JSON texts, always the same for a seed. Numbers are as large as JSON can write them."""
    dice = random.Random(seed)
    for _ in range(count):
        recipe: Any = copy.deepcopy(dice.choice([*SMALL, *LARGE]))
        for _ in range(dice.choice([0, 1, 1, 1, 2, 3])):
            recipe = _changed(recipe, dice)
        yield json.dumps(recipe)


def _changed(value: Any, dice: random.Random) -> Any:
    """The value with one thing in it, or all of it, made different."""
    if isinstance(value, dict) and value and dice.random() < 0.93:
        name = dice.choice(list(value))
        match dice.randrange(9):
            case 0:
                del value[name]
            case 1:
                value[dice.choice(NAMES)] = _any(dice)
            case 2:
                value["kind"] = _kind(dice, value.get("kind"))
            case _:
                value[name] = _changed(value[name], dice)
        return value
    if isinstance(value, list) and value and dice.random() < 0.8:
        place = dice.randrange(len(value))
        if dice.random() < 0.25:
            value.insert(place, copy.deepcopy(dice.choice(value)))
        else:
            value[place] = _changed(value[place], dice)
        return value
    if isinstance(value, int) and not isinstance(value, bool) and dice.random() < 0.7:
        return dice.choice([value + 1, value - 1, 2 * value, -value, *NUMBERS])
    return _any(dice)


def _kind(dice: random.Random, kind: Any) -> Any:
    return dice.choice([[kind], [[kind]], {"toString": kind}, dice.choice(KINDS), [dice.choice(KINDS)]])


def _any(dice: random.Random) -> Any:
    nested = copy.deepcopy(dice.choice([*SMALL, *LARGE]))
    return dice.choice([dice.choice(NUMBERS), dice.choice(STRANGE), nested, [nested]])
