"""`lapwing example` and `lapwing init`: invented data to try things on, and the draft of a policy."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from lapwing.cli.console import ExampleFolder, print_written
from lapwing.errors import BadParameter, LapwingError

if TYPE_CHECKING:
    from lapwing.sql.policy.policy_draft import SourceSchema


def example(folder: ExampleFolder = Path(".")) -> None:
    """Write an invented data set (visits to a hospital) and its policy, to try things on."""
    from lapwing.examples.visits import write_visits

    names, is_new = write_visits(folder)
    print_written(names, is_new=is_new)
    question = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"
    print(f'  lapwing ask {folder / "visits.toml"} "{question}" --epsilon 0.2')


def init(
    source: Annotated[
        str,
        Argument(
            help="A CSV or Parquet file, a folder or pattern of them, a DuckDB file (file.duckdb#table), "
            "postgresql://…#table or spark:table."
        ),
    ],
    *,
    unit: Annotated[str | None, Option(help="The column that says whom a row is about.")] = None,
    rows_per_unit: Annotated[
        int | None, Option(help="How many rows of one person may count. More rows, more noise.")
    ] = None,
    epsilon: Annotated[str | None, Option(help="ε of the budget for life, such as 3.")] = None,
    delta: Annotated[
        str | None, Option(help="δ of the budget for life, far below 1 / the number of people.")
    ] = None,
    column: Annotated[
        list[str] | None,
        Option(
            help="Public facts about a column, from what you know: amount=0..500/0.01 (low, high, step), "
            "city=Oslo,Bergen, day=2026-01-01..2026-12-31, note=text or paid=bool; or date, time, whole or "
            "number, with bounds to fill in. Give it once for each column."
        ),
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Where to write; else NAME.toml in this folder.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Draft a policy from the names and types of columns. No value of the data is copied."""
    from lapwing.sql.policy.policy_draft import KnownFacts, draft_of, read_column_facts, read_schema
    from lapwing.sql.policy.policy_file import load_policy

    schema = read_schema(source, folder=Path.cwd())
    target = output if output is not None else Path(f"{schema.table}.toml")
    if target.exists() and not force:
        raise BadParameter("output", f"{target} exists. Write over it with --force, or name another file")
    if unit is None and sys.stdin.isatty():
        unit = _ask(schema)
    facts = KnownFacts(unit, rows_per_unit, epsilon, delta, read_column_facts(column or (), schema))
    before = target.read_bytes() if force and target.is_file() else None
    _write(target, draft_of(schema, facts, folder=target.absolute().parent), force=force)
    question = f"SELECT COUNT(*) FROM {schema.table}"  # noqa: S608 - only shown
    steps = [
        f"lapwing prepare {quote(str(target))}",
        f'lapwing plan {quote(str(target))} "{question}" --epsilon 0.1',
    ]
    if facts.complete:
        try:
            load_policy(target)  # says with its line what is wrong, if something is
        except LapwingError:  # a corrected command must not need --force
            _put_back(target, before)
            raise
        print(f"{target} is ready. Read it: all of it becomes public. Nothing in it comes from the rows.")
        print(f"Next, for nothing:\n  {steps[1]}")
        return
    fill = f"Fill in {target}: whatever says TODO, from what you know, not from the data."
    for number, step in enumerate([fill, *steps], 1):
        print(f"{number}. {step}")


def _ask(schema: SourceSchema) -> str | None:
    from lapwing.sql.policy.policy_draft import find_unit_column

    print("Which column says whom a row is about?")
    for name, kind in schema.columns:
        print(f"  {name}  ({kind})")
    while answer := typer.prompt("unit (empty: decide later)", default="", show_default=False).strip():
        try:
            return find_unit_column(schema, answer)
        except BadParameter as error:
            print(error.why)
    return None


def _put_back(target: Path, before: bytes | None) -> None:
    """Leave the folder as it was before a draft that is no policy."""
    if before is None:
        target.unlink(missing_ok=True)
    else:
        target.write_bytes(before)


def _write(target: Path, text: str, *, force: bool) -> None:
    try:
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:  # it was made meanwhile
        raise BadParameter("output", f"{target} exists. Write over it with --force") from None
    except OSError as error:
        raise BadParameter("output", f"{target} cannot be written ({error.strerror})") from None
