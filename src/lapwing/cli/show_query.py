"""How plans and answers look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from lapwing.cli.show import console, heading, indented, points, table
from lapwing.query.answering.answer import column_notes
from lapwing.query.plan import described, listed

if TYPE_CHECKING:
    from rich.console import Console

    from lapwing.parties.statistics import JointAnswer
    from lapwing.query.answering.answer import Answer
    from lapwing.query.plan import Plan

MOST_ROWS = 60
_LONGEST_SQL = 2000


def show_plan(plan: Plan) -> None:
    """What it would cost and be off by, every mechanism, and the SQL."""
    with console() as out:
        out.print(Text(f"Would cost {plan.cost}", style="bold"))
        if plan.why:
            indented(out, plan.why)
        expected = {name: described(one) for name, one in plan.spread.items()}
        shown = [(name, text) for name, text in expected.items() if text]
        if shown:
            heading(out, f"Expected error, with {float(plan.confidence):g} confidence each")
            errors = table("column", "error", right=(1,))
            for name, text in shown:
                errors.add_row(name, text)
            out.print(errors)
        heading(out, "Mechanisms")
        steps = table("what", "how", "share", "")
        for step in plan.steps:
            steps.add_row(step.what, step.mechanism, step.share, step.error)
        out.print(steps)
        if plan.shares.reason:
            indented(out, plan.shares.reason)
        heading(out, "Bounds")
        points(out, plan.bounds)
        if plan.blocks is not None:
            points(out, [f"charged blocks: {listed(plan.blocks)}"])
        heading(out, "SQL that will run")
        for statement in plan.statements:
            indented(out, statement if len(statement) <= _LONGEST_SQL else f"{statement[:_LONGEST_SQL]} …")


def show_answer(answer: Answer) -> None:
    """A table with intervals, the charge, what is left, the receipt."""
    with console() as out:
        show_rows(out, answer)


def show_rows(out: Console, answer: Answer | JointAnswer) -> None:
    """Its first rows, and what is to be known about it."""
    headings, cells = answer.table(MOST_ROWS)
    shown = table(*headings, right=range(len(headings)))
    for row in cells:
        shown.add_row(*row)
    out.print(shown)
    if len(answer) > len(cells):
        indented(out, f"… {len(answer) - len(cells):,} more rows: use --json for all")
    for line in [*column_notes(answer.columns), *answer.footer()]:
        indented(out, line)
