"""The cases of joint statistics: the noise that real plans choose, and a member's whole contribution.

Plans and contributions are made by the code of `lapwing.parties`, from requirements and statistics. So a
mistake in the division of ε, in the shares for honest members, or in a block's sensitivity is found here.

Claim    a run of `Contribution` on generated people calls the mechanisms of its plan, and no unit moves
         the inputs of these farther than the blocks of the statistic declare. The calls of all stages lose
         no more than the plan charges. The honest noise of each block hides a person at h members, at the
         block's part of ε.
Because  the first two are replayed through `Statistic.exact` and the contribution's own noise. The third is
         compared exactly, with the least number of honest members by the requirements alone.
Test     tests/audit/registry/test_joint_noise_cases.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.generated_sources import AUDITOR, People
from lapwing.audit.party_audit import compare_noise
from lapwing.audit.registry.clinic import DELTA, EPSILON, built_in_sources
from lapwing.audit.stages.replay import ReplayPair, replay_stage
from lapwing.core import Relation
from lapwing.core.observed import observing
from lapwing.parties import CellBlock, JointRequirements, plan_jointly
from lapwing.parties.contribution import ChargedAccount, Contribution, LocalContribution
from lapwing.parties.joint_noise import member_loss, noise_shares, row_randomizer, split_budget
from lapwing.parties.joint_plan import JointPlan
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.statistics import Statistic, statistic_of
from lapwing.sql.dataset import Dataset

_RUN, _CONFIDENCE = bytes(32), Fraction(19, 20)
_QUICK_PAIRS, _QUICK_PLANS = 4, 8
_WIDE = 1 << 60  # beyond what a member contributes: clamped
_ROWS_OF_LOCAL = [
    ([3, 2, 0, 1], [2, 3, 0, 1]),
    ([1, 0, 0, 0], [0, 0, 0, 1]),
    ([-5, 1, 0, 0], [-5, 0, 1, 0]),
]


@dataclass(frozen=True, slots=True)
class PlannedSetting:
    """A setting whose plan is audited: members, t, losses, members of one person, stages."""

    protocol: str
    noise: str
    members: int
    coalition: int
    losses: int = 0
    people_at: int = 1
    stages: int = 1

    @property
    def plan(self) -> JointPlan:
        """The plan that `plan_jointly` makes for two blocks; for one block of counts in the local model."""
        needs = requirements(
            self.protocol, self.noise, self.members, self.coalition, self.losses, self.people_at
        )
        return plan_jointly(needs, _COUNTS if self.protocol == "L" else _BLOCKS, self.stages)

    def __str__(self) -> str:
        return (
            f"protocol {self.protocol}, {self.noise} noise, {self.members} members, t = {self.coalition}, "
            f"{self.losses} losses, a person at {self.people_at}, {self.stages} stages"
        )


_COUNTS = (CellBlock("one row in each", 4, 1, 1),)
_BLOCKS = (CellBlock("rows", 3, 3, 9), CellBlock("sums", 2, 60, 1800, Fraction(2)))
SETTINGS = (
    PlannedSetting("A", "laplace", 3, 1, 0, 2, 2),
    PlannedSetting("A", "gaussian", 3, 1, 0, 2, 1),
    PlannedSetting("B", "laplace", 5, 1, 1, 1, 1),
    PlannedSetting("B", "gaussian", 4, 1, 0, 3, 2),
    PlannedSetting("C", "laplace", 5, 2, 0, 2, 3),
    PlannedSetting("D", "laplace", 4, 1, 1, 1, 2),
    PlannedSetting("auto", "auto", 5, 2, 0, 2, 1),
    PlannedSetting("L", "auto", 4, 2, 0, 2, 1),
    PlannedSetting("L", "auto", 3, 1, 0, 1, 1),
    PlannedSetting("C", "gaussian", 7, 2, 1, 2, 1),
    PlannedSetting("D", "gaussian", 6, 3, 0, 1, 4),
    PlannedSetting("B", "laplace", 6, 5, 0, 6, 1),
)


def requirements(  # noqa: PLR0917 (as in a consortium's file)
    protocol: str, noise: str, members: int, coalition: int, losses: int = 0, people_at: int = 1
) -> JointRequirements:
    """Return requirements at ε = 1, with δ where noise may be Gaussian."""
    return JointRequirements(
        members=members, coalition=coalition, losses=losses, people_at=people_at, adversary="bounded",
        protocol=protocol, epsilon=EPSILON, delta=Fraction(0) if noise == "laplace" else DELTA, noise=noise,
    )  # fmt: skip


def joint_noise_cases() -> list[AuditCase]:
    """Return the cases of joint plans and of members' contributions."""
    return [
        AuditCase(
            "joint noise: the shares of plans", Family.PROTOCOL,
            (split_budget, noise_shares, member_loss, row_randomizer), EPSILON, DELTA,
            {Stage.EXACT: planned_noise(SETTINGS)},
        ),
        *(
            contribution_case(f"joint statistic: {name}", kind, spec, noise)
            for name, kind, spec, noise in _STATISTICS
        ),
        vector_case(),
        AuditCase(
            "joint statistic: rows that randomize themselves", Family.PROTOCOL, (LocalContribution,),
            EPSILON, Fraction(0), {Stage.REPLAY: local_rows},
        ),
    ]  # fmt: skip


