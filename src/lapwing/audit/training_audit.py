"""The audit of a pipeline: its trainer, validator and calibration on generated rows, and canaries.

Claim    nothing is charged, no ledger is written and no private row is read.
Because  the features follow from the pipeline file and the policy alone, rows are made of the declared
         ranges, and the work of an attempt is done outside of a charged read.
Test     tests/audit/test_training_audit.py
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.attempt_replay import attempt_replay
from lapwing.audit.audited_pipeline import AuditedPipeline, ordinary_codes
from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult
from lapwing.audit.query_audit import audited_dataset
from lapwing.audit.stages.canaries import Included, OneRun, canary_stage
from lapwing.audit.training_runs import with_extra
from lapwing.core.noise import uniform_int
from lapwing.errors import BadParameter
from lapwing.sql.row_questions import row_question

CANARIES, GUESSES = 1000, 300
ERROR = StageBudget().error / 2  # the share of canaries


def case_of_pipeline(path: str | Path) -> AuditCase:
    """Return the case of a pipeline file.

    Args:
        path: The pipeline file.

    Raises:
        BadParameter: If the file has mistakes, does not fit its stream, or the stream has no ledger yet.
        MissingExtra: If the extra `learn` is not installed.
    """
    from lapwing.learn import load_pipeline  # noqa: PLC0415 (an extra)

    if not Path(path).is_file():
        raise BadParameter("pipeline", f"{path} is no file. Name a pipeline file, such as durations.toml")
    pipeline = load_pipeline(path)
    with audited_dataset(pipeline.stream) as dataset:
        if dataset.curator.policy.blocks is None:
            raise BadParameter("stream", f"{pipeline.stream} has no blocks: write [blocks] into the policy")
        features = pipeline.features(row_question(dataset, pipeline.sql))
    return pipeline_case(f"train {pipeline.name}", AuditedPipeline(pipeline, features))


def pipeline_case(name: str, audited: AuditedPipeline) -> AuditCase:
    """Return the case of a pipeline: replay of its attempts on neighbours, and canaries if it trains."""
    pipeline, claimed = audited.pipeline, audited.attempts[0].epsilon
    stages = {Stage.REPLAY: with_extra(Stage.REPLAY, float(claimed), lambda: attempt_replay(audited))}
    reason = ""
    if not pipeline.trainer.is_statistic and not _canaries_can_show(claimed, pipeline.delta):
        reason = (
            f"there are no canaries: with δ = {float(pipeline.delta):g} they could show nothing at the "
            "error of an audit. A smaller delta in the pipeline allows them"
        )
    elif not pipeline.trainer.is_statistic:
        stages[Stage.CANARIES] = with_extra(
            Stage.CANARIES, float(claimed), lambda: pipeline_canaries(audited)
        )
    return AuditCase(name, Family.TRAINER, (), claimed, pipeline.delta, stages, reason)


def _canaries_can_show(epsilon: Fraction, delta: Fraction) -> bool:
    """Return whether guesses that are all right would contradict the claim, at the error of an audit."""
    try:
        OneRun(epsilon, delta, Fraction(ERROR), CANARIES, GUESSES, GUESSES)
    except BadParameter:
        return False
    return True


def pipeline_canaries(audited: AuditedPipeline) -> RunStage:
    """Return the stage of canaries: units with random features and labels, scored by the model's loss.

    They share the few features of the pipeline, so they show less than the notes' forecast.
    """
    from lapwing.learn.pipelines.components import row_losses  # noqa: PLC0415 (an extra)

    features, tried, delta = audited.features, audited.attempts[0], audited.pipeline.delta
    kind = "log loss" if features.has_classes else "absolute error"
    seeds = uniform_int(0, 1 << 40, CANARIES).tolist()
    canaries = audited.rows([[ordinary_codes(seed)] for seed in seeds], range(CANARIES))

    def train(included: Included) -> NDArray[np.float64]:
        model = audited.trained(tried, canaries.where(included))
        return -row_losses(kind, model, features, canaries)

    stage = canary_stage(train, canaries=CANARIES, guesses=GUESSES, claimed=tried.epsilon, delta=delta)

    def run(budget: StageBudget) -> StageResult:
        try:
            return stage(budget)
        except BadParameter as error:
            why = f"canaries could show nothing about this claim: {error}"
            return StageResult(Stage.CANARIES, 0, float(tried.epsilon), unable=why)

    return run
