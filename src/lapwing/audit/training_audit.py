"""The audit of a pipeline: its trainer, validator and calibration on generated rows, and canaries.

Claim    nothing is charged, no ledger is written and no private row is read.
Because  the features follow from the pipeline file and the policy alone, rows are made of the declared
         ranges, and the work of an attempt is done outside of a charged read.
Test     tests/audit/test_training_audit.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult
from lapwing.audit.query_audit import AUDITOR, audited_policy
from lapwing.audit.stages.canaries import Included, OneRun, canary_stage
from lapwing.audit.stages.coupling import coupled
from lapwing.audit.stages.replay import Compose, ReplayPair, replay_stage, sequential
from lapwing.audit.training_runs import SEEDS, composed_apart, watching, with_extra
from lapwing.core.laplace import Laplace
from lapwing.core.losses import ParallelComposition
from lapwing.core.noise import uniform_int
from lapwing.errors import BadParameter
from lapwing.learn.payer import PublicData
from lapwing.learn.unit_split import in_test_half
from lapwing.sql.dataset import Dataset
from lapwing.sql.row_questions import CodedColumn, PrivateRows, row_question

if TYPE_CHECKING:
    from lapwing.learn.features import Features
    from lapwing.learn.pipelines.attempt import AttemptWork
    from lapwing.learn.pipelines.pipeline import Pipeline, PlannedAttempt

UNITS = 40
CANARIES, GUESSES = 1000, 300
ERROR = StageBudget().error / 2  # the share of canaries
KEY = b"the halves of an audit"
_SEARCHED = 100_000
Pick = Callable[
    [int, int, int], int | None
]  # of the first and last code, and the column's place; None: NULL


def case_of_pipeline(path: str | Path) -> AuditCase:
    """Return the case of a pipeline file.

    Args:
        path: The pipeline file.

    Raises:
        BadParameter: If the file has mistakes, does not fit its stream, or the stream has no ledger yet.
        MissingExtra: If the extra `learn` is not installed.
    """
    from lapwing.learn.pipelines.pipeline import load_pipeline  # noqa: PLC0415 (an extra)

    if not Path(path).is_file():
        raise BadParameter("pipeline", f"{path} is no file. Name a pipeline file, such as durations.toml")
    pipeline = load_pipeline(path)
    policy = audited_policy(pipeline.stream)
    if policy.blocks is None:
        raise BadParameter("stream", f"{pipeline.stream} has no blocks: write [blocks] into the policy")
    with Dataset(policy, analyst=AUDITOR) as dataset:
        features = pipeline.features(row_question(dataset, pipeline.sql))
    return pipeline_case(f"train {pipeline.name}", pipeline, features)


def pipeline_case(
    name: str, pipeline: Pipeline, features: Features, *, covers: Sequence[str] = ()
) -> AuditCase:
    """Return the case of a pipeline: replay of its attempts on neighbours, and canaries if it trains."""
    tried = _attempts(pipeline)[0]
    stages = {
        Stage.REPLAY: with_extra(
            Stage.REPLAY, float(tried.epsilon), lambda: attempt_replay(pipeline, features)
        )
    }
    reason = ""
    if not pipeline.trainer.is_statistic and not _canaries_can_show(tried.epsilon, pipeline.delta):
        reason = (
            f"there are no canaries: with δ = {float(pipeline.delta):g} they could show nothing at the "
            "error of an audit. A smaller delta in the pipeline allows them"
        )
    elif not pipeline.trainer.is_statistic:
        stages[Stage.CANARIES] = with_extra(
            Stage.CANARIES, float(tried.epsilon), lambda: pipeline_canaries(pipeline, features, tried)
        )
    return AuditCase(name, Family.TRAINER, tuple(covers), tried.epsilon, pipeline.delta, stages, reason)


def _canaries_can_show(epsilon: Fraction, delta: Fraction) -> bool:
    """Return whether guesses that are all right would contradict the claim, at the error of an audit."""
    try:
        OneRun(epsilon, delta, Fraction(ERROR), CANARIES, GUESSES, GUESSES)
    except BadParameter:
        return False
    return True


def _attempts(pipeline: Pipeline) -> list[PlannedAttempt]:
    """Return the first attempt and the last one, if there is one."""
    from lapwing.learn.pipelines.training import first_and_last_attempt  # noqa: PLC0415 (an extra)

    return first_and_last_attempt(pipeline, 1)


# Generated rows


def generated_rows(features: Features, units: Sequence[Sequence[Pick]], ids: Sequence[int]) -> PrivateRows:
    """Return made-up rows.

    Args:
        features: The features and the label, whose declared ranges are used.
        units: For each unit, the codes of each of its rows.
        ids: The id of each unit.
    """
    described = [*features.columns, features.label_feature]
    rows = [(unit, pick) for unit, picks in enumerate(units) for pick in picks]
    numbers = np.array([unit for unit, _ in rows], dtype=np.int64)
    columns = {}
    for place, column in enumerate(described):
        codes = [pick(*column.ends, place) for _, pick in rows]
        columns[column.name] = CodedColumn(
            np.array([code or 0 for code in codes], dtype=np.int64),
            np.array([code is not None for code in codes], dtype=np.bool_),
        )
    return PrivateRows(numbers, 0 * numbers, columns, numbers, np.array(ids, dtype=np.int64))


def ordinary_codes(seed: int) -> Pick:
    """Return codes within the declared range."""
    return lambda first, last, place: first + (seed * 7919 + place * 104_729 + 17) % (last - first + 1)


def _added_units() -> list[tuple[str, list[Pick]]]:
    def low(first: int, _last: int, _place: int) -> int:
        return first

    def high(_first: int, last: int, _place: int) -> int:
        return last

    def mixed(first: int, last: int, place: int) -> int:
        return (first, last)[place % 2]

    def beyond(first: int, last: int, place: int) -> int:
        return (first - 10**9, last + 10**9)[place % 2]

    def missing(_first: int, _last: int, _place: int) -> None:
        return None

    def half_missing(first: int, _last: int, place: int) -> int | None:
        return first if place % 2 else None

    return [
        ("a unit of 40 equal rows", [high] * 40),
        ("a unit of one row at the lower ends", [low]),
        ("a unit of one row at mixed ends", [mixed]),
        ("a unit of NULL", [missing]),
        ("a unit of one row", [ordinary_codes(12345)]),
        ("a unit far beyond the bounds", [beyond]),
        ("a unit of one row with NULL", [half_missing]),
        ("a unit of 40 rows", [ordinary_codes(k) for k in range(40)]),
        ("a unit of one row at the upper ends", [high]),
    ]


def _base() -> tuple[list[list[Pick]], list[int]]:
    """Return ordinary units of one row each."""
    return [[ordinary_codes(unit)] for unit in range(UNITS)], list(range(UNITS))


def _reversed(rows: PrivateRows) -> PrivateRows:
    """Return the same rows in another order."""
    order = np.arange(len(rows))[::-1]
    columns = {name: CodedColumn(one.codes[order], one.known[order]) for name, one in rows.columns.items()}
    return PrivateRows(rows.units[order], rows.blocks[order], columns, rows.people[order], rows.ids)


# Replay


def is_testing(mechanism: Any) -> bool:
    """Tell whether a mechanism of an attempt reads testing units: trainers add Gaussian noise alone."""
    return isinstance(mechanism, Laplace)


def attempt_replay(pipeline: Pipeline, features: Features) -> RunStage:
    """Return the stage that replays attempts of a pipeline, and its calibration."""
    from lapwing.learn.pipelines.attempt import attempt_work  # noqa: PLC0415 (an extra)

    def run(budget: StageBudget) -> StageResult:
        stages = []
        for tried in _attempts(pipeline)[: None if budget.is_thorough else 1]:
            work = attempt_work(pipeline, features, tried, run=1, key=KEY)
            stages.append(_work_replay(pipeline, features, work, tried))
        if pipeline.calibration is not None:
            stages.append(_calibration_replay(pipeline, features))
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


def _work_replay(
    pipeline: Pipeline, features: Features, work: AttemptWork, tried: PlannedAttempt
) -> RunStage:
    loss = work.loss
    compose: Compose = sequential
    if isinstance(loss, ParallelComposition):
        compose = composed_apart(loss.parts[0], is_testing)
    pairs = _attempt_pairs(pipeline, features, work.done)
    return replay_stage(pairs, loss, epsilon=tried.epsilon, delta=pipeline.delta, compose=compose)


def _halves(pipeline: Pipeline) -> list[tuple[str, int]]:
    """Return the next id of a unit that trains, and of one that tests; only one id for a statistic."""
    if pipeline.trainer.is_statistic:
        return [("", UNITS)]
    later = np.arange(UNITS, UNITS + _SEARCHED)
    tests = in_test_half(later, key=KEY, share=pipeline.test_share)
    found = [(" that trains", ~tests), (" that tests", tests)]
    return [(words, int(later[which][0])) for words, which in found if which.any()]


def _attempt_pairs(
    pipeline: Pipeline, features: Features, done: Callable[[PrivateRows], Any]
) -> Callable[[StageBudget], Iterator[ReplayPair]]:
    """Return pairs that add a unit to one half. It must move no mechanism of the other half."""
    from lapwing.learn.pipelines.components import NETWORK  # noqa: PLC0415 (an extra)

    def pair(description: str, one: PrivateRows, other: PrivateRows, *, seed: int, half: str) -> ReplayPair:
        def unmoved(mechanism: Any) -> bool:
            return bool(half) and is_testing(mechanism) is not (half == " that tests")

        def run(rows: PrivateRows) -> Any:
            with coupled(seed), watching(unmoved) as seen:
                return done(rows), seen

        return ReplayPair(
            description, lambda: run(one), lambda: run(other), description.startswith("rows;")
        )

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        units, ids = _base()
        base, nobody = generated_rows(features, units, ids), generated_rows(features, [], [])
        is_slow = pipeline.trainer.kind == NETWORK
        added = _added_units()[: (5 if is_slow else None) if budget.is_thorough else 2]
        end = time.monotonic() + budget.seconds
        for seed in SEEDS if budget.is_thorough and not is_slow else SEEDS[:1]:
            for half, id_ in _halves(pipeline):
                words, picks = added[0]
                alone = generated_rows(features, [picks], [id_])
                yield pair(f"nobody; {words}{half}", nobody, alone, seed=seed, half=half)
                for words, picks in added:
                    more = generated_rows(features, [*units, picks], [*ids, id_])
                    yield pair(
                        f"{UNITS} units; the same and {words}{half}", base, more, seed=seed, half=half
                    )
                    if time.monotonic() > end:
                        return
            yield pair("rows; the same in another order", base, _reversed(base), seed=seed, half="")

    return pairs


def _calibration_replay(pipeline: Pipeline, features: Features) -> RunStage:
    """Return the replay of calibration alone: an attempt calibrates accepted models only."""
    part = pipeline.calibration
    if part is None:
        raise BadParameter("calibration", "is not part of this pipeline")
    calibration = part.of(features)
    model = trained_model(pipeline, features, _attempts(pipeline)[0], generated_rows(features, *_base()))

    def done(rows: PrivateRows) -> bytes:
        known = rows.where(features.learnable(rows))
        tests = known.tests(lambda ids: in_test_half(ids, key=KEY, share=pipeline.test_share))
        return calibration.release(model, known.where(tests))

    pairs = _attempt_pairs(pipeline, features, done)
    return replay_stage(pairs, calibration.loss, epsilon=part.epsilon)


def trained_model(pipeline: Pipeline, features: Features, tried: PlannedAttempt, rows: PrivateRows) -> Any:
    """Return a model that the pipeline's trainer makes of generated rows. Nothing is charged."""
    from lapwing.learn.pipelines.components import fit_on_rows  # noqa: PLC0415 (an extra)

    trainer = pipeline.trainer.create(
        features,
        epsilon=tried.epsilon,
        delta=pipeline.delta,
        size=pipeline.size(tried.blocks),
        payer=PublicData(),
    )
    return fit_on_rows(trainer, features, rows)


# Canaries


def pipeline_canaries(pipeline: Pipeline, features: Features, tried: PlannedAttempt) -> RunStage:
    """Return the stage of canaries: units with random features and labels, scored by the model's loss.

    They share the few features of the pipeline, so they show less than the notes' forecast.
    """
    from lapwing.learn.pipelines.components import row_losses  # noqa: PLC0415 (an extra)

    kind = "log loss" if features.has_classes else "absolute error"
    seeds = uniform_int(0, 1 << 40, CANARIES).tolist()
    canaries = generated_rows(features, [[ordinary_codes(seed)] for seed in seeds], range(CANARIES))

    def train(included: Included) -> NDArray[np.float64]:
        model = trained_model(pipeline, features, tried, canaries.where(included))
        return -row_losses(kind, model, features, canaries)

    stage = canary_stage(
        train, canaries=CANARIES, guesses=GUESSES, claimed=tried.epsilon, delta=pipeline.delta
    )

    def run(budget: StageBudget) -> StageResult:
        try:
            return stage(budget)
        except BadParameter as error:
            why = f"canaries could show nothing about this claim: {error}"
            return StageResult(Stage.CANARIES, 0, float(tried.epsilon), unable=why)

    return run
