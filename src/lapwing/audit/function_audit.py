"""A case for somebody else's function: `(data, size) -> outputs`, with the (ε, δ) that it claims.

Before events are counted, the stage looks for mistakes that would make counts meaningless:

- one seed: two processes, or two calls, that give the same outputs on the same data. This is a violation.
- outputs of one call that depend on each other, or whose law depends on `size`: the function breaks its
  contract, and the stage says that it could not judge.

Claim    a correct function is said to reuse a seed with probability at most 1e-12.
Because  independent outputs may as well come in any other order. A sequence with counts m₁, m₂, … of equal
         outputs is repeated in the same order with probability at most m₁! m₂! … / n!.
Test     tests/audit/test_function_audit.py
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.function_process import AuditedFunction, Call, FunctionEnded
from lapwing.audit.stages.outputs import Outputs, Raised, canonical
from lapwing.audit.stages.sampled import (
    QUICK_DRAWS,
    Draw,
    SampledPair,
    attack_pair,
    sampled_stage,
)
from lapwing.core.exact import Number
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.core.noise import permutation, uniform_int
from lapwing.errors import BadParameter

_HUGE = 10**9
# One person more, in lists of numbers: from nobody, with an ordinary value, with extremes, with NaN.
DEFAULT_NEIGHBOURS: tuple[tuple[list[Any], list[Any]], ...] = (
    ([], [1]),
    ([0] * 10, [0] * 10 + [1]),
    ([1] * 10, [1] * 10 + [_HUGE]),
    ([1] * 10, [1] * 10 + [-_HUGE]),
    ([1] * 10, [1] * 10 + [math.nan]),
)
_REPEATED = 256  # outputs that are compared for a repeated seed
_COINCIDENCE = 1e-12
_COMPARED = 1024  # calls that are compared for independence
_CHECK_ERROR = 1e-9
_SINGLE = 8  # single outputs in each list of calls
_PARTS = 3
_PILOT = (1, 256, 16_384)
_MOST_DRAWS = 500_000
_PROCESSES = 4  # for the judged draws on each input
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
    given = AuditedFunction(module, name, _given(pairs), seconds, memory)
    try:
        found = given.neighbours()
        if found is None:
            given = replace(given, data=DEFAULT_NEIGHBOURS)
            found = given.neighbours() or []
        if not found:
            raise BadParameter("neighbours", "there are no pairs of data: give at least one")
        _try(given, len(found))
    except FunctionEnded as error:
        raise BadParameter("function", f"{target} could not be tried: {error}") from None
    stages = {Stage.SAMPLED: _function_stage(given, found, claim)}
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


def _try(function: AuditedFunction, pairs: int) -> None:
    """Call the function a few times; raise BadParameter if it never returns outputs."""
    calls = [(place, side, size) for place in range(pairs) for side in (0, 1) for size in (1, 3)]
    results = function.results(calls)
    errors = [result for result in results if isinstance(result, Raised)]
    if len(errors) == len(results):
        raise BadParameter(
            "function",
            f"{function.name} raised {errors[0].kind} on all data ({errors[0].message}). Put pairs of data "
            "that it takes into its module, as NEIGHBOURS",
        )


@dataclass(frozen=True, slots=True)
class _Calls:
    """Draws of the function on one side of one pair. Each comes from a fresh process."""

    function: AuditedFunction
    pair: int
    side: int

    def __call__(self, size: int) -> Outputs:
        """Return `size` outputs, by several calls of different sizes."""
        results = self._results(_sizes(size))
        if any(isinstance(result, Raised) for result in results):
            # A call that raises gives one outcome. So outputs are drawn one by one.
            results = self._results([1] * size)
        return _joined(results)

    def _results(self, sizes: Sequence[int]) -> list[Outputs | Raised]:
        return self.function.results([(self.pair, self.side, size) for size in sizes])


def _sizes(size: int) -> list[int]:
    """Return sizes that add up to `size`, some of them 1, in random order."""
    single = min(_SINGLE, size // 2)
    rest = size - single
    cuts = sorted({int(cut) for cut in uniform_int(1, rest, _PARTS - 1)}) if rest > 1 else []
    sizes = [*[1] * single, *np.diff([0, *cuts, rest])]
    return [int(sizes[place]) for place in permutation(len(sizes)) if sizes[place]]


def _joined(results: Sequence[Outputs | Raised]) -> Outputs:
    arrays = [result for result in results if isinstance(result, np.ndarray)]
    if len(arrays) == len(results) and len({(each.dtype, each.shape[1:]) for each in arrays}) == 1:
        return np.concatenate(arrays)
    outputs: list[object] = []
    for result in results:
        if isinstance(result, Raised):
            outputs.append(result)
        else:
            outputs += result.tolist() if isinstance(result, np.ndarray) else result
    return outputs


def _function_stage(
    function: AuditedFunction, found: Sequence[tuple[str, str]], claim: tuple[Number, Number]
) -> RunStage:
    """Return the stage: first the checks of the contract, then the attack on all pairs."""
    pairs = [
        SampledPair(f"{one} and {other}", _Calls(function, place, 0), _Calls(function, place, 1))
        for place, (one, other) in enumerate(found)
    ]

    def run(budget: StageBudget) -> StageResult:
        claimed = float(checked_epsilon(claim[0]))
        try:
            budget.progress("sampled: is the function's contract kept?")
            witness = _repeated_seed(function, found)
            if witness is not None:
                return StageResult(Stage.SAMPLED, 2, claimed, witness=witness)
            broken = _broken_contract(function, found)
            if broken:
                return StageResult(Stage.SAMPLED, 0, claimed, unable=broken)
            draws, processes = _affordable_draws(function, len(pairs), budget)
            return sampled_stage(pairs, *claim, draws=draws, calls=processes)(budget)
        except FunctionEnded as error:
            return StageResult(Stage.SAMPLED, 0, claimed, unable=f"{function.name}: {error}")

    return run


def _affordable_draws(function: AuditedFunction, pairs: int, budget: StageBudget) -> tuple[int, int]:
    """Return the number of draws on each input, and of processes for them, from the times of a pilot."""
    sides = [(place, side) for place in range(pairs) for side in (0, 1)]
    each = [math.inf] * len(sides)
    begin, inside, tried = time.monotonic(), 0.0, 0
    for size in _PILOT:
        times = function.seconds_of([(*side, size) for side in sides])
        inside, tried = inside + sum(seconds for seconds, _ in times), tried + 1
        # Where a call raises, outputs are drawn one by one.
        each = [
            before if has_raised and size > 1 else seconds / size
            for before, (seconds, has_raised) in zip(each, times, strict=True)
        ]
        if time.monotonic() - begin > 0.2 * budget.seconds:
            break
    start_up = max((time.monotonic() - begin - inside) / tried, 0.0)
    is_cheap = budget.is_thorough and 2 * pairs * _PROCESSES * start_up < 0.3 * budget.seconds
    processes = _PROCESSES if is_cheap else 2
    left = budget.seconds - (time.monotonic() - begin) - 2 * pairs * processes * start_up
    most = _MOST_DRAWS if budget.is_thorough else QUICK_DRAWS
    return int(min(most, 0.7 * max(left, 0.0) / sum(each))), processes


def _repeated_seed(function: AuditedFunction, found: Sequence[tuple[str, str]]) -> Witness | None:
    """Return a witness if two calls or two processes give the same outputs on the same data."""
    for place in (0, len(found) - 1):
        calls: list[Call] = [(place, 1, _REPEATED), (place, 1, _REPEATED)]
        one, other = function.both_results(calls)
        for words, first, second in (
            ("two calls", one[0], one[1]),
            ("two processes at the same time", one[0], other[0]),
        ):
            if isinstance(first, Raised) or isinstance(second, Raised):
                continue
            texts = [canonical(value) for value in first]
            chance = _chance_of_order(texts)
            if chance < _COINCIDENCE and texts == [canonical(value) for value in second]:
                return Witness(
                    pair=f"{found[place][1]}, twice",
                    event=f"{words} gave the same outputs: noise is repeated, as from a fixed seed",
                    numbers={"equal outputs": _REPEATED, "probability by chance, at most": chance},
                )
    return None


def _chance_of_order(texts: Sequence[str]) -> float:
    """Return the probability that independent outputs come in the same order again: m₁! m₂! … / n!."""
    logs = sum(math.lgamma(count + 1) for count in Counter(texts).values()) - math.lgamma(len(texts) + 1)
    return math.exp(max(logs, -700.0))


def _broken_contract(function: AuditedFunction, found: Sequence[tuple[str, str]]) -> str:
    """Return what is wrong with the outputs' independence; empty if nothing was found."""
    place = len(found) // 2
    pairs = function.results([(place, 1, 2)] * (3 * _COMPARED))
    together, apart = pairs[:_COMPARED], pairs[_COMPARED:]
    within = [_both(call, call) for call in together]
    across = [_both(one, other) for one, other in zip(apart[::2], apart[1::2], strict=True)]
    if _differ(within, across):
        return (
            f"{function.name}: two outputs of one call depend on each other, so that counts mean nothing. "
            "Draw fresh noise for each output"
        )
    single = _joined(function.results([(place, 1, 1)] * _COMPARED))
    [many] = function.results([(place, 1, _COMPARED)])
    if not isinstance(many, Raised) and _differ(list(single), list(many)):
        return (
            f"{function.name}: its outputs depend on `size`, so that counts mean nothing. Give each output "
            "the same law"
        )
    return ""


def _both(one: Outputs | Raised, other: Outputs | Raised) -> object:
    """Return how the first output of one call and the second of another relate."""
    if isinstance(one, Raised) or isinstance(other, Raised):
        return "raised"
    first, second = (each.flat[0] if isinstance(each, np.ndarray) else each for each in (one[0], other[1]))
    if isinstance(first, int | float | np.number) and isinstance(second, int | float | np.number):
        return [float(first) - float(second), float(first) + float(second)]
    return canonical(first) == canonical(second)


def _differ(one: Sequence[object], other: Sequence[object]) -> bool:
    """Return whether two samples show that their laws differ, up to an error of 1e-9."""

    def given(values: Sequence[object]) -> Draw:
        left = iter(values)
        return lambda size: [next(left) for _ in range(size)]

    pair = SampledPair("", given(one), given(other))
    return not attack_pair(pair, 0, draws=len(one), error=_CHECK_ERROR).holds
