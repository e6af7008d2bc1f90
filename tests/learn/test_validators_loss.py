"""Loss: bad models pass, and good classes are rejected, with at most η, by exact laws."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from lapwing.core.laplace import Laplace
from lapwing.errors import BadParameter, BadValue
from lapwing.learn.confidence_bounds import mean_ceiling
from lapwing.learn.validators import (
    BestInClass,
    ClassLosses,
    LossValidator,
    ValidationRelease,
    ValidationRows,
    ValidationVerdict,
    noise_quantile,
)
from support.exact_verdicts import Floats, Gets, binomial, chance, chances, sums_law

ETA = Fraction(1, 5)
# Laws of a unit's loss in quarters of the bound, all with mean 1/2.
HALF = {
    "all or nothing": [0.5, 0, 0, 0, 0.5],
    "even": [0.2] * 5,
    "narrow": [0, 0.1, 0.8, 0.1, 0],
    "mostly less": [0, 2 / 3, 0, 0, 1 / 3],
}
SLOW = pytest.mark.slow


def validator(epsilon: str, best: BestInClass | None = None, step: str = "0.5") -> LossValidator:
    """Quarters of a bound of 2, with the target in the middle."""
    return LossValidator(target=1, bound=2, step=step, eta=ETA, epsilon=epsilon, best=best)  # type: ignore[arg-type]


def named(judge: LossValidator) -> str:
    of_class = None if judge.best is None else ClassLosses([[]] * judge.best.models, units=None)
    return judge.release(ValidationRows([], units=None, of_class=of_class)).made_by


def accepting(judge: LossValidator, attempt: int = 1) -> Gets:
    name = named(judge)

    def gets(spared: int, lost: int) -> bool:
        return (
            judge.judge(ValidationRelease((lost, spared), name), attempt=attempt).verdict
            is ValidationVerdict.ACCEPT
        )

    return gets


def rejecting(judge: LossValidator, attempt: int = 1) -> Gets:
    name = named(judge)

    def gets(least: int, spared: int) -> bool:
        released = ValidationRelease((10**6, 0, least, spared), name)
        return judge.judge(released, attempt=attempt).verdict is ValidationVerdict.REJECT

    return gets


def spared_law(one: list[float], units: int) -> Floats:
    return sums_law(np.array(one)[::-1], units)


@pytest.mark.parametrize(
    ("units", "epsilon", "attempt"), [(30, "2", 1), pytest.param(80, "0.8", 1, marks=SLOW), (40, "2", 2)]
)
def test_a_bad_model_is_accepted_with_at_most_eta(units: int, epsilon: str, attempt: int) -> None:
    gets = accepting(validator(epsilon), attempt)
    laws = [spared_law(one, units) for one in HALF.values()]
    found = chances(gets, laws, 4 / Fraction(epsilon))
    assert max(found) <= ETA / (attempt * (attempt + 1))


def test_a_good_model_is_accepted_mostly() -> None:
    good = [0.6, 0.3, 0.1, 0, 0]
    assert chance(accepting(validator("2")), spared_law(good, 60), Fraction(2)) > 0.99


def test_without_correction_for_noise_bad_models_pass_more_often_than_eta() -> None:
    """The bound for sampling at all of η, on noisy sums as if they were the true ones."""
    scale = 1 / Fraction("0.1")

    def uncorrected(spared: int, lost: int) -> bool:
        return mean_ceiling(lost, spared, ETA) <= Fraction(1, 2)

    law = binomial(40, 0.5)
    assert chance(uncorrected, law, scale) > 1.2 * ETA
    judge = LossValidator(target="0.5", bound=1, step=1, eta=ETA, epsilon="0.1")  # type: ignore[arg-type]
    assert chance(accepting(judge), law, scale) <= ETA / 2


def test_those_models_are_bad() -> None:
    assert all(sum(k * p for k, p in enumerate(one)) == pytest.approx(2) for one in HALF.values())
    assert all(sum(one) == pytest.approx(1) for one in HALF.values())


@pytest.mark.parametrize(("units", "epsilon"), [(30, "2"), pytest.param(80, "0.8", marks=SLOW)])
def test_a_class_with_a_good_model_is_rejected_with_at_most_eta(units: int, epsilon: str) -> None:
    """With one model at the target; others can only make the least sum smaller."""
    judge = validator("1", BestInClass(models=1, epsilon=epsilon))  # type: ignore[arg-type]
    laws = [sums_law(np.array(one), units) for one in HALF.values()]
    assert max(chances(rejecting(judge), laws, 4 / Fraction(epsilon))) <= ETA


def test_a_class_without_a_good_model_is_rejected_mostly() -> None:
    judge = validator("1", BestInClass(models=1, epsilon=2))  # type: ignore[arg-type]
    bad = sums_law(np.array([0, 0, 0.1, 0.3, 0.6]), 60)
    assert chance(rejecting(judge), bad, Fraction(2)) > 0.99


def test_verdicts_of_many_units_say_what_was_shown() -> None:
    judge = validator("1", BestInClass(models=2, epsilon=1), step="0.001")  # type: ignore[arg-type]
    low, high = np.full(4000, 0.4), np.full(4000, 1.6)

    def judged(own: Floats, of_class: list[Floats]) -> tuple[ValidationVerdict, float | None, str]:
        released = judge.release(
            ValidationRows(own, units=None, of_class=ClassLosses(of_class, units=None))
        )
        found = judge.judge(released, attempt=1)
        return found.verdict, found.bound, found.words

    verdict, bound, words = judged(low, [low, high])
    assert (verdict, words[:19]) == (ValidationVerdict.ACCEPT, "the loss is at most")
    assert bound is not None
    assert 0.4 < bound < 0.5
    verdict, bound, words = judged(high, [high, high])
    assert (verdict, words[:21]) == (ValidationVerdict.REJECT, "no model of the class")
    assert bound is not None
    assert 1.5 < bound < 1.6
    verdict, bound, words = judged(high, [low, high])
    assert verdict is ValidationVerdict.RETRY
    assert "above 1" in words
    assert bound is not None
    assert bound > 1.6


@pytest.mark.usefixtures("without_noise")
def test_few_units_are_asked_to_come_again() -> None:
    judge = validator("0.1", BestInClass(models=1, epsilon="0.1"))  # type: ignore[arg-type]
    of_class = ClassLosses([[2.0] * 5], units=None)
    judged = judge.judge(judge.release(ValidationRows([0.0] * 5, units=None, of_class=of_class)), attempt=1)
    assert judged.verdict is ValidationVerdict.RETRY
    assert judged.bound is None
    assert judged.words == "there are too few units for this noise"


@pytest.mark.usefixtures("without_noise")
def test_removing_a_unit_moves_the_numbers_by_exactly_what_is_priced() -> None:
    """All small data: units with up to two rows, losses beyond both bounds and missing ones."""
    judge = validator("1", BestInClass(models=2, epsilon=3))  # type: ignore[arg-type]
    assert judge.loss.pure == 4
    cases = [-1.0, 0.0, 0.3, 1.0, 7.0, math.nan]
    others = [0.2, 1.7, 0.9]
    for one, two in product(cases, cases):
        losses, units = np.array([one, *others, two]), np.array([5, 1, 2, 2, 5])
        models = [losses, np.array([two, 1.1, 0.1, 0.2, one])]
        stay = units != 5
        every = judge.release(
            ValidationRows(losses, units=units, of_class=ClassLosses(models, units=units))
        )
        rest = ClassLosses([model[stay] for model in models], units=units[stay])
        fewer = judge.release(ValidationRows(losses[stay], units=units[stay], of_class=rest))
        moved = np.array(every.numbers) - np.array(fewer.numbers)
        assert (moved >= 0).all()
        assert moved[:2].sum() == moved[2:].sum() == 4, "bound / step, which the noise is made for"


@pytest.mark.usefixtures("without_noise")
def test_losses_are_averaged_over_a_units_rows_and_rounded_to_the_safe_side() -> None:
    judge = validator("1", BestInClass(models=1, epsilon=1))  # type: ignore[arg-type]
    rows, units = [0.1, 2.0, 0.6], np.array([1, 1, 2])
    released = judge.release(ValidationRows(rows, units=units, of_class=ClassLosses([rows], units=units)))
    # In halves: up 1 and 4, mean 2.5, so 3; and 2. Down 0 and 4, mean 2; and 1.
    assert released.numbers == (5, 3, 3, 5)


def test_it_needs_fewer_units_than_the_formulas_that_it_replaces() -> None:
    """At expected sums: loss .1 of 1, wanted .12, ε = .5, η = .05; the issue's formula beside ours."""
    loss, target, epsilon, eta, one = 0.1, Fraction(12, 100), Fraction(1, 2), Fraction(1, 20), Fraction(1)

    def issues(n: int) -> bool:
        c = noise_quantile(Laplace.for_epsilon(epsilon / 2, l1=1), eta / 3)
        seen, count, log = (loss * n + c) / (n - c), n - c, math.log(3 / eta)
        return seen + math.sqrt(2 * seen * log / count) + 2 * log / count <= target

    judge = LossValidator(target=target, bound=one, step=one, eta=eta, epsilon=epsilon)
    ours = accepting(judge)
    n_issue = next(n for n in range(1000, 10**5, 50) if issues(n))
    n_ours = next(n for n in range(1000, 10**5, 50) if ours(round(0.9 * n), round(0.1 * n)))
    assert n_ours < 0.85 * n_issue


