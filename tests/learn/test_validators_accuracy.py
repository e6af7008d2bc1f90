"""Accuracy: a bad model is accepted with at most η, by exact laws, and more often without correction."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from lapwing.errors import BadParameter, BadValue
from lapwing.learn.confidence_bounds import share_floor
from lapwing.learn.validators import (
    AccuracyValidator,
    ClassLosses,
    ValidationRelease,
    ValidationRows,
    ValidationVerdict,
)
from support.exact_verdicts import Gets, binomial, chance, chances
from support.slowly import slow

ETA = Fraction(1, 5)


def validator(epsilon: str, target: str = "0.8", eta: Fraction = ETA) -> AccuracyValidator:
    return AccuracyValidator(target=target, eta=eta, epsilon=epsilon)  # type: ignore[arg-type]


def accepting(judge: AccuracyValidator, attempt: int) -> Gets:
    name = judge.release(ValidationRows([], units=None)).made_by

    def gets(right: int, wrong: int) -> bool:
        return (
            judge.judge(ValidationRelease((right, wrong), name), attempt=attempt).verdict
            is ValidationVerdict.ACCEPT
        )

    return gets


@pytest.mark.parametrize(("n", "epsilon"), [(40, "2"), (120, "1"), slow(150, "0.2")])
@pytest.mark.parametrize("attempt", [1, 3])
def test_a_bad_model_is_accepted_with_at_most_eta(n: int, epsilon: str, attempt: int) -> None:
    """At the target itself, which is the worst: a lower accuracy is accepted more rarely."""
    gets, scale = accepting(validator(epsilon), attempt), 1 / Fraction(epsilon)
    at_target, below = chances(gets, [binomial(n, 0.8), binomial(n, 0.75)], scale)
    assert at_target <= ETA / (attempt * (attempt + 1))
    assert below <= at_target


def test_a_good_model_is_accepted_mostly() -> None:
    """So that the bound above is not kept by never accepting."""
    gets = accepting(validator("1"), 1)
    assert chance(gets, binomial(150, 0.95), Fraction(1)) > 0.9


@pytest.mark.parametrize("eta", [slow(Fraction(1, 20)), ETA])
def test_without_correction_for_noise_bad_models_pass_more_often_than_eta(eta: Fraction) -> None:
    """Clopper and Pearson's bound at all of η, on noisy counts as if they were the true ones."""
    scale, law = 1 / Fraction("0.2"), binomial(80, 0.8)

    def uncorrected(right: int, wrong: int) -> bool:
        return share_floor(right, wrong, eta) >= Fraction(4, 5)

    violation = chance(uncorrected, law, scale)
    assert violation > 1.4 * eta
    corrected = accepting(validator("0.2", eta=eta), 1)
    assert chance(corrected, law, scale) <= eta / 2


def test_a_verdict_from_many_units_says_what_was_shown() -> None:
    judge = validator("1")
    judged = judge.judge(judge.release(ValidationRows(np.arange(20_000) % 10 != 0, units=None)), attempt=1)
    assert judged.verdict is ValidationVerdict.ACCEPT
    assert judged.estimate == pytest.approx(0.9, abs=0.01)
    assert judged.bound is not None
    assert 0.88 < judged.bound < 0.9
    assert judged.words.startswith("the accuracy is at least 0.8")


@pytest.mark.usefixtures("without_noise")
def test_few_units_are_asked_to_come_again() -> None:
    judge = validator("0.1")
    judged = judge.judge(judge.release(ValidationRows([True] * 10, units=None)), attempt=1)
    assert judged.verdict is ValidationVerdict.RETRY
    assert judged.bound is None
    assert judged.words == "there are too few units for this noise"


def test_what_is_near_the_target_is_asked_to_come_again() -> None:
    judge = validator("1")
    judged = judge.judge(judge.release(ValidationRows(np.arange(10_000) % 5 != 0, units=None)), attempt=1)
    assert judged.verdict is ValidationVerdict.RETRY
    assert "shown to be at least 0.7" in judged.words


@pytest.mark.usefixtures("without_noise")
def test_a_unit_counts_once_however_many_rows_it_has() -> None:
    judge = validator("1")
    is_right, units = [True] * 50 + [False, True, False], np.array([1] * 50 + [2, 3, 4])
    right, wrong = judge.release(ValidationRows(is_right, units=units)).numbers
    assert (right, wrong) == (2, 2)
    fewer = judge.release(ValidationRows(is_right[50:], units=units[50:])).numbers
    assert abs(right - fewer[0]) + abs(wrong - fewer[1]) == 1
    assert judge.loss.pure == 1


@pytest.mark.parametrize("values", [np.array([1, 0]), np.array([0.5]), np.array(["yes"]), [[True]], True])
def test_values_must_be_true_or_false(values: object) -> None:
    judge = validator("1")
    rows = ValidationRows(values, units=None)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="True or False"):
        judge.release(rows)


def test_a_class_is_refused() -> None:
    judge = validator("1")
    rows = ValidationRows([True], units=None, of_class=ClassLosses([[0.0]], units=None))
    with pytest.raises(BadValue, match="class"):
        judge.release(rows)


@pytest.mark.parametrize(
    "bad",
    [
        {"target": 0},
        {"target": 1},
        {"target": "nan"},
        {"eta": 0},
        {"eta": 1},
        {"eta": "1.5"},
        {"epsilon": 0},
    ],
)
def test_bad_parameters_are_refused(bad: dict[str, str | int]) -> None:
    given = {"target": "0.8", "eta": "0.05", "epsilon": 1} | bad
    with pytest.raises(BadParameter):
        AccuracyValidator(**given)  # type: ignore[arg-type]


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("odd", [None, "x", 0.5, [True], pd.NA])
def test_one_odd_value_in_a_list_counts_as_wrong(odd: object) -> None:
    released = validator("1").release(ValidationRows([True, False, np.True_, 1, odd], units=None))
    assert released.numbers == (3, 2)
