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
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from flint import arb

from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.laws import LARGEST_TAIL, SLACK, Law, dec, delta_of_pure, delta_of_renyi, precise, total
from lapwing.audit.laws.distances import Direction
from lapwing.core.budget import (
    DELTA,
    DELTA0,
    DELTA_UNIT,
    EPSILON,
    EPSILON_UNIT,
    FIRST_ORDER,
    NEVER,
    Charge,
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
        one: The law on the first input: outcome to probability.
        other: The law on the second input.
        loss: The loss that is charged.
        epsilon: The claimed ε of this pair.
        delta: The claimed δ of this pair.

    Raises:
        BadParameter: If the probabilities of a law do not add up to 1, up to a tail of 1e-30.
    """

    description: str
    one: Law
    other: Law
    loss: Loss
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for name, law in (("one", self.one), ("other", self.other)):
            left = 1 - total(law)
            if not -_ROUNDING <= left <= LARGEST_TAIL or min(law.values()) < 0:
                raise BadParameter(
                    name, f"must be probabilities that add up to 1, up to 1e-30; {left:.3g} is left"
                )
            if left > _ROUNDING and self.one.keys() != self.other.keys():
                raise BadParameter(name, "has a tail, so both laws must list the same outcomes")


_Bound = tuple[str, Decimal, Decimal, Fraction]  # its name, what is allowed, what is true, ε of the event


@dataclass(frozen=True, slots=True)
class _Violation:
    """One bound that does not hold, and by how much."""

    bound: str
    allowed: Decimal
    found: Decimal
    at: Fraction  # the ε at which the event is shown


class _Judged:
    """One direction of a pair, beside the charge of its loss."""

    def __init__(self, pair: ExactPair, *, backwards: bool, charge: Charge) -> None:
        one, other = (pair.other, pair.one) if backwards else (pair.one, pair.other)
        self.pair, self.charge, self.backwards = pair, charge, backwards
        self.direction = Direction(one, other)
        self.tail = max(1 - total(one), Decimal(0))
        self.tail = self.tail if self.tail > _ROUNDING else Decimal(0)
        self.checks = 0

    @property
    def epsilon(self) -> Decimal:
        """The true ε at the claimed δ. Outcomes that were left out count as δ."""
        return self._epsilon_at(self.pair.delta)

    def _epsilon_at(self, delta: Fraction) -> Decimal:
        d = dec(delta)
        return self.direction.epsilon_at(max(d - self.tail, Decimal(0)))

    def violation(self) -> _Violation | None:
        """Return the first bound that does not hold; None if all do. Count the comparisons."""
        for bound, allowed, found, at in self._bounds():
            self.checks += 1
            if found > allowed + SLACK:
                return _Violation(bound, allowed, found, at)
        return None

    def _bounds(self) -> Iterator[_Bound]:
        """Yield each bound: its name, the allowed value, the true value, and the ε of the event."""
        pair, loss = self.pair, self.pair.loss
        yield f"claimed ε at δ = {float(pair.delta):g}", dec(pair.epsilon), self.epsilon, pair.epsilon
        if loss.pure is not None:
            name = f"pure ε of the loss, beside δ₀ = {float(loss.delta0):g}"
            yield name, dec(loss.pure), self._epsilon_at(loss.delta0), loss.pure
        costs = self.charge.costs
        delta0 = Fraction(costs[DELTA0], DELTA_UNIT)
        charged: tuple[Fraction, Fraction] | None = None
        if costs[EPSILON] < NEVER:
            charged = Fraction(costs[EPSILON], EPSILON_UNIT), delta0 + Fraction(costs[DELTA], DELTA_UNIT)
            yield "charged ε at the charged δ", dec(charged[0]), self._epsilon_at(charged[1]), charged[0]
        values = self._charged_renyi()
        if not costs[DELTA0]:
            yield from self._renyi_bounds(values)
        yield from self._curve(charged, delta0, values)

    def _charged_renyi(self) -> dict[int, Fraction]:
        """Return the charged Rényi value at each order that has one."""
        costs = zip(self.charge.orders, self.charge.costs[FIRST_ORDER:], strict=True)
        return {order: Fraction(cost, EPSILON_UNIT) for order, cost in costs if cost < NEVER}

    def _renyi_bounds(self, values: dict[int, Fraction]) -> Iterator[_Bound]:
        for order, value in values.items():
            found = self.direction.renyi(order)
            yield f"charged Rényi value at order {order}", dec(value), found, ZERO
            promised = self.pair.loss.renyi(Fraction(order))
            if promised is not None:
                yield f"Rényi value of the loss at order {order}", _above(promised), found, ZERO

    def _curve(
        self, charged: tuple[Fraction, Fraction] | None, delta0: Fraction, values: dict[int, Fraction]
    ) -> Iterator[_Bound]:
        for multiple in CURVE:
            at = multiple * self.pair.epsilon
            allowed = [delta_of_pure(self.pair.epsilon, self.pair.delta, at)]
            if charged is not None:
                allowed.append(delta_of_pure(*charged, at))
            # Rényi values are those of the remainder, beside δ₀.
            allowed += [dec(delta0) + delta_of_renyi(order, value, at) for order, value in values.items()]
            yield f"δ at ε = {float(at):g}", min(allowed), self.direction.excess(at) + self.tail, at

    @precise
    def witness(self, broken: _Violation) -> Witness:
        """Return the evidence: the event that needs the most δ, with its probabilities."""
        outcomes, p, q = self.direction.event(broken.at)
        first, second = ("second", "first") if self.backwards else ("first", "second")
        shown = ", ".join(map(str, outcomes[:_OUTCOMES_SHOWN]))
        more = len(outcomes) - _OUTCOMES_SHOWN
        event = f"the outcome is one of: {shown}{f' and {more} more' if more > 0 else ''}"
        true = self.epsilon
        return Witness(
            pair=f"{self.pair.description} (P: the {first} input, Q: the {second} one)",
            event=f"{broken.bound}: {event}",
            numbers={
                "P[event]": float(p),
                "Q[event]": float(q),
                "e^ε": float(dec(broken.at).exp()),
                "allowed": float(broken.allowed),
                "true": float(broken.found),
                "claimed ε": float(self.pair.epsilon),
                "claimed δ": float(self.pair.delta),
            },
            at_least=float(true) if true > dec(self.pair.epsilon) + SLACK else None,
        )


def _above(ball: arb) -> Decimal:
    with precision(BITS):
        return dec(upper(ball))


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
    checks = count = 0
    measured: Decimal | None = None
    share = Decimal(0)
    for pair in pairs:
        budget.progress(f"exact: {pair.description}")
        count += 1
        charge = price(pair.loss, orders)
        for backwards in (False, True):
            judged = _Judged(pair, backwards=backwards, charge=charge)
            broken = judged.violation()
            checks += judged.checks
            true = judged.epsilon
            share = max(share, true / dec(pair.epsilon))
            if (pair.epsilon, pair.delta) == (claimed, at):
                measured = true if measured is None else max(measured, true)
            if broken is not None:
                return StageResult(
                    stage=Stage.EXACT,
                    checks=checks,
                    claimed=float(claimed),
                    measured=None if measured is None else float(measured),
                    could_show=float(claimed),
                    witness=judged.witness(broken),
                )
    if not count:
        return StageResult(Stage.EXACT, 0, float(claimed), unable="there is no pair of exact laws")
    notes = (
        f"{count} pairs of neighbours; the largest true ε is {float(share):.6f} of the claimed one",
        f"Rényi orders {', '.join(map(str, orders))}; anything above a claim would have been shown",
    )
    return StageResult(
        stage=Stage.EXACT,
        checks=checks,
        claimed=float(claimed),
        measured=None if measured is None else float(measured),
        could_show=float(claimed),
        notes=notes,
    )


def exact_stage(
    pairs: Callable[[StageBudget], Iterable[ExactPair]], *, epsilon: Fraction, delta: Fraction = Fraction(0)
) -> RunStage:
    """Return the exact stage of a case. `pairs` makes its pairs: a few, or all if the audit is thorough."""

    def run(budget: StageBudget) -> StageResult:
        return compare_exactly(pairs(budget), budget, epsilon=epsilon, delta=delta)

    return run
