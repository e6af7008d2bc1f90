"""Composition: the loss of several releases together, and what follows from it.

Claim    `compose`: releases whose *losses* are fixed beforehand have the composed loss, also if what each
         asks depends on earlier answers. `parallel`: so have releases about disjoint sets of units.
         `poisson_sampled`: so has a release that reads a fresh Poisson sample only.
Because  the bounds of a sequence add up; a unit meets one of several disjoint sets; and an output of a
         sample mixes "the unit is in it" and "it is not". docs/arguments/composition.md has the proofs.
Test     tests/core/test_composition.py, each rule beside all probabilities of small laws

Whoever chooses the *next loss*, or whether to go on, by earlier answers has more power than a fixed
composition allows for. Then a filter decides: `lapwing.Budget` in memory, a ledger for data that matter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from lapwing.canonical_json import canonical_json
from lapwing.core import loss_curves
from lapwing.core.budget import Terms
from lapwing.core.conversions import BITS
from lapwing.core.exact import (
    Number,
    ball,
    exact,
    least_from,
    positive,
    precision,
    round_up,
    upper,
    whole,
)
from lapwing.core.fixed_run import FixedRun
from lapwing.core.input_metric import InputMetric
from lapwing.core.loss_records import Description, describe, from_description, only_add_remove
from lapwing.core.losses import (
    Approximate,
    GaussianNoise,
    Loss,
    ParallelComposition,
    Pure,
    Relation,
    Repeated,
    SampledGaussian,
    SequentialComposition,
    checked_delta,
    checked_epsilon,
    not_negative,
)
from lapwing.errors import BadParameter

FORMAT = 1
LARGEST_ORDER = 100_000  # the binomial sums of a sampled Gaussian have as many terms
MOST_FIXED = 10**9  # the largest number of equal releases that `how_many` looks for
_EXPONENT_AT_MOST = 1000


class Charged(Protocol):
    """A mechanism: anything with a loss. Its metric is asked for its relation, if it has one."""

    @property
    def loss(self) -> Loss:
        """The loss of one use."""


@dataclass(frozen=True, slots=True)
class StatedLoss:
    """A loss, the relation of neighbours that it is about, and all that follows from it.

    It holds for releases whose losses were fixed beforehand. It promises nothing if the next loss is chosen
    by earlier answers: see `lapwing.Budget` and `how_many(..., adaptive=True)`.

    Args:
        loss: The loss, of a kind that ledgers can store.
        relation: The relation of neighbours; None if nobody stated it.

    Raises:
        BadParameter: If the loss is of no known kind, or does not hold for the relation.

    Example:
        >>> from lapwing import losses
        >>> from lapwing.mechanisms import Laplace
        >>> both = losses.compose(Laplace.for_epsilon("0.1", l1=1), Laplace.for_epsilon("0.2", l1=1))
        >>> both.epsilon(delta=0)
        Fraction(3, 10)
        >>> losses.from_json(both.to_json()) == both
        True
    """

    loss: Loss
    relation: Relation | None = None

    def __post_init__(self) -> None:
        _require_known(self.loss)
        _require_relation(self.relation, self.loss)

    def epsilon(self, *, delta: Number) -> Fraction:
        """Return the least ε that follows at δ: exact, or rounded up to 1e-9.

        Raises BadParameter if δ is not in [0, 1), or no ε follows at it.
        """
        at = checked_delta(delta)
        epsilon = loss_curves.epsilon_of(self.loss, at)
        if epsilon is None:
            why = f"is too small: no ε follows from this loss at δ = {float(at):g}"
            raise BadParameter("delta", why)
        return epsilon

    def epsilon_by_distribution(self, *, delta: Number) -> Fraction:
        """Return the least ε at δ, also by the distribution of the loss: the tightest price, slower.

        It needs the extra `pld`, and a sequence of losses that have distributions. Raises BadParameter if δ
        is out of range, or a part has no distribution.
        """
        at = checked_delta(delta)
        run = FixedRun(tuple(_steps(self.loss)), at - self.loss.delta0)
        epsilons = [run.pair[0], loss_curves.epsilon_of(self.loss, at)]
        return min(epsilon for epsilon in epsilons if epsilon is not None)

    def delta(self, *, epsilon: Number) -> Fraction:
        """Return the least δ that follows at ε >= 0, rounded up: 1 if none does."""
        return loss_curves.delta_of(self.loss, not_negative(epsilon, "epsilon"))

    def rho(self) -> Fraction:
        """Return a ρ for which this is ρ-zCDP. Raises BadParameter if the loss has none."""
        rho = None if self.loss.delta0 else loss_curves.rho_of(self.loss)
        if rho is None:
            raise BadParameter("loss", "has a δ, so no ρ follows from it. Ask for `epsilon(delta=…)`")
        return rho

    def renyi(self, order: Number) -> Fraction:
        """Return an upper bound on the Rényi divergence at an order above 1, at most 100,000."""
        at = exact(order, "order")
        if not 1 < at <= LARGEST_ORDER:
            raise BadParameter("order", "must lie above 1, and be at most 100,000")
        value = None if self.loss.delta0 else self.loss.renyi(at)
        if value is None:
            raise BadParameter("loss", "has a δ, so no Rényi curve. Ask for `epsilon(delta=…)`")
        with precision(BITS):
            return max(upper(value), Fraction(0))

    def tradeoff(self, alpha: Number) -> Fraction:
        """Return f(α), rounded down: no test with false alarms at most α misses less often (f-DP)."""
        at = exact(alpha, "alpha")
        if not 0 <= at <= 1:
            raise BadParameter("alpha", "must lie in [0, 1]")
        return loss_curves.tradeoff_of(self.loss, at)

    def for_group(self, size: int) -> StatedLoss:
        """Return the loss for `size` neighbouring steps at once, of the same relation."""
        return StatedLoss(self.loss.for_group(size), self.relation)

    def for_replacement(self) -> StatedLoss:
        """Return the loss for replacing a unit: two steps, one unit removed and one added.

        Raises BadParameter if the relation is not ADD_REMOVE, or a part has no bound for two steps.
        """
        if self.relation is not Relation.ADD_REMOVE:
            raise BadParameter("relation", f"is {_words(self.relation)}; only ADD_REMOVE can be converted")
        return StatedLoss(self.loss.for_group(2), Relation.REPLACE)

    def to_json(self) -> str:
        """Return the loss as JSON text, which `from_json` reads: the record that ledgers store, named."""
        relation = None if self.relation is None else self.relation.value
        record = {"format": FORMAT, "loss": describe(self.loss), "relation": relation}
        return canonical_json(record, spaces=True)


def from_json(text: str) -> StatedLoss:
    """Read a loss that `StatedLoss.to_json` wrote.

    Args:
        text: The JSON text.

    Returns:
        The same loss, with its relation.

    Raises:
        BadParameter: If the text is not such a loss.

    Example:
        >>> from lapwing import losses
        >>> losses.from_json(losses.compose(losses.Pure("0.5")).to_json()).epsilon(delta=0)
        Fraction(1, 2)
    """
    try:
        record = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or set(record) != {"format", "loss", "relation"}:
        raise BadParameter("text", "is not a loss as `to_json` writes it")
    if record["format"] is True or record["format"] != FORMAT:
        raise BadParameter("text", f"is of another format than {FORMAT}: read it with a newer Lapwing")
    values = {relation.value: relation for relation in Relation}
    if record["relation"] is not None and record["relation"] not in list(values):
        raise BadParameter("text", "names no known relation")
    try:
        loss = from_description(_description(record["loss"]))
    except RecursionError:
        raise BadParameter("text", "is made of losses within losses, too deep") from None
    return StatedLoss(loss, values.get(record["relation"]))


def _description(value: Any) -> Description:
    if not isinstance(value, dict):
        raise BadParameter("text", "is not a loss as `to_json` writes it")
    return value


def _words(relation: Relation | None) -> str:
    return "not stated" if relation is None else relation.name


def _require_known(loss: object) -> None:
    """Raise BadParameter if a loss, or a loss inside it, is of no kind whose parts were checked."""
    if not isinstance(loss, Loss):
        raise BadParameter("loss", "must be a loss, or have one")
    describe(loss)


def _require_relation(relation: object, loss: Loss) -> None:
    if not (relation is None or isinstance(relation, Relation)):
        raise BadParameter("relation", "must be a Relation, or None")
    if relation is Relation.REPLACE and only_add_remove(loss):
        raise BadParameter(
            "relation",
            "is REPLACE, but a part of the loss (a sample, or disjoint units) holds only for ADD_REMOVE",
        )


def stated(summand: Any) -> StatedLoss:
    """Return a loss, a stated loss or a mechanism as a stated loss, with the relation that it names."""
    if isinstance(summand, StatedLoss):
        return summand
    if not isinstance(summand, Loss):
        loss = getattr(summand, "loss", None)
        metric = getattr(summand, "metric", None)
        if isinstance(loss, Loss) and isinstance(metric, InputMetric) and metric.relation is not None:
            return StatedLoss(loss, metric.relation)
        if isinstance(loss, Loss | StatedLoss):
            return stated(loss)
    _require_known(summand)
    return StatedLoss(summand, Relation.ADD_REMOVE if only_add_remove(summand) else None)


def common_relation(named: list[Relation | None], relation: Relation | None) -> Relation | None:
    """Return the relation of losses together, or raise BadParameter if they do not agree.

    Args:
        named: The relation that each loss names; None if it names none.
        relation: The relation that the caller states for those that name none.
    """
    if not (relation is None or isinstance(relation, Relation)):
        raise BadParameter("relation", "must be a Relation, or None")
    different = set(named) if relation is None else {relation, *named} - {None}
    if len(different) <= 1:
        return next(iter(different), None)
    if None in different:
        names = ", ".join(sorted(_words(each) for each in different if each is not None))
        raise BadParameter(
            "relation",
            f"some losses are about {names}, others name no relation. State it for those: relation=…",
        )
    raise BadParameter(
        "relation",
        "the losses are about different neighbours (ADD_REMOVE and REPLACE), and do not compose. State the "
        "former for REPLACE, too: `for_replacement()` of a stated loss does",
    )


def _parts(loss: Loss) -> Iterator[tuple[Loss, int]]:
    """Yield the parts of a sequence, each with how often it occurs."""
    match loss:
        case SequentialComposition(parts):
            for part in parts:
                yield from _parts(part)
        case Repeated(inner, count):
            for part, times in _parts(inner):
                yield part, times * count
        case _:
            yield loss, 1


def _steps(loss: Loss) -> Iterator[tuple[Loss, int]]:
    """Yield the parts of a sequence for a run. A composition of one is that one; a run is its steps."""
    for part, times in _parts(loss):
        match part:
            case ParallelComposition((only,)):
                for step, count in _steps(only):
                    yield step, count * times
            case FixedRun():
                for step, count in part.steps:
                    yield step, count * times
            case _:
                yield part, times


def compose(*parts: Loss | StatedLoss | Charged, relation: Relation | None = None) -> StatedLoss:
    """Compose releases about the same units, one after another (sequential composition).

    The losses are fixed beforehand. What each release asks may depend on earlier answers; how large its
    loss is may not, nor may the end of the sequence. For that, see `lapwing.Budget`.

    Args:
        parts: Losses, stated losses, or mechanisms with a loss.
        relation: The relation of neighbours, for those that name none.

    Returns:
        The loss of all of them together. No parts reveal nothing.

    Raises:
        BadParameter: If a part has no known loss, or the parts are about different neighbours.

    Example:
        >>> from lapwing import losses
        >>> from lapwing.mechanisms import Laplace
        >>> a, b = Laplace.for_epsilon("0.1", l1=1), Laplace.for_epsilon("0.3", l1=1)
        >>> float(losses.compose(a.loss, b.loss).epsilon(delta=1e-6))
        0.399996685
    """
    each = [stated(part) for part in parts]
    agreed = common_relation([loss.relation for loss in each], relation)
    counted: Counter[Loss] = Counter()
    for loss in each:
        for part, times in _parts(loss.loss):
            counted[part] += times
    return StatedLoss(SequentialComposition(tuple(_often(*item) for item in counted.items())), agreed)


def _often(loss: Loss, count: int) -> Loss:
    return loss if count == 1 else Repeated(loss, count)


def repeated(
    part: Loss | StatedLoss | Charged, count: int, *, relation: Relation | None = None
) -> StatedLoss:
    """Compose `count` releases of one loss about the same units. The count is fixed beforehand.

    Args:
        part: A loss, a stated loss, or a mechanism with a loss.
        count: How many releases, at least 1.
        relation: The relation of neighbours, if the part names none.

    Returns:
        The loss of all of them together.

    Raises:
        BadParameter: If the part has no known loss, or the count is not a whole number from 1 on.

    Example:
        >>> from lapwing import losses
        >>> losses.repeated(losses.Pure("0.01"), 100).epsilon(delta=0)
        Fraction(1, 1)
    """
    times = whole(count, "count", at_least=1)
    composed = compose(part, relation=relation)
    return compose(StatedLoss(Repeated(composed.loss, times), composed.relation))


def parallel(*parts: Loss | StatedLoss | Charged, relation: Relation) -> StatedLoss:
    """Compose releases about disjoint sets of units: a unit meets one of them, at worst the largest.

    It holds if a rule that reads only a unit's own data puts the whole unit, with all its rows, into one
    set; and if neighbours add or remove a unit. A replaced unit may leave one set and enter another.

    Args:
        parts: Losses, stated losses, or mechanisms with a loss: one for each set of units.
        relation: The relation of neighbours, which must be ADD_REMOVE.

    Returns:
        The loss of all of them together.

    Raises:
        BadParameter: If the relation is not ADD_REMOVE, or that of a part differs.

    Example:
        >>> from lapwing import losses
        >>> by_year = losses.parallel(losses.Pure(1), losses.Pure(2), relation=losses.Relation.ADD_REMOVE)
        >>> by_year.epsilon(delta=0)
        Fraction(2, 1)
    """
    if relation is not Relation.ADD_REMOVE:
        raise BadParameter(
            "relation",
            "must be ADD_REMOVE: a replaced unit may leave one set and enter another, and meet both. "
            "Use `compose`",
        )
    each = [stated(part) for part in parts]
    agreed = common_relation([loss.relation for loss in each], relation)
    return StatedLoss(ParallelComposition(tuple(dict.fromkeys(part.loss for part in each))), agreed)


def poisson_sampled(part: Loss | StatedLoss | Charged, *, rate: Number, relation: Relation) -> StatedLoss:
    """Return the loss of a release that reads only a fresh Poisson sample (amplification by sampling).

    It holds if each unit, with all its rows, is in the sample with probability `rate` independently of all
    others; the sample is drawn anew for this release, and nobody sees who is in it; and neighbours add or
    remove a unit. It does not hold for samples of a fixed size, for batches in shuffled order, or for
    replaced units. Of several releases from one sample, sample their composition.

    Args:
        part: The loss on the sample, as a loss, a stated loss, or a mechanism.
        rate: The probability of each unit, in (0, 1], at least the true one.
        relation: The relation of neighbours, which must be ADD_REMOVE.

    Returns:
        The loss on all data. Gaussian noise keeps its whole Rényi curve; otherwise a pair (ε, δ) becomes
        (ln(1 + rate (e^ε − 1)), rate · δ); a loss without a pair is not reduced.

    Raises:
        BadParameter: If the rate is not in (0, 1], or the relation of the part is not ADD_REMOVE.

    Example:
        >>> from lapwing import losses
        >>> tenth = losses.poisson_sampled(losses.Pure(1), rate="0.1", relation=losses.Relation.ADD_REMOVE)
        >>> round(float(tenth.epsilon(delta=0)), 4)
        0.1586
    """
    if relation is not Relation.ADD_REMOVE:
        raise BadParameter("relation", "must be ADD_REMOVE: sampling does not hide which unit was replaced")
    probability = positive(rate, "rate")
    if probability > 1:
        raise BadParameter("rate", "must lie in (0, 1]")
    loss = stated(part)
    agreed = common_relation([loss.relation], relation)
    # A composition of one marks the loss as one about ADD_REMOVE, also where it is stored without words.
    return StatedLoss(ParallelComposition((_sampled(loss.loss, probability),)), agreed)


def _sampled(loss: Loss, rate: Fraction) -> Loss:
    inner = loss
    while isinstance(inner, SequentialComposition) and len(inner.parts) == 1:
        inner = inner.parts[0]
    if rate == 1:
        return loss
    if isinstance(inner, Repeated) and isinstance(inner.loss, GaussianNoise):  # one longer vector
        each, times = inner.loss, inner.count
        inner = GaussianNoise(each.sigma, times * each.l2_squared, times * each.dimension)
    if isinstance(inner, GaussianNoise) and inner.l2_squared >= 1:
        return SampledGaussian(rate, inner)
    pair = loss.pair
    if pair is None or pair[0] > _EXPONENT_AT_MOST:
        return loss  # a mixture is no further from the rest than its worse half
    with precision(BITS):
        epsilon = (1 + ball(rate) * ball(pair[0]).expm1()).log()
        rounded = min(Fraction(round_up(epsilon, 10**12), 10**12), pair[0])
    delta = rate * min(loss.delta0 + pair[1], Fraction(1))
    return Approximate(rounded, delta) if delta else Pure(rounded)


def how_many(part: Loss | StatedLoss | Charged, *, epsilon: Number, delta: Number, adaptive: bool) -> int:
    """Return how many releases of one loss fit (ε, δ).

    Args:
        part: A loss, a stated loss, or a mechanism with a loss.
        epsilon: The ε of all releases together, in [1e-9, 1000].
        delta: Their δ, in [0, 1).
        adaptive: True if the asker chooses each next release by earlier answers, its loss too: then the
            number is that of a ledger's filter. False if all is fixed before the first.

    Returns:
        The number of releases, at most 1e9 for fixed ones.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> from lapwing import losses
        >>> small = losses.Pure("0.01")
        >>> [losses.how_many(small, epsilon=1, delta="1e-6", adaptive=each) for each in (True, False)]
        [450, 490]
    """
    loss, most, failures = stated(part).loss, checked_epsilon(epsilon), checked_delta(delta)
    if not isinstance(adaptive, bool):
        raise BadParameter("adaptive", "must be True or False")
    if adaptive:
        terms = Terms.of(most, failures)
        return terms.how_many(terms.price(loss))

    def is_too_many(count: int) -> bool:
        if count > MOST_FIXED:
            return True
        epsilon = loss_curves.epsilon_of(Repeated(loss, count), failures)
        return epsilon is None or epsilon > most

    return least_from(is_too_many) - 1
