"""The cases of pipelines, and of networks, calibration, halves of units and searched columns."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from lapwing.audit.case import AuditCase, Family, Stage, StageBudget, StageResult
from lapwing.audit.generated_sources import GeneratedSources
from lapwing.audit.query_audit import AUDITOR, query_replay
from lapwing.audit.registry.aggregates import WARDS, built_in_policy
from lapwing.audit.training_audit import attempt_replay
from lapwing.audit.training_runs import with_extra
from lapwing.sql.binding.bind import bind_with_text
from lapwing.sql.binding.scope import Catalog
from lapwing.sql.bound_query import BoundQuery
from lapwing.sql.dataset import Dataset
from lapwing.sql.expression import Choice, Kind, Numeric, Text, Truth
from lapwing.sql.noising import add_noise
from lapwing.sql.plan import Plan, plan_question
from lapwing.sql.policy import Policy
from lapwing.sql.preliminary_questions import (
    bounds_question,
    policy_with_column,
    policy_with_searched_column,
)

EPSILON, DELTA = Fraction(1), Fraction(1, 10**8)
SEARCH_DELTA = Fraction(1, 10**6)
_PIPELINES = "lapwing.learn.pipelines"
_HALVES = "lapwing.learn.unit_split.in_test_half"
_NETWORK: dict[str, Any] = {
    "layers": (3,), "activation": "tanh", "clip": 1, "rate": Fraction(1, 2), "steps": 3,
    "learning_rate": 0.1, "optimizer": "sgd",
}  # fmt: skip


def _pipeline(label: Kind, trainer: str, settings: dict[str, Any], validator: dict[str, Any]) -> Any:
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
    return pipeline, features


def attempt_case(
    name: str,
    covers: tuple[str, ...],
    make: Callable[[], Any],
    *,
    delta: Fraction = DELTA,
) -> AuditCase:
    """Return the case of an attempt: train on one half of the units, validate on the other."""
    claimed = float(EPSILON)
    stages = {Stage.REPLAY: with_extra(Stage.REPLAY, claimed, lambda: attempt_replay(*make()))}
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


# Columns that a policy does not declare


def column_search_cases() -> tuple[AuditCase, ...]:
    """Return a case for the search of bounds, and one for the search of values."""
    searches = (
        ("search for bounds", "find_bounds", Fraction(0), _bounds_plan),
        ("search for values", "find_values", SEARCH_DELTA, _values_plan),
    )
    return tuple(
        AuditCase(
            name,
            Family.SELECTION,
            (f"lapwing.learn.column_search.{function}",),
            EPSILON,
            delta,
            {Stage.REPLAY: partial(_run_search, planned)},
        )
        for name, function, delta, planned in searches
    )


def _run_search(planned: Callable[[], Plan], budget: StageBudget) -> StageResult:
    """Replay a search on generated people, whose files are removed afterwards."""
    plan = planned()
    sources = GeneratedSources(plan.session.curator.policy, {"wards": WARDS})
    try:
        return query_replay(plan, sources, lambda asked, exact: add_noise(asked.shares, exact))(budget)
    finally:
        sources.close()


def _bounds_plan() -> Plan:
    policy = policy_with_searched_column(built_in_policy("people"), "visits", "stay", 1)
    return _plan(policy, bounds_question(policy, "visits", "stay"), "bounds of visits.stay")


def _values_plan() -> Plan:
    policy = policy_with_column(built_in_policy("people"), "visits", "name", Text())
    sql = "SELECT name, COUNT(*) AS n FROM visits GROUP BY name"
    text, question = bind_with_text(sql, Catalog(policy, {"wards": WARDS}))
    return _plan(policy, question, text)


def _plan(policy: Policy, question: BoundQuery, text: str) -> Plan:
    session = Dataset(policy, analyst=AUDITOR).session
    return plan_question(session, question, text, epsilon=EPSILON, delta=SEARCH_DELTA)
