"""`lapwing plan` and `lapwing ask` with the address of a server instead of a policy file.

The token comes from LAPWING_TOKEN or LAPWING_TOKEN_FILE, never from the command line: others on the machine
see that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lapwing.cli import console
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lapwing.client.remote_answer import RemoteAnswer
    from lapwing.client.remote_dataset import RemoteDataset
    from lapwing.client.remote_plan import RemotePlan

NOT_THERE = {
    "as": "a server knows who asks by the token",
    "threads": "a server decides this",
    "two-stage": "is for policy files: ask for a COUNT(*) first, and give its answer with --n",
}


@contextmanager
def connected(url: str, **given: Any) -> Iterator[RemoteDataset]:
    """Connect to the data set of an address. `given` has options that only policy files have."""
    from lapwing.client.connecting import connect

    for name, value in given.items():
        option = name.replace("_", "-")
        if value:
            raise BadParameter(option, f"is not for an address: {NOT_THERE[option]}")
    with connect(url) as dataset:
        yield dataset


def show_plan(plan: RemotePlan) -> None:
    """Show the cost and expected error of a plan, and every mechanism."""
    with console.page() as out:
        out.title(f"Would cost {plan.cost}")
        if plan.spread:
            out.heading(f"Expected error, with {plan.confidence:g} confidence each")
            out.table("column", "error", right=(1,), rows=plan.spread.items())
        out.heading("Mechanisms")
        rows = [(step.what, step.mechanism, step.share, step.error) for step in plan.steps]
        out.table("what", "how", "share", "", rows=rows)
        if plan.reason:
            out.indented(plan.reason)
        out.heading("Bounds")
        out.points(*plan.bounds)
        if plan.blocks is not None:
            out.points(f"charged blocks: {', '.join(plan.blocks)}")


def picture_of(answer: RemoteAnswer) -> Figure:
    """Draw an answer with error bars."""
    from lapwing.plots.answers import answer_picture

    columns = [(column.name, column.values, column.low, column.high) for column in answer.columns]
    return answer_picture(columns, confidence=answer.confidence)
