"""The price of a random number of runs."""

from __future__ import annotations

from fractions import Fraction

import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from lapwing.core.exact import ball, precision
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import Approximate, Loss, Pure
from lapwing.errors import BadParameter
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns, Repetition, RunCountLaw

MILLIONTH = Fraction(1, 10**6)
BASE = Gaussian.for_budget(1, MILLIONTH, l2_squared=1 << 40, dimension=1).loss
ALL = [
    NegativeBinomialRuns.with_mean(10, eta="-0.5"),
    NegativeBinomialRuns.with_mean(10, eta=0),
    NegativeBinomialRuns.with_mean(10, eta=1),
    PoissonRuns(Fraction(10)),
]


@pytest.mark.parametrize("runs", ALL, ids=repr)
@pytest.mark.parametrize("padded", [False, True])
def test_ten_runs_cost_about_two_where_ten_composed_cost_three_and_a_half(
    runs: RunCountLaw, padded: bool
) -> None:
    repetition = Repetition(BASE, runs, MILLIONTH, padded)
    assert repetition.loss.delta == MILLIONTH
    assert 1.5 < repetition.loss.epsilon < 2.2
    assert FixedRun.of((BASE, 10), delta=MILLIONTH).pair[0] > 3.4


@pytest.mark.parametrize(("eta", "gamma"), [(0, Fraction(1, 20)), (1, Fraction(1, 10))])
def test_a_second_accountant_agrees(eta: int, gamma: Fraction) -> None:
    """dp-accounting has the same theorem, on a coarser set of orders: it may only be a little dearer."""
    runs = NegativeBinomialRuns(Fraction(eta), gamma)
    accountant = RdpAccountant([1 + k / 4 for k in range(1, 400)])
    sigma = float(BASE.sigma) / 2**20
    event = dp_event.RepeatAndSelectDpEvent(
        dp_event.GaussianDpEvent(sigma), mean=runs.mean, shape=float(eta)
    )
    accountant.compose(event)
    ours = float(Repetition(BASE, runs, MILLIONTH, False).loss.epsilon)
    assert ours == pytest.approx(accountant.get_epsilon(1e-6), rel=0.01)


def test_cutting_off_is_paid_from_delta() -> None:
    """(1 + e^ε) P[K > most] fits into what was set aside."""
    repetition = Repetition(BASE, ALL[-1], MILLIONTH, padded=True)
    assert repetition.most is not None
    with precision(256):
        left = 1 - sum(
            (p for p, _ in zip(ALL[-1].law(), range(repetition.most + 1), strict=False)), ball(0)
        )
        assert (1 + ball(repetition.loss.epsilon).exp()) * left <= ball(MILLIONTH / 16)
    assert repetition.draw() <= repetition.most


def test_a_pure_base_stays_pure() -> None:
    runs = NegativeBinomialRuns.with_mean(10, eta=0)
    repetition = Repetition(Pure(Fraction(1, 2)), runs, Fraction(0), padded=False)
    assert repetition.loss == Approximate(Fraction(1), Fraction(0))


@pytest.mark.parametrize(
    ("base", "delta", "padded"),
    [
        (BASE, Fraction(0), False),
        (Pure(Fraction(1)), Fraction(0), True),
        (Approximate(Fraction(1), MILLIONTH), MILLIONTH, False),
        (Approximate(Fraction(1), MILLIONTH), MILLIONTH, True),
        (BASE, Fraction(-1), False),
        (BASE, Fraction(1), False),
        (BASE, MILLIONTH, 1),
    ],
)
def test_what_cannot_be_priced_is_refused(base: Loss, delta: Fraction, padded: bool) -> None:
    with pytest.raises(BadParameter):
        Repetition(base, ALL[1], delta, padded)
