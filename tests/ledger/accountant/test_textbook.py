"""The second opinion objects to no true price or cap, and to each that is too low or too high."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core.budget import NEVER, Terms, price
from lapwing.core.fixed_run import FixedRun
from lapwing.core.loss_records import describe
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
from lapwing.ledger.accountant.balance import Findings
from lapwing.ledger.accountant.registers import OpenedAccount, PriceChecks
from lapwing.ledger.accountant.textbook import (
    LARGEST_SUMMED_ORDER,
    Unreadable,
    first_cost_too_low,
    first_wrong_cap,
    opinion,
)
from lapwing.ledger.entry import encode
from support.cases import each
from support.losses import sampled

NO_CAPS = (NEVER - 1,) * 8  # the greatest there can be
ORDERS = (2, 5, 12, 40, 333)

rationals = st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 10**6))
small = st.builds(Fraction, st.integers(1, 10**5), st.just(10**5))
gaussians = st.builds(GaussianNoise, rationals, st.integers(1, 100).map(Fraction), st.integers(1, 5))
single: st.SearchStrategy[Loss] = st.one_of(
    st.builds(Pure, rationals | st.just(Fraction(0))),
    st.builds(Approximate, rationals, small),
    st.builds(BoundedRange, rationals),
    st.builds(LaplaceNoise, rationals, st.integers(0, 1000)),
    st.builds(Concentrated, rationals),
    gaussians,
    st.builds(SampledGaussian, small, gaussians),
)
losses: st.SearchStrategy[Loss] = st.recursive(
    single,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: SequentialComposition(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: ParallelComposition(tuple(parts))),
        st.builds(Repeated, inner, st.integers(1, 1000)),
    ),
    max_leaves=4,
)


def releases(loss: Loss) -> int:
    match loss:
        case Repeated(each, count):
            return count * releases(each)
        case SequentialComposition(parts) | ParallelComposition(parts):
            return sum(map(releases, parts))
    return 1


@settings(max_examples=150, deadline=None)
@given(loss=losses)
def test_no_true_price_is_objected_to_and_no_lower_one_passes(loss: Loss) -> None:
    least = opinion(describe(loss), ORDERS)
    assert least is not None
    costs = price(loss, ORDERS).costs
    assert first_cost_too_low(least, costs, NO_CAPS) is None
    for k, cost in enumerate(costs):
        too_low = list(costs)
        # Exact parts are compared exactly; floats to nine digits and a little of a unit for each release.
        too_low[k] = cost - 1 if k < 3 else math.floor(cost * (1 - 3e-9) - 1e-3 * releases(loss)) - 2
        if too_low[k] >= 0:
            assert first_cost_too_low(least, too_low, NO_CAPS) == k
            caps = list(NO_CAPS)
            caps[k] = too_low[k] - 1  # beyond its cap a cost need not say how far
            assert first_cost_too_low(least, too_low, caps) is None


@pytest.mark.parametrize("distance", [1, 2, 7])
@pytest.mark.parametrize("scale", ["1/3", "4", "25"])
def test_laplace_noise_is_summed_over_its_law(scale: str, distance: int) -> None:
    rate = 1 / float(Fraction(scale))
    law = {k: math.exp(-rate * abs(k)) * math.tanh(rate / 2) for k in range(-1000, 1001)}
    least = opinion({"loss": "LaplaceNoise", "scale": scale, "distance": distance}, (2, 3, 9))
    assert least is not None
    assert least.renyi is not None
    for order, value in zip((2, 3, 9), least.renyi, strict=True):
        terms = [(law[k] / law[k - distance]) ** (order - 1) * law[k] for k in law if law.get(k - distance)]
        assert value == pytest.approx(math.log(math.fsum(terms)) / (order - 1), rel=1e-9)


def test_a_sampled_step_is_a_mixture_of_two_normal_laws() -> None:
    import mpmath  # noqa: PLC0415 (slow to import)

    rate, sigma, order = 0.01, 1.1, 8

    def integrand(x: Any) -> Any:
        ratio = 1 - rate + rate * mpmath.exp((2 * x - 1) / (2 * sigma**2))
        return mpmath.npdf(x, 0, sigma) * ratio**order

    exact = mpmath.log(mpmath.quad(integrand, [-20, -5, 0, 5, 10, 20, 40])) / (order - 1)
    least = opinion(describe(sampled(Fraction(1, 100), Fraction(11, 10))), (order,))
    assert least is not None
    assert least.renyi is not None
    assert least.renyi[0] == pytest.approx(float(exact), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    epsilon=st.integers(1, 10**12).map(lambda k: Fraction(k, 10**9)),
    delta=st.integers(0, 400).flatmap(
        lambda k: st.integers(1, 999).map(lambda m: Fraction(m, 1000 * 10**k)) | st.just(Fraction(0))
    ),
)
def test_caps_follow_from_the_terms_and_no_others_do(epsilon: Fraction, delta: Fraction) -> None:
    terms = Terms.of(epsilon, delta)
    assert first_wrong_cap(epsilon, delta, terms.orders, terms.caps) is None
    for k, cap in enumerate(terms.caps):
        for off in (2, 10**6):
            caps = list(terms.caps)
            caps[k] = cap + off
            assert first_wrong_cap(epsilon, delta, terms.orders, caps) == k


RUNS = [  # priced by the tests: to collect these would take half a second
    partial(FixedRun.of, (LaplaceNoise(Fraction(20), 1), 30), delta=Fraction(1, 10**6)),
    partial(
        FixedRun.of,
        (LaplaceNoise(Fraction(20), 3), 10),
        (Pure(Fraction(1, 10)), 5),
        delta=Fraction(1, 10**6),
    ),
    partial(FixedRun.of, (GaussianNoise(Fraction(30), Fraction(1), 1), 20), delta=Fraction(1, 10**7)),
    partial(FixedRun.of, (GaussianNoise(Fraction(300), Fraction(900), 4), 3), delta=Fraction(1, 10**7)),
    partial(FixedRun.of, (sampled(Fraction(1, 50), Fraction(1)), 100), delta=Fraction(1, 10**6)),
    partial(FixedRun.of, (Approximate(Fraction(1, 10), Fraction(1, 10**9)), 4), delta=Fraction(1, 10**6)),
]


@pytest.mark.parametrize("make", RUNS, ids=range(len(RUNS)))
def test_runs_are_priced_again_by_distributions_that_are_rounded_down(make: Callable[[], FixedRun]) -> None:
    run = make()
    least = opinion(describe(run), ORDERS)
    assert least is not None
    assert not least.is_partial
    costs = list(price(run, ORDERS).costs)
    assert first_cost_too_low(least, costs, NO_CAPS) is None
    costs[1] = costs[1] * 9 // 10
    assert first_cost_too_low(least, costs, NO_CAPS) == 1


def test_without_the_library_a_run_has_no_full_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("dp_accounting"):
            raise ImportError
        return really(name, *rest, **more)

    description, costs = describe(RUNS[0]()), price(RUNS[0](), ORDERS).costs
    monkeypatch.setattr(builtins, "__import__", without)
    least = opinion(description, ORDERS)
    assert least is not None
    assert least.is_partial
    assert first_cost_too_low(least, costs, NO_CAPS) is None
    assert first_cost_too_low(least, [0] * 8, NO_CAPS) == 3  # the orders are still compared
    findings = Findings()
    account = OpenedAccount(
        1, 1, 0, "", "person", "replace one unit", Fraction(1), Fraction(0), ORDERS, NO_CAPS, "none", "", 1,
        None,
    )  # fmt: skip
    assert not PriceChecks(findings).is_checked(7, account, costs, encode(description), description)
    assert findings.all() == ()


def test_what_would_take_for_ever_has_no_opinion() -> None:
    step = describe(sampled(Fraction(1, 100), Fraction(1)))
    assert opinion(step, (2, LARGEST_SUMMED_ORDER + 1)) is None
    run = {"loss": "FixedRun", "steps": [[step, 10**9]], "delta": "1/1000"}
    least = opinion(run, (2, 3))
    assert least is not None
    assert least.is_partial


@each(
    "description",
    [
        None,
        [],
        {},
        {"loss": "Pure"},
        {"loss": ["Pure"], "epsilon": "1"},
        {"loss": "Pure", "epsilon": 1},
        {"loss": "Pure", "epsilon": "-1"},
        {"loss": "Pure", "epsilon": "1/0"},
        {"loss": "Pure", "epsilon": "nan"},
        {"loss": "Pure", "epsilon": "1", "delta": "0"},
        {"loss": "LaplaceNoise", "scale": "0", "distance": 1},
        {"loss": "LaplaceNoise", "scale": "1", "distance": True},
        {"loss": "GaussianNoise", "sigma": "0", "l2_squared": "1", "dimension": 1},
        {
            "loss": "SampledGaussian",
            "rate": "2",
            "noise": describe(GaussianNoise(Fraction(1), Fraction(1), 1)),
        },
        {"loss": "SampledGaussian", "rate": "1", "noise": {"loss": "Pure", "epsilon": "1"}},
        {"loss": "Sum", "parts": {}},
        {"loss": "Sum", "parts": [None]},
        {"loss": "Repeated", "each": {"loss": "Pure", "epsilon": "1"}, "count": 0},
        {"loss": "FixedRun", "steps": [], "delta": "1/2"},
        {"loss": "FixedRun", "steps": [[{"loss": "Pure", "epsilon": "1"}]], "delta": "1/2"},
    ],
)
def test_what_describes_no_loss_is_said_to_be_unreadable(description: Any) -> None:
    with pytest.raises(Unreadable):
        opinion(description, ORDERS)


def test_losses_within_losses_have_an_end() -> None:
    nested: dict[str, Any] = {"loss": "Pure", "epsilon": "0"}
    for _ in range(200):
        nested = {"loss": "Sum", "parts": [nested]}
    with pytest.raises(Unreadable):
        opinion(nested, ORDERS)


def test_extreme_parameters_are_priced_without_a_crash() -> None:
    for record in (
        {"loss": "Pure", "epsilon": "1" + "0" * 500},
        {"loss": "BoundedRange", "epsilon": "1" + "0" * 500},
        {"loss": "LaplaceNoise", "scale": "1/1" + "0" * 500, "distance": 1},
        {"loss": "LaplaceNoise", "scale": "1" + "0" * 500, "distance": 10**400},
        {"loss": "LaplaceNoise", "scale": "1" + "0" * 200, "distance": 10**200},
        {"loss": "Concentrated", "rho": "1" + "0" * 500},
        {"loss": "GaussianNoise", "sigma": "1/1" + "0" * 200, "l2_squared": "1", "dimension": 1},
    ):
        least = opinion(record, ORDERS)
        assert least is not None
        assert least.renyi is not None
        assert not any(math.isnan(value) for value in least.renyi)
