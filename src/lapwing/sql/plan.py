"""A plan: what would be computed, by which mechanisms, at which price and error. Looking at it is free.

What answers say about the rows that they are made of: how many of a person count, what is left out.

All of it is the text, the policy and released values: nothing here reads a private row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from shlex import quote
from typing import TYPE_CHECKING, Any

from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.partition_selection import PartitionSelection
from lapwing.sql.accuracy import Spread, spread
from lapwing.sql.answers import QueryRequest
from lapwing.sql.bound_query import BoundQuery, NoisySum
from lapwing.sql.noising import BudgetShares
from lapwing.sql.policy import Policy, block_labels, codes_of_blocks
from lapwing.sql.relation import (
    RANK,
    Filter,
    Join,
    PerUnit,
    Project,
    Relation,
    Scan,
    UnionAll,
    blocks_of,
    contribution_bound,
    scans_of,
)
from lapwing.sql.truncated.prepare import has_blocks_by_arrival

if TYPE_CHECKING:
    from lapwing.sql.answers import Answer
    from lapwing.sql.dataset import Dataset
    from lapwing.sql.estimates import AnswerColumn


@dataclass(frozen=True, slots=True)
class TruncationAnswer:
    """The last answer about what a bound leaves out. It tells of rows, up to `beyond` more of a person."""

    answer: Answer
    beyond: int | None  # None: only of people

    @property
    def position(self) -> int:
        """Its receipt's place in the ledger."""
        return 0 if self.answer.receipt is None else self.answer.receipt.position


NOBODY_LEFT_OUT = " That leaves out nobody: one row is enough to be counted."
FindTruncation = Callable[[str, int], TruncationAnswer | None]  # of a table and a bound


def truncation_sentences(policy: Policy, question: BoundQuery, bought: FindTruncation | None) -> list[str]:
    """Sentences: one for each table and bound, and one for what joins and unions make of them.

    Without `bought` nothing is said of what is left out.
    """
    scans = scans_of(question.source)
    if any(name == RANK for scan in scans for name, _ in scan.columns):
        return [_about_truncation(policy, scans[0], question)]
    # Of scans that differ in what else they say, the same is to be said.
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
        more = "" if bought is None else _left_out(policy, scan, bought)
        more = NOBODY_LEFT_OUT if _counts_people(question) else more
        lines.append(f"{_used(policy, scan, has_where=has_where)}{more}")
    most = contribution_bound(question.source)
    if most > max(scan.rows for scan in scans):
        each = each_unit(policy, scans[0].table)
        lines.append(f"Joined or united, these are at most {most:,} rows of {each}.")
    return lines


def each_unit(policy: Policy, table: str) -> str:
    """Whose rows are bounded, in words."""
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


def _left_out(policy: Policy, scan: Scan, bought: FindTruncation) -> str:
    """What was bought about it, or how to buy it."""
    lowered = f" --rows {scan.rows}" if scan.rows < policy.tables[scan.table].rows_per_unit else ""
    rows = " --beyond 100" if _reads_source(policy) else ""
    command = f"`lapwing dropped {quote(policy.path.name)} {scan.table}{lowered}{rows} --epsilon …`"
    found = bought(scan.table, scan.rows)
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


def _about_truncation(policy: Policy, scan: Scan, question: BoundQuery) -> str:
    """What a question about ranks counts."""
    each = each_unit(policy, scan.table)
    if scan.where is None:
        return f'Counts who has more than {_rows(scan.rows - 1)} in "{scan.table}".'
    beyond = question.parts[0].l1
    first = _rows(scan.rows - beyond)
    return (
        f'Counts rows of "{scan.table}" beyond the first {first} of {each}, at most {beyond:,} of each: '
        "of whoever has still more, not all."
    )


def _reads_source(policy: Policy) -> bool:
    """Whether rows beyond the bound can be counted also beside a copy: see `Reader.open`."""
    engines = {table.source.engine for table in policy.tables.values() if not table.is_public}
    return engines == {"duckdb"} and not has_blocks_by_arrival(policy)


def _has_unit(policy: Policy, scan: Scan) -> bool:
    unit = policy.tables[scan.table].unit
    return unit is not None and bool(unit.column)


def _filters_rows(relation: Relation) -> bool:
    """Whether a condition stands on rows of a table, and not only on what people's rows come to."""
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
    """Whether one row of a person is as good as all: people are counted, in one group, and no row of the
    table is passed over after the bound."""
    source = question.source
    while isinstance(source, Project):
        source = source.source
    only_units = all(one.function == "units" for one in question.sums) and not question.spectra
    return isinstance(source, Scan) and not question.keys and only_units


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
    """One mechanism of a plan."""

    what: str
    mechanism: str
    share: str  # of ε, or ρ
    error: str


