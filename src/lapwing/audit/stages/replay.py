"""Replay: run a computation on two neighbouring inputs, and compare all that reaches its mechanisms.

The first run records each call: mechanism, inputs, output. The second run, on the neighbour, gets the
recorded outputs, call by call. So a step that depends on earlier answers sees the same answers. Then both
runs get outputs at the upper ends, and at the lower ends: a branch that rare outputs take is run, too.

Claim    on the pairs that were tried: both runs call equal mechanisms in the same order; what reaches each
         differs by at most its declared distance; the results, given the same outputs, are equal; the
         losses of all calls add up to at most the loss that is charged; and the claimed (ε, δ) follows from
         that loss.
Because  each of these is compared, in whole numbers. It is the premise of adaptive composition. See
         docs/arguments/audit_replay.md, also for what a replay cannot show.
Test     tests/audit/stages/test_replay.py
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from lapwing.audit.case import CannotGenerate, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.claimed_loss import follows, least_epsilon
from lapwing.audit.stages.compared_values import comparable
from lapwing.audit.stages.extreme_outputs import extreme_output
from lapwing.audit.stages.input_distances import (
    FoundDistance,
    NotComparable,
    distance,
    is_known,
    named_counts,
)
from lapwing.core.budget import DELTA_UNIT, EPSILON_UNIT, FIRST_ORDER, default_orders, price
from lapwing.core.losses import Loss, Repeated, SequentialComposition
from lapwing.core.observed import observing
from lapwing.mechanisms import PartitionSelection

# The Rényi orders at which losses are compared: those of an account with the usual (ε, δ) for life.
ORDERS = default_orders(Fraction(10), Fraction(1, 10**6))


@dataclass(frozen=True, slots=True)
class ReplayPair:
    """A computation on two neighbouring inputs.

    Args:
        description: The two inputs, in words.
        first: Runs the computation on the first input. Returns all that becomes public besides the outputs
            of mechanisms: answers, statements, keys. None: nothing.
        second: The same on the second input.
        is_equal: Whether the inputs are the same (rows in another order): then all distances must be 0.
    """

    description: str
    first: Callable[[], Any]
    second: Callable[[], Any]
    is_equal: bool = False


@dataclass(frozen=True, slots=True)
class MechanismCall:
    """One call of a mechanism in a recorded run."""

    mechanism: Any
    inputs: dict[str, Any]
    output: Any


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The calls of a run, in order, and what it returned or raised."""

    calls: tuple[MechanismCall, ...]
    outcome: tuple[str, Any]


Decide = Callable[[Any, dict[str, Any], Callable[[], Any], int], Any]
Compose = Callable[[Sequence[MechanismCall]], Loss]


def recorded_run(run: Callable[[], Any], decide: Decide | None = None) -> RecordedRun:
    """Run a computation and record its calls.

    Args:
        run: The computation.
        decide: Returns the output of a call, from the mechanism, its inputs, the function that draws, and
            the number of calls before. None: all outputs are drawn.
    """
    calls: list[MechanismCall] = []

    def observer(mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any]) -> Any:
        output = draw() if decide is None else decide(mechanism, inputs, draw, len(calls))
        calls.append(MechanismCall(mechanism, _kept(inputs), output))
        return output

    with observing(observer):
        try:
            outcome = ("returned", run())
        except CannotGenerate:  # an error of the auditor is no outcome
            raise
        except Exception as error:  # an error is an outcome: it must not depend on one unit
            outcome = ("raised", (type(error).__name__, str(error)))
    return RecordedRun(tuple(calls), outcome)


def _kept(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return copies of arrays: the computation may reuse them."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) else value for name, value in inputs.items()
    }


def sequential(calls: Sequence[MechanismCall]) -> Loss:
    """Return the loss of all calls, one after another."""
    return _added(call.mechanism.loss for call in calls)