# Noise of plans


def planned_noise(settings: Sequence[PlannedSetting]) -> RunStage:
    """Return the stage that compares the noise of each setting's plan with the ε of its requirements."""

    def run(budget: StageBudget) -> StageResult:
        checks, measured = 0, 0.0
        for setting in settings if budget.is_thorough else settings[:_QUICK_PLANS]:
            result = compare_noise(setting.plan, budget)
            checks, measured = checks + result.checks, max(measured, result.measured or 0.0)
            if result.witness is not None:
                words = f"{setting}; {result.witness.pair}"
                return replace(result, checks=checks, witness=replace(result.witness, pair=words))
        return StageResult(Stage.EXACT, checks, float(EPSILON), measured, float(EPSILON))

    return run


# Contributions of members


_STATISTICS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("a question", "statistic.SqlStatistic",
        {"kind": "question", "sql": "SELECT ward, COUNT(*), SUM(stay) FROM visits GROUP BY ward"},
        "laplace"),
    ("a question with Gaussian noise", "statistic.SqlStatistic",
        {"kind": "question", "sql": "SELECT AVG(cost), COUNT(DISTINCT who), VARIANCE(stay) FROM visits"},
        "gaussian"),
    ("a regression", "regression.RegressionStatistic",
        {"kind": "regression", "table": "visits", "y": "cost", "x": ["stay"]}, "laplace"),
    ("a quantile", "quantile.QuantileStatistic",
        {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "0.5"}, "laplace"),
)  # fmt: skip


def contribution_case(name: str, kind: str, spec: dict[str, Any], noise: str) -> AuditCase:
    """Return the case of a statistic of a data set: a member's contribution on generated neighbours."""
    needs = requirements("auto", noise, 3, 1, people_at=2)

    def bound(people: People, *, is_reversed: bool = False) -> Contributed:
        data = built_in_sources("people").dataset(people, is_reversed=is_reversed)
        return Contributed(needs, statistic_of(spec, data), data)

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        neighbours = built_in_sources("people").neighbours(is_thorough=budget.is_thorough)
        for pair in neighbours if budget.is_thorough else neighbours[:_QUICK_PAIRS]:
            other = bound(pair.second, is_reversed=pair.is_reversed)
            yield ReplayPair(pair.description, bound(pair.first), other, pair.is_equal)

    return _replayed_case(name, kind, needs, pairs, lambda: bound(()))


def _replayed_case(
    name: str,
    kind: str,
    needs: JointRequirements,
    pairs: Callable[[StageBudget], Iterator[ReplayPair]],
    planned: Callable[[], Contributed],
) -> AuditCase:
    """Return the case of a kind of statistic. What is charged is made when the replay runs."""

    def run(budget: StageBudget) -> StageResult:
        return replay_stage(pairs, planned().plan.loss, epsilon=EPSILON, delta=needs.delta)(budget)

    covers = (f"lapwing.parties.statistics.{kind}", Contribution)
    return AuditCase(name, Family.PROTOCOL, covers, EPSILON, needs.delta, {Stage.REPLAY: run})


class _NoLedger:
    """Stands for a ledger, where nothing is charged: its accounts are for rows that can be replaced."""

    relation = Relation.REPLACE

    def account(self, _label: str) -> _NoLedger:
        return self


_NO_ACCOUNT = ChargedAccount(cast(Any, _NoLedger()), "audit", AUDITOR)


