"""`lapwing plan`, `ask`, `prepare` and what belongs to them: private SQL on a policy's tables.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lapwing.cli.opened import AsJson, plainly, print_json, tell
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.query.answering.answer import Answer
    from lapwing.query.dataset import Dataset
    from lapwing.query.policies.policy import Policy

PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY", help="The policy file, such as visits.toml.")]
Sql = Annotated[str, typer.Argument(metavar="SQL", help='Such as "SELECT COUNT(*) FROM visits".')]
Epsilon = Annotated[str | None, typer.Option(help="The ε to spend, such as 0.5.")]
Within = Annotated[
    str | None, typer.Option(help="Instead of ε: every number within ± this, at the confidence.")
]
Confidence = Annotated[str, typer.Option(help="How sure each interval is.")]
Delta = Annotated[str | None, typer.Option(help="The δ to spend; else the policy's delta_per_query.")]
Noise = Annotated[
    Literal["auto", "laplace", "gaussian"], typer.Option(help="auto: whichever has the smaller error.")
]
RowsOfAPerson = Annotated[
    int | None, typer.Option("--rows", help="Count fewer rows of a person than the policy allows.")
]
WhereFirst = Annotated[
    bool,
    typer.Option(
        "--where-first",
        help="Choose the rows of a person among those that WHERE keeps. Slower: from the source.",
    ),
]
Size = Annotated[
    int | None, typer.Option("--n", help="A public number of rows, for the error of averages.")
]
Analyst = Annotated[
    str | None, typer.Option("--as", envvar="LAPWING_ANALYST", help="Who asks; else your user name.")
]
Threads = Annotated[int | None, typer.Option(help="How many cores an embedded engine may use.")]


@contextmanager
def opened_dataset(policy: Path, analyst: str | None, threads: int | None = None) -> Iterator[Dataset]:
    """The data set of a policy, for one who asks."""
    from lapwing.query.dataset import open as open_dataset  # noqa: PLC0415

    with plainly(), open_dataset(policy, analyst=analyst, threads=threads) as found:
        found.tell = tell
        yield found


def plan(
    policy: PolicyFile,
    sql: Sql,
    *,
    epsilon: Epsilon = None,
    within: Within = None,
    confidence: Confidence = "0.95",
    delta: Delta = None,
    noise: Noise = "auto",
    rows: RowsOfAPerson = None,
    where_first: WhereFirst = False,
    n: Size = None,
    analyst: Analyst = None,
    as_json: AsJson = False,
) -> None:
    """Show what a question would compute, cost and be off by. It is free and reads no private row."""
    from lapwing.cli.show_query import show_plan  # noqa: PLC0415

    with opened_dataset(policy, analyst) as found:
        made = found.plan(
            sql, epsilon=epsilon, within=within, confidence=confidence, delta=delta, noise=noise,
            rows=rows, n=n, where_first=where_first,
        )  # fmt: skip
        if as_json:
            print_json(made.to_json())
        else:
            show_plan(made)


def ask(
    policy: PolicyFile,
    sql: Sql,
    *,
    epsilon: Epsilon = None,
    within: Within = None,
    confidence: Confidence = "0.95",
    delta: Delta = None,
    noise: Noise = "auto",
    rows: RowsOfAPerson = None,
    where_first: WhereFirst = False,
    n: Size = None,
    two_stage: Annotated[
        bool,
        typer.Option("--two-stage", help="With --within: buy a count first, to know what averages need."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Spend again, and combine with earlier answers.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Answer from generated rows: costs nothing, means nothing.")
    ] = False,
    sampling: Annotated[
        bool, typer.Option("--sampling", help="Widen intervals by the error of a random sample of rows.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the answer into this .svg, .png or .pdf file.")
    ] = None,
    analyst: Analyst = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Ask a question: charge, compute, add noise, answer with intervals and a receipt."""
    if plot is not None:
        from lapwing.plots.style import checked_path  # noqa: PLC0415

        checked_path(plot)
    with opened_dataset(policy, analyst, threads) as found:
        if two_stage:
            if within is None or epsilon is not None:
                raise BadParameter("two-stage", "needs --within alone: with --epsilon the price is known")
            if dry_run or n is not None:
                raise BadParameter("two-stage", "buys a count: leave out --dry-run and --n, or --two-stage")
            made, first = found.two_stage(
                sql, within=within, confidence=confidence, delta=delta, noise=noise, rows=rows,
                sampling=sampling, where_first=where_first,
            )  # fmt: skip
        else:
            first = None
            made = found.plan(
                sql, epsilon=epsilon, within=within, confidence=confidence, delta=delta, noise=noise,
                rows=rows, n=n, sampling=sampling, where_first=where_first,
            )  # fmt: skip
        answer = made.dry_run() if dry_run else made.release(fresh=fresh)
        _show(answer, first, plot=plot, as_json=as_json)