def _added(losses: Iterable[Loss]) -> Loss:
    counts: dict[Loss, int] = {}
    for loss in losses:
        counts[loss] = counts.get(loss, 0) + 1
    parts = tuple(Repeated(loss, count) if count > 1 else loss for loss, count in counts.items())
    return parts[0] if len(parts) == 1 else SequentialComposition(parts)


def replay_stage(
    pairs: Iterable[ReplayPair] | Callable[[StageBudget], Iterable[ReplayPair]],
    charged: Loss,
    *,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    compose: Compose | None = None,
    share: Callable[[Any], Hashable | None] | None = None,
    stepwise: Callable[[Any], Loss] | None = None,
) -> RunStage:
    """Return the stage that replays all pairs.

    Args:
        pairs: The pairs, or a function that makes them for a budget (fewer if it is not thorough).
        charged: The loss that a ledger would be charged for one run.
        epsilon: The claimed ε. It must follow from `charged`, at the claimed δ.
        delta: The claimed δ.
        compose: Turns the calls of a run into their loss. None: the losses of the mechanisms add up.
        share: Returns a key for a mechanism that is used on disjoint parts of the data (groups) for one
            loss. The distances of calls with the same key are added. None: each call pays for itself.
        stepwise: Returns the loss that a run charged step by step, from what the run returned. It must
            cover the calls, too. None: nothing is charged but `charged`.
    """

    def run(budget: StageBudget) -> StageResult:
        replays = _Replays(charged, compose, share or (lambda _: None), stepwise, budget.is_thorough)
        witness = replays.wrong_claim(epsilon, delta)
        for pair in pairs(budget) if callable(pairs) else pairs:
            if witness is not None:
                break
            budget.progress(f"replay: {pair.description}")
            witness = replays.violation(pair)
        unable = "" if witness is not None else replays.unable
        return StageResult(
            Stage.REPLAY, replays.checks, float(epsilon), None,
            could_show=None if unable else float(epsilon), witness=witness, unable=unable,
            notes=replays.notes,
        )  # fmt: skip

    return run


