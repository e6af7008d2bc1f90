"""The audit of a query: its mechanisms, replayed on generated people of its policy.

Claim    nothing is charged, no ledger is written and no private row is read.
Because  the plan is made from the query and the policy alone. `GeneratedSources` stores generated people,
         and the query is read from these. The noise of an audit is added to their numbers only.
Test     tests/audit/test_query_audit.py
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult
from lapwing.audit.generated_sources import AUDITOR, GeneratedSources, People
from lapwing.audit.stages.replay import ReplayPair, replay_stage
from lapwing.core.exact import Number
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter
from lapwing.sql import policy_ledger
from lapwing.sql.answering.noisy_numbers import NoisyGrouping, add_noise
from lapwing.sql.answering.stored_answers import answer_to_bytes, batch_to_bytes
from lapwing.sql.batches import add_noise_to_each
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.pricing.cost import Cost
from lapwing.sql.pricing.plan import Plan
from lapwing.sql.reading.exact_numbers import ExactGrouping

Release = Callable[[Plan, list[ExactGrouping]], list[NoisyGrouping]]


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

    Returns:
        A case with the replay and the sampled stage.

    Raises:
        BadParameter: If the policy has no ledger yet, or an option is not valid.
        Refused: If the query cannot be answered with privacy.

    Example:
        ```python
        from lapwing.audit import StageBudget, case_of_query, run_audit

        case = case_of_query("visits.toml", "SELECT COUNT(*) FROM visits", epsilon="0.5")
        print(run_audit([case], StageBudget(seconds=2, is_thorough=False)).verdict)
        ```
    """
    with audited_dataset(policy) as dataset:
        plan = dataset.plan(
            sql, epsilon=epsilon, delta=delta, noise=noise, rows=rows, where_first=where_first
        )
        sources = GeneratedSources(dataset.curator.policy, dataset.curator.public)
    return query_case(f"query: {sql}", plan, sources)


@contextmanager
def audited_dataset(path: str | Path) -> Iterator[Dataset]:
    """Open the data of a policy that was used before, for the auditor.

    Raises:
        BadParameter: If the policy has no ledger.
    """
    policy = load_policy(Path(path))
    if not policy_ledger.has_ledger(policy):
        raise BadParameter(
            "policy",
            f"{path} has no ledger yet, so nothing could be charged. Run `lapwing prepare {path}` first",
        )
    with Dataset(policy, analyst=AUDITOR) as dataset:
        yield dataset


def query_case(
    name: str,
    plan: Plan,
    sources: GeneratedSources,
    *,
    covers: tuple[Any, ...] = (),
    release: Release | None = None,
    others: Sequence[Plan] = (),
) -> AuditCase:
    """Return the case of a planned query on generated people.

    Args:
        name: The name of the case.
        plan: The plan, which says what is charged.
        sources: Generated people of the plan's policy.
        covers: The aggregates that this case is about.
        release: Adds the noise. None: `add_noise`, as every answer does.
        others: Plans of the same question with other noise, which are replayed, too.
    """
    return AuditCase(
        name, Family.AGGREGATE, covers, plan.cost.epsilon, plan.cost.delta,
        {
            Stage.REPLAY: query_replay(plan, sources, release or _noised, others),
            Stage.SAMPLED: query_sampled(plan, sources, release or _noised),
        },
    )  # fmt: skip


def batch_case(
    name: str, plans: Sequence[Plan], loss: Loss, cost: Cost, sources: GeneratedSources
) -> AuditCase:
    """Return the case of a batch: all questions on generated neighbours, with its one loss and price."""
    read = [ReadNumbers(plan, sources) for plan in plans]
    chosen = {id(one.mechanism) for plan in plans for one in plan.shares.chosen}

    def run(people: People, *, is_reversed: bool = False) -> Callable[[], Any]:
        def released() -> Any:
            found = [numbers.of(people, is_reversed=is_reversed) for numbers in read]
            noisy = add_noise_to_each(plans, [exact for _, exact in found])
            stored = batch_to_bytes([(plan.request, one) for plan, one in zip(plans, noisy, strict=True)])
            return [statements for statements, _ in found], stored

        return released

    def replay(budget: StageBudget) -> StageResult:
        pairs = (
            ReplayPair(
                pair.description,
                run(pair.first),
                run(pair.second, is_reversed=pair.is_reversed),
                pair.is_equal,
            )
            for pair in sources.neighbours(is_thorough=budget.is_thorough)
        )
        return replay_stage(
            pairs, loss, epsilon=cost.epsilon, delta=cost.delta,
            share=lambda mechanism: id(mechanism) if id(mechanism) in chosen else None,
        )(budget)  # fmt: skip

    return AuditCase(name, Family.AGGREGATE, (), cost.epsilon, cost.delta, {Stage.REPLAY: replay})


def _noised(plan: Plan, exact: list[ExactGrouping]) -> list[NoisyGrouping]:
    return add_noise(plan.shares, exact)


