"""All that a stated loss says, compared with all probabilities of a pair of laws."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

from lapwing.audit import laws
from lapwing.losses import StatedLoss

EPSILONS = [Fraction(text) for text in ("0", "0.01", "0.3", "1", "1.5", "2", "4")]
DELTAS = [Fraction(text) for text in ("1e-12", "1e-6", "0.01", "0.2", "0.5")]
ORDERS = [Fraction(text) for text in ("1.01", "1.5", "2", "8", "30")]
ALPHAS = [Fraction(text) for text in ("0", "1e-6", "0.05", "0.3", "0.5", "0.9", "1")]


@laws.precise
def least_miss(one: laws.Law, other: laws.Law, alpha: Fraction) -> Decimal:
    """Return the least error of the second kind of all tests of `other` against `one` at `alpha`."""
    left, miss = laws.dec(alpha), laws.total(one)

    def ratio(outcome: object) -> Decimal:
        return one[outcome] / other[outcome] if other.get(outcome) else laws.INFINITY

    for outcome in sorted((o for o in one if one[o]), key=ratio, reverse=True):
        q = other.get(outcome, laws.ZERO)
        share = Decimal(1) if q <= left else left / q
        left, miss = left - share * q, miss - share * one[outcome]
    return miss


def _directions(one: laws.Law, other: laws.Law) -> Iterator[tuple[laws.Law, laws.Law]]:
    yield one, other
    yield other, one


def judge(one: laws.Law, other: laws.Law, loss: StatedLoss) -> Fraction:
    """Check every conversion of a loss beside two laws. Return the greatest δ that was really needed."""
    needed = Fraction(0)
    for p, q in _directions(one, other):
        direction = laws.Direction(p, q)
        for epsilon in EPSILONS:
            excess = direction.excess(epsilon)
            assert excess <= laws.dec(loss.delta(epsilon=epsilon)) + laws.SLACK, (epsilon, excess)
            needed = max(needed, Fraction(excess))
        for delta in (delta for delta in DELTAS if delta > loss.loss.delta0):
            least = direction.epsilon_at(laws.dec(delta))
            assert least <= laws.dec(loss.epsilon(delta=delta)) + laws.SLACK, delta
        for order in ORDERS if not loss.loss.delta0 else ():
            divergence = direction.renyi(order)
            assert divergence <= laws.dec(loss.renyi(order)) + laws.SLACK, order
            assert divergence <= laws.dec(loss.rho() * order) + laws.SLACK, order
        for alpha in ALPHAS:
            assert laws.dec(loss.tradeoff(alpha)) <= least_miss(p, q, alpha) + laws.SLACK, alpha
    return needed