@dataclass(slots=True)
class _Replays:
    """The comparisons of one stage, and their numbers so far."""

    charged: Loss
    compose: Compose | None
    share: Callable[[Any], Hashable | None]
    stepwise: Callable[[Any], Loss] | None
    is_thorough: bool = True
    checks: int = 0
    pairs: int = 0
    extremes: int = 0
    calls: int = 0
    errors: int = 0
    error: str = ""
    largest: Fraction = Fraction(0)

    @property
    def notes(self) -> tuple[str, ...]:
        """The comparison, in words."""
        compared = f"{self.pairs} pairs, {self.calls} calls of mechanisms compared"
        notes = [compared, f"largest distance: {float(self.largest):.3g} of the declared one"]
        if self.errors:
            notes.append(f"{self.errors} pairs ended with an error on both sides, the first: {self.error}")
        return tuple(notes)

    @property
    def unable(self) -> str:
        """Why the pairs show nothing; empty if they show something."""
        if not self.pairs:
            return "no pair was given"
        if self.errors == self.pairs:
            return f"every run ended with an error, the first: {self.error}"
        if not self.calls:
            return "no mechanism was called, so nothing was compared with a declared distance"
        if not self.largest:
            return "no neighbour moved an input: these pairs do not test the distances"
        return ""

    def wrong_claim(self, epsilon: Fraction, delta: Fraction) -> Witness | None:
        """Compare the claim with the charge. Both are public: no pair is needed."""
        self.checks += 1
        if follows(self.charged, epsilon, delta):
            return None
        proven = least_epsilon(self.charged, delta)
        least = "none follows" if proven is None else float(proven)
        return Witness(
            "all neighbours",
            "the charge is more than the claim",
            {"claimed ε": float(epsilon), "claimed δ": float(delta), "ε of the charge": least},
        )

    def violation(self, pair: ReplayPair) -> Witness | None:
        """Replay a pair and return what is wrong, if anything is."""
        self.pairs += 1
        first, second = _forced(pair, [])
        if first.outcome[0] == "raised":
            self.errors += 1
            self.error = self.error or _short(first.outcome[1])
        witness = self._compare(pair, first, second)
        kept = _common_keys(first, second)
        if witness is None and any(kept):  # with all keys hidden nothing else reaches the noise
            witness = self._compare(pair, *_forced(pair, kept))
        for outputs in EXTREMES if self._takes_extremes(pair) else ():
            if witness is None:
                witness = self._compare(pair, *_forced(pair, kept, outputs))
        return witness

    def _takes_extremes(self, pair: ReplayPair) -> bool:
        """Decide whether a pair gets extreme outputs: all in a thorough audit, one pair in a quick one."""
        is_tried = not pair.is_equal and (self.is_thorough or not self.extremes)
        self.extremes += is_tried
        return is_tried

    def _compare(self, pair: ReplayPair, first: RecordedRun, second: RecordedRun) -> Witness | None:
        shared: dict[Hashable, FoundDistance] = {}
        for place, (mine, its) in enumerate(zip_longest(first.calls, second.calls), 1):
            witness = self._call(pair, place, mine, its, shared)
            if witness is not None:
                return witness
        self.checks += 1
        results = {"one": _short(first.outcome), "other": _short(second.outcome)}
        try:
            is_same = comparable(first.outcome) == comparable(second.outcome)
        except NotComparable as error:
            return Witness(pair.description, f"the results cannot be compared: {error}", results)
        if not is_same:
            event = "the results differ although all mechanisms gave the same outputs"
            return Witness(pair.description, event, results)
        return self._loss(pair, first)

    def _call(
        self,
        pair: ReplayPair,
        place: int,
        mine: MechanismCall | None,
        its: MechanismCall | None,
        shared: dict[Hashable, FoundDistance],
    ) -> Witness | None:
        self.checks += 1
        self.calls += 1
        numbers: dict[str, float | int | str] = {"call": place}
        if mine is None or its is None:
            side, call = ("other", its) if mine is None else ("one", mine)
            numbers["mechanism"] = repr(call.mechanism) if call else ""
            return Witness(pair.description, f"only the run on the {side} input has this call", numbers)
        if mine.mechanism != its.mechanism:
            numbers |= {"one": repr(mine.mechanism), "other": repr(its.mechanism)}
            return Witness(pair.description, "the mechanisms of the two runs differ", numbers)
        numbers["mechanism"] = repr(mine.mechanism)
        if not is_known(mine.mechanism):
            event = f"a mechanism without a case: nothing checks the law of {type(mine.mechanism).__name__}"
            return Witness(pair.description, event, numbers)
        try:
            measured = distance(mine.mechanism, mine.inputs, its.inputs)
        except NotComparable as error:
            return Witness(pair.description, f"the inputs cannot be compared: {error}", numbers)
        key = self.share(mine.mechanism)
        if key is not None:
            earlier = shared[key].found if key in shared else Fraction(0)
            measured = shared[key] = FoundDistance(
                measured.what, measured.found + earlier, measured.declared
            )
        if measured.declared:
            self.largest = max(self.largest, measured.found / measured.declared)
        if measured.is_within and not (pair.is_equal and measured.found):
            return None
        numbers |= {
            "found": str(measured.found),
            "declared": "0" if pair.is_equal else str(measured.declared),
        }
        return Witness(
            pair.description, f"the inputs are farther apart than declared: {measured.what}", numbers
        )

    def _loss(self, pair: ReplayPair, run: RecordedRun) -> Witness | None:
        loss = (self.compose or self._sequential)(run.calls)
        limits = {"charged": self.charged}
        if self.stepwise is not None and run.outcome[0] == "returned":
            limits["charged step by step"] = self.stepwise(run.outcome[1])
        for words, limit in limits.items():
            self.checks += 1
            exceeded = _exceeded(loss, limit)
            if exceeded is not None:
                name, mine, its = exceeded
                return Witness(
                    pair.description,
                    "the losses of all calls add up to more than what is charged",
                    {"calls": len(run.calls), "cost": name, "added up": mine, words: its},
                )
        return None

    def _sequential(self, calls: Sequence[MechanismCall]) -> Loss:
        return sequential(self._paying(calls))

    def _paying(self, calls: Sequence[MechanismCall]) -> list[MechanismCall]:
        """Return the calls whose losses count: of those that share one loss, the first."""
        paying, seen = [], set()
        for call in calls:
            key = self.share(call.mechanism)
            if key is None or key not in seen:
                paying.append(call)
                seen.add(key)
        return paying


