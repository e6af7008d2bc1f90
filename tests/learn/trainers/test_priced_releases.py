"""The noise of a run fits its ε and δ, by two accountants."""

from __future__ import annotations

from fractions import Fraction
from math import isclose
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant

from lapwing.core.conversions import gaussian_epsilon
from lapwing.core.fixed_run import FixedRun
from lapwing.errors import BadParameter
from lapwing.learn.payer import PublicData
from lapwing.learn.trainers import LogisticRegression, Real
from lapwing.learn.trainers.priced_releases import ReleaseGroup, checked_rate, noise_ratio, price_releases

DELTA = Fraction(1, 10**5)


def parts_of(count: int) -> tuple[ReleaseGroup, ...]:
    return (
        ReleaseGroup(7 << 24, 50, share=Fraction(1, 10)),
        ReleaseGroup(1 << 56, 300, count, Fraction(9, 10)),
    )


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("count", [1, 30])
def test_a_run_costs_at_most_what_was_asked_and_little_less(epsilon: Fraction, count: int) -> None:
    run = price_releases(epsilon, DELTA, parts_of(count))
    paid, delta = run.loss.pair
    assert delta == DELTA
    assert epsilon * Fraction(998, 1000) <= paid <= epsilon


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_together_the_parts_are_one_gaussian_release_of_the_same_ratio(epsilon: Fraction) -> None:
    run = price_releases(epsilon, DELTA, parts_of(30))
    ratio = sum(p.count * p.l2_squared / s**2 for p, s in zip(run.parts, run.sigmas, strict=True))
    fine = Fraction(1 << 60)
    one = gaussian_epsilon(DELTA, Fraction((fine / ratio) ** Fraction(1, 2)), fine, 1)
    assert one <= epsilon
    assert isclose(one, epsilon, rel_tol=1e-3)


def test_each_part_has_its_share() -> None:
    run = price_releases(1, DELTA, parts_of(30))
    spent = [p.count * p.l2_squared / s**2 for p, s in zip(run.parts, run.sigmas, strict=True)]
    assert isclose(spent[0] / sum(spent), 0.1, rel_tol=1e-3)


@pytest.mark.slow
def test_a_sampled_run_costs_at_most_what_was_asked() -> None:
    step = ReleaseGroup(1 << 56, 300, 50, rate=Fraction(1, 10))
    run = price_releases(1, DELTA, (step,))
    assert Fraction(99, 100) <= run.loss.pair[0] <= 1
    multiplier = float(run.sigmas[0]) / float(1 << 28)
    accountant = RdpAccountant()
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(multiplier)), 50))
    assert 1 <= accountant.get_epsilon(1e-5) < 1.3  # looser, and the same mechanism


@pytest.mark.slow
def test_sampling_is_priced_as_sampling_and_its_noise_is_less() -> None:
    full = price_releases(1, DELTA, (ReleaseGroup(1 << 56, 300, 50),))
    tenth = price_releases(1, DELTA, (ReleaseGroup(1 << 56, 300, 50, rate=Fraction(1, 10)),))
    assert tenth.sigmas[0] < full.sigmas[0] / 2
    assert isinstance(tenth.loss, FixedRun)


def test_less_privacy_is_less_noise() -> None:
    assert noise_ratio(0.1, DELTA) > noise_ratio(1, DELTA) > noise_ratio(3, DELTA)
    assert isclose(noise_ratio(1, DELTA), 3.7306, rel_tol=1e-4)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, DELTA), (-1, DELTA), (1, 0), (1, 1), (2000, DELTA), ("a", DELTA)]
)
def test_bad_budgets_are_refused(epsilon: Any, delta: Any) -> None:
    with pytest.raises(BadParameter):
        price_releases(epsilon, delta, parts_of(1))


@pytest.mark.parametrize("rate", [0, -1, 2, "a"])
def test_bad_rates_are_refused(rate: Any) -> None:
    with pytest.raises(BadParameter):
        checked_rate(rate)


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_bad_sizes_are_refused(size: Any) -> None:
    with pytest.raises(BadParameter):
        LogisticRegression(
            epsilon=1, delta="1e-5", columns=Real(0, 1), classes=(0, 1), size=size, payer=PublicData()
        ).price(1)