@pytest.mark.parametrize(
    "of_class", [None, ClassLosses([[0.1]], units=None), ClassLosses([[0.1], [0.1, 0.2]], units=None)]
)
def test_the_class_must_be_the_declared_one(of_class: ClassLosses | None) -> None:
    judge = validator("1", BestInClass(models=2, epsilon=1))  # type: ignore[arg-type]
    rows = ValidationRows([0.1], units=None, of_class=of_class)
    with pytest.raises(BadValue, match="model"):
        judge.release(rows)


def test_a_class_that_was_not_paid_for_is_refused() -> None:
    judge = validator("1")
    rows = ValidationRows([0.1], units=None, of_class=ClassLosses([[0.1]], units=None))
    with pytest.raises(BadValue, match="declares"):
        judge.release(rows)


@pytest.mark.parametrize(
    "bad",
    [
        {"target": 0},
        {"target": 2},
        {"bound": 0},
        {"bound": "inf"},
        {"step": "0.3"},
        {"step": 0},
        {"eta": 0},
        {"eta": 1},
        {"epsilon": 0},
        {"epsilon": 1e999},
        {"best": 3},
    ],
)
def test_bad_parameters_are_refused(bad: dict[str, str | int]) -> None:
    given = {"target": 1, "bound": 2, "step": "0.5", "eta": "0.05", "epsilon": 1} | bad
    with pytest.raises(BadParameter):
        LossValidator(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("models", "epsilon"), [(0, 1), (1.5, 1), (1, 0), (1, "nan")])
def test_a_bad_class_is_refused(models: int, epsilon: int | str) -> None:
    with pytest.raises(BadParameter):
        BestInClass(models=models, epsilon=epsilon)  # type: ignore[arg-type]
