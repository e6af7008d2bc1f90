"""The sampled stage: draw on neighbouring inputs, and count the event that distinguishes them best.

Claim    if the claimed (ε, δ) (every point of the claimed curve) holds, the stage reports a violation with
         probability at most the budget's error.
Because  events are chosen on one half of the draws and counted on the other, fresh half. Both
         probabilities of each event get exact (Clopper-Pearson) bounds, and the error is divided equally
         over all bounds: pairs x directions x families x points x 2. The number of draws is fixed
         before the first judged draw. docs/arguments/audit_sampled.md has the proof.
Test     tests/audit/stages/test_sampled.py, with mechanisms that are broken on purpose and must be caught

The number of draws follows from the power that is wanted. Time can only lower it. The power that was
reached is told, and a stage with less than the least power did not pass.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.events import FAMILIES, Family, applicable, best_event, looks_inside
from lapwing.audit.stages.outputs import Outputs, joined, pooled
from lapwing.audit.stages.proportions import proportion_at_least, proportion_at_most
from lapwing.core.exact import Number, inside_unit, whole
from lapwing.core.losses import Pair, checked_delta, not_negative
from lapwing.core.noise import bernoulli, uniform_int
from lapwing.errors import BadValue

Draw = Callable[[int], Outputs]
MOST_DRAWS = 2_000_000
QUICK_DRAWS = 20_000
_LEAST_DRAWS = 64
_TRIED_DRAWS = 4_000  # drawn before a stage says that draws are too few, if that is possible at all
_MOST_LATE = 10  # times the allowed seconds, for these draws
_CALLS = 8  # the draws on each input come from so many calls of different sizes
_ROUNDING = 1e-9  # of ε, for floats
_FARTHEST, _HALVINGS = 8.0, 15  # how far above the claim a true ε is looked for, and how finely
# The power: the ε that would be shown. It is wanted to be this near to the claim (times the claim, plus)...
_WANTED, _WANTED_QUICKLY = (1.01, 0.002), (1.1, 0.02)
_LEAST_POWER = (1.5, 0.25)  # ... and if it is neither within these times nor this plus, it did not pass
_FAMILIES = 4  # of events, as planned beforehand


@dataclass(frozen=True, slots=True)
class SampledPair:
    """Draws on two neighbouring inputs. `first(size)` returns `size` independent outputs on the first."""

    description: str
    first: Draw
    second: Draw


@dataclass(frozen=True, slots=True)
class CountedEvent:
    """An event that was chosen on one half of the draws and counted on the other: the ε that it shows."""

    pair: str
    family: str
    is_reversed: bool
    epsilon: float
    delta: float
    hits: tuple[int, int]
    trials: int
    at_least: float
    examples: tuple[str, ...] = ()

    @property
    def is_violation(self) -> bool:
        """True if the event contradicts the claim."""
        return self.at_least > self.epsilon + _ROUNDING


@dataclass(frozen=True, slots=True)
class SampledVerdict:
    """The result of an attack on one pair. The true ε is at least `at_least`, up to the stated error."""

    claimed: tuple[float, float]
    draws: int
    families: tuple[str, ...]
    events: tuple[CountedEvent, ...]
    nans: int
    is_blind: bool = False  # outputs are all different, and no event looked inside them

    @property
    def at_least(self) -> float:
        """The largest ε that is shown at the claimed δ, the first point of the curve."""
        return max(event.at_least for event in self.events if (event.epsilon, event.delta) == self.claimed)

    @property
    def holds(self) -> bool:
        """True if the attack found no contradiction to the claim."""
        return self.violation is None

    @property
    def violation(self) -> CountedEvent | None:
        """The event that contradicts the claim most; None if no event does."""
        worst = max(self.events, key=lambda event: event.at_least - event.epsilon)
        return worst if worst.is_violation else None


@dataclass(frozen=True, slots=True)
class _Limits:
    """The number of draws on each input (None: what the time allows), and the number of calls for them."""

    draws: int | None
    calls: int


def attack_pair(
    pair: SampledPair,
    epsilon: Number,
    delta: Number = 0,
    *,
    draws: int,
    error: float,
    curve: Sequence[tuple[Number, Number]] = (),
    families: Mapping[str, Family] = FAMILIES,
) -> SampledVerdict:
    """Try to show with a fixed number of draws that a claim is false.

    Args:
        pair: The draws on two neighbouring inputs.
        epsilon: The claimed ε.
        delta: The claimed δ.
        draws: The number of outputs to draw on each input, at least 4.
        error: The greatest probability of a false alarm, strictly between 0 and 1.
        curve: Further claimed points (ε, δ).
        families: The families of events, by name.

    Returns:
        The events that were counted, and the greatest lower bound on the true ε.

    Raises:
        BadParameter: If a parameter is out of range.
        BadValue: If a function returns another number of outputs than was asked.
    """
    points = _points(epsilon, delta, curve)
    inside_unit(error, "error")
    size = whole(draws, "draws", at_least=4) // 2 * 2
    return _judged(pair, _drawn(pair, size)[0], points, error, families)


def sampled_stage(
    pairs: Sequence[SampledPair],
    epsilon: Number,
    delta: Number = 0,
    *,
    curve: Sequence[tuple[Number, Number]] = (),
    families: Mapping[str, Family] = FAMILIES,
    draws: int | None = None,
    calls: int = _CALLS,
) -> RunStage:
    """Return the stage that attacks the claim on all pairs, within the budget's time and error.

    Args:
        pairs: The draws on pairs of neighbouring inputs.
        epsilon: The claimed ε.
        delta: The claimed δ.
        curve: Further claimed points (ε, δ).
        families: The families of events, by name.
        draws: The number of draws on each input; None if the time of a pilot decides.
        calls: The number of calls, of different sizes, from which the draws on an input come.
    """
    points = _points(epsilon, delta, curve)
    limits = _Limits(draws and max(draws, _LEAST_DRAWS) // 4 * 4, calls)

    def run(budget: StageBudget) -> StageResult:
        return _run(tuple(pairs), points, families, budget, limits)

    return run


def _points(epsilon: Number, delta: Number, curve: Sequence[tuple[Number, Number]]) -> list[Pair]:
    return [(not_negative(e, "epsilon"), checked_delta(d)) for e, d in [(epsilon, delta), *curve]]


def _run(
    pairs: Sequence[SampledPair],
    points: Sequence[Pair],
    families: Mapping[str, Family],
    budget: StageBudget,
    limits: _Limits,
) -> StageResult:
    claimed = float(points[0][0])
    each = budget.error / len(pairs)
    verdicts: list[SampledVerdict] = []
    notes: list[str] = []
    for place, pair in enumerate(pairs, 1):
        budget.progress(f"sampled: pair {place} of {len(pairs)}")
        draws = limits.draws or _affordable(
            pair, budget, len(pairs), limits.calls, families,
            most=_wanted_draws(points[0], each, is_thorough=budget.is_thorough),
        )  # fmt: skip
        # As if the event happened always on one input, and never on the other.
        if _shown((draws // 2, 0), draws // 2, float(points[0][1]), each / 4) <= claimed:
            why = (
                f"{draws:,} draws on each input ({pair.description}) could not contradict ε = {claimed:g}, "
                "even without any noise: allow more seconds"
            )
            return StageResult(Stage.SAMPLED, 0, claimed, unable=why)
        outputs, seconds = _drawn(pair, draws, limits.calls)
        verdict = _judged(pair, outputs, points, each, families)
        if verdict.is_blind and verdict.holds:
            why = (
                f"outputs are all different ({pair.description}), and no event looks inside them: return "
                "numbers, texts, lists or mappings"
            )
            return StageResult(Stage.SAMPLED, 0, claimed, unable=why)
        verdicts.append(verdict)
        notes += _told(pair, verdict, seconds if limits.calls > 1 else None)
        if not verdict.holds:
            break
    return _result(verdicts, points, budget, len(pairs), notes)


def _told(pair: SampledPair, verdict: SampledVerdict, seconds: tuple[float, float] | None) -> list[str]:
    """Return the number of draws, and their times if they were drawn one call after the other."""
    notes = [f"{pair.description}: {verdict.draws:,} draws on each input"]
    if seconds is not None:
        first, second = (f"{1e6 * time_of / verdict.draws:.3g} µs" for time_of in seconds)
        notes[0] += f"; one output took {first} and {second} (times are reported, not judged)"
    if verdict.nans:
        notes.append(f"{pair.description}: {verdict.nans:,} outputs have NaN, which counts as an outcome")
    return notes


@lru_cache(maxsize=64)
def _wanted_draws(point: Pair, error: float, *, is_thorough: bool) -> int:
    """Return the least number of draws on each input with the wanted power, within limits."""
    times, plus = _WANTED if is_thorough else _WANTED_QUICKLY
    least, most = QUICK_DRAWS, MOST_DRAWS if is_thorough else QUICK_DRAWS
    claimed = float(point[0])
    finest = _FARTHEST / 2**_HALVINGS
    # The last place at which `_could_show` looks that is within the limit.
    limit = claimed + min(finest * math.floor(((times - 1) * claimed + plus) / finest), _FARTHEST)
    while least < most:
        middle = (least + most) // 2
        is_shown = _shown_of_worst(limit, middle // 2, point, error / (_FAMILIES * 4)) > claimed
        least, most = (least, middle) if is_shown else (middle + 1, most)
    return least // 4 * 4


def _affordable(
    pair: SampledPair,
    budget: StageBudget,
    pairs: int,
    calls: int,
    families: Mapping[str, Family],
    *,
    most: int,
) -> int:
    """Return the number of draws on each input: `most`, or what a pilot says that the time allows.

    The outputs of the pilot are thrown away. A call is taken to cost a fixed time and a time for each draw.
    Judging costs time, too.
    """
    seconds, start = budget.seconds / pairs, time.monotonic()
    times: list[tuple[int, float]] = []
    for size in (1, 4, 64, 1024, 16_384):
        begin = time.monotonic()
        outputs = pair.first(size), pair.second(size)
        times.append((size, time.monotonic() - begin))
        spent = time.monotonic() - start
        # The next call would take up to 16 times as long. The first one may be slow only once.
        is_long = spent + 16 * times[-1][1] > 0.25 * seconds
        if size >= most or spent > seconds or (len(times) > 1 and is_long):
            break
    # The first call may make tables; it counts only if there is no other.
    (fewer, quick), (more, slow) = times[min(1, len(times) - 1)], times[-1]
    each = (slow - quick) / (more - fewer) if more > fewer and slow > 1.2 * quick else slow / more
    judged = judging_seconds(outputs, families) if len(outputs[0]) == len(outputs[1]) else 0.0
    each, spent = each + judged, time.monotonic() - start
    fixed = min(seconds_of for _, seconds_of in times)  # the least: a pause of the machine is no cost
    left = seconds - spent - calls * max(fixed - each, 0.0)
    least = _TRIED_DRAWS if _TRIED_DRAWS * each < _MOST_LATE * max(seconds, 1.0) else _LEAST_DRAWS
    return int(max(min(most, 0.7 * max(left, 0.0) / max(each, 1e-9)), least)) // 4 * 4


def judging_seconds(outputs: tuple[Outputs, Outputs], families: Mapping[str, Family] = FAMILIES) -> float:
    """Return the seconds that judging takes for each draw on both inputs, from two sizes of a pilot."""
    size = len(outputs[0])
    if size < _LEAST_DRAWS:
        return 0.0
    times = []
    for part in (size // 4, size):
        start = time.perf_counter()
        pool = pooled(outputs[0][:part], outputs[1][:part])
        applicable(pool, families)
        times.append(time.perf_counter() - start)
    return max(times[1] - times[0], 0.0) / (size - size // 4)


def _drawn(
    pair: SampledPair, size: int, calls: int = _CALLS
) -> tuple[tuple[Outputs, Outputs], tuple[float, float]]:
    """Return `size` outputs on each input, by calls of different sizes in a random order of the inputs."""
    cuts = np.unique(uniform_int(1, size, min(calls, size // 2) - 1))
    sizes = np.diff([0, *cuts, size])
    parts: tuple[list[Outputs], list[Outputs]] = ([], [])
    seconds = [0.0, 0.0]
    for number in sizes:
        first = int(bernoulli(Fraction(1, 2), 1)[0])
        for side in (first, 1 - first):
            start = time.perf_counter()
            outputs = (pair.first, pair.second)[side](int(number))
            seconds[side] += time.perf_counter() - start
            if len(outputs) != number:
                raise BadValue(f"asked for {number} outputs, but got {len(outputs)}: return one per draw")
            parts[side].append(outputs)
    return (joined(parts[0]), joined(parts[1])), (seconds[0], seconds[1])


def _judged(
    pair: SampledPair,
    outputs: tuple[Outputs, Outputs],
    points: Sequence[Pair],
    error: float,
    families: Mapping[str, Family],
) -> SampledVerdict:
    """Choose the events on one half of the draws, and bound their probabilities by the other half."""
    pool = pooled(*outputs)
    codes = applicable(pool, families)
    each = error / (len(codes) * len(points) * 2 * 2)  # two directions, two bounds
    events = []
    for epsilon, delta in points:
        for family, made in codes.items():
            for is_reversed in (False, True):
                event = best_event(made, pool, float(delta), is_reversed=is_reversed)
                shown = _shown(event.hits, event.trials, float(delta), each)
                events.append(
                    CountedEvent(
                        pair.description, family, is_reversed, float(epsilon), float(delta),
                        event.hits, event.trials, shown, event.examples,
                    )
                )  # fmt: skip
    return SampledVerdict(
        (float(points[0][0]), float(points[0][1])),
        len(outputs[0]),
        tuple(codes),
        tuple(events),
        pool.nans,
        not looks_inside(codes, pool),
    )


def _shown(hits: tuple[int, int], trials: int, delta: float, error: float) -> float:
    """Return the ε that the counts show; each of the two bounds is wrong with probability `error`."""
    p = proportion_at_least(hits[0], trials, error)
    q = proportion_at_most(hits[1], trials, error)
    return max(math.log((p - delta) / q), 0.0) if p > delta else 0.0


def _could_show(trials: int, point: Pair, error: float) -> float | None:
    """Return the smallest true ε that is shown in half of the runs; None if none is."""
    claimed = float(point[0])
    low, high = claimed, claimed + _FARTHEST
    if _shown_of_worst(high, trials, point, error) <= claimed:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_shown = _shown_of_worst(middle, trials, point, error) > claimed
        low, high = (low, middle) if is_shown else (middle, high)
    return high


def _shown_of_worst(epsilon: float, trials: int, point: Pair, error: float) -> float:
    """Return the ε that is shown of the worst pair of laws at (ε, δ).

    With probability δ the input is revealed, else it is randomized response. Its counts are put at their
    expected values.
    """
    delta = float(point[1])
    lie = 1 / (1 + math.exp(epsilon))
    p, q = delta + (1 - delta) * (1 - lie), (1 - delta) * lie
    return _shown((math.floor(trials * p), math.ceil(trials * q)), trials, delta, error)


def _least_revealed(trials: int, point: Pair, error: float) -> float | None:
    """Return the least probability of an output that reveals the input and is shown; None if none is."""
    claimed, delta = float(point[0]), float(point[1])
    if _shown((trials, 0), trials, delta, error) <= claimed:
        return None
    low, high = 0, trials
    while high - low > max(low // 64, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if _shown((middle, 0), trials, delta, error) > claimed else (middle, high)
    return high / trials


def _result(
    verdicts: Sequence[SampledVerdict],
    points: Sequence[Pair],
    budget: StageBudget,
    pairs: int,
    notes: list[str],
) -> StageResult:
    most = max(verdicts, key=lambda verdict: len(verdict.families)).families
    families = len(most)
    each = budget.error / (pairs * families * len(points) * 4)
    division = (
        f"error {budget.error:g} in all, divided over {pairs} pairs x 2 directions x {families} families "
        f"({', '.join(most)}) x {len(points)} points of the curve "
        f"x 2 bounds: {each:.3g} for each bound"
    )
    for epsilon, delta in points[1:]:
        best = max(e.at_least for v in verdicts for e in v.events if e.delta == float(delta))
        notes.append(f"at δ = {float(delta):g} claimed ε {float(epsilon):g}, shown at least {best:.4g}")
    violation = next((broken for verdict in verdicts if (broken := verdict.violation)), None)
    fewest = min(verdict.draws for verdict in verdicts)
    could = _could_show(fewest // 2, points[0], each)
    claimed = float(points[0][0])
    if could is None and violation is None:
        why = f"{fewest:,} draws on each input could not have shown any violation: allow more seconds"
        return StageResult(Stage.SAMPLED, 0, claimed, unable=why)
    least = max(_LEAST_POWER[0] * claimed, claimed + _LEAST_POWER[1])
    if violation is None and could is not None and could > least:
        why = (
            f"not enough power: {fewest:,} draws on each input would show ε {could:.3g} or more, and "
            f"{least:.3g} is needed. Allow more seconds, or a machine with less other work"
        )
        return StageResult(Stage.SAMPLED, 0, claimed, could_show=could, unable=why)
    revealed = _least_revealed(fewest // 2, points[0], each)
    if revealed is not None:
        notes.append(
            "an output that reveals the input would be shown if its probability is at least about "
            f"{revealed:.2g}; what happens less often is not seen"
        )
    return StageResult(
        Stage.SAMPLED,
        checks=sum(len(verdict.events) for verdict in verdicts),
        claimed=claimed,
        measured=max(verdict.at_least for verdict in verdicts),
        could_show=could,
        witness=None if violation is None else _witness(violation, each),
        notes=(
            division,
            "could show: the ε that is shown in half of the runs for the easiest law (randomized response "
            f"with δ), with {fewest // 2:,} fresh draws on each input; other laws need more",
            *notes,
            f"power: a true ε of {could or math.inf:.4g} is shown in half of the runs; to pass, it must "
            f"be at most {least:.4g}",
        ),
    )


def _witness(event: CountedEvent, each: float) -> Witness:
    first, second = ("second", "first") if event.is_reversed else ("first", "second")
    return Witness(
        pair=event.pair,
        event=f"a set of outputs that is more likely on the {first} input, found by {event.family}. "
        f"It has, among others: {', '.join(event.examples)}",
        numbers={
            f"times on the {first} input": event.hits[0],
            f"times on the {second} input": event.hits[1],
            "fresh draws on each input": event.trials,
            "probability at least": proportion_at_least(event.hits[0], event.trials, each),
            "probability at most": proportion_at_most(event.hits[1], event.trials, each),
            "claimed ε": event.epsilon,
            "at δ": event.delta,
        },
        at_least=event.at_least,
    )
