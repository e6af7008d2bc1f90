"""Replays of a pipeline's attempts, and of its calibration, on generated rows that differ by one unit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.audit.audited_pipeline import UNITS, AuditedPipeline, added_units
from lapwing.audit.case import RunStage, StageBudget, StageResult
from lapwing.audit.stages.coupling import coupled
from lapwing.audit.stages.replay import Compose, ReplayPair, replay_stage, sequential
from lapwing.audit.training_runs import SEEDS, composed_apart, watching
from lapwing.core.losses import ParallelComposition
from lapwing.learn.unit_split import in_test_half
from lapwing.mechanisms import Laplace
from lapwing.sql.row_questions import CodedColumn, PrivateRows

if TYPE_CHECKING:
    from lapwing.learn.pipelines.attempt import AttemptWork
    from lapwing.learn.pipelines.calibration import CalibrationSettings

KEY = b"the halves of an audit"
_SEARCHED = 100_000


def is_testing(mechanism: Any) -> bool:
    """Tell whether a mechanism of an attempt reads testing units: trainers add Gaussian noise alone."""
    return isinstance(mechanism, Laplace)


def attempt_replay(audited: AuditedPipeline) -> RunStage:
    """Return the stage that replays attempts of a pipeline, and its calibration."""
    from lapwing.learn.pipelines.attempt import attempt_work  # noqa: PLC0415 (an extra)

    pipeline, features = audited.pipeline, audited.features

    def run(budget: StageBudget) -> StageResult:
        stages = []
        for tried in audited.attempts[: None if budget.is_thorough else 1]:
            work = attempt_work(pipeline, features, tried, run=1, key=KEY)
            stages.append(_work_replay(audited, work, tried.epsilon))
        if pipeline.calibration is not None:
            stages.append(_calibration_replay(audited, pipeline.calibration))
        return in_turn(*stages)(budget)

    return run


def in_turn(*stages: RunStage) -> RunStage:
    """Return one stage that runs several until one finds a violation or could not run."""

    def run(budget: StageBudget) -> StageResult:
        result = stages[0](budget)
        for stage in stages[1:]:
            if not result.holds:
                return result
            then = stage(budget)
            result = replace(
                then,
                checks=result.checks + then.checks,
                claimed=result.claimed,
                could_show=result.could_show,
                notes=result.notes + then.notes,
            )
        return result

    return run


def _work_replay(audited: AuditedPipeline, work: AttemptWork, epsilon: Fraction) -> RunStage:
    loss = work.loss
    compose: Compose = sequential
    if isinstance(loss, ParallelComposition):
        compose = composed_apart(loss.parts[0], is_testing)
    pairs = _attempt_pairs(audited, work.done)
    return replay_stage(pairs, loss, epsilon=epsilon, delta=audited.pipeline.delta, compose=compose)


def _calibration_replay(audited: AuditedPipeline, part: CalibrationSettings) -> RunStage:
    """Return the replay of calibration alone: an attempt calibrates accepted models only."""
    features, share = audited.features, audited.pipeline.test_share
    calibration = part.of(features)
    model = audited.trained(audited.attempts[0], audited.ordinary_rows())

    def done(rows: PrivateRows) -> bytes:
        known = rows.where(features.learnable(rows))
        tests = known.tests(lambda ids: in_test_half(ids, key=KEY, share=share))
        return calibration.release(model, known.where(tests))

    return replay_stage(_attempt_pairs(audited, done), calibration.loss, epsilon=part.epsilon)


def _halves(audited: AuditedPipeline) -> list[tuple[str, int]]:
    """Return the next id of a unit that trains, and of one that tests; only one id for a statistic."""
    if audited.pipeline.trainer.is_statistic:
        return [("", UNITS)]
    later = np.arange(UNITS, UNITS + _SEARCHED)
    tests = in_test_half(later, key=KEY, share=audited.pipeline.test_share)
    halves = [(" that trains", ~tests), (" that tests", tests)]
    return [(words, int(later[which][0])) for words, which in halves if which.any()]


def _attempt_pairs(
    audited: AuditedPipeline, done: Callable[[PrivateRows], Any]
) -> Callable[[StageBudget], Iterator[ReplayPair]]:
    """Return pairs that add a unit to one half. It must move no mechanism of the other half."""
    from lapwing.learn.pipelines.components import NETWORK  # noqa: PLC0415 (an extra)

    def pair(
        description: str, first: PrivateRows, second: PrivateRows, *, seed: int, half: str
    ) -> ReplayPair:
        def unmoved(mechanism: Any) -> bool:
            return bool(half) and is_testing(mechanism) is not (half == " that tests")

        def run(rows: PrivateRows) -> Any:
            with coupled(seed), watching(unmoved) as seen:
                return done(rows), seen

        return ReplayPair(
            description, lambda: run(first), lambda: run(second), description.startswith("rows;")
        )

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        base, nobody = audited.ordinary_rows(), audited.rows([], [])
        is_slow = audited.pipeline.trainer.kind == NETWORK
        added = added_units()[: (5 if is_slow else None) if budget.is_thorough else 2]
        end = time.monotonic() + budget.seconds
        for seed in SEEDS if budget.is_thorough and not is_slow else SEEDS[:1]:
            for half, id_ in _halves(audited):
                words, picks = added[0]
                alone = audited.rows([picks], [id_])
                yield pair(f"nobody; {words}{half}", nobody, alone, seed=seed, half=half)
                for words, picks in added:
                    more = audited.ordinary_rows((picks, id_))
                    yield pair(
                        f"{UNITS} units; the same and {words}{half}", base, more, seed=seed, half=half
                    )
                    if time.monotonic() > end:
                        return
            yield pair("rows; the same in another order", base, _reversed(base), seed=seed, half="")

    return pairs


def _reversed(rows: PrivateRows) -> PrivateRows:
    """Return the same rows in another order."""
    order = np.arange(len(rows))[::-1]
    columns = {
        name: CodedColumn(column.codes[order], column.known[order]) for name, column in rows.columns.items()
    }
    return PrivateRows(rows.units[order], rows.blocks[order], columns, rows.people[order], rows.ids)
