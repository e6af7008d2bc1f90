"""Bad input: a named error, nothing drawn, and no data in the message."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.core import sensitivity
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Relation
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip
from lapwing.errors import BadParameter, BadValue, LapwingError
from support.cases import each
from support.mechanisms import TRIED, quantile
from support.streams import RefusingStream


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", RefusingStream())


WITH_EPSILON = [make for tried in TRIED for make in tried.made_for]


WRONG_NUMBERS = [
    0, -1, math.inf, -math.inf, math.nan, 1e-320, 5e-324, "1e999", "1e-999", "NaN", "inf", "-0",
    "1e999999999", "", "one", "1/0", "0x1", b"1", None, True, 1j, [1], np.nan, np.float64(math.inf),
    np.bool_(True), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e999999"), 1001,
    Fraction(1, 10**10), 10**5000, "9" * 5000,
]  # fmt: skip


@each("build", WITH_EPSILON)
@each("which", range(len(WRONG_NUMBERS)))
def test_N9_an_epsilon_that_is_no_sensible_number_is_refused(
    build: Callable[[Any], object], which: int
) -> None:
    with pytest.raises(BadParameter):
        build(WRONG_NUMBERS[which])


WITH_DELTA: list[Callable[[Any], object]] = [
    lambda d: Gaussian.for_budget(1, d, l2_squared=1, dimension=1),
    lambda d: Gaussian(Fraction(1), Fraction(1), 1).epsilon(d),
    lambda d: PartitionSelection.for_budget(1, d, keys=1),
    lambda d: PartitionSelection(Fraction(1), d, 1),
]


@each("build", WITH_DELTA)
@each("delta", [-1, -1e-9, 1, 2, math.inf, math.nan, "1e999", None, True, "x"])
def test_a_delta_outside_of_zero_to_one_is_refused(build: Callable[[Any], object], delta: Any) -> None:
    with pytest.raises(BadParameter):
        build(delta)


@each("build", WITH_DELTA)
def test_a_delta_of_zero_is_refused_where_one_is_needed(build: Callable[[Any], object]) -> None:
    with pytest.raises(BadParameter):
        build(0)


NOT_WHOLE = [0, -1, 1.0, 0.5, math.nan, "1", None, True, Fraction(3, 2), [1]]


@each("number", NOT_WHOLE)
@each(
    "build",
    [
        lambda n: Laplace.for_epsilon(1, l1=n),
        lambda n: Laplace(Fraction(1), n),
        lambda n: Laplace.for_width(5, confidence="0.9", l1=n),
        lambda n: Gaussian.for_budget(1, "1e-6", l2_squared=1, dimension=n),
        lambda n: Gaussian.for_rho(1, l2_squared=1, dimension=n),
        lambda n: Gaussian(Fraction(1), Fraction(1), n),
        lambda n: NoisyMax.for_epsilon(1, sensitivity=n),
        lambda n: AboveThreshold.for_epsilon(1, sensitivity=n, positives=1),
        lambda n: AboveThreshold.for_epsilon(1, sensitivity=1, positives=n),
        lambda n: PartitionSelection.for_budget(1, "1e-6", keys=n),
        lambda n: RandomizedResponse.for_epsilon(1, options=n),
        lambda n: quantile(rows=n),
        lambda n: quantile(last=n),
        lambda n: sensitivity.count(rows=n),
        lambda n: sensitivity.mean(low=0, high=1, n=n, rows=1),
        lambda n: sensitivity.histogram(relation=Relation.REPLACE, rows=n),
    ],
)
def test_numbers_that_count_something_must_be_whole_and_above_zero(
    build: Callable[[Any], object], number: Any
) -> None:
    with pytest.raises(BadParameter):
        build(number)


@each(
    "build",
    [
        lambda: Laplace(Fraction(0), 1),
        lambda: Laplace(Fraction(-1), 1),
        lambda: Laplace(Fraction((1 << 48) + 1), 1 << 40),
        lambda: Laplace(math.nan, 1),  # type: ignore[arg-type]
        lambda: Laplace(math.inf, 1),  # type: ignore[arg-type]
        lambda: Laplace(Fraction(1, 10**9), 1),
        lambda: Laplace.for_epsilon("1e-9", l1=1 << 40),
        lambda: Laplace.for_width(-1, confidence="0.9", l1=1),
        lambda: Laplace.for_width(1.5, confidence="0.9", l1=1),  # type: ignore[arg-type]
        lambda: Gaussian(Fraction(0), Fraction(1), 1),
        lambda: Gaussian(Fraction(1, 10**200), Fraction(1), 1),
        lambda: Gaussian(math.nan, Fraction(1), 1),  # type: ignore[arg-type]
        lambda: Gaussian(Fraction(1), math.nan, 1),  # type: ignore[arg-type]
        lambda: Gaussian(Fraction(1), Fraction(1, 2), 1),
        lambda: Gaussian(Fraction(1 << 49), Fraction(1), 1),
        lambda: Gaussian.for_budget(1, "1e-6", l2_squared=0, dimension=1),
        lambda: Gaussian.for_budget(1, "1e-6", l2_squared="inf", dimension=1),
        lambda: Gaussian.for_rho(0, l2_squared=1, dimension=1),
        lambda: Gaussian.for_rho("nan", l2_squared=1, dimension=1),
        lambda: Gaussian.for_rho("1e-400", l2_squared=1, dimension=1),
        lambda: Exponential.for_epsilon(1, sensitivity=0),
        lambda: Exponential.for_epsilon(1, sensitivity=math.inf),
        lambda: PermuteAndFlip.for_epsilon(1, sensitivity=-1),
        lambda: NoisyMax.for_epsilon("1e-9", sensitivity=1 << 30),
        lambda: AboveThreshold.for_epsilon("1e-9", sensitivity=1 << 30, positives=1),
        lambda: AboveThreshold.for_epsilon(1, sensitivity=1, positives=10**400),
        lambda: AboveThreshold.for_epsilon(1, sensitivity=1, positives=1).start(0.5),  # type: ignore[arg-type]
        lambda: AboveThreshold.for_epsilon(1, sensitivity=1, positives=1).start(True),
        lambda: PartitionSelection.for_budget("1e-9", "1e-12", keys=2),
        lambda: PartitionSelection.for_budget("0.1", "0.2", keys=1),
        lambda: RandomizedResponse.for_epsilon(1, options=1),
        lambda: RandomizedResponse.for_epsilon(1, options=(1 << 62) + 1),
        lambda: RandomizedResponse.for_truth(1),
        lambda: RandomizedResponse.for_truth("1/2"),
        lambda: RandomizedResponse.for_truth("0.25", options=4),
        lambda: RandomizedResponse.for_truth(math.nan),
        lambda: RandomizedResponse(2),
        lambda: RandomizedResponse(2, Fraction(1), Fraction(3, 4)),
        lambda: RandomizedResponse.two_coins().standard_error(0),
        lambda: RandomizedResponse.two_coins().standard_error(5, share=1.5),
        lambda: RandomizedResponse.two_coins().standard_error(5, share=math.nan),
        lambda: quantile(fraction=-0.1),
        lambda: quantile(fraction=1.1),
        lambda: quantile(fraction=math.nan),
        lambda: quantile(fraction="1/1000003"),
        lambda: quantile(first=9),
        lambda: quantile(first=0.5),
        lambda: quantile(last=1 << 62),
        lambda: quantile(relation="replace"),
        lambda: quantile(relation=None),
        lambda: sensitivity.total(low=1, high=0, relation=Relation.REPLACE, rows=1),
        lambda: sensitivity.total(low=1, high=1, relation=Relation.REPLACE, rows=1),
        lambda: sensitivity.total(low=0, high=math.inf, relation=Relation.REPLACE, rows=1),
        lambda: sensitivity.total(low=math.nan, high=1, relation=Relation.REPLACE, rows=1),
        lambda: sensitivity.total(low=0, high=1, relation="replace", rows=1),  # type: ignore[arg-type]
        lambda: sensitivity.histogram(relation="replace", rows=1),  # type: ignore[arg-type]
        lambda: sensitivity.mean(low=0, high=1, n=3, rows=4),
        lambda: sensitivity.vector([], relation=Relation.REPLACE, rows=1),
        lambda: sensitivity.vector([(0, 1), (1, 0)], relation=Relation.REPLACE, rows=1),
        lambda: sensitivity.count(rows=1).in_steps(0),
        lambda: sensitivity.Sensitivity(Fraction(1), Fraction(1), -1).in_steps(1),
    ],
)
def test_parameters_that_make_no_sense_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(BadParameter):
        build()


YES_AND_NO = [True, False]
WRONG_VALUES: list[Any] = [
    [], math.nan, [math.nan], [1, math.inf], [1.0, 2.0], np.array([0.5]), YES_AND_NO, ["1", "2"], "12",
    None, [None, 1], [[1, 2]], np.zeros((2, 2), dtype=np.int64), [Fraction(1, 2), 1], [1j, 2], object(),
]  # fmt: skip


@each("values", WRONG_VALUES)
@each(
    "release",
    [
        Laplace.for_epsilon(1, l1=1).sample,
        Gaussian(Fraction(1), Fraction(1), 2).sample,
        NoisyMax.for_epsilon(1, sensitivity=1).sample,
        RandomizedResponse.two_coins().sample,
        RandomizedResponse.two_coins().estimate,
    ],
)
def test_N4_values_that_are_not_whole_never_reach_the_noise(
    release: Callable[[Any], object], values: Any
) -> None:
    if values is YES_AND_NO and isinstance(getattr(release, "__self__", None), RandomizedResponse):
        return  # these are answers
    with pytest.raises(BadValue):
        release(values)


@each("values", WRONG_VALUES[1:])
@each("release", [quantile().sample, PartitionSelection.for_budget(1, "1e-6", keys=1).decide])
def test_N4_data_that_is_not_whole_is_refused(release: Callable[[Any], object], values: Any) -> None:
    with pytest.raises(BadValue):
        release(values)


@each(
    "scores",
    [
        [],
        [math.nan],
        [1, math.inf],
        np.array([0.5]),
        [True, False],
        ["x"],
        "12",
        None,
        [None],
        [[1, 2]],
        [1j],
    ],
)
@each("mechanism", [Exponential, PermuteAndFlip])
def test_N4_scores_that_are_no_numbers_are_refused(
    mechanism: type[Exponential] | type[PermuteAndFlip], scores: Any
) -> None:
    with pytest.raises((BadValue, BadParameter)):
        mechanism.for_epsilon(1, sensitivity=1).sample(scores)


def test_a_vector_of_another_length_than_was_priced_is_refused() -> None:
    for wrong in ([1], [1, 2, 3]):
        with pytest.raises(BadValue):
            Gaussian(Fraction(1), Fraction(1), 2).sample(wrong)


@each("answers", [[2], [-1], [0, 1, 7]])
def test_P2_answers_and_reports_outside_of_the_options_are_refused(answers: list[int]) -> None:
    for step in (RandomizedResponse.two_coins().sample, RandomizedResponse.two_coins().estimate):
        with pytest.raises(BadValue):
            step(answers)


def test_no_rows_at_all_are_answered_because_an_error_would_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for relation in Relation:
        assert 0 <= quantile(relation=relation).sample([]) <= 9
    assert PartitionSelection.for_budget(1, "1e-6", keys=1).sample({}) == []


CANARY = 123456789
FRACTIONAL: Any = {"x": CANARY + 0.5}


@each(
    "release",
    [
        lambda: Laplace.for_epsilon(1, l1=1).sample([CANARY, CANARY + 0.5]),
        lambda: Gaussian(Fraction(1), Fraction(1), 1).sample([CANARY, 1]),
        lambda: NoisyMax.for_epsilon(1, sensitivity=1).sample([CANARY + 0.5]),
        lambda: Exponential.for_epsilon(1, sensitivity=1).sample(np.array([CANARY + 0.5])),
        lambda: Exponential.for_epsilon(1, sensitivity=1).sample([f"x{CANARY}"]),
        lambda: PermuteAndFlip.for_epsilon(1, sensitivity=1).sample([CANARY + 0.5]),
        lambda: quantile().sample([CANARY + 0.5]),
        lambda: RandomizedResponse.two_coins().sample([CANARY]),
        lambda: PartitionSelection.for_budget(1, "1e-6", keys=1).sample(FRACTIONAL),
    ],
)
def test_no_message_shows_data(release: Callable[[], object]) -> None:
    with pytest.raises(LapwingError) as caught:
        release()
    assert str(CANARY) not in str(caught.value)
    assert str(CANARY) not in repr(caught.value.args)
    assert caught.value.__cause__ is None


def test_extreme_values_cause_no_error_that_would_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    huge = [10**30, -(10**30), 2**63, -1]
    assert len(Laplace.for_epsilon(1, l1=1).sample(huge)) == 4
    assert len(Gaussian(Fraction(1), Fraction(1), 4).sample(huge)) == 4
    assert NoisyMax.for_epsilon(1, sensitivity=1).sample(huge) in (0, 2)
    for mechanism in (Exponential, PermuteAndFlip):
        assert mechanism.for_epsilon(1, sensitivity=1).sample(huge) in (0, 2)
        assert mechanism.for_epsilon(1, sensitivity=1).sample(np.array([-(2**63), 2**63 - 1])) == 1
    assert 0 <= quantile().sample(huge) <= 9
    assert quantile(epsilon=1000).sample(np.full(100, 2**64 - 1, dtype=np.uint64)) == 9
    keys = PartitionSelection.for_budget(1, "1e-6", keys=1).sample(dict(zip("abcd", huge, strict=True)))
    assert keys == ["a", "c"]
    assert AboveThreshold.for_epsilon(1, sensitivity=1, positives=1).start(0).ask(10**30)


def test_numpy_integers_and_floats_as_parameters_do_not_wrap_round() -> None:
    """A product of 64-bit integers in l1 / scale would wrap round, and the loss be negative."""
    mechanism = Laplace.for_epsilon("999.999999999", l1=np.int64(2**40))  # type: ignore[arg-type]
    assert mechanism.loss.pure == Fraction("999.999999999")
    assert type(mechanism.l1) is int
    assert type(quantile(last=np.int8(127)).last) is int
    assert Laplace(0.5, 1).loss.pure == 2  # type: ignore[arg-type]
    few = AboveThreshold.for_epsilon(1, sensitivity=np.int8(100), positives=np.int8(100))  # type: ignore[arg-type]
    assert few.question_scale > 20_000
