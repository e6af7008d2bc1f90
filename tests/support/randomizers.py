"""Small randomizers of every kind, and their whole law by brute force."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np

from lapwing.errors import BadValue
from lapwing.survey.randomizers import (
    BitwiseResponse,
    DuchiResponse,
    HadamardResponse,
    HybridResponse,
    KaryResponse,
    Piecewise,
    PrefixResponse,
    ProjectiveResponse,
    Randomizer,
    SquareWave,
    SubsetSelection,
    UnaryEncoding,
    WindowResponse,
)

ONE, LITTLE, MUCH = Fraction(1), Fraction(1, 5), Fraction(4)

ORACLES: dict[
    str,
    KaryResponse
    | SubsetSelection
    | HadamardResponse
    | ProjectiveResponse
    | BitwiseResponse
    | UnaryEncoding,
] = {
    "two coins": KaryResponse.two_coins(),
    "yes or no": KaryResponse.for_epsilon(LITTLE, options=2),
    "one of five": KaryResponse.for_epsilon(ONE, options=5),
    "set of one": SubsetSelection.for_epsilon(MUCH, options=5),
    "sets": SubsetSelection.for_epsilon(ONE, options=7),
    "sets of four": SubsetSelection.for_epsilon(LITTLE, options=8, chosen=4),
    "all but one": SubsetSelection.for_epsilon(ONE, options=3, chosen=2),
    "sets of two bytes": SubsetSelection.for_epsilon(ONE, options=10, chosen=2),
    "parities": HadamardResponse.for_epsilon(ONE, options=7),
    "parities with spare bits": HadamardResponse(
        5, 6, HadamardResponse.for_epsilon(MUCH, options=6).favoured
    ),
    "points over 3": ProjectiveResponse.for_epsilon(ONE, options=13),
    "points over 2": ProjectiveResponse.for_epsilon(LITTLE, options=6),
    "points on a line": ProjectiveResponse.for_epsilon(MUCH, options=40),
    "bits": BitwiseResponse.for_epsilon(ONE, options=3),
    "one bit": BitwiseResponse.for_epsilon(MUCH, options=1),
    "unary": UnaryEncoding.for_epsilon(ONE, options=4),
    "unary of two": UnaryEncoding.for_epsilon(MUCH, options=2),
}
NUMERIC: dict[str, WindowResponse | DuchiResponse | HybridResponse] = {
    "square wave": SquareWave.for_epsilon(ONE, steps=7, none=False),
    "square wave or none": SquareWave.for_epsilon(MUCH, steps=7, none=True),
    "piecewise": WindowResponse.with_width(ONE, steps=3, stride=5, width=9, none=False),
    "piecewise or none": WindowResponse.with_width(MUCH, steps=3, stride=5, width=4, none=True),
    "piecewise, fine": Piecewise.for_epsilon(ONE, steps=2, none=True),
    "ends": DuchiResponse.for_epsilon(ONE, steps=6, none=False),
    "ends or none": DuchiResponse.for_epsilon(MUCH, steps=6, none=True),
    "hybrid": HybridResponse(
        1 << 46,
        WindowResponse.with_width(ONE, steps=3, stride=4, width=5, none=False),
        DuchiResponse.for_epsilon(ONE, steps=3, none=False),
    ),
    "hybrid or none": HybridResponse(
        3 << 46,
        WindowResponse.with_width(MUCH, steps=2, stride=4, width=3, none=True),
        DuchiResponse.for_epsilon(MUCH, steps=2, none=True),
    ),
}
OTHERS: dict[str, Randomizer] = {
    "prefixes": PrefixResponse(2, (1,), (HadamardResponse.for_epsilon(ONE, options=32),)),
    "points for letters": PrefixResponse(1, (1,), (ProjectiveResponse.for_epsilon(MUCH, options=32),)),
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