@dataclass(frozen=True, repr=False)
class Plan:
    """A question with its shares. `release` is the only thing that costs."""

    dataset: Dataset
    asked: QueryRequest
    question: BoundQuery
    shares: BudgetShares
    confidence: Fraction
    n: int | None = None
    sampling: bool = False
    why: str = ""  # how ε was found, if it was not given

    @property
    def cost(self) -> Cost:
        """What the release will be charged for."""
        needs_delta = self.shares.noise == "gaussian" or bool(self.shares.selected)
        return Cost(self.shares.epsilon, self.shares.delta if needs_delta else Fraction(0))

    @property
    def spread(self) -> dict[str, Spread]:
        """How far off each column may be, at the plan's confidence."""
        return spread(self.question, self.shares, self.confidence, n=self.n)

    @property
    def blocks(self) -> list[str] | None:
        """The blocks that will be charged; None: there are no blocks."""
        return blocks_reached(self.dataset, self.question)

    @property
    def statements(self) -> tuple[str, ...]:
        """The SQL that will run."""
        found = self.dataset.statements(self.question)
        return found.sums + tuple(one for several in found.spectra for one in several)

    @property
    def steps(self) -> list[PlanStep]:
        """Every mechanism, its share, and its expected error."""
        found = [
            PlanStep(
                f"which keys are shown{_of(self, one.grouping)}", "partition selection",
                f"ε {float(one.mechanism.epsilon):.4g}, δ {float(one.mechanism.delta):.3g}",
                describe_selection(one.mechanism),
            )
            for one in self.shares.selected
        ]  # fmt: skip
        for added in self.shares.added:
            part = self.question.parts[added.part]
            found.append(
                PlanStep(
                    f"{part.label}{_of(self, added.grouping)}", _noise(added.mechanism),
                    _share(added.mechanism), _moved(part),
                )
            )  # fmt: skip
        for chosen in self.shares.chosen:
            label = self.question.spectra[chosen.wanted.spectrum].label
            ranks = float(chosen.mechanism.spread(self.confidence))
            found.append(
                PlanStep(
                    f"{chosen.wanted.function} of {label}{_of(self, chosen.grouping)}",
                    "exponential choice",
                    f"ε {float(chosen.mechanism.epsilon):.4g}", f"rank within ±{ranks:.4g}",
                )
            )  # fmt: skip
        return found

    @property
    def bounds(self) -> list[str]:
        """How many rows of a person count in each table, and what was bought about the others."""

        def bought(table: str, rows: int) -> TruncationAnswer | None:
            return self.dataset.truncated_before(table, rows=rows, confidence=self.confidence)

        return truncation_sentences(self.dataset.policy, self.question, bought)

    def release(self, *, fresh: bool = False) -> Answer:
        """Charge, compute, add noise, store, return. The same question again gives the stored answer."""
        return self.dataset.release(self, fresh=fresh)

    def dry_run(self) -> Answer:
        """An answer from generated rows of the same schema. It costs nothing and means nothing."""
        return self.dataset.dry_run(self)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "sql": self.asked.sql,
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
        lines += [
            f"{name}: {describe_spread(one)}" for name, one in self.spread.items() if describe_spread(one)
        ]
        lines += [f"- {s.what}: {s.mechanism}, {s.share}; {s.error}" for s in self.steps]
        lines += [self.shares.reason] if self.shares.reason else []
        lines += self.bounds
        if self.blocks is not None:
            lines.append(f"Charged blocks: {list_names(self.blocks)}")
        return "\n".join(lines)

    __repr__ = __str__


def blocks_reached(dataset: Dataset, question: BoundQuery) -> list[str] | None:
    """The blocks whose units a question can reach; None: there are no blocks."""
    declared = dataset.policy.blocks
    if declared is None:
        return None
    reached, known = blocks_of(question.source), codes_of_blocks(declared)
    if not known:  # they open as people arrive
        return dataset.all_blocks()
    return block_labels(declared, [code for code in known if reached is None or code in reached])


def list_names(names: Sequence[str], most: int = 8) -> str:
    """Some names, and how many more."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def describe_spread(one: Spread) -> str:
    """A spread in words."""
    if one.half is not None:
        return f"± {one.half:,.6g}"
    if one.formula is not None:
        return f"± {one.formula}, n being the rows of the group"
    return f"rank within ±{one.ranks:,.4g}" if one.ranks is not None else ""


def describe_selection(mechanism: PartitionSelection) -> str:
    """From how many people on a key is shown."""
    return f"a key of {mechanism.spread(CONFIDENCE_OF_THRESHOLD):,} people is shown with 95 % probability"


def _of(plan: Plan, grouping: int) -> str:
    if len(plan.question.sets) == 1:
        return ""
    names = [plan.question.keys[key].name for key in plan.question.sets[grouping]]
    return f" by {', '.join(names)}" if names else " in total"


def _noise(mechanism: Laplace | Gaussian) -> str:
    if isinstance(mechanism, Laplace):
        return f"Laplace noise, scale {float(mechanism.scale):,.6g}"
    return f"Gaussian noise, σ {float(mechanism.sigma):,.6g}"


def _moved(part: NoisySum) -> str:
    what = "both together" if len(part.numbers) > 1 else "it"
    return f"one person moves {what} by up to {part.l1:,}"


def _share(mechanism: Laplace | Gaussian) -> str:
    if isinstance(mechanism, Laplace):
        return f"ε {float(mechanism.l1 / mechanism.scale):.4g}"
    return f"ρ {float(mechanism.loss.concentrated.rho):.4g}"
