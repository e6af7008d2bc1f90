"""A case for somebody else's function: `(data, size) -> outputs`, with the (ε, δ) that it claims.

Before events are counted, the stage looks for mistakes that would make counts meaningless, on every side of
every pair:

- one seed, or few: two processes, or two calls, that give the same outputs on the same data. This is a
  violation.
- outputs of one call that depend on each other, or whose law depends on `size` or on the process: the
  function breaks its contract, and the stage says that it could not judge.
- the type of an output that depends on the data. It is counted in calls with one output, because NumPy
  gives all outputs of a call one type. This is a violation.

Claim    a correct function is said to reuse a seed with probability at most 2e-12.
Because  independent outputs may as well come in any other order. A sequence with counts m₁, m₂, … of equal
         outputs is repeated in the same order with probability at most m₁! m₂! … / n!; the limit for each
         comparison is 1e-12 divided by the number of all comparisons of its kind.
Test     tests/audit/test_function_audit.py
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.function_process import AuditedFunction, Call, FunctionEnded, Trial
from lapwing.audit.stages.events import FAMILIES
from lapwing.audit.stages.inside import Inside, Raised, canonical
from lapwing.audit.stages.outputs import Outputs, joined
from lapwing.audit.stages.sampled import (
    QUICK_DRAWS,
    Draw,
    SampledPair,
    attack_pair,
    judging_seconds,
    sampled_stage,
)
from lapwing.core.exact import Number
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.core.noise import permutation, uniform_int
from lapwing.errors import BadParameter

_HUGE = 10**9
_MANY = [0, 1] * 500
# One person more, in lists of numbers: from nobody, with an ordinary value, with extremes, with NaN.
DEFAULT_NEIGHBOURS: tuple[tuple[list[Any], list[Any]], ...] = (
    ([], [1]),
    ([0] * 10, [0] * 10 + [1]),
    ([1] * 10, [1] * 10 + [_HUGE]),
    ([1] * 10, [1] * 10 + [-_HUGE]),
    ([1] * 10, [1] * 10 + [math.nan]),
    ([0, 1] * 5, [0, 1] * 5 + [0]),
    (list(range(10)), [*range(10), 0]),
    (_MANY, [*_MANY, 0]),
    (_MANY, [*_MANY, _HUGE]),
)
_REPEATED = 256  # outputs that are compared for a repeated seed
_COINCIDENCE = 1e-12
_TRIED = (1, 3)
_SINGLES = 256  # calls with one output, on each side: compared with one call for as many
_LENGTH = 40  # outputs of the calls that are compared with each other
_FEWEST, _MOST = 24, 64  # such calls, on each side
_CHECK_ERROR = 1e-8  # of saying that a function breaks its contract: it is then not judged
_SINGLE = 64  # single outputs in each list of calls, at most
_PARTS = 3
_PILOT = 16_384
_QUICK_PILOT = 2_048
_MOST_DRAWS = 500_000
_PROCESSES = 4  # for the judged draws on each input
_MOST_BYTES = 1 << 26  # of outputs that come from one process
_SHARES = 3  # of the error: events, events of draws that are made anew because a call raised, types
_LEAST_DRAWS = 2_000
_MOST_LATE = 10  # times the allowed seconds, for the least number of draws
# The checks of the contract are many; they take the families that are quick.
_QUICK_FAMILIES = {
    name: family for name, family in FAMILIES.items() if name not in ("classifier", "difference of columns")
}
_REASON = "the law of somebody else's function is not known: there is nothing to enumerate or to replay"


def case_of_function(
    target: str,
    epsilon: Number,
    delta: Number = 0,
    *,
    pairs: Sequence[Sequence[Any]] | str | Path | None = None,
    seconds: float = 60.0,
    memory: int = 4 << 30,
) -> AuditCase:
    """Return the case of a function that somebody else wrote.

    Args:
        target: "module:function" or "path/to/file.py:function". The function takes `(data, size)` and
            returns `size` independent outputs on the data.
        epsilon: The claimed ε.
        delta: The claimed δ.
        pairs: Pairs of neighbouring data (of what JSON has), or a JSON file of them. If None: the module's
            `NEIGHBOURS`, else lists of numbers with one person more.
        seconds: The time limit of one process.
        memory: The memory limit of one process, in bytes.

    Returns:
        A case with the sampled stage.

    Raises:
        BadParameter: If the claim is impossible, the function is not there, or it does not return `size`
            outputs.

    Example:
        ```python
        from lapwing.audit import case_of_function

        case = case_of_function("own_mechanisms.py:narrow_noise", epsilon=1)
        print(case.reason)  # then run_audit([case])
        ```
    """
    claim = checked_epsilon(epsilon), checked_delta(delta)
    module, separator, name = target.rpartition(":")
    if not separator or not module or not name:
        raise BadParameter("function", f"{target!r} must be module:function or file.py:function")
    given = AuditedFunction(module, name, _given(pairs), seconds, memory, DEFAULT_NEIGHBOURS)
    try:
        trial = given.tried(_TRIED)
    except FunctionEnded as error:
        raise BadParameter("function", f"{target} could not be tried: {error}") from None
    if not trial.neighbours:
        raise BadParameter("neighbours", "there are no pairs of data: give at least one")
    _check_trial(given, trial)
    stages = {Stage.SAMPLED: _function_stage(given, trial, claim)}
    return AuditCase(target, Family.FUNCTION, (target,), *claim, stages, _REASON)


def _given(pairs: Sequence[Sequence[Any]] | str | Path | None) -> Sequence[Sequence[Any]] | None:
    """Return pairs of data from a file, or as they are."""
    read: Any = pairs
    if isinstance(pairs, str | Path):
        try:
            read = json.loads(Path(pairs).read_text())
        except (OSError, ValueError) as error:
            raise BadParameter("neighbours", f"{pairs} is no JSON file of pairs: {error}") from None
    if read is None:
        return None
    is_list = isinstance(read, Sequence) and len(read) > 0
    if not is_list or not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in read):
        raise BadParameter("neighbours", "must be a list of pairs of data: [[one, other], …]")
    try:
        json.dumps(read)
    except (TypeError, ValueError):
        why = "must be what JSON has: put other data into the module, as NEIGHBOURS"
        raise BadParameter("neighbours", why) from None
    checked: Sequence[Sequence[Any]] = read
    return checked


def _check_trial(function: AuditedFunction, trial: Trial) -> None:
    """Raise BadParameter if the function never returned outputs."""
    errors = [result for result in trial.results if isinstance(result, Raised)]
    if len(errors) == len(trial.results):
        raise BadParameter(
            "function",
            f"{function.name} raised {errors[0].kind} on all data ({errors[0].message}). Put pairs of data "
            "that it takes into its module, as NEIGHBOURS",
        )


def _function_stage(function: AuditedFunction, trial: Trial, claim: tuple[Number, Number]) -> RunStage:
    """Return the stage: first the checks of the contract, then the attack on all pairs."""
    neighbours = trial.neighbours
    # The second call on each side: the first one may load something.
    seconds = sum(trial.seconds[1::2]) / _TRIED[1]

    def run(budget: StageBudget) -> StageResult:
        claimed = float(checked_epsilon(claim[0]))
        try:
            budget.progress("sampled: is the function's contract kept?")
            witness = _repeated_seed(function, neighbours)
            if witness is not None:
                return StageResult(Stage.SAMPLED, 2, claimed, witness=witness)
            contract = _Contract.of(function, neighbours, 0.4 * budget.seconds / max(seconds, 1e-9))
            share = replace(budget, error=budget.error / _SHARES)
            witness = contract.repeated_calls() or contract.telling_types(claim, share.error)
            if witness is not None:
                return StageResult(Stage.SAMPLED, 2, claimed, witness=witness, measured=witness.at_least)
            broken = contract.broken()
            if broken:
                return StageResult(Stage.SAMPLED, 0, claimed, unable=broken)
            draws = _JudgedDraws.planned(function, contract, share)
            pairs = [
                SampledPair(
                    f"{first} and {second}", partial(draws.of, place, 0), partial(draws.of, place, 1)
                )
                for place, (first, second) in enumerate(neighbours)
            ]
            return sampled_stage(pairs, *claim, draws=draws.number, calls=1)(share)
        except FunctionEnded as error:
            return StageResult(Stage.SAMPLED, 0, claimed, unable=f"{function.name}: {error}")

    return run


class _JudgedDraws:
    """The judged draws: a fixed number on each side, from several processes, each for several pairs.

    If a call of several outputs raises, the draws on its side are made anew, one by one: a call that raises
    gives one outcome. Both ways get a share of the error.
    """

    def __init__(
        self, function: AuditedFunction, number: int, processes: int, pairs: Sequence[int]
    ) -> None:
        self.number = number
        self._function, self._processes, self._groups = function, processes, pairs
        self._drawn: dict[tuple[int, int], Outputs] = {}

    @classmethod
    def planned(cls, function: AuditedFunction, contract: _Contract, budget: StageBudget) -> _JudgedDraws:
        """Return draws that keep to the budget, from the times of a pilot whose outputs are thrown away."""
        begin, sides = time.monotonic(), contract.sides
        each, size = contract.seconds_each, contract.bytes_each
        pilot = _PILOT if budget.is_thorough else _QUICK_PILOT
        if sum(each) * pilot < 0.2 * budget.seconds:
            made = function.made([(*side, pilot) for side in sides])
            inside = sum(made.seconds)
            # Where a call raises, outputs are drawn one by one.
            each = [
                before if isinstance(result, Raised) else seconds / pilot
                for before, seconds, result in zip(each, made.seconds, made.results, strict=True)
            ]
            size = made.size / (pilot * len(sides))
            start_up = max(time.monotonic() - begin - inside, 0.0)
            results = [result for result in made.results if not isinstance(result, Raised)]
            judged = judging_seconds((results[0], results[-1])) if len(results) > 1 else 0.0
        else:
            start_up, judged = contract.start_up, 0.0
        pairs = len(sides) // 2
        is_cheap = budget.is_thorough and pairs * _PROCESSES * start_up < 0.3 * budget.seconds
        processes = _PROCESSES if is_cheap else 2
        left = budget.seconds - (time.monotonic() - begin) - processes * start_up
        most = _MOST_DRAWS if budget.is_thorough else QUICK_DRAWS
        cost = sum(each) + judged * pairs
        least = _LEAST_DRAWS if _LEAST_DRAWS * cost < _MOST_LATE * max(budget.seconds, 1.0) else 64
        affordable = max(0.7 * max(left, 0.0) / cost, least)
        number = int(min(most, affordable, 2 * _MOST_BYTES / max(size, 1))) // 4 * 4
        # Pairs that one process draws: by the bytes of their outputs, and by its time.
        by_bytes = _MOST_BYTES * processes / max(2 * number * size, 1)
        by_time = 0.25 * function.seconds * processes * pairs / max(number * sum(each), 1e-9)
        together = int(max(min(by_bytes, by_time, pairs), 1))
        return cls(function, number, processes, [place // together for place in range(pairs)])

    def of(self, pair: int, side: int, size: int) -> Outputs:
        """Return the outputs on one side; they are given once."""
        if (pair, side) not in self._drawn:
            group = self._groups[pair]
            self._draw([place for place, other in enumerate(self._groups) if other == group], size)
        return self._drawn.pop((pair, side))

    def _draw(self, pairs: Sequence[int], size: int) -> None:
        sides = [(pair, side) for pair in pairs for side in (0, 1)]
        parts = self._parts(sides, [_sizes(part) for part in self._split(size)])
        raised = [side for side in sides if any(isinstance(each, Raised) for each in parts[side])]
        if raised:
            parts |= self._parts(raised, [[1] * part for part in self._split(size)])
        self._drawn |= {side: joined(parts[side]) for side in sides}

    def _split(self, size: int) -> list[int]:
        each, others = size // self._processes, self._processes - 1
        return [each] * others + [size - each * others]

    def _parts(
        self, sides: Sequence[tuple[int, int]], sizes: Sequence[Sequence[int]]
    ) -> dict[tuple[int, int], list[Outputs | Raised]]:
        """Return the outcomes of calls in a random order, from one process for each list of sizes."""
        parts: dict[tuple[int, int], list[Outputs | Raised]] = {side: [] for side in sides}
        for each in sizes:
            calls = [(*side, size) for side in sides for size in each]
            mixed = [calls[place] for place in permutation(len(calls))]
            for (pair, side, _), result in zip(mixed, self._function.results(mixed), strict=True):
                parts[pair, side].append(result)
        return parts


def _sizes(size: int) -> list[int]:
    """Return sizes that add up to `size`, some of them 1."""
    single = min(_SINGLE, size // 2)
    rest = size - single
    cuts = sorted({int(cut) for cut in uniform_int(1, rest, _PARTS - 1)}) if rest > 1 else []
    return [size for size in (*[1] * single, *map(int, np.diff([0, *cuts, rest]))) if size]


def _repeated_seed(function: AuditedFunction, neighbours: Sequence[tuple[str, str]]) -> Witness | None:
    """Return a witness if two calls or two processes give the same outputs on the same data."""
    places = sorted({0, len(neighbours) - 1})
    calls: list[Call] = [(place, 1, _REPEATED) for place in places for _ in range(2)]
    here, elsewhere = function.both_results(calls)
    for number, place in enumerate(places):
        for words, first, second in (
            ("two calls", here[2 * number], here[2 * number + 1]),
            ("two processes at the same time", here[2 * number], elsewhere[2 * number]),
        ):
            if isinstance(first, Raised) or isinstance(second, Raised):
                continue
            texts = [canonical(value) for value in first]
            chance = _chance_of_order(texts)
            if 4 * chance < _COINCIDENCE and texts == [canonical(value) for value in second]:
                return Witness(
                    pair=f"{neighbours[place][1]}, twice",
                    event=f"{words} gave the same outputs: noise is repeated, as from a fixed seed",
                    numbers={"equal outputs": _REPEATED, "probability by chance, at most": chance},
                )
    return None


def _chance_of_order(texts: Sequence[str]) -> float:
    """Return the probability that independent outputs come in the same order again: m₁! m₂! … / n!."""
    logs = sum(math.lgamma(count + 1) for count in Counter(texts).values()) - math.lgamma(len(texts) + 1)
    return math.exp(max(logs, -700.0))


@dataclass(frozen=True, slots=True)
class _Contract:
    """Outcomes of single calls (in two processes), of one large call and of several short ones, by side."""

    name: str
    neighbours: Sequence[tuple[str, str]]
    sides: Sequence[tuple[int, int]]
    singles: Sequence[Sequence[Outputs | Raised]]
    types: Sequence[Sequence[str]]
    elsewhere: Sequence[Sequence[Outputs | Raised]]
    many: Sequence[Outputs | Raised]
    short: Sequence[Sequence[Outputs | Raised]]
    seconds_each: Sequence[float]
    bytes_each: float
    start_up: float

    @classmethod
    def of(
        cls, function: AuditedFunction, neighbours: Sequence[tuple[str, str]], outputs: float
    ) -> _Contract:
        """Make the calls; about as many outputs on each side as is given."""
        sides = [(place, side) for place in range(len(neighbours)) for side in (0, 1)]
        singles = int(min(max(outputs / 4, _SINGLES // 2), _SINGLES)) // 4 * 4
        count = int(min(max(outputs / 2 / _LENGTH, _FEWEST), _MOST)) // 2 * 2
        sizes = [*[1] * singles, singles, *[_LENGTH] * count]
        begin = time.monotonic()
        made = function.made([(*side, size) for side in sides for size in sizes])
        start_up = max(time.monotonic() - begin - sum(made.seconds), 0.0)
        again = function.results([(*side, 1) for side in sides for _ in range(singles)])
        starts = range(0, len(made.results), len(sizes))
        results = [made.results[start : start + len(sizes)] for start in starts]
        seconds = [made.seconds[start : start + len(sizes)] for start in starts]
        has_raised = [any(isinstance(each, Raised) for each in of_side[singles:]) for of_side in results]
        return cls(
            function.name,
            neighbours,
            sides,
            [of_side[:singles] for of_side in results],
            [made.types[start : start + singles] for start in starts],
            [again[start : start + singles] for start in range(0, len(again), singles)],
            [of_side[singles] for of_side in results],
            [of_side[singles + 1 :] for of_side in results],
            [
                sum(each[:singles]) / singles if one_by_one else sum(each[singles:]) / sum(sizes[singles:])
                for each, one_by_one in zip(seconds, has_raised, strict=True)
            ],
            made.size / (len(sides) * sum(sizes)),
            start_up,
        )

    def _words(self, place: int) -> str:
        pair, side = self.sides[place]
        return self.neighbours[pair][side]

    def repeated_calls(self) -> Witness | None:
        """Return a witness if two of the short calls on a side gave the same outputs in the same order."""
        compared = sum(math.comb(len(calls), 2) for calls in self.short)
        for place, calls in enumerate(self.short):
            seen: set[tuple[str, ...]] = set()
            for call in calls:
                if isinstance(call, Raised):
                    continue
                texts = tuple(canonical(value) for value in call)
                chance = compared * _chance_of_order(texts)
                if texts in seen and chance < _COINCIDENCE:
                    return Witness(
                        pair=f"{self._words(place)}, twice",
                        event=f"two of {len(calls)} calls gave the same outputs: there are few seeds",
                        numbers={"equal outputs": len(texts), "probability by chance, at most": chance},
                    )
                seen.add(texts)
        return None

    def telling_types(self, claim: tuple[Number, Number], error: float) -> Witness | None:
        """Return a witness if the types of single outputs contradict the claim."""
        for place in range(0, len(self.sides), 2):
            first, second = self.types[place], self.types[place + 1]
            if len({*first, *second}) == 1:
                continue
            verdict = attack_pair(
                SampledPair("", _given_draws(first), _given_draws(second)),
                *claim, draws=len(first), error=error / (len(self.sides) // 2),
            )  # fmt: skip
            if verdict.violation is not None:
                return Witness(
                    pair=" and ".join(self.neighbours[place // 2]),
                    event="the type of an output depends on the data: "
                    f"{', '.join(sorted(set(first)))}, and {', '.join(sorted(set(second)))}",
                    numbers={
                        "times on one input": verdict.violation.hits[0],
                        "times on the other input": verdict.violation.hits[1],
                        "fresh draws on each input": verdict.violation.trials,
                    },
                    at_least=verdict.violation.at_least,
                )
        return None

    def broken(self) -> str:
        """Return what is wrong with the outputs' independence; empty if nothing was found."""
        error = _CHECK_ERROR / (3 * len(self.sides))
        for place in range(len(self.sides)):
            single, many = joined(self.singles[place]), self.many[place]
            where = f"{self.name} (on {self._words(place)})"
            within, across = _related(self.short[place], _values(single))
            if _differ(within, across, error):
                return (
                    f"{where}: outputs of one call depend on each other, so that counts mean nothing. "
                    "Draw fresh noise for each output"
                )
            if _differ(single, joined(self.elsewhere[place]), error):
                return (
                    f"{where}: its outputs depend on the process, so that counts mean nothing. Draw the "
                    "noise anew in each call"
                )
            if not isinstance(many, Raised) and _differ(single, many, error):
                return (
                    f"{where}: its outputs depend on `size`, so that counts mean nothing. Give each output "
                    "the same law"
                )
        return ""


