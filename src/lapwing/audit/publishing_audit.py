"""The audit of a release: all steps of its method, replayed on generated people of its policy.

Later steps of a method depend on earlier results. So the neighbour's run gets the same results, and must
choose and measure the same marginals.

Claim    nothing is charged, no ledger is written and no private row is read.
Because  the steps run on rows of `GeneratedSources`, with a journal in memory, and their charges are only
         noted.
Test     tests/audit/test_publishing_audit.py

Claim    in the run that was watched, each step was charged before a row was read for it, and before its
         noise was drawn.
Because  charges, the reading of rows and the calls of mechanisms are counted as they come.
Test     tests/audit/test_publishing_audit.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.generated_sources import GeneratedSources, People
from lapwing.audit.query_audit import audited_dataset
from lapwing.audit.stages.coupling import call_outside
from lapwing.audit.stages.replay import ReplayPair, replay_stage
from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.losses import Concentrated, Loss, SequentialComposition
from lapwing.core.observed import observing
from lapwing.publish.bound_release import BoundRelease, SyntheticPrice, bind_release
from lapwing.publish.census.census_release import bind_census, census_answer, least_rho
from lapwing.publish.measured.journal import Journal
from lapwing.publish.release_file import CENSUS, ReleasePlanFile, load_release
from lapwing.publish.synthetic_release import Wholes, measured_answer
from lapwing.sql.row_questions import PrivateRows, decode_rows

_SHOWN = 10**9  # a claimed ε has nine digits
# The charges of all steps, the stored answer, and what was done before it was charged.
Released = tuple[tuple[Loss, ...], bytes, tuple[str, ...]]


class JournalInMemory(Journal):
    """A journal that is not written. The steps of an audit are never continued."""

    def __init__(self) -> None:
        self.path, self.steps = Path("journal of an audit"), []

    def _append(self, record: dict[str, Any]) -> None:
        """Write nothing."""


def case_of_release(path: str | Path) -> AuditCase:
    """Return the case of a release file.

    Args:
        path: The release file.

    Raises:
        BadFile: If the release file or its policy has mistakes.
        BadParameter: If its policy has no ledger yet, or the release cannot be made.
    """
    file = load_release(path)
    with audited_dataset(file.policy) as dataset:
        sources = GeneratedSources(dataset.curator.policy, dataset.curator.public)
    return release_case(f"release: {file.name}", file, sources)


def release_case(
    name: str, file: ReleasePlanFile, sources: GeneratedSources, *, covers: tuple[Any, ...] = ()
) -> AuditCase:
    """Return the case of a release from generated people of its policy."""
    bound = bind_release(file, sources.dataset())
    rho, run = release_run(bound)
    delta = file.delta
    # The claim is the ε of the file. If the file gives ρ, it is the ε of ρ, rounded up.
    of_rho = Fraction(math.ceil(zcdp_to_epsilon(rho, delta) * _SHOWN), _SHOWN)
    epsilon = file.epsilon or of_rho
    stage = release_replay(bound, sources, rho, epsilon, run)
    return AuditCase(name, Family.PUBLISHING, covers, epsilon, delta, {Stage.REPLAY: stage})


def release_run(bound: BoundRelease) -> tuple[Fraction, Callable[[PrivateRows], Released]]:
    """Return the ρ of a release, and a function that takes all of its steps on some rows."""
    file = bound.file
    if file.method == CENSUS:
        census = bind_census(bound)
        wanted = file.census.wanted if file.census is not None else None
        rho = least_rho(census, wanted or {}) if file.rho is None else file.rho
        return rho, lambda rows: ((Concentrated(rho),), census_answer(census, rho, rows), ())
    assert file.rho is not None, "only a census finds its price from wanted errors"
    price = SyntheticPrice.of(file, bound.domain, bound.rows_per_unit, file.rho)

    def steps(rows: PrivateRows) -> Released:
        charged: list[Loss] = []
        late: list[str] = []
        drawn = count(1)

        def read() -> Wholes:
            late.extend([] if charged else ["rows are read"])
            return bound.cells(rows)

        def observer(mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any]) -> Any:
            late.extend([] if next(drawn) <= len(charged) else [f"{type(mechanism).__name__} draws"])
            return call_outside(outside, mechanism, inputs, draw)

        journals = [JournalInMemory(), JournalInMemory()]
        outside = copy_context()
        with observing(observer):
            _, answer = measured_answer(
                bound, price, read, journals,
                charge=charged.append, fail=lambda: None, shuffle=_in_order,
            )  # fmt: skip
        return tuple(charged), answer, tuple(late)

    return file.rho, steps


def _in_order(count: int) -> Wholes:
    """Return the same order for both neighbours. The check's own choice depends on no row."""
    return np.arange(count, dtype=np.int64)


def release_replay(
    bound: BoundRelease,
    sources: GeneratedSources,
    rho: Fraction,
    epsilon: Fraction,
    run: Callable[[PrivateRows], Released],
) -> RunStage:
    """Return the stage that replays a release on generated neighbours."""
    question = bound.question

    def released(people: People, *, is_reversed: bool = False) -> Callable[[], Released]:
        def steps() -> Released:
            table = sources.reader(people, is_reversed=is_reversed).rows(question.relation)
            return run(decode_rows(sources.policy, question, table))

        return steps

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        for pair in sources.neighbours(is_thorough=budget.is_thorough):
            other = released(pair.second, is_reversed=pair.is_reversed)
            yield ReplayPair(pair.description, released(pair.first), other, pair.is_equal)

    replayed = replay_stage(
        pairs, Concentrated(rho), epsilon=epsilon, delta=bound.file.delta,
        stepwise=lambda done: SequentialComposition(done[0]),
    )  # fmt: skip

    def stage(budget: StageBudget) -> StageResult:
        result = replayed(budget)
        if not result.holds:
            return result
        pair = sources.neighbours(is_thorough=False)[0]
        _, _, late = released(pair.first)()
        witness = (
            Witness(pair.description, f"{late[0]} before the charge of the step", {}) if late else None
        )
        return replace(result, checks=result.checks + 1, witness=witness)

    return stage
