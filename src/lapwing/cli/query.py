"""Private SQL on a policy's tables: `lapwing plan`, `ask`, `prepare`, `bounds` and others.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from lapwing.cli import console, ledger, remote, sql_text
from lapwing.client.address import is_address
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.answer_text import ShownAnswer
    from lapwing.client.remote_answer import RemoteAnswer
    from lapwing.sql.answering.answers import Answer
    from lapwing.sql.cell_check import NoisyCheck
    from lapwing.sql.dataset import Dataset
    from lapwing.sql.exact_check import TableCheck
    from lapwing.sql.policy.policy import CheckedPolicy
    from lapwing.sql.releasing import SessionPlan


ROWS_SHOWN = 60
_LONGEST_SQL = 2000
PRIVATE = (
    "These counts are exact, and private: show them to nobody. Nothing was charged for them. Bounds, "
    "values or rows_per_unit that you choose by them are not covered by the privacy promise: the "
    "ledger's statements show this check, and every changed policy that is used after it."
)
RowsOfAPerson = Annotated[
    int | None, Option("--rows", help="Count fewer rows of a person than the policy allows.")
]


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """The options of every question in SQL: those of `Dataset.plan`."""

    epsilon: Annotated[str | None, Option(help="The ε to spend, such as 0.5.")] = None
    within: Annotated[
        str | None, Option(help="Instead of ε: every number within ± this, at the confidence.")
    ] = None
    confidence: Annotated[str | None, Option(help="How sure each interval is; else 0.95.")] = None
    delta: Annotated[str | None, Option(help="The δ to spend; else the policy's delta_per_query.")] = None
    noise: Annotated[
        Literal["auto", "laplace", "gaussian"] | None,
        Option(help="auto, which is used otherwise: whichever has the smaller error."),
    ] = None
    rows: RowsOfAPerson = None
    where_first: Annotated[
        bool,
        Option(
            "--where-first",
            help="Choose the rows of a person among those that WHERE keeps. Slower: from the source.",
        ),
    ] = False
    n: Annotated[int | None, Option("--n", help="A public number of rows, for the error of averages.")] = (
        None
    )


@contextmanager
def opened_dataset(policy: Path, analyst: str | None, threads: int | None = None) -> Iterator[Dataset]:
    """Open the data set of a policy for an analyst."""
    from lapwing.sql.opening import open as open_dataset

    with console.os_errors_told(), open_dataset(policy, analyst=analyst, threads=threads) as dataset:
        dataset.curator.notify = console.tell
        yield dataset


def plan(
    policy: console.Source,
    sql: sql_text.Sql = None,
    *,
    file: sql_text.SqlFile = None,
    question: QuestionOptions,
    analyst: console.Analyst = None,
    as_json: console.AsJson = False,
) -> None:
    """Show what a question would compute, cost and be off by. It is free and reads no private row."""
    sql = sql_text.read_sql(sql, file)
    if is_address(policy):
        with remote.connected(policy, **_own(analyst)) as served:
            console.print_result(served.plan(sql, **asdict(question)), remote.show_plan, as_json=as_json)
        return
    with opened_dataset(Path(policy), analyst) as dataset:
        console.print_result(dataset.plan(sql, **asdict(question)), show_plan, as_json=as_json)


def ask(
    policy: console.Source,
    sql: sql_text.Sql = None,
    *,
    file: sql_text.SqlFile = None,
    question: QuestionOptions,
    two_stage: Annotated[
        bool, Option("--two-stage", help="With --within: buy a count first, to know what averages need.")
    ] = False,
    fresh: Annotated[
        bool, Option("--fresh", help="Spend again, and combine with earlier answers.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Answer from generated rows: costs nothing, means nothing.")
    ] = False,
    sampling: Annotated[
        bool, Option("--sampling", help="Widen intervals by the error of a random sample of rows.")
    ] = False,
    plot: console.PlotPath = None,
    analyst: console.Analyst = None,
    threads: console.Threads = None,
    form: console.OutputForm,
) -> None:
    """Ask a question: charge, compute, add noise, answer with intervals and a receipt."""
    console.check_plot(plot)
    sql = sql_text.read_sql(sql, file)
    if is_address(policy):
        with remote.connected(policy, **_own(analyst), threads=threads, two_stage=two_stage) as served:
            asked = served.plan(sql, **asdict(question), sampling=sampling)
            told = asked.dry_run() if dry_run else asked.release(fresh=fresh)
            _show_answers(told, None, form, plot=plot)
        return
    with opened_dataset(Path(policy), analyst, threads) as dataset:
        if two_stage:
            if question.within is None or question.epsilon is not None:
                raise BadParameter("two-stage", "needs --within alone: with --epsilon the price is known")
            if dry_run or question.n is not None:
                raise BadParameter("two-stage", "buys a count: leave out --dry-run and --n, or --two-stage")
            made, first = dataset.two_stage(
                sql, within=question.within, confidence=question.confidence, delta=question.delta,
                noise=question.noise, rows=question.rows, sampling=sampling,
                where_first=question.where_first,
            )  # fmt: skip
        else:
            made, first = dataset.plan(sql, **asdict(question), sampling=sampling), None
        answer = made.dry_run() if dry_run else made.release(fresh=fresh)
        _show_answers(answer, first, form, plot=plot)


def _own(analyst: str | None) -> dict[str, str | None]:
    """Return the option --as, unless it came from its variable."""
    return {"as": None if analyst == os.environ.get("LAPWING_ANALYST") else analyst}


def _show_answers(
    answer: Answer | RemoteAnswer,
    first: Answer | None,
    form: console.OutputForm,
    *,
    plot: Path | None = None,
) -> None:
    """Show answers, then draw. An answer that was paid for is shown even if it cannot be drawn."""
    if form.as_json:
        both = {"first": first.to_priced_json()} if first is not None else {}
        console.print_json({**answer.to_priced_json(), **both})
    elif form.as_csv:
        _write_answer(answer, first)
    else:
        if first is not None:
            show_answer(first)
        show_answer(answer)
    if plot is not None:
        from lapwing.client.remote_answer import RemoteAnswer

        figure = remote.picture_of(answer) if isinstance(answer, RemoteAnswer) else answer.plot()
        console.write_plot(plot, figure, quiet=form.is_for_programs)


def _write_answer(answer: Answer | RemoteAnswer, first: Answer | None) -> None:
    """Write an answer as CSV. The sentences about it, and a count that was bought first, go to stderr."""
    from lapwing.answer_text import column_notes

    rows = answer.to_arrow()
    writer = console.CsvWriter(rows.column_names)
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        writer.write(row)
    for line in [] if first is None else str(first).splitlines():
        console.tell(line)
    for line in [*column_notes(answer.columns), *answer.footer()]:
        console.tell(line)


def _tell_not_utf8(policy: CheckedPolicy) -> None:
    """Tell the curator of CSV files whose encoding is not the declared one."""
    from lapwing.sql.reading.open_sources import encoding_notes

    for note in encoding_notes(policy):
        console.tell(note)


def prepare(
    policy: console.PolicyFile,
    *,
    again: Annotated[
        bool, Option("--again", help="Count a new version also of files that nobody has written to.")
    ] = False,
    threads: console.Threads = None,
) -> None:
    """Register the source as it is now and store every row's rank once: then answers are fast."""
    with opened_dataset(policy, "curator", threads) as dataset, console.working("preparing") as report:
        is_new = dataset.prepare(lambda share: report(round(1000 * share), 1000), again=again)
        name, version = dataset.policy.name, dataset.version()
        _tell_not_utf8(dataset.policy)
    if not is_new:
        print(f"{name} is prepared. Nobody has written to its files since version {version}: it stays, and")
        print("stored answers with it. To count a new version all the same: --again.")
        return
    print(f"{name} is prepared: version {version}. The source was not changed.")
    if not dataset.curator.has_files:
        print("Whether its rows changed cannot be seen from outside: each time is a new version.")