def _show(answer: Answer, first: Answer | None, *, plot: Path | None, as_json: bool) -> None:
    """The answer first: it was paid for, also if it cannot be drawn."""
    from lapwing.cli.show_query import show_answer  # noqa: PLC0415

    if as_json:
        both = {"first": first.to_json()} if first is not None else {}
        print_json({**answer.to_json(), **both})
    else:
        if first is not None:
            show_answer(first)
        show_answer(answer)
    if plot is None:
        return
    try:
        answer.plot(plot)
    except OSError as error:
        raise BadParameter("plot", f"{plot} cannot be written ({error.strerror})") from None
    if not as_json:
        print(f"\nThe picture is in {plot}")


def tell_not_utf8(policy: Policy) -> None:
    """Tell the curator of CSV files whose encoding is not the one that is said."""
    from lapwing.engines.csv_form import NOT_UTF8  # noqa: PLC0415
    from lapwing.query.bounded.readable import not_utf8  # noqa: PLC0415

    for table in not_utf8(policy):
        tell(f"tables.{table}: some lines count as no rows, since they are {NOT_UTF8}")


def prepare(
    policy: PolicyFile,
    *,
    again: Annotated[
        bool, typer.Option("--again", help="Count a new version also of files that nobody has written to.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Register the source as it is now and store every row's rank once: then answers are fast."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415

    with opened_dataset(policy, "curator", threads) as found, working("preparing") as report:
        is_new = found.prepare(lambda share: report(round(1000 * share), 1000), again=again)
        name, version = found.policy.name, found.version()
        tell_not_utf8(found.policy)
    if not is_new:
        print(f"{name} is prepared. Nobody has written to its files since version {version}: it stays, and")
        print("stored answers with it. To count a new version all the same: --again.")
        return
    print(f"{name} is prepared: version {version}. The source was not changed.")
    if not found.has_files:
        print("Whether its rows changed cannot be seen from outside: each time is a new version.")


def bounds(
    policy: PolicyFile,
    column: Annotated[str, typer.Argument(metavar="TABLE.COLUMN", help="A numeric column.")],
    *,
    epsilon: Annotated[str, typer.Option(help="The ε to spend, such as 0.1.")],
    step: Annotated[str, typer.Option(help="How finely the column is measured, such as 1 or 0.01.")],
    analyst: Analyst = None,
    as_json: AsJson = False,
) -> None:
    """Search bounds for a column privately. It is charged like any other answer."""
    from lapwing.toml.text import quoted  # noqa: PLC0415

    table, _, name = column.partition(".")
    if not table or not name:
        raise BadParameter("column", "must be TABLE.COLUMN, such as visits.cost")
    with opened_dataset(policy, analyst) as found:
        low, high, answer = found.search_bounds(table, name, epsilon=epsilon, step=step)
        if as_json:
            found_out = {"low": low, "high": high, "cost": answer.cost, "left": answer.left}
            print_json({**found_out, "truncation": list(answer.truncation)})
            return
        known = found.policy.tables[table].columns.get(name)
        called = f"\nsource = {quoted(known.source)}" if known is not None and known.source else ""
        bounds = f"low = {low:g}\nhigh = {high:g}\nstep = {step}"
        print(f"[tables.{table}.columns.{name}]{called}\n{bounds}\n")
        print(f"Charged {answer.cost}. Left: {answer.left}. Rows beyond these bounds are few, or none.")
        print(*answer.truncation, sep="\n")


def dropped(
    policy: PolicyFile,
    table: Annotated[str, typer.Argument(help="A private table.")],
    *,
    epsilon: Annotated[str, typer.Option(help="The ε to spend, such as 0.1.")],
    rows: RowsOfAPerson = None,
    beyond: Annotated[
        int | None,
        typer.Option(
            help="Estimate the rows, too: at most so many of a person beyond the bound. 10, 100, … 100000.",
        ),
    ] = None,
    analyst: Analyst = None,
    as_json: AsJson = False,
) -> None:
    """Estimate privately how many people (with --beyond: and rows) the bound on rows concerns."""
    with opened_dataset(policy, analyst) as found:
        answer = found.dropped(table, epsilon=epsilon, rows=rows, beyond=beyond)
        _show_dropped(answer, as_json=as_json)


def _show_dropped(answer: Answer, *, as_json: bool) -> None:
    from lapwing.cli.show_query import show_answer  # noqa: PLC0415

    if as_json:
        print_json(answer.to_json())
    else:
        show_answer(answer)


def looked(
    policy: PolicyFile,
    receipts: Annotated[list[int], typer.Argument(help="Receipts of questions that failed.")],
) -> None:
    """Let questions that failed be asked again. The curator's decision: why they failed may be private."""
    with opened_dataset(policy, "curator") as found:
        found.looked(*receipts)
    for receipt in receipts:
        print(f"The question of receipt {receipt} may be asked again. Its charge stays.")
