"""A plan: what a question would compute, by which mechanisms, at which price and error. It is free.

A plan is data. `lapwing.sql.releasing` acts on it. All that a plan says comes from the question, the policy
and released values: nothing here reads a private row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from shlex import quote
from typing import Any

from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.partition_selection import PartitionSelection
from lapwing.sql.accuracy import AccuracyOrPrice, Spread, spread
from lapwing.sql.answers import Answer, QueryRequest
from lapwing.sql.bound_query import BoundQuery
from lapwing.sql.curator import Curator
from lapwing.sql.estimates import AnswerColumn
from lapwing.sql.noising import BudgetShares
from lapwing.sql.policy import Policy
from lapwing.sql.relation import (
    RANK,
    Filter,
    Join,
    PerUnit,
    Project,
    Relation,
    Scan,
    UnionAll,
    contribution_bound,
    scans_of,
)
from lapwing.sql.truncated.prepare import has_blocks_by_arrival

CONFIDENCE_OF_THRESHOLD = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of a release."""

    epsilon: Fraction
    delta: Fraction

    def __str__(self) -> str:
        delta = f", δ {float(self.delta):.3g}" if self.delta else ""
        return f"ε {float(self.epsilon):.6g}{delta}"


@dataclass(frozen=True)
class PlanStep:
    """One mechanism of a plan, in words. `share` is its share of ε or ρ."""

    what: str
    mechanism: str
    share: str
    error: str