def bounds(
    policy: console.PolicyFile,
    column: Annotated[str, Argument(metavar="TABLE.COLUMN", help="A numeric column.")],
    *,
    epsilon: Annotated[str, Option(help="The ε to spend, such as 0.1.")],
    step: Annotated[str, Option(help="How finely the column is measured, such as 1 or 0.01.")],
    analyst: console.Analyst = None,
    as_json: console.AsJson = False,
) -> None:
    """Search bounds for a column privately. It is charged like any other answer."""
    from lapwing.config.toml_text import quoted

    table, _, name = column.partition(".")
    if not table or not name:
        raise BadParameter("column", "must be TABLE.COLUMN, such as visits.cost")
    with opened_dataset(policy, analyst) as dataset:
        low, high, answer = dataset.search_bounds(table, name, epsilon=epsilon, step=step)
        if as_json:
            told = answer.to_priced_json()
            kept = {name: told[name] for name in ("cost", "price", "left", "truncation")}
            console.print_json({"low": low, "high": high, **kept})
            return
        known = dataset.policy.tables[table].columns.get(name)
        called = f"\nsource = {quoted(known.source)}" if known is not None and known.source else ""
        bounds = f"low = {low:g}\nhigh = {high:g}\nstep = {step}"
        print(f"[tables.{table}.columns.{name}]{called}\n{bounds}\n")
        print(
            f"Charged {answer.cost}. Budget left: {answer.left}. Rows beyond these bounds are few, or none."
        )
        print(*answer.truncation, sep="\n")


