"""Data: tables, columns and bounds as the policy declares them, and rows that are generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lapwing.core.exact import short
from lapwing.server.console.desk import AtDesk, PageRoute, unit_words
from lapwing.server.console.parts import Fact
from lapwing.server.console.schema_view import TableView, schema_view
from lapwing.server.console.words import SPACE, counted, plain_number
from lapwing.server.people.person import Role
from lapwing.sql import policy_ledger
from lapwing.sql.policy.policy import account_label
from lapwing.sql.reading.generated_rows import example_rows

router = APIRouter(route_class=PageRoute, include_in_schema=False)
EXAMPLE_ROWS = 6


@dataclass(frozen=True, slots=True)
class RowsView:
    """A few generated rows of a table."""

    table: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class DataView:
    """The page of a data set."""

    name: str
    here: str
    lead: str
    facts: tuple[Fact, ...]
    unprotected: tuple[str, ...]
    tables: tuple[TableView, ...]
    examples: tuple[RowsView, ...]
    may_ask: bool
    keeps: bool
    commands: tuple[tuple[str, str], ...]


def rows_view(table: str, rows: Any) -> RowsView:
    """Return generated rows (an Arrow table) as texts."""
    columns = [column.to_pylist() for column in rows.columns]
    texts = zip(*([_cell(value) for value in column] for column in columns), strict=True)
    return RowsView(table, tuple(rows.column_names), tuple(texts))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return str(value)


def data_facts(served: Any) -> tuple[Fact, ...]:
    """Return what is public about a data set: unit, budget, blocks, version."""
    policy, curator = served.curator.policy, served.curator
    facts = [
        Fact("Protects", f"{unit_words(curator.unit)}, with all rows"),
        Fact(
            "Budget for life",
            f"ε{SPACE}{plain_number(policy.epsilon)}, δ{SPACE}{short(float(policy.delta))}",
        ),
    ]
    if policy.least_epsilon:
        facts.append(Fact("Least price of a question", f"ε{SPACE}{plain_number(policy.least_epsilon)}"))
    if policy.delta_per_query:
        facts.append(
            Fact("δ of a question that needs it", f"δ{SPACE}{short(float(policy.delta_per_query))}")
        )
    if policy.blocks is not None:
        by = (
            counted(policy.blocks.cohorts, "cohort")
            if policy.blocks.cohorts
            else f"by {policy.blocks.every or policy.blocks.column}"
        )
        facts.append(Fact("Blocks", by))
    facts.append(Fact("Quotas", "each analyst has one" if policy.quotas else "none"))
    facts.append(
        Fact("Answers", "shared among analysts" if policy.shares_answers else "each analyst gets own ones")
    )
    known = policy_ledger.find_data_set(curator.ledger, policy) if curator.has_ledger else None
    facts.append(
        Fact("Version of the data", f"{known.version}" if known is not None else "not registered yet")
    )
    return tuple(facts)


def unprotected_of(served: Any) -> tuple[str, ...]:
    """Return what the policy does not protect, in sentences: all of it is public."""
    policy = served.curator.policy
    unit = "row" if policy.protects == "row" else "person"
    found = [
        f"{table.name}: at most {counted(table.rows_per_unit, 'row')} of each {unit} are used; "
        "others are left out."
        for table in policy.tables.values()
        if not table.is_public
    ]
    public = [table.name for table in policy.tables.values() if table.is_public]
    if public:
        found.append(f"Public, without any protection: {', '.join(public)}.")
    found.append(
        "Names of tables and columns, declared values and bounds are public. So are prices, times and "
        "numbers of questions."
    )
    return tuple(found)


@router.get("/d/{data}")
def data_page(desk: AtDesk, data: str) -> Response:
    """Show a data set: tables, facts, and generated rows."""
    served = desk.services.sets.require(desk.person, data)
    roles = desk.roles(data)
    policy = served.curator.policy
    examples = [
        rows_view(table.name, example_rows(policy, table.name, EXAMPLE_ROWS))
        for table in policy.tables.values()
        if table.columns and not table.is_public
    ]
    keeps = Role.STEWARD in roles
    policy_file, account = f"{data}.toml", account_label(served.curator.policy)
    view = DataView(
        name=data,
        here=f"/d/{data}",
        lead="What the policy says about these data. Everything here is public; no row was read for it.",
        facts=data_facts(served),
        unprotected=unprotected_of(served),
        tables=schema_view(served.schema()).tables,
        examples=tuple(examples),
        may_ask=Role.ANALYST in roles,
        keeps=keeps,
        commands=(
            ("Count cells that are unreadable, undeclared or clamped:", f"lapwing check {policy_file}"),
            ("Register the source as it is now, and prepare it:", f"lapwing prepare {policy_file}"),
            ("Raise the budget, with your key:", f"lapwing ledger raise {policy_file} {account}"),
        )
        if keeps
        else (),
    )
    return desk.page("data.html", data, served, current="Data", data=view, guide="t")
