"""Small randomizers of every kind, and their whole law by brute force."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np

from lapwing.errors import BadValue
from lapwing.survey.randomizers import (
    Bits,
    Choice,
    Duchi,
    Hadamard,
    Hybrid,
    Piecewise,
    Prefixes,
    Projective,
    Randomizer,
    SquareWave,
    Subset,
    Unary,
    Window,
)

ONE, LITTLE, MUCH = Fraction(1), Fraction(1, 5), Fraction(4)

ORACLES: dict[str, Choice | Subset | Hadamard | Projective | Bits | Unary] = {
    "two coins": Choice.two_coins(),
    "yes or no": Choice.for_epsilon(LITTLE, options=2),
    "one of five": Choice.for_epsilon(ONE, options=5),
    "set of one": Subset.for_epsilon(MUCH, options=5),
    "sets": Subset.for_epsilon(ONE, options=7),
    "sets of four": Subset.for_epsilon(LITTLE, options=8, chosen=4),
    "all but one": Subset.for_epsilon(ONE, options=3, chosen=2),
    "sets of two bytes": Subset.for_epsilon(ONE, options=10, chosen=2),
    "parities": Hadamard.for_epsilon(ONE, options=7),
    "parities with spare bits": Hadamard(5, 6, Hadamard.for_epsilon(MUCH, options=6).favoured),
    "points over 3": Projective.for_epsilon(ONE, options=13),
    "points over 2": Projective.for_epsilon(LITTLE, options=6),
    "points on a line": Projective.for_epsilon(MUCH, options=40),
    "bits": Bits.for_epsilon(ONE, options=3),
    "one bit": Bits.for_epsilon(MUCH, options=1),
    "unary": Unary.for_epsilon(ONE, options=4),
    "unary of two": Unary.for_epsilon(MUCH, options=2),
}
NUMERIC: dict[str, Window | Duchi | Hybrid] = {
    "square wave": SquareWave.for_epsilon(ONE, steps=7, none=False),
    "square wave or none": SquareWave.for_epsilon(MUCH, steps=7, none=True),
    "piecewise": Window.with_width(ONE, steps=3, stride=5, width=9, none=False),
    "piecewise or none": Window.with_width(MUCH, steps=3, stride=5, width=4, none=True),
    "piecewise, fine": Piecewise.for_epsilon(ONE, steps=2, none=True),
    "ends": Duchi.for_epsilon(ONE, steps=6, none=False),
    "ends or none": Duchi.for_epsilon(MUCH, steps=6, none=True),
    "hybrid": Hybrid(
        1 << 46,
        Window.with_width(ONE, steps=3, stride=4, width=5, none=False),
        Duchi.for_epsilon(ONE, steps=3, none=False),
    ),
    "hybrid or none": Hybrid(
        3 << 46,
        Window.with_width(MUCH, steps=2, stride=4, width=3, none=True),
        Duchi.for_epsilon(MUCH, steps=2, none=True),
    ),
}
OTHERS: dict[str, Randomizer] = {
    "prefixes": Prefixes(2, (1,), (Hadamard.for_epsilon(ONE, options=32),)),
    "points for letters": Prefixes(1, (1,), (Projective.for_epsilon(MUCH, options=32),)),
}
SMALL: dict[str, Randomizer] = {**ORACLES, **NUMERIC, **OTHERS}


@cache
def possible(name: str) -> tuple[bytes, ...]:
    """All messages that are accepted, out of all rows of its size."""
    randomizer = SMALL[name]
    assert randomizer.size <= 2
    return tuple(
        bytes(row)
        for row in product(range(256), repeat=randomizer.size)
        if accepted(randomizer, bytes(row))
    )


def accepted(randomizer: Randomizer, message: bytes) -> bool:
    """Whether a message can be sent at all."""
    try:
        randomizer.decode(np.frombuffer(message, dtype=np.uint8)[np.newaxis])
    except BadValue:
        return False
    return True


def some_answers(randomizer: Randomizer) -> list[int]:
    """All answers where they are few, else the first, the last and some between."""
    inputs = randomizer.inputs
    return list(range(inputs)) if inputs <= 16 else sorted({0, 1, 2, inputs // 3, inputs // 2, inputs - 1})


@cache
def law(name: str, answer: int) -> dict[bytes, Fraction]:
    """Every message and its exact probability."""
    return {message: SMALL[name].probability(answer, message) for message in possible(name)}