def truncated(
    policy: console.PolicyFile,
    table: Annotated[str, Argument(help="A private table.")],
    *,
    epsilon: Annotated[str, Option(help="The ε to spend, such as 0.1.")],
    rows: RowsOfAPerson = None,
    beyond: Annotated[
        int | None,
        Option(
            help="Estimate the rows, too: at most so many of a person beyond the bound. 10, 100, … 100000."
        ),
    ] = None,
    analyst: console.Analyst = None,
    form: console.OutputForm,
) -> None:
    """Estimate how many people (with --beyond: and rows) exceed the row limit. It is charged."""
    with opened_dataset(policy, analyst) as dataset:
        answer = dataset.truncated(table, epsilon=epsilon, rows=rows, beyond=beyond)
        _show_answers(answer, None, form)


def clear_hold(
    policy: console.PolicyFile,
    receipts: Annotated[list[int], Argument(help="Receipts of questions that failed.")],
) -> None:
    """Let questions that failed be asked again. The curator decides: why they failed may be private."""
    with opened_dataset(policy, "curator") as dataset:
        dataset.clear_hold(*receipts)
    for receipt in receipts:
        print(f"The question of receipt {receipt} may be asked again. Its charge stays.")


def show_plan(plan: SessionPlan) -> None:
    """Show the cost and expected error of a plan, every mechanism, and the SQL."""
    from lapwing.sql.pricing.plan import describe_spread

    with console.page() as out:
        out.title(f"Would cost {plan.cost}")
        if plan.why:
            out.indented(plan.why)
        expected = {name: describe_spread(spread) for name, spread in plan.spread.items()}
        shown = [(name, text) for name, text in expected.items() if text]
        if shown:
            out.heading(f"Expected error, with {float(plan.confidence):g} confidence each")
            out.table("column", "error", right=(1,), rows=shown)
        out.heading("Mechanisms")
        rows = [(step.what, step.mechanism, step.share, step.error) for step in plan.steps]
        out.table("what", "how", "share", "", rows=rows)
        if plan.shares.reason:
            out.indented(plan.shares.reason)
        out.heading("Bounds")
        out.points(*plan.bounds)
        if plan.blocks is not None:
            out.points(f"charged blocks: {plan.block_names}")
        out.heading("SQL that will run")
        for statement in plan.statements:
            out.indented(statement if len(statement) <= _LONGEST_SQL else f"{statement[:_LONGEST_SQL]} …")


def show_answer(answer: ShownAnswer) -> None:
    """Show an answer: a table with intervals, the charge, the budget left, the receipt."""
    with console.page() as out:
        show_rows(out, answer)


def show_rows(out: console.Page, answer: ShownAnswer) -> None:
    """Print the first rows of an answer, and its notes."""
    from lapwing.answer_text import column_notes

    headings, cells = answer.table(ROWS_SHOWN)
    out.table(*headings, right=range(len(headings)), rows=cells)
    if len(answer) > len(cells):
        out.indented(f"… {len(answer) - len(cells):,} more rows: use --csv or --json for all")
    out.indented(*column_notes(answer.columns), *answer.footer())