def _related(
    calls: Sequence[Outputs | Raised], singles: NDArray[np.float64]
) -> tuple[list[object], list[object]]:
    """Return how three outputs relate that follow each other in one call, and in three calls."""
    known = [_values(call) for call in calls if not isinstance(call, Raised)]
    half = len(known) // 6 * 3
    within = known[:half]
    # In any order: outputs may depend on their places in a call.
    across = [call[permutation(len(call))] for call in known[half : 2 * half]]
    starts = range(0, _LENGTH - 2, 3)
    middle = np.median(np.nan_to_num(singles), axis=0)
    together = [_relation(call[at : at + 3], middle) for call in within for at in starts]
    apart = [
        _relation(np.stack([across[first + (turn + step) % 3][at + step] for step in range(3)]), middle)
        for first in range(0, half, 3)
        for turn in range(3)
        for at in starts
    ]
    return list(together), list(apart)


def _values(outputs: Outputs) -> NDArray[np.float64]:
    """Return two numbers for each output: its first one and the sum of all, or of its text."""
    if isinstance(outputs, np.ndarray):
        rows = outputs.reshape(len(outputs), -1).astype(np.float64)
    else:
        inside = [[*Inside(value).numbers.values()] or [float(len(canonical(value)))] for value in outputs]
        return np.array([[each[0], float(np.nansum(each))] for each in inside])
    return np.column_stack([rows[:, 0], np.nansum(rows, axis=1)])


def _relation(three: NDArray[np.float64], middle: NDArray[np.float64]) -> list[float]:
    a, b, c = three
    with np.errstate(invalid="ignore", over="ignore"):
        signs = np.prod(np.where(three > middle, 1.0, -1.0), axis=0)
        return [float(each) for each in np.concatenate([a - b, a + b, a - c, a + c, b - c, signs])]


def _given_draws(values: Outputs) -> Draw:
    left = iter(values)
    return lambda size: [next(left) for _ in range(size)]


def _differ(first: Outputs, second: Outputs, error: float) -> bool:
    """Return whether two samples show that their laws differ, up to an error."""
    number = min(len(first), len(second))
    if number < 8:
        return False
    pair = SampledPair("", _given_draws(first), _given_draws(second))
    return not attack_pair(pair, 0, draws=number, error=error, families=_QUICK_FAMILIES).holds
