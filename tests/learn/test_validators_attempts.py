"""Attempts share η. A release is judged only by the validator that made it, and is read from its bytes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from lapwing.audit.laws import dec, laplace_at_least
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter, BadValue
from lapwing.learn.confidence_bounds import float_down, float_up
from lapwing.learn.payer import PublicData
from lapwing.learn.validators import (
    AccuracyValidator,
    BestInClass,
    HistogramValidator,
    LossValidator,
    MeanValidator,
    ValidationRelease,
    ValidationRows,
    ValidationVerdict,
    Validator,
    eta_share,
    noise_quantile,
)
from support.raised import named

ETA, ONE = Fraction(1, 20), Fraction(1)
ALL: list[Validator] = [
    AccuracyValidator(target=Fraction(4, 5), eta=ETA, epsilon=ONE),
    LossValidator(target=Fraction(1, 2), bound=ONE, step=Fraction(1, 10), eta=ETA, epsilon=ONE),
    MeanValidator(
        target=Fraction(1, 10), eta=ETA, epsilon=ONE, low=Fraction(0), high=ONE, step=Fraction(1, 10)
    ),
    HistogramValidator(target=Fraction(1, 10), eta=ETA, epsilon=ONE, bins=2),
]


def names(validator: Validator) -> str:
    return validator.mechanism


def test_the_shares_of_all_attempts_add_up_to_less_than_eta() -> None:
    for attempts in (1, 2, 10, 1000):
        total = sum(eta_share(ETA, i) for i in range(1, attempts + 1))
        assert total == ETA * Fraction(attempts, attempts + 1) < ETA


@pytest.mark.parametrize("attempt", [0, -1, 1.5, True])
def test_attempts_are_counted_from_one(attempt: int) -> None:
    with pytest.raises(BadParameter, check=named("attempt")):
        eta_share(ETA, attempt)


@pytest.mark.parametrize("scale", [Fraction(1, 4), Fraction(1), Fraction(10), Fraction(2000)])
@pytest.mark.parametrize("miss", [Fraction(1, 3), Fraction(1, 60), Fraction(1, 10**9)])
def test_the_reach_of_noise_is_the_exact_quantile(scale: Fraction, miss: Fraction) -> None:
    reach = noise_quantile(Laplace(scale, 1), miss)
    assert laplace_at_least(scale, reach + 1) <= dec(miss)
    assert not reach or laplace_at_least(scale, reach) > dec(miss), "and the least one"


@pytest.mark.parametrize("validator", ALL, ids=names)
class TestEveryValidator:
    def test_is_priced_for_adding_or_removing_one_unit(self, validator: Validator) -> None:
        assert validator.relation is Relation.ADD_REMOVE
        assert validator.loss.pure == 1

    def test_pays_stores_and_judges(self, validator: Validator) -> None:
        paid = PublicData().pay(
            validator.loss,
            lambda: validator.release(ValidationRows([], units=None)).to_bytes(),
            mechanism=validator.mechanism,
            parameters=validator.parameters,
        )
        released = ValidationRelease.from_bytes(paid.result)
        assert released.to_bytes() == paid.result
        assert validator.judge(released, attempt=1).verdict is ValidationVerdict.RETRY

    def test_wants_more_of_later_attempts(self, validator: Validator) -> None:
        released = validator.release(ValidationRows([], units=None))
        many = ValidationRelease((90_000, 10_000), released.made_by)
        bounds = [validator.judge(many, attempt=i).bound for i in (1, 2, 5)]
        known = [bound for bound in bounds if bound is not None]
        wider = sorted(known, reverse=isinstance(validator, AccuracyValidator))
        assert len(set(known)) == 3
        assert known == wider

    def test_judges_only_what_it_released_itself(self, validator: Validator) -> None:
        """With another η, target or price after the fact, the bounds would not hold."""
        released = validator.release(ValidationRows([], units=None))
        for change in ({"eta": ETA / 2}, {"epsilon": 2}, {"target": Fraction(1, 3)}):
            other = replace(validator, **change)
            with pytest.raises(BadParameter, match="another validator"):
                other.judge(released, attempt=1)

    def test_refuses_too_few_numbers(self, validator: Validator) -> None:
        short = ValidationRelease((1,), validator.release(ValidationRows([], units=None)).made_by)
        with pytest.raises(BadValue, match="2 numbers"):
            validator.judge(short, attempt=1)


def test_a_class_changes_the_price_and_the_name() -> None:
    plain = ALL[1]
    assert isinstance(plain, LossValidator)
    classy = replace(plain, best=BestInClass(models=3, epsilon=Fraction(1, 2)))
    assert classy.loss.pure == Fraction(3, 2)
    assert dict(classy.parameters) != dict(plain.parameters)


@pytest.mark.parametrize(
    "value", [Fraction(1, 3), Fraction(-1, 3), Fraction(1, 10), Fraction(2), Fraction(0)]
)
def test_floats_are_rounded_to_the_side_that_their_name_says(value: Fraction) -> None:
    assert Fraction(float_down(value)) <= value <= Fraction(float_up(value))
    assert float_up(value) - float_down(value) < 1e-15