@dataclass(frozen=True, repr=False)
class Plan:
    """A question with its mechanisms and price. Only `release` charges anything.

    Print a plan to see its cost, the error of each column, and how many rows of a person are used.

    Args:
        curator: The curator whose data is asked.
        analyst: The analyst who asks.
        request: The request, as it is stored with the answer.
        question: The bound question.
        shares: How ε and δ are divided among the mechanisms.
        confidence: The probability with which each interval holds.
        n: The number of rows of a group, if it is known. Errors of averages depend on it.
        sampling: Whether intervals include the error of a sample of rows.
        why: How ε was found, if the analyst gave an accuracy instead.

    Example:
        >>> plan = dataset.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
        >>> print(plan)
        >>> answer = plan.release()
    """

    curator: Curator
    analyst: str
    request: QueryRequest
    question: BoundQuery
    shares: BudgetShares
    confidence: Fraction
    n: int | None = None
    sampling: bool = False
    why: str = ""

    @property
    def cost(self) -> Cost:
        """The price that the release will be charged."""
        needs_delta = self.shares.noise == "gaussian" or bool(self.shares.selected)
        return Cost(self.shares.epsilon, self.shares.delta if needs_delta else Fraction(0))

    @property
    def spread(self) -> dict[str, Spread]:
        """The error of each column at the plan's confidence."""
        return spread(self.question, self.shares, self.confidence, n=self.n)

    @property
    def blocks(self) -> list[str] | None:
        """The blocks that will be charged, or None if the policy has no blocks."""
        return self.curator.blocks_reached(self.question.source)

    @property
    def statements(self) -> tuple[str, ...]:
        """The SQL statements that will run."""
        found = self.curator.statements(self.question)
        return found.sums + tuple(one for several in found.spectra for one in several)

    @property
    def bounds(self) -> list[str]:
        """Sentences on how many rows of a person are used, and on what is known about the others."""
        from lapwing.sql.releasing import find_truncation  # noqa: PLC0415 (it releases this plan)

        def find(table: str, rows: int) -> TruncationAnswer | None:
            return find_truncation(self.curator, self.analyst, table, rows, self.confidence)

        return truncation_sentences(self.curator.policy, self.question, find)

    @property
    def steps(self) -> list[PlanStep]:
        """Every mechanism with its share of the price and its expected error."""
        question, shares = self.question, self.shares
        steps = []
        for selected in shares.selected:
            mechanism = selected.mechanism
            share = f"ε {float(mechanism.epsilon):.4g}, δ {float(mechanism.delta):.3g}"
            what = f"which keys are shown{grouping_in_words(question, selected.grouping)}"
            steps.append(PlanStep(what, "partition selection", share, describe_selection(mechanism)))
        for added in shares.added:
            part = question.parts[added.part]
            moved = "both together" if len(part.numbers) > 1 else "it"
            steps.append(
                PlanStep(
                    f"{part.label}{grouping_in_words(question, added.grouping)}",
                    *_describe_noise(added.mechanism),
                    f"one person moves {moved} by up to {part.l1:,}",
                )
            )
        for chosen in shares.chosen:
            label = question.spectra[chosen.wanted.spectrum].label
            ranks = float(chosen.mechanism.spread(self.confidence))
            steps.append(
                PlanStep(
                    f"{chosen.wanted.function} of {label}{grouping_in_words(question, chosen.grouping)}",
                    "exponential choice",
                    f"ε {float(chosen.mechanism.epsilon):.4g}",
                    f"rank within ±{ranks:.4g}",
                )
            )
        return steps

    def release(self, *, fresh: bool = False) -> Answer:
        """Charge the cost, compute, add noise, store and return the answer.

        Args:
            fresh: Release a new answer even if the same question has a stored one.

        Returns:
            The answer. The same question at the same price gives the stored answer, at no cost.

        Raises:
            OverBudget: If an account has too little left. Nothing is charged.
            BadParameter: If the source changed or cannot be read. Nothing is charged.
            Held: If the question was charged and failed. It waits until the curator clears the hold.
            InProgress: If the same question is being answered elsewhere.

        Example:
            >>> answer = plan.release()
        """
        from lapwing.sql.releasing import release  # noqa: PLC0415 (it releases this plan)

        return release(self, fresh=fresh)

    def dry_run(self) -> Answer:
        """Return an answer from generated rows of the same schema. It costs nothing and means nothing.

        Returns:
            An answer with `is_fake` set, in the form that the release will have.

        Example:
            >>> print(plan.dry_run())
        """
        from lapwing.sql.releasing import dry_run  # noqa: PLC0415 (it releases this plan)

        return dry_run(self)

    def to_json(self) -> dict[str, Any]:
        """Return the whole plan as plain values for JSON.

        Returns:
            The cost, the columns with their errors, the mechanisms, the bounds and the SQL.

        Example:
            >>> plan.to_json()["cost"]
            {'epsilon': '1/2', 'delta': '0'}
        """
        return {
            "sql": self.request.sql,
            "cost": {"epsilon": str(self.cost.epsilon), "delta": str(self.cost.delta)},
            "why": self.why,
            "noise": self.shares.noise,
            "reason": self.shares.reason,
            "confidence": float(self.confidence),
            "columns": {
                name: {"half": one.half, "formula": one.formula, "ranks": one.ranks}
                for name, one in self.spread.items()
            },
            "steps": [vars(step) for step in self.steps],
            "bounds": self.bounds,
            "blocks": self.blocks,
            "rows_of_a_person": self.question.rows,
            "statements": list(self.statements),
        }

    def __str__(self) -> str:
        lines = [f"Costs {self.cost}{f' ({self.why})' if self.why else ''}; nothing is charged by looking."]
        described = {name: describe_spread(one) for name, one in self.spread.items()}
        lines += [f"{name}: {words}" for name, words in described.items() if words]
        lines += [f"- {s.what}: {s.mechanism}, {s.share}; {s.error}" for s in self.steps]
        lines += [self.shares.reason] if self.shares.reason else []
        lines += self.bounds
        if self.blocks is not None:
            lines.append(f"Charged blocks: {list_names(self.blocks)}")
        return "\n".join(lines)

    __repr__ = __str__


def plan_question(
    curator: Curator,
    analyst: str,
    question: BoundQuery,
    name: str,
    wanted: AccuracyOrPrice,
    *,
    rows: int | None = None,
    sampling: bool = False,
) -> Plan:
    """Plan a bound question.

    `name` stands for it in stored answers: its SQL in normal form. `rows` is the lower contribution bound
    that the analyst asked for; None is the policy's.
    """
    shares = wanted.shares(question, curator.policy.delta_per_query)
    request = QueryRequest(name, 0, shares.epsilon, shares.delta, shares.noise, rows, shares.digest)
    return Plan(
        curator, analyst, request, question, shares, wanted.confidence, wanted.n, sampling, wanted.why
    )