@dataclass(frozen=True, slots=True)
class Contributed:
    """All stages of one member's contribution, with its real plan. Calling it returns what is opened.

    Other members bring zeros without noise: less hides this member's numbers than in any real sum.
    """

    needs: JointRequirements
    statistic: Statistic
    data: Dataset | ChargedAccount

    @property
    def plan(self) -> JointPlan:
        """The plan for the blocks and stages of the statistic."""
        return plan_jointly(self.needs, self.statistic.blocks, self.statistic.stages)

    def __call__(self) -> Any:
        """Run all stages, and return the opened sums and the answer."""
        plan, statistic = self.plan, self.statistic
        contribution = Contribution(
            statistic=statistic, data=self.data, run=_RUN, consortium=_RUN, shares=plan.shares,
            loss=plan.loss,
        )  # fmt: skip
        opened: list[OpenedSum] = []
        members = tuple(range(self.needs.members))
        for stage in range(statistic.stages):
            values = contribution._noised(statistic.exact(stage, opened))
            opened.append(OpenedSum(values, members))
        noises = [plan.noises(len(members))] * statistic.stages
        answer = statistic.answer(opened, noises, confidence=_CONFIDENCE)
        return [message.values for message in opened], repr(answer.to_json())


def vector_case() -> AuditCase:
    """Return the case of a vector: numbers that one unit moves by l1, also where they are clamped."""
    needs = requirements("auto", "laplace", 3, 1)
    length, l1 = 3, 5
    vectors = [
        ([0, 0, 0], [5, 0, 0]), ([0, 0, 0], [2, -3, 0]), ([_WIDE, -_WIDE, 7], [_WIDE + 5, -_WIDE, 7]),
        ([(1 << 52) - 2, 0, 0], [(1 << 52) + 3, 0, 0]),
    ]  # fmt: skip

    def bound(values: list[int]) -> Contributed:
        spec = {"kind": "vector", "length": length, "l1": l1, "l2_squared": l1 * l1, "labels": None}
        return Contributed(needs, statistic_of(spec, values), _NO_ACCOUNT)

    def pairs(_: StageBudget) -> Iterator[ReplayPair]:
        for first, second in vectors:
            yield ReplayPair(f"the numbers {first} and {second}", bound(first), bound(second))

    name, kind = "joint statistic: a vector", "statistic.VectorStatistic"
    return _replayed_case(name, kind, needs, pairs, lambda: bound([0] * length))


# Rows that randomize themselves


def local_rows(_budget: StageBudget) -> StageResult:
    """Compare the rows that are randomized for two tallies, of which one row is different.

    Each row must be randomized once, by the plan's randomizer; only one may differ; and if all rows report
    the same, the tallies must be equal.
    """
    needs = requirements("L", "auto", 4, 2, people_at=2)
    checks = 0
    for first, second in _ROWS_OF_LOCAL:
        words = f"rows by option: {first} and {second}"
        for report in range(len(first)):
            (mine, tally), (its, its_tally) = (_randomized(needs, rows, report) for rows in (first, second))
            checks += 1
            moved = np.abs(np.bincount(mine, minlength=len(first)) - np.bincount(its, minlength=len(first)))
            wrong = ""
            if len(mine) != sum(max(rows, 0) for rows in first) or len(its) != len(mine):
                wrong = "not every row is randomized once"
            elif moved.sum() > 2:
                wrong = "more than one row differs"
            elif not np.array_equal(tally, its_tally):
                wrong = "the tallies differ although all rows report the same"
            if wrong:
                randomized = {"one": str(mine.tolist()), "other": str(its.tolist())}
                witness = Witness(f"{words}; all report {report}", wrong, randomized)
                return StageResult(Stage.REPLAY, checks, float(EPSILON), witness=witness)
    return StageResult(Stage.REPLAY, checks, float(EPSILON), could_show=float(EPSILON))


def _randomized(
    needs: JointRequirements, rows: Sequence[int], report: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that were randomized, sorted, and the tally if each of them reports `report`."""
    plan = plan_jointly(needs, _COUNTS)
    spec = {"kind": "vector", "length": len(rows), "l1": 1, "l2_squared": 1, "labels": None}
    contribution = LocalContribution(
        statistic=statistic_of(spec, list(rows)), data=_NO_ACCOUNT, run=_RUN, consortium=_RUN,
        response=row_randomizer(needs, plan.blocks[0]),
    )  # fmt: skip
    seen: list[NDArray[np.int64]] = []

    def observer(_mechanism: Any, inputs: dict[str, Any], _draw: Callable[[], Any]) -> NDArray[np.int64]:
        seen.append(np.array(inputs["answers"], dtype=np.int64))
        return np.full(len(seen[-1]), report, dtype=np.int64)

    with observing(observer):
        tally = contribution._noised(contribution.statistic.exact(0, ()))
    return np.sort(np.concatenate([*seen, np.zeros(0, dtype=np.int64)])), tally