def check(
    policy: console.PolicyFile,
    *,
    curator: Annotated[
        Path | None, Option("--curator", help="The curator's key file, for exact counts.")
    ] = None,
    epsilon: Annotated[
        str | None, Option(help="Instead: buy noisy counts for this ε in all, such as 0.5.")
    ] = None,
    into_a_file: Annotated[
        bool, Option("--into-a-file", help="Print exact counts also where no terminal shows them.")
    ] = False,
    analyst: console.Analyst = None,
    as_json: console.AsJson = False,
) -> None:
    """Count the cells that the policy reads, and those that are unreadable, undeclared or clamped."""
    if (curator is None) == (epsilon is None):
        raise BadParameter(
            "check", "needs --curator KEY for exact counts (the curator's), or --epsilon for noisy ones"
        )
    if epsilon is not None:
        _check_noisily(policy, epsilon, analyst, as_json=as_json)
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
    from lapwing.sql.exact_check import check_exactly

    key = ledger.curator_key(curator)
    with opened_dataset(policy, "curator") as dataset:
        _show_exact(dataset.policy, check_exactly(dataset, key))
        _tell_not_utf8(dataset.policy)


def _show_exact(policy: CheckedPolicy, checks: list[TableCheck]) -> None:
    from lapwing.sql.cell_check import possible_states

    with console.page() as out:
        out.warning(PRIVATE)
        for check in checks:
            own = policy.tables[check.table]
            out.heading(f"{check.table}: {check.rows:,} rows about {check.units:,} units")
            out.points(
                f"{check.rows_without_id:,} rows have no id, and are dropped",
                f"{check.units_beyond:,} units have more than {own.rows_per_unit} rows: "
                f"{check.rows_beyond:,} rows do not count (truncation)",
            )
            shown = console.table("column", "cells", "count", right=(2,))
            for name, column in own.columns.items():
                for n, state in enumerate(possible_states(column)):
                    shown.add_row("" if n else name, state, f"{check.cells[name][state]:,}")
            out.print(shown)
        out.indented("Unreadable and undeclared cells count as missing, clamped ones as the nearest bound.")


def _check_noisily(policy: Path, epsilon: str, analyst: str | None, *, as_json: bool) -> None:
    from lapwing.sql.cell_check import check_noisily

    with opened_dataset(policy, analyst) as dataset:
        made = check_noisily(dataset, epsilon)
        if as_json:
            told = [_to_json(dataset.policy, check) for check in made]
            console.print_json({"tables": told, "left": str(dataset.left())})
        else:
            _show_noisy(dataset.policy, made)


def _show_noisy(policy: CheckedPolicy, made: list[NoisyCheck]) -> None:
    from lapwing.answer_text import cell_text

    with console.page() as out:
        for check in made:
            out.heading(
                f"{check.table}: of each unit at most {policy.tables[check.table].rows_per_unit} rows"
            )
            for some in check.cells:
                shown, before = console.table("column", "cells", "about", right=(2,)), ""
                for name, state, row in some.listed(policy.tables[check.table]):
                    about = cell_text(some.answer.columns[-1], row)
                    shown.add_row("" if name == before else name, state, about)
                    before = name
                out.print(shown)
                out.indented(*some.answer.footer())
            if check.beyond is not None:
                show_rows(out, check.beyond)
            if check.refused:
                out.indented(f"The rest was not released: {check.refused}")


def _to_json(policy: CheckedPolicy, check: NoisyCheck) -> dict[str, Any]:
    answers = [some.answer.to_priced_json() for some in check.cells]
    counts = [answer.pop("columns")[-1] for answer in answers]
    return {
        "table": check.table,
        "cells": [
            {
                "column": name,
                "state": state,
                "count": numbers["values"][row],
                "low": numbers["low"][row],
                "high": numbers["high"][row],
            }
            for some, numbers in zip(check.cells, counts, strict=True)
            for name, state, row in some.listed(policy.tables[check.table])
        ],
        "answers": answers,
        "units_with_more_rows": None if check.beyond is None else check.beyond.to_priced_json(),
        "refused": check.refused or None,
    }
