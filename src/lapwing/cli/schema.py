"""`lapwing schema`: tables, columns and bounds of a policy, and what may be asked of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from typer import Option

from lapwing.cli import console
from lapwing.errors import BadParameter

VALUES_SHOWN = 12
PROTECTED = {
    "person": "a person: all rows of a unit together",
    "row": "one row",
    "person-period": "a person in one period",
}
ALL_KEYS = "GROUP BY a column with declared keys shows all of them, also empty ones. It needs no δ."
SELECTED_KEYS = "GROUP BY a column with selected keys shows those that enough people hold. It needs δ."
EVERY_COLUMN = "Every column may stand in WHERE and GROUP BY, and be counted: COUNT(x), COUNT(DISTINCT x)."
NUMBERS = "Numbers may also be aggregated: SUM, AVG, VARIANCE, STDDEV, MEDIAN, QUANTILE, MIN, MAX."
UNITS = "The unit may be counted, COUNT(DISTINCT unit), and joined; it is never shown or compared."


def schema(
    policy: console.PolicyFile,
    *,
    only: Annotated[str | None, Option("--table", help="Only this table.")] = None,
    as_json: console.AsJson = False,
) -> None:
    """Show tables, columns, bounds, and what may be asked. It reads the policy alone, and no data."""
    from lapwing.config.values import did_you_mean
    from lapwing.sql.policy.policy_file import load_policy
    from lapwing.sql.question.policy_schema import schema_json

    with console.os_errors_told():
        described = schema_json(load_policy(policy))
    if only is not None:
        names = [entry["table"] for entry in described["tables"]]
        if only not in names:
            raise BadParameter("table", f"there is none called {only!r}. {did_you_mean(only, names)}")
        described["tables"] = [entry for entry in described["tables"] if entry["table"] == only]
    if as_json:
        console.print_json(described)
    else:
        show_schema(described)


def show_schema(described: Mapping[str, Any]) -> None:
    """Show a schema."""
    budget = described["budget"]
    rows = [
        ("protects", PROTECTED[described["protects"]]),
        ("budget for life", f"ε {budget['epsilon']:g}, δ {_delta(budget['delta'])}"),
    ]
    if budget["delta"]:
        rows.append(("δ of a question", f"{_delta(budget['delta_per_query'])}, if its keys are selected"))
    if described["has_quotas"]:
        rows.append(("quotas", "each analyst has a share of the budget"))
    if described["blocks"] is not None:
        rows.append(("blocks", _blocks(described["blocks"])))
    with console.page() as out:
        out.title(described["dataset"])
        out.pairs(*rows)
        for table in described["tables"]:
            _show_table(out, table)
        out.heading("What may be asked")
        out.points(EVERY_COLUMN, NUMBERS, UNITS, ALL_KEYS, SELECTED_KEYS)


def _delta(value: float) -> str:
    from fractions import Fraction

    from lapwing.core.exact import short_up

    return short_up(Fraction(repr(value)))


def _blocks(blocks: Mapping[str, Any]) -> str:
    if blocks["by"] == "row":
        return f"{blocks['count']:,} periods of rows: the {blocks['every']} of {blocks['column']}"
    if blocks["count"] is None:
        return f"units by the {blocks['every']} in which they arrived; in SQL: {blocks['column']}"
    return f"{blocks['count']:,} cohorts of units; in SQL: {blocks['column']}"


def _show_table(out: console.Page, table: Mapping[str, Any]) -> None:
    out.heading(f"{table['table']}, a {'public' if table['public'] else 'private'} table")
    if table["public"]:
        out.indented("Its rows belong to nobody. Join it to a private table.")
    else:
        many = table["rows_per_unit"]
        unit = table["unit"] or "each row is its own"
        through = f", through {table['unit_through']}" if table["unit_through"] else ""
        used = f"At most {many:,} row{'s' * (many != 1)} of each unit {'is' if many == 1 else 'are'} used."
        out.indented(f"Unit: {unit}{through}. {used}")
    if table["rows"] is not None:
        out.indented(f"It has {table['rows']:,} rows, a public number.")
    if table["all_columns"]:
        out.indented("All of its columns may be used.")
    if table["columns"]:
        rows = [
            (column["column"], column["type"], _domain(column), _missing(column), _keys(column))
            for column in table["columns"]
        ]
        out.table("column", "type", "bounds or values", "missing", "keys", rows=rows)
    if table["hidden"]:
        out.indented(f"Hidden, for nobody to use: {', '.join(table['hidden'])}.")


def _domain(column: Mapping[str, Any]) -> str:
    if column["values"] is not None:
        shown = ", ".join(str(value) for value in column["values"][:VALUES_SHOWN])
        more = len(column["values"]) - VALUES_SHOWN
        return f"{shown} and {more:,} more" if more > 0 else shown
    if column["low"] is not None:
        step = f", step {column['step']}" if column["type"] == "number" else ""
        return f"{column['low']} to {column['high']}{step}"
    return f"at most {column['longest']:,} characters" if column["longest"] else ""


def _missing(column: Mapping[str, Any]) -> str:
    counts_as = column["missing_counts_as"]
    return "NULL" if counts_as is None else f"counts as {counts_as}"


def _keys(column: Mapping[str, Any]) -> str:
    return "selected" if column["key_count"] is None else f"{column['key_count']:,} declared"
