"""The audit of a query: its mechanisms, replayed on generated people of its policy.

Claim    nothing is charged, no ledger is written and no private row is read.
Because  the plan is made from the query and the policy alone. `GeneratedSources` stores generated people,
         and the query is read from these. The noise of an audit is added to their numbers only.
Test     tests/audit/test_query_audit.py
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget
from lapwing.audit.generated_people import NeighbourPeople
from lapwing.audit.generated_sources import GeneratedSources, People
from lapwing.audit.stages.replay import ReplayPair, replay_stage
from lapwing.core.exact import Number
from lapwing.errors import BadParameter
from lapwing.sql import policy_ledger
from lapwing.sql.answers import answer_to_bytes
from lapwing.sql.dataset import Dataset
from lapwing.sql.noising import ExactGrouping, NoisyGrouping, add_noise
from lapwing.sql.plan import Plan
from lapwing.sql.policy import Policy
from lapwing.sql.policy_file import load_policy
from lapwing.sql.relation import needs_new_ranks

AUDITOR = "auditor"


def case_of_query(
    policy: str | Path,
    sql: str,
    *,
    epsilon: Number = 1,
    delta: Number | None = None,
    noise: str = "auto",
    rows: int | None = None,
    where_first: bool = False,
) -> AuditCase:
    """Return the case of a query that a policy would answer.

    Args:
        policy: The policy file.
        sql: The query.
        epsilon: The price in ε.
        delta: The price in δ, where it is needed. None: the policy's `delta_per_query`.
        noise: "auto", "laplace" or "gaussian".
        rows: A lower contribution bound. None: the policy's.
        where_first: Whether a person's rows are chosen among those that WHERE keeps.

    Raises:
        BadParameter: If the policy has no ledger yet, or an option is not valid.
        Refused: If the query cannot be answered with privacy.
    """
    found = audited_policy(policy)
    with Dataset(found, analyst=AUDITOR) as dataset:
        plan = dataset.plan(
            sql, epsilon=epsilon, delta=delta, noise=noise, rows=rows, where_first=where_first
        )
        sources = GeneratedSources(found, dataset.curator.public)
    return query_case(f"query: {sql}", plan, sources)


def audited_policy(path: str | Path) -> Policy:
    """Read a policy that was used before. Raises BadParameter if it has no ledger."""
    policy = load_policy(Path(path))
    if not policy_ledger.has_ledger(policy):
        raise BadParameter(
            "policy",
            f"{path} has no ledger yet, so nothing could be charged. Run `lapwing prepare {path}` first",
        )
    return policy


def query_case(
    name: str,
    plan: Plan,
    sources: GeneratedSources,
    *,
    covers: tuple[Any, ...] = (),
    release: Callable[[Plan, list[ExactGrouping]], list[NoisyGrouping]] | None = None,
) -> AuditCase:
    """Return the case of a planned query on generated people.

    Args:
        name: The name of the case.
        plan: The plan, which says what is charged.
        sources: Generated people of the plan's policy.
        covers: The aggregates that this case is about.
        release: Adds the noise. None: `add_noise`, as every answer does.
    """
    add = release or (lambda planned, exact: add_noise(planned.shares, exact))
    return AuditCase(
        name, Family.AGGREGATE, covers, plan.cost.epsilon, plan.cost.delta,
        {Stage.REPLAY: query_replay(plan, sources, add)},
    )  # fmt: skip


def query_replay(
    plan: Plan,
    sources: GeneratedSources,
    release: Callable[[Plan, list[ExactGrouping]], list[NoisyGrouping]],
) -> RunStage:
    """Return the stage that replays a query on generated neighbours."""
    # One loss of a choice covers all groups: a unit's rows are in some of them, K at most in all.
    chosen = {id(one.mechanism) for one in plan.shares.chosen}

    def share(mechanism: Any) -> Hashable | None:
        return id(mechanism) if id(mechanism) in chosen else None

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        numbers = ReadNumbers(plan, sources)

        def run(people: People, *, is_reversed: bool = False) -> Callable[[], Any]:
            def released() -> Any:
                statements, exact = numbers.of(people, is_reversed=is_reversed)
                return statements, answer_to_bytes(plan.request, release(plan, exact))

            return released

        for pair in sources.neighbours(is_thorough=budget.is_thorough):
            yield ReplayPair(
                pair.description, run(pair.one), run(pair.other, is_reversed=pair.is_reversed),
                pair.is_equal,
            )  # fmt: skip

    return replay_stage(pairs, plan.shares.loss, epsilon=plan.cost.epsilon, share=share)


class ReadNumbers:
    """The exact numbers of a query on generated people, with the statements that the engine ran."""

    def __init__(self, plan: Plan, sources: GeneratedSources) -> None:
        self._plan, self._sources = plan, sources
        self._found: dict[tuple[int, bool], tuple[list[str], list[ExactGrouping]]] = {}

    def of(self, people: People, *, is_reversed: bool = False) -> tuple[list[str], list[ExactGrouping]]:
        """Return the statements and the numbers. They are read once."""
        key = (id(people), is_reversed)
        if key not in self._found:
            question = self._plan.question
            reader = self._sources.reader(
                people, is_reversed=is_reversed, from_source=needs_new_ranks(question.source)
            )
            statements: list[str] = reader.engine.statements  # type: ignore[attr-defined]
            statements.clear()
            exact = reader.exact(question)
            self._found[key] = list(statements), exact
        return self._found[key]


def most_distant(
    plan: Plan, sources: GeneratedSources, pairs: list[NeighbourPeople]
) -> tuple[list[ExactGrouping], list[ExactGrouping]]:
    """Return the numbers of the pair of neighbours that the query moves most."""
    numbers = ReadNumbers(plan, sources)
    both = [(numbers.of(pair.one)[1], numbers.of(pair.other)[1]) for pair in pairs if not pair.is_equal]
    return max(both, key=lambda pair: _moved(*pair))


def _moved(one: list[ExactGrouping], other: list[ExactGrouping]) -> Fraction:
    return sum((abs(_size(mine) - _size(its)) for mine, its in zip(one, other, strict=True)), Fraction(0))


def _size(found: ExactGrouping) -> Fraction:
    return Fraction(int(np.abs(found.values).sum()) if found.values.size else 0)


def noisy_row(found: list[NoisyGrouping]) -> NDArray[np.int64]:
    """Return all noisy numbers of an answer in one row."""
    arrays = [np.asarray(part) for one in found for part in (*one.parts, *one.codes.values())]
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
