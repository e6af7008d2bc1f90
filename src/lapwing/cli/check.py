"""`lapwing check`: what a policy makes of its cells; exact for the curator, noisy for a price."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapwing.cli.opened import AsJson, print_json
from lapwing.cli.query import Analyst, PolicyFile, opened_dataset, tell_not_utf8
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.query.checking import NoisyCheck, TableCheck
    from lapwing.query.policies.policy import Policy

PRIVATE = (
    "These counts are exact, and private: show them to nobody. Nothing was charged for them. Bounds, "
    "values or rows_per_unit that you choose by them are not covered by the privacy promise: the "
    "ledger's statements show this check, and every changed policy that is used after it."
)


def check(
    policy: PolicyFile,
    *,
    curator: Annotated[
        Path | None, typer.Option("--curator", help="The curator's key file, for exact counts.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Instead: buy noisy counts for this ε in all, such as 0.5.")
    ] = None,
    into_a_file: Annotated[
        bool, typer.Option("--into-a-file", help="Print exact counts also where no terminal shows them.")
    ] = False,
    analyst: Analyst = None,
    as_json: AsJson = False,
) -> None:
    """Count the cells that the policy reads, and those that are unreadable, undeclared or clamped."""
    if (curator is None) == (epsilon is None):
        raise BadParameter(
            "check", "needs --curator KEY for exact counts (the curator's), or --epsilon for noisy ones"
        )
    if epsilon is not None:
        _noisy(policy, epsilon, analyst, as_json=as_json)
        return
    assert curator is not None
    if as_json:
        raise BadParameter("json", "is for noisy counts: exact ones are shown at a terminal only")
    if not sys.stdout.isatty() and not into_a_file:
        raise BadParameter(
            "output",
            "is no terminal, and exact counts are private: a file or a log would keep them. Nothing was "
            "read. If you keep it as safe as the data itself, add --into-a-file",
        )
    from lapwing.ledger import CuratorKey  # noqa: PLC0415
    from lapwing.query.checking import check_exactly  # noqa: PLC0415

    key = CuratorKey.load(curator)
    with opened_dataset(policy, "curator") as found:
        _show_exact(found.policy, check_exactly(found, key))
        tell_not_utf8(found.policy)


def _show_exact(policy: Policy, found: list[TableCheck]) -> None:
    from rich.text import Text  # noqa: PLC0415

    from lapwing.cli.show import console, heading, indented, points, table  # noqa: PLC0415
    from lapwing.query.checking import states_of  # noqa: PLC0415

    with console() as out:
        out.print(Text(PRIVATE, style="bold yellow"))
        for one in found:
            own = policy.tables[one.table]
            heading(out, f"{one.table}: {one.rows:,} rows about {one.units:,} units")
            points(
                out,
                [
                    f"{one.rows_without_id:,} rows have no id, and are dropped",
                    f"{one.units_beyond:,} units have more than {own.rows_per_unit} rows: "
                    f"{one.rows_beyond:,} rows do not count (truncation)",
                ],
            )
            shown = table("column", "cells", "count", right=(2,))
            for name, column in own.columns.items():
                for n, state in enumerate(states_of(column)):
                    shown.add_row("" if n else name, state, f"{one.cells[name][state]:,}")
            out.print(shown)
        indented(
            out, "Unreadable and undeclared cells count as missing, clamped ones as the nearest bound."
        )


def _noisy(policy: Path, epsilon: str, analyst: str | None, *, as_json: bool) -> None:
    from lapwing.query.checking import check_noisily  # noqa: PLC0415

    with opened_dataset(policy, analyst) as found:
        made = check_noisily(found, epsilon)
        if as_json:
            print_json({"tables": [_to_json(found.policy, one) for one in made], "left": found.left()})
        else:
            _show_noisy(found.policy, made)


def _show_noisy(policy: Policy, made: list[NoisyCheck]) -> None:
    from lapwing.cli.show import console, heading, indented, table  # noqa: PLC0415
    from lapwing.cli.show_query import show_rows  # noqa: PLC0415
    from lapwing.query.answering.answer import cell  # noqa: PLC0415

    with console() as out:
        for one in made:
            heading(out, f"{one.table}: of each unit at most {policy.tables[one.table].rows_per_unit} rows")
            for some in one.cells:
                shown, before = table("column", "cells", "about", right=(2,)), ""
                for name, state, row in some.listed(policy.tables[one.table]):
                    about = cell(some.answer.columns[-1], row)
                    shown.add_row("" if name == before else name, state, about)
                    before = name
                out.print(shown)
                for line in some.answer.footer():
                    indented(out, line)
            if one.beyond is not None:
                show_rows(out, one.beyond)
            if one.refused:
                indented(out, f"The rest was not released: {one.refused}")


def _to_json(policy: Policy, one: NoisyCheck) -> dict[str, Any]:
    answers = [some.answer.to_json() for some in one.cells]
    counts = [answer.pop("columns")[-1] for answer in answers]
    return {
        "table": one.table,
        "cells": [
            {
                "column": name,
                "state": state,
                "count": numbers["values"][row],
                "low": numbers["low"][row],
                "high": numbers["high"][row],
            }
            for some, numbers in zip(one.cells, counts, strict=True)
            for name, state, row in some.listed(policy.tables[one.table])
        ],
        "answers": answers,
        "units_with_more_rows": None if one.beyond is None else one.beyond.to_json(),
        "refused": one.refused or None,
    }
