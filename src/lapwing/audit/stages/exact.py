"""The exact stage: it compares all probabilities under two neighbouring inputs with what is charged.

Claim    if the stage finds no violation, then for each pair and in both directions: the claimed (ε, δ)
         holds, up to 1e-30 of δ; and the true ε, the curve δ(ε) and the Rényi values are at most those
         that the loss promises, and those that an account is charged.
Because  both laws are enumerated with 60 digits, so each of these numbers is a finite sum. Outcomes that a
         law leaves out have less than 1e-30 together, and count as δ. docs/arguments/audit_exact.md
Test     tests/audit/stages/test_exact.py

No sampling, so no error probability. A violation is reported if it is larger than 1e-25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from flint import arb

from lapwing.audit import laws
from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.core.budget import (
    DELTA,
    DELTA0,
    DELTA_UNIT,
    EPSILON,
    EPSILON_UNIT,
    FIRST_ORDER,
    NEVER,
    default_orders,
    price,
)
from lapwing.core.exact import precision, upper
from lapwing.core.losses import ZERO, Loss, checked_delta, checked_epsilon
from lapwing.core.renyi_curves import BITS
from lapwing.errors import BadParameter

# The curve is compared at these multiples of the claimed ε.
CURVE = tuple(Fraction(n, 4) for n in (0, 1, 2, 3, 4, 5, 8))
# The accounts whose Rényi orders are tried: (ε, δ). The second only in thorough audits.
ACCOUNTS = ((Fraction(1), Fraction(1, 10**6)), (Fraction(3), Fraction(1, 10**6)))
_OUTCOMES_SHOWN = 8
_ROUNDING = Decimal("1e-40")


@dataclass(frozen=True, slots=True)
class ExactPair:
    """The exact laws of a mechanism on two neighbouring inputs, and what is claimed about them.

    Args:
        description: The mechanism, its setting and the two inputs, in words.
        first: The law on the first input: outcome to probability.
        second: The law on the second input.
        loss: The loss that is charged.
        epsilon: The claimed ε of this pair.
        delta: The claimed δ of this pair.

    Raises:
        BadParameter: If the probabilities of a law do not add up to 1, up to a tail of 1e-30.
    """

    description: str
    first: laws.Law
    second: laws.Law
    loss: Loss
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for name, law in (("first", self.first), ("second", self.second)):
            left = 1 - laws.total(law)
            if not -_ROUNDING <= left <= laws.LARGEST_TAIL or min(law.values()) < 0:
                raise BadParameter(
                    name, f"must be probabilities that add up to 1, up to 1e-30; {left:.3g} is left"
                )
            if left > _ROUNDING and self.first.keys() != self.second.keys():
                raise BadParameter(name, "has a tail, so both laws must list the same outcomes")


@dataclass(frozen=True, slots=True)
class _Promise:
    """All bounds of one claim and one loss. Each has its name, and the allowed value.

    Args:
        epsilons: The ε that is allowed, with its name and the δ beside it.
        renyi: The Rényi value that is allowed, with its name and order.
        curve: The δ that is allowed, with its ε.
    """

    epsilons: tuple[tuple[str, Fraction, Fraction], ...]
    renyi: tuple[tuple[str, Decimal, int], ...]
    curve: tuple[tuple[Decimal, Fraction], ...]


@lru_cache(maxsize=256)
def _promise(loss: Loss, epsilon: Fraction, delta: Fraction, orders: tuple[int, ...]) -> _Promise:
    """Return what a claim, a loss and its charge at these orders promise."""
    costs = price(loss, orders).costs
    delta0 = Fraction(costs[DELTA0], DELTA_UNIT)
    epsilons = [("claimed ε", epsilon, delta)]
    pairs = [(epsilon, delta)]
    if loss.pure is not None:
        epsilons.append(("pure ε of the loss", loss.pure, loss.delta0))
    if costs[EPSILON] < NEVER:
        charged = Fraction(costs[EPSILON], EPSILON_UNIT), delta0 + Fraction(costs[DELTA], DELTA_UNIT)
        epsilons.append(("charged ε", *charged))
        pairs.append(charged)
    priced = zip(orders, costs[FIRST_ORDER:], strict=True)
    values = {order: Fraction(cost, EPSILON_UNIT) for order, cost in priced if cost < NEVER}
    renyi: list[tuple[str, Decimal, int]] = []
    if not delta0:
        for order, value in values.items():
            renyi.append(("charged Rényi value", laws.dec(value), order))
            promised = loss.renyi(Fraction(order))
            if promised is not None:
                renyi.append(("Rényi value of the loss", _above(promised), order))
    curve = []
    for at in (multiple * epsilon for multiple in CURVE):
        allowed = [laws.delta_of_pure(*pair, at) for pair in pairs]
        # Rényi values are those of the remainder, beside δ₀.
        allowed += [
            laws.dec(delta0) + laws.delta_of_renyi(order, value, at) for order, value in values.items()
        ]
        curve.append((min(allowed), at))
    return _Promise(tuple(epsilons), tuple(renyi), tuple(curve))


@dataclass(frozen=True, slots=True)
class _Violation:
    """One bound that does not hold: its name, the allowed and the true value, and the ε of the event."""

    bound: str
    allowed: Decimal
    actual: Decimal
    at: Fraction


class _Judged:
    """One direction of a pair, beside what is promised."""

    def __init__(self, pair: ExactPair, *, backwards: bool, promise: _Promise) -> None:
        first, second = (pair.second, pair.first) if backwards else (pair.first, pair.second)
        self.pair, self.promise, self.backwards = pair, promise, backwards
        self.direction = laws.Direction(first, second)
        left = 1 - laws.total(first)
        self.tail = left if left > _ROUNDING else Decimal(0)
        self.epsilon = self._epsilon_at(pair.delta)
        self.checks = 0

    @laws.precise
    def _epsilon_at(self, delta: Fraction) -> Decimal:
        """Return the true ε at δ. Outcomes that were left out count as δ."""
        return self.direction.epsilon_at(max(laws.dec(delta) - self.tail, Decimal(0)))

    @laws.precise
    def violation(self) -> _Violation | None:
        """Return the first bound that does not hold; None if all do. Count the comparisons."""
        for broken in self._compared():
            self.checks += 1
            if broken.actual > broken.allowed + laws.SLACK:
                return broken
        return None

    def _compared(self) -> Iterator[_Violation]:
        """Yield each bound with the true value."""
        for name, allowed, delta in self.promise.epsilons:
            actual = self._epsilon_at(delta)
            yield _Violation(f"{name} at δ = {float(delta):g}", laws.dec(allowed), actual, allowed)
        values = {order: self.direction.renyi(order) for order in {each[2] for each in self.promise.renyi}}
        for name, bound, order in self.promise.renyi:
            yield _Violation(f"{name} at order {order}", bound, values[order], ZERO)
        for bound, at in self.promise.curve:
            actual = self.direction.excess(at) + self.tail
            yield _Violation(f"δ at ε = {float(at):g}", bound, actual, at)

    @laws.precise
    def witness(self, broken: _Violation) -> Witness:
        """Return the evidence: the event that needs the most δ, with its probabilities."""
        outcomes, p, q = self.direction.event(broken.at)
        first, second = ("second", "first") if self.backwards else ("first", "second")
        shown = ", ".join(map(str, outcomes[:_OUTCOMES_SHOWN]))
        more = len(outcomes) - _OUTCOMES_SHOWN
        event = f"the outcome is one of: {shown}{f' and {more} more' if more > 0 else ''}"
        return Witness(
            pair=f"{self.pair.description} (P: the {first} input, Q: the {second} one)",
            event=f"{broken.bound}: {event}",
            numbers={
                "P[event]": float(p),
                "Q[event]": float(q),
                "e^ε": float(laws.dec(broken.at).exp()),
                "allowed": float(broken.allowed),
                "true": float(broken.actual),
                "claimed ε": float(self.pair.epsilon),
                "claimed δ": float(self.pair.delta),
            },
            at_least=float(self.epsilon)
            if self.epsilon > laws.dec(self.pair.epsilon) + laws.SLACK
            else None,
        )


def _above(ball: arb) -> Decimal:
    with precision(BITS):
        return laws.dec(upper(ball))


@lru_cache(maxsize=16)
def _orders(accounts: tuple[tuple[Fraction, Fraction], ...]) -> tuple[int, ...]:
    """Return all Rényi orders of these accounts."""
    return tuple(sorted({order for account in accounts for order in default_orders(*account)}))


def compare_exactly(
    pairs: Iterable[ExactPair], budget: StageBudget, *, epsilon: Fraction, delta: Fraction = Fraction(0)
) -> StageResult:
    """Compare each pair with its claim, its loss and its charge, in both directions.

    Stop at the first violation. `epsilon` and `delta` are the claim of the whole case.
    """
    claimed, at = checked_epsilon(epsilon), checked_delta(delta)
    orders = _orders(ACCOUNTS if budget.is_thorough else ACCOUNTS[:1])
    result = StageResult(Stage.EXACT, 0, float(claimed), could_show=float(claimed))
    count, share = 0, Decimal(0)
    for pair in pairs:
        budget.progress(f"exact: {pair.description}")
        count += 1
        promise = _promise(pair.loss, pair.epsilon, pair.delta, orders)
        for backwards in (False, True):
            judged = _Judged(pair, backwards=backwards, promise=promise)
            broken = judged.violation()
            result = replace(result, checks=result.checks + judged.checks)
            true = judged.epsilon
            share = max(share, true / laws.dec(pair.epsilon))
            if (pair.epsilon, pair.delta) == (claimed, at):
                result = replace(result, measured=max(result.measured or 0.0, float(true)))
            if broken is not None:
                return replace(result, witness=judged.witness(broken))
    if not count:
        return StageResult(Stage.EXACT, 0, float(claimed), unable="there is no pair of exact laws")
    notes = (
        f"{count} pairs of neighbours; the largest true ε is {float(share):.6f} of the claimed one",
        f"Rényi orders {', '.join(map(str, orders))}; anything above a claim would have been shown",
    )
    return replace(result, notes=notes)


def exact_stage(
    pairs: Callable[[StageBudget], Iterable[ExactPair]], *, epsilon: Fraction, delta: Fraction = Fraction(0)
) -> RunStage:
    """Return the exact stage of a case. `pairs` makes its pairs: a few, or all if the audit is thorough."""

    def run(budget: StageBudget) -> StageResult:
        return compare_exactly(pairs(budget), budget, epsilon=epsilon, delta=delta)

    return run