def list_names(names: Sequence[str], most: int = 8) -> str:
    """Return the first names in a sentence, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def describe_spread(one: Spread) -> str:
    """Return a spread in words, or "" if it makes no statement."""
    if one.half is not None:
        return f"± {one.half:,.6g}"
    if one.formula is not None:
        return f"± {one.formula}, n being the rows of the group"
    return f"rank within ±{one.ranks:,.4g}" if one.ranks is not None else ""


def describe_selection(mechanism: PartitionSelection) -> str:
    """Return in words how many people a key needs to be shown."""
    return f"a key of {mechanism.spread(CONFIDENCE_OF_THRESHOLD):,} people is shown with 95 % probability"


def grouping_in_words(question: BoundQuery, grouping: int) -> str:
    """Return the keys of a grouping in words, or "" if there is only one grouping."""
    if len(question.sets) == 1:
        return ""
    names = [question.keys[key].name for key in question.sets[grouping]]
    return f" by {', '.join(names)}" if names else " in total"


def _describe_noise(mechanism: Laplace | Gaussian) -> tuple[str, str]:
    """Return the noise of a part and its share of the price, in words."""
    if isinstance(mechanism, Laplace):
        share = f"ε {float(mechanism.l1 / mechanism.scale):.4g}"
        return f"Laplace noise, scale {float(mechanism.scale):,.6g}", share
    share = f"ρ {float(mechanism.loss.concentrated.rho):.4g}"
    return f"Gaussian noise, σ {float(mechanism.sigma):,.6g}", share


# Truncation: how many rows of a person are used, and what is known about the others


@dataclass(frozen=True, slots=True)
class TruncationAnswer:
    """The last released answer about truncated rows.

    `beyond` is how many truncated rows of a person it counts at most; None if it counts only people.
    """

    answer: Answer
    beyond: int | None

    @property
    def position(self) -> int:
        """The number of its receipt."""
        return 0 if self.answer.receipt is None else self.answer.receipt.position


NOBODY_LEFT_OUT = " That leaves out nobody: one row is enough to be counted."
FindTruncation = Callable[[str, int], TruncationAnswer | None]  # by table and contribution bound


def truncation_sentences(policy: Policy, question: BoundQuery, find: FindTruncation | None) -> list[str]:
    """Return one sentence for each table and contribution bound, and one for joins and unions.

    `find` returns the last released answer about truncated rows. Without it, truncated rows are not
    mentioned.
    """
    scans = scans_of(question.source)
    if any(name == RANK for scan in scans for name, _ in scan.columns):
        return [_counts_truncation(policy, scans[0], question)]
    # Scans that agree in these three get the same sentence.
    alike = {(scan.table, scan.rows, scan.where is None): scan for scan in scans}
    source = question.source
    if len(question.sets) > 1 and isinstance(source, Filter):
        source = source.source  # that filter is ours: all groupings see the same rows
    has_where = _filters_rows(source)
    lines = []
    for scan in alike.values():
        if not _has_unit(policy, scan):
            lines.append(f'Uses every row of "{scan.table}": each row is protected by itself.')
            continue
        more = "" if find is None else _truncated(policy, scan, find)
        more = NOBODY_LEFT_OUT if _counts_people(question) else more
        lines.append(f"{_used(policy, scan, has_where=has_where)}{more}")
    most = contribution_bound(question.source)
    if most > max(scan.rows for scan in scans):
        each = each_unit(policy, scans[0].table)
        lines.append(f"Joined or united, these are at most {most:,} rows of {each}.")
    return lines


def each_unit(policy: Policy, table: str) -> str:
    """Return in words the privacy unit whose rows are bounded."""
    if policy.protects == "row":
        unit = policy.tables[table].unit
        return f"each {unit.column}" if unit is not None and unit.column else "each of them"
    if policy.blocks is not None and policy.blocks.by == "row":
        return f"each person in each {policy.blocks.every}"
    return "each person"


def _used(policy: Policy, scan: Scan, *, has_where: bool) -> str:
    when = ", chosen before WHERE" if has_where else ""
    when = ", chosen among those that WHERE keeps" if scan.where is not None else when
    return f'Uses at most {_rows(scan.rows)} of {each_unit(policy, scan.table)} in "{scan.table}"{when}.'


def _rows(number: int) -> str:
    return f"{number:,} row{'s' if number != 1 else ''}"


def _truncated(policy: Policy, scan: Scan, find: FindTruncation) -> str:
    """Return what is known about truncated rows of a table, or the command that releases it."""
    lowered = f" --rows {scan.rows}" if scan.rows < policy.tables[scan.table].rows_per_unit else ""
    rows = " --beyond 100" if _reads_source(policy) else ""
    command = f"`lapwing truncated {quote(policy.path.name)} {scan.table}{lowered}{rows} --epsilon …`"
    found = find(scan.table, scan.rows)
    if found is None:
        return f" What that leaves out can be bought: {command}"
    columns = {column.name: column for column in found.answer.columns}
    here = "; with WHERE first, as many or fewer" if scan.where is not None else ""
    if found.beyond is None:
        people = _about(columns["people_with_more_rows"], "people")
        more = f" Rows can be bought: {command}" if rows else ""
        return f" About {people} have more (receipt {found.position}){here}.{more}"
    left, counted = columns["rows_left_out"], columns["rows_that_count"]
    total, each = left.values[0] + counted.values[0], each_unit(policy, scan.table)
    return (
        f" Of the whole table, about {_about(left, 'rows')} of {total:,.0f} are left out{here} (receipt "
        f"{found.position}). That counts at most {found.beyond:,} more of {each}: if some have still more, "
        "more are left out."
    )


def _about(column: AnswerColumn, what: str) -> str:
    assert column.low is not None
    assert column.high is not None
    return f"{column.values[0]:,.0f} {what} ({column.low[0]:,.0f} to {column.high[0]:,.0f})"


def _counts_truncation(policy: Policy, scan: Scan, question: BoundQuery) -> str:
    """Describe a question that itself counts truncated rows or people."""
    if scan.where is None:
        return f'Counts who has more than {_rows(scan.rows - 1)} in "{scan.table}".'
    beyond = question.parts[0].l1
    return (
        f'Counts rows of "{scan.table}" beyond the first {_rows(scan.rows - beyond)} of '
        f"{each_unit(policy, scan.table)}, at most {beyond:,} of each: of whoever has still more, not all."
    )


def _reads_source(policy: Policy) -> bool:
    """Return whether truncated rows can be counted although there is a copy: see `Reader.open`."""
    engines = {table.source.engine for table in policy.tables.values() if not table.is_public}
    return engines == {"duckdb"} and not has_blocks_by_arrival(policy)


def _has_unit(policy: Policy, scan: Scan) -> bool:
    unit = policy.tables[scan.table].unit
    return unit is not None and bool(unit.column)


def _filters_rows(relation: Relation) -> bool:
    """Return whether a condition is on rows of a table, and not only on aggregates of people's rows."""
    match relation:
        case Filter(source):
            return not isinstance(source, PerUnit) or _filters_rows(source)
        case Project(source) | PerUnit(source):
            return _filters_rows(source)
        case Join(left, right):
            return _filters_rows(left) or _filters_rows(right)
        case UnionAll(sources):
            return any(map(_filters_rows, sources))
        case _:
            return False


def _counts_people(question: BoundQuery) -> bool:
    """Return whether one row of a person is as good as all: people are counted in one group, unfiltered."""
    source = question.source
    while isinstance(source, Project):
        source = source.source
    only_units = all(one.function == "units" for one in question.sums) and not question.spectra
    return isinstance(source, Scan) and not question.keys and only_units