def _exceeded(loss: Loss, limit: Loss) -> tuple[str, float, float] | None:
    """Return the name of a cost that exceeds the limit's, with both; None if there is none."""
    names = ["δ₀", "ε", "δ", *(f"Rényi value at order {order}" for order in ORDERS)]
    costs = zip(price(loss, ORDERS).costs, price(limit, ORDERS).costs, strict=True)
    for place, (name, (mine, its)) in enumerate(zip(names, costs, strict=True)):
        # A sum of intervals may be rounded up by one unit more: only a certain excess counts.
        if mine > its and not (place >= FIRST_ORDER and _may_be_within(loss, limit, place - FIRST_ORDER)):
            unit = DELTA_UNIT if name.startswith("δ") else EPSILON_UNIT
            return name, mine / unit, its / unit
    return None


def _may_be_within(loss: Loss, limit: Loss, place: int) -> bool:
    mine, its = (each.renyi(Fraction(ORDERS[place])) for each in (loss, limit))
    return its is None or (mine is not None and not bool(mine > its))


Outputs = Callable[[Any, dict[str, Any], Callable[[], Any]], Any]
EXTREMES: tuple[Outputs, ...] = tuple(
    partial(extreme_output, is_upper=is_upper) for is_upper in (True, False)
)


def _drawn(_mechanism: Any, _inputs: dict[str, Any], draw: Callable[[], Any]) -> Any:
    return draw()


def _forced(
    pair: ReplayPair, kept: Sequence[set[Any]], outputs: Outputs = _drawn
) -> tuple[RecordedRun, RecordedRun]:
    """Record one input's run, whose outputs `outputs` decides, then run the other with these outputs.

    The n-th selection keeps the keys `kept[n]`, and none if there is no such set. (A key that only one
    input has is kept with probability at most δ, which the loss of the selection counts.)
    """

    def selecting(inner: Decide) -> Decide:
        selections = 0

        def decide(mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any], place: int) -> Any:
            nonlocal selections
            if not isinstance(mechanism, PartitionSelection):
                return inner(mechanism, inputs, draw, place)
            keys = kept[selections] if selections < len(kept) else set()
            selections += 1
            return np.array([name in keys for name in named_counts(inputs)], dtype=bool)

        return decide

    def first(mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any], _place: int) -> Any:
        return outputs(mechanism, inputs, draw)

    run = recorded_run(pair.first, selecting(first))

    def replayed(mechanism: Any, _inputs: dict[str, Any], draw: Callable[[], Any], place: int) -> Any:
        # A call that the first run did not have is a violation; the run goes on with a drawn output.
        is_same = place < len(run.calls) and run.calls[place].mechanism == mechanism
        output = run.calls[place].output if is_same else draw()
        return output.copy() if isinstance(output, np.ndarray) else output

    return run, recorded_run(pair.second, selecting(replayed))


def _common_keys(first: RecordedRun, second: RecordedRun) -> list[set[Any]]:
    """Return the keys that both inputs have, for each selection."""

    def selections(run: RecordedRun) -> list[set[Any]]:
        return [
            set(named_counts(call.inputs))
            for call in run.calls
            if isinstance(call.mechanism, PartitionSelection)
        ]

    return [mine & its for mine, its in zip(selections(first), selections(second), strict=False)]


def _short(value: Any, most: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
