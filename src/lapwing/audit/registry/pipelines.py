"""The cases of pipelines, and of networks, calibration and halves of units."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.audit.attempt_replay import attempt_replay
from lapwing.audit.audited_pipeline import AuditedPipeline
from lapwing.audit.case import AuditCase, Family, Stage
from lapwing.audit.training_runs import with_extra
from lapwing.sql.policy.kinds import Choice, Kind, Numeric, Truth

EPSILON, DELTA = Fraction(1), Fraction(1, 10**8)
_PIPELINES = "lapwing.learn.pipelines"
_HALVES = "lapwing.learn.unit_split.in_test_half"
_NETWORK: dict[str, Any] = {
    "layers": (3,), "activation": "tanh", "clip": 1, "rate": Fraction(1, 2), "steps": 3,
    "learning_rate": 0.1, "optimizer": "sgd",
}  # fmt: skip


def _pipeline(
    label: Kind, trainer: str, settings: dict[str, Any], validator: dict[str, Any]
) -> AuditedPipeline:
    """Return a pipeline and its features: two numbers with NULLs, and one of several values."""
    from lapwing.learn.features import Feature, Features  # noqa: PLC0415 (an extra)
    from lapwing.learn.pipelines.calibration import CalibrationSettings  # noqa: PLC0415
    from lapwing.learn.pipelines.components import TrainerSettings, ValidatorSettings  # noqa: PLC0415
    from lapwing.learn.pipelines.pipeline import AttemptSchedule, Pipeline, Strategy  # noqa: PLC0415

    made = TrainerSettings(trainer, settings)
    columns = (
        Feature("age", Numeric(Fraction(1), 0, 120), indicator=True),
        Feature("weight", Numeric(Fraction(1, 2), 0, 400), missing=150),
        Feature("ward", Choice(("A", "B", "C"))),
    )
    features = Features(() if made.is_statistic else columns, "label", label)
    calibration = CalibrationSettings(epsilon=EPSILON / 4, bins=4)
    pipeline = Pipeline(
        name=trainer,
        stream=Path("audit.toml"),
        sql="SELECT 1",
        label="label",
        delta=Fraction(0) if made.is_statistic else DELTA,
        trainer=made,
        validator=ValidatorSettings(eta=Fraction(1, 20), **validator),
        schedule=AttemptSchedule(
            strategy=Strategy.AGGRESSIVE, least=EPSILON, most=EPSILON, first_blocks=1, most_blocks=1
        ),
        test_share=Fraction(3, 10),
        units_per_block=40,
        calibration=None if made.is_statistic else calibration,
    )
    return AuditedPipeline(pipeline, features)


def attempt_case(
    name: str, covers: tuple[str, ...], make: Callable[[], AuditedPipeline], *, delta: Fraction = DELTA
) -> AuditCase:
    """Return the case of an attempt: train on one half of the units, validate on the other."""
    claimed = float(EPSILON)
    stages = {Stage.REPLAY: with_extra(Stage.REPLAY, claimed, lambda: attempt_replay(make()))}
    return AuditCase(name, Family.TRAINER, covers, EPSILON, delta, stages)


def pipeline_cases() -> tuple[AuditCase, ...]:
    """Return a case for each kind of attempt."""
    number, yes_no, three = Numeric(Fraction(1, 10), 0, 600), Truth(), Choice(("x", "y", "z"))
    accuracy = {"target": Fraction(1, 2)}
    error: dict[str, Any] = {"target": Fraction(7), "loss": "absolute error", "bound": Fraction(60)}
    of_statistic = {"target": Fraction(1, 10), "loss": "error"}
    calibration = f"{_PIPELINES}.calibration.Calibration"
    return (
        attempt_case(
            "attempt: linear regression", (_HALVES, calibration, f"{_PIPELINES}.attempt.ModelWork"),
            lambda: _pipeline(number, "linear regression", {}, error),
        ),
        attempt_case(
            "attempt: network", (_HALVES, calibration, f"{_PIPELINES}.network.Network"),
            lambda: _pipeline(number, "network", _NETWORK, error),
        ),
        attempt_case(
            "attempt: naive Bayes, two classes", (_HALVES, calibration),
            lambda: _pipeline(yes_no, "naive Bayes", {"bins": 4}, accuracy),
        ),
        attempt_case(
            "attempt: additive trees, three classes", (_HALVES, calibration),
            lambda: _pipeline(three, "additive trees", {"passes": 1, "bins": 4},
                              {"target": Fraction(1), "loss": "log loss", "bound": Fraction(5)}),
        ),
        attempt_case(
            "attempt: mean", (f"{_PIPELINES}.attempt.StatisticWork",),
            lambda: _pipeline(number, "mean", {}, of_statistic), delta=Fraction(0),
        ),
        attempt_case(
            "attempt: histogram", (f"{_PIPELINES}.attempt.StatisticWork",),
            lambda: _pipeline(number, "histogram", {"bins": 5}, of_statistic), delta=Fraction(0),
        ),
    )  # fmt: skip