def query_replay(
    plan: Plan, sources: GeneratedSources, release: Release = _noised, others: Sequence[Plan] = ()
) -> RunStage:
    """Return the stage that replays a query on generated neighbours, with the noise of each plan.

    All plans are of one question, whose numbers are read once.
    """

    def run(budget: StageBudget) -> StageResult:
        read = [ReadNumbers(plan, sources, prepared=prepared) for prepared in (False, True)]
        result = _replayed(plan, sources, release, read)(budget)
        for other in others:
            if not result.holds:
                break
            replayed = _replayed(other, sources, release, read)(budget)
            notes = (
                *result.notes,
                *(f"with {other.shares.noise} noise: {note}" for note in replayed.notes),
            )
            result = replace(replayed, checks=result.checks + replayed.checks, notes=notes)
        return result

    return run


def _replayed(
    plan: Plan, sources: GeneratedSources, release: Release, read: Sequence[ReadNumbers]
) -> RunStage:
    # One loss of a choice covers all groups: a unit's rows are in some of them, K at most in all.
    chosen = {id(choice.mechanism) for choice in plan.shares.chosen}

    def share(mechanism: Any) -> Hashable | None:
        return id(mechanism) if id(mechanism) in chosen else None

    def run(numbers: ReadNumbers, people: People, *, is_reversed: bool = False) -> Callable[[], Any]:
        def released() -> Any:
            statements, exact = numbers.of(people, is_reversed=is_reversed)
            return statements, answer_to_bytes(plan.request, release(plan, exact))

        return released

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        for numbers in read:
            prepared = numbers.prepared
            for pair in sources.neighbours(is_thorough=budget.is_thorough and not prepared):
                words = f"{pair.description}{', from a prepared copy' if prepared else ''}"
                other = run(numbers, pair.second, is_reversed=pair.is_reversed)
                yield ReplayPair(words, run(numbers, pair.first), other, pair.is_equal)
            if not budget.is_thorough or not sources.has_copy(plan.question):
                break

    cost = plan.cost  # what a user reads
    return replay_stage(pairs, plan.shares.loss, epsilon=cost.epsilon, delta=cost.delta, share=share)


class ReadNumbers:
    """The exact numbers of a query on generated people, with the statements that the engine ran."""

    def __init__(self, plan: Plan, sources: GeneratedSources, *, prepared: bool = False) -> None:
        self._plan, self._sources, self.prepared = plan, sources, prepared
        self._found: dict[tuple[int, bool], tuple[list[str], list[ExactGrouping]]] = {}

    def of(self, people: People, *, is_reversed: bool = False) -> tuple[list[str], list[ExactGrouping]]:
        """Return the statements and the numbers. They are read once."""
        key = (id(people), is_reversed)
        if key not in self._found:
            question = self._plan.question
            reader = self._sources.reader(
                people, is_reversed=is_reversed, question=question, prepared=self.prepared
            )
            statements: list[str] = reader.engine.statements  # type: ignore[attr-defined]
            statements.clear()
            exact = reader.exact(question)
            self._found[key] = list(statements), exact
        return self._found[key]


def query_sampled(plan: Plan, sources: GeneratedSources, release: Release) -> RunStage:
    """Return the stage that draws answers on the neighbours that the query moves most."""

    def run(budget: StageBudget) -> StageResult:
        from lapwing.audit.stages.sampled import SampledPair, sampled_stage  # noqa: PLC0415 (when it runs)

        numbers = ReadNumbers(plan, sources)
        pair = max(
            (candidate for candidate in sources.neighbours(is_thorough=False) if not candidate.is_equal),
            key=lambda candidate: _moved(numbers.of(candidate.first)[1], numbers.of(candidate.second)[1]),
        )

        def draws(people: People) -> Callable[[int], list[object]]:
            exact = numbers.of(people)[1]
            return lambda size: [_output(release(plan, exact)) for _ in range(size)]

        pairs = [SampledPair(pair.description, draws(pair.first), draws(pair.second))]
        return sampled_stage(pairs, plan.cost.epsilon, plan.cost.delta)(budget)

    return run


def _moved(first: list[ExactGrouping], second: list[ExactGrouping]) -> int:
    """Return how far numbers and counted codes move, over all declared groups and new keys."""

    def size(grouping: ExactGrouping) -> int:
        rows = sum(int(spectrum.rows.sum()) for spectrum in grouping.spectra)
        return rows + sum(abs(int(value)) for value in grouping.values.reshape(-1).tolist())

    return sum(abs(size(mine) - size(its)) for mine, its in zip(first, second, strict=True))


def _output(noisy: list[NoisyGrouping]) -> object:
    """Return an answer as one output: its keys where they are selected, else its numbers."""
    if any(grouping.keys is not None for grouping in noisy):
        return [str(key) for grouping in noisy for key in grouping.keys or ()]
    return [
        int(value)
        for grouping in noisy
        for part in (*grouping.parts, *grouping.codes.values())
        for value in part
    ]
