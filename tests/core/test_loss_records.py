"""A loss that was written down is the same loss when it is read again."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from lapwing.core.budget import Terms
from lapwing.core.fixed_run import FixedRun
from lapwing.core.loss_records import KINDS, describe, from_description, losses_within
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    ParallelComposition,
    Pure,
    Repeated,
    SampledGaussian,
    SequentialComposition,
)
from lapwing.errors import BadParameter
from support.cases import each

THIRD = Fraction(1, 3)
NOISE = GaussianNoise(Fraction(50), Fraction(2), 3)
ALL: list[Loss] = [
    Pure(THIRD),
    Approximate(THIRD, Fraction(1, 10**7)),
    BoundedRange(THIRD),
    Concentrated(THIRD),
    LaplaceNoise(Fraction(10), 3),
    NOISE,
    SampledGaussian(Fraction(1, 100), NOISE),
    Repeated(Pure(THIRD), 4),
    SequentialComposition((Pure(THIRD), Repeated(NOISE, 3))),
    ParallelComposition((Pure(THIRD), NOISE)),
    FixedRun.of((Pure(THIRD), 3), (NOISE, 2), delta="1e-8"),
]


def test_every_kind_of_loss_is_tried_here() -> None:
    assert {describe(loss)["loss"] for loss in ALL} == set(KINDS)


@each("loss", ALL)
def test_it_comes_back_through_json(loss: Loss) -> None:
    again = from_description(json.loads(json.dumps(describe(loss))))
    assert again == loss
    terms = Terms.of(1, "1e-6")
    assert terms.price(again) == terms.price(loss)


def test_all_losses_inside_are_found() -> None:
    inside = losses_within(
        SequentialComposition(
            (Repeated(FixedRun.of((NOISE, 2), delta="1e-8"), 3), ParallelComposition((Pure(THIRD),)))
        )
    )
    kinds = [describe(part)["loss"] for part in inside]
    assert kinds == ["Sum", "Repeated", "FixedRun", "GaussianNoise", "Worst", "Pure"]


@each(
    "record",
    [
        {}, {"loss": "Nothing"}, {"loss": ["Pure"]}, {"loss": "Pure"}, {"loss": "Pure", "epsilon": None},
        {"loss": "Pure", "epsilon": "1", "delta": "0"}, {"loss": "Pure", "epsilon": "1/0"},
        {"loss": "Pure", "epsilon": "x"}, {"loss": "Pure", "epsilon": "-1"},
        {"loss": "Pure", "epsilon": {"loss": "Pure"}}, {"loss": "Repeated", "each": 1, "count": 2},
        {"loss": "LaplaceNoise", "scale": True, "distance": 1}, {"loss": "Sum", "parts": ["1"]},
        {"loss": "Sum", "parts": 3}, "Pure", None, [], 7,
    ]
)  # fmt: skip
def test_what_describes_no_loss_is_refused(record: object) -> None:
    with pytest.raises(BadParameter):
        from_description(record)  # type: ignore[arg-type]


@each("number", ["1e999999999", "1E-999999999", "-1e+99_999_999", "1e" + "9" * 5000])
def test_a_short_text_of_a_number_with_a_billion_digits_is_refused(number: str) -> None:
    with pytest.raises(BadParameter):
        from_description({"loss": "Pure", "epsilon": number})


@each(
    "loss",
    [
        Pure(10**5000),
        Pure(Fraction(1, 10**5000)),
        Repeated(Pure(THIRD), 10**5000),
        SequentialComposition((GaussianNoise(THIRD, 10**5000, 1),)),
    ],
)
def test_a_number_that_python_does_not_write_is_refused_by_name(loss: Loss) -> None:
    with pytest.raises(BadParameter, match="too many digits"):
        describe(loss)


def test_a_loss_of_an_unknown_kind_is_not_written() -> None:
    class Own(Pure):
        pass

    with pytest.raises(BadParameter, match="must be one of"):
        describe(Own(THIRD))
