"""`lapwing party simulate`, `compare` and `example`: joint statistics of invented data.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from lapwing.cli import console
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.parties.simulation import Simulation
    from lapwing.plots.parties import MeasuredErrors

NAMES = ("east", "north", "south", "west", "coast", "hills", "lakes", "plain", "river", "woods")
QUICK_SIZES, QUICK_MEMBERS = (10, 100, 1000), (2, 10)


def simulate(
    *,
    members: Annotated[int, Option(help="How many members.", min=1, max=100)] = 3,
    coalition: Annotated[int, Option(help="The most members that the adversary may control.", min=0)] = 1,
    losses: Annotated[
        int, Option(help="The most further members that may fail before they have shared.", min=0)
    ] = 0,
    people_at: Annotated[int, Option(help="The most members that have rows of one person.", min=1)] = 1,
    adversary: Annotated[
        Literal["unbounded", "bounded"], Option(help="Its computing power.")
    ] = "unbounded",
    protocol: Annotated[
        Literal["auto", "A", "B", "C", "D"], Option(help="auto: the planner chooses.")
    ] = "auto",
    epsilon: Annotated[str, Option(help="The most that a person may lose, as ε.")] = "1",
    counts: Annotated[
        str | None, Option(help="Made-up counts, such as 120,45,230; else some are made up.")
    ] = None,
    lose: Annotated[
        list[str] | None,
        Option(metavar="MEMBER:ROUND", help="Lose a member from a round on, such as south:deal."),
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Run all members in one process on made-up counts, and show every round."""
    from lapwing.core.exact import exact
    from lapwing.parties.requirements import JointRequirements
    from lapwing.parties.simulation import simulate as simulated

    needs = JointRequirements(
        members=members,
        coalition=coalition,
        losses=losses,
        adversary=adversary,
        protocol=protocol,
        epsilon=exact(epsilon, "epsilon"),
        delta=exact(0),
        people_at=people_at,
        noise="laplace",
    )
    numbers = [100 + 37 * k % 90 for k in range(members)] if counts is None else _whole_numbers(counts)
    names = [NAMES[k] if members <= len(NAMES) else f"member-{k + 1}" for k in range(members)]
    done = simulated(needs, numbers, names, lose=dict(_member_and_round(one) for one in lose or ()))
    console.print_result(done, show_simulation, as_json=as_json)


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadParameter("counts", "must be whole numbers with commas, such as 120,45,230") from None


def _member_and_round(text: str) -> tuple[str, str]:
    name, colon, where = text.partition(":")
    if not colon:
        raise BadParameter("lose", "must be MEMBER:ROUND, such as south:deal")
    return name, where


def compare(
    *,
    epsilon: Annotated[str, Option(help="The ε of every way to count.")] = "1",
    repetitions: Annotated[int, Option(help="Runs for each point.", min=2, max=10_000)] = 200,
    plot: console.PlotPath = None,
    out: Annotated[Path | None, Option(help="Write the numbers into this .json file.")] = None,
    quick: Annotated[bool, Option("--quick", help="Few points, in a second or two.")] = False,
) -> None:
    """Measure the error of a share: one curator, several members, the local model. Takes half a minute."""
    from lapwing.parties.simulation import MEMBERS, SIZES
    from lapwing.parties.simulation import compare_trust_models as compared

    console.check_plot(plot)
    sizes, members = (QUICK_SIZES, QUICK_MEMBERS) if quick else (SIZES, MEMBERS)
    with console.working("measuring") as report:
        found = compared(epsilon, repetitions=repetitions, sizes=sizes, members=members, tell=report)
    show_comparison(found)
    with console.os_errors_told():
        if out is not None:
            out.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        from lapwing.plots.parties import parties

        console.write_plot(plot, parties(found))


def example(folder: console.ExampleFolder = Path(".")) -> None:
    """Write invented data and policies of three hospitals, and the draft of their consortium."""
    from lapwing.examples.hospitals import MEMBERS, POLICY, WISH, write_hospitals

    with console.os_errors_told():
        is_new = write_hospitals(folder)
    at = "" if folder == Path(".") else f"{folder}/"
    console.print_written([at + WISH, *(f"{at}{name}/" for name in MEMBERS)], is_new=is_new)
    print(f"  lapwing party plan {at}{WISH} --members 3 --policy {at}north/{POLICY}")


def show_simulation(done: Simulation) -> None:
    """Show all rounds of a simulated run."""
    plan = done.plan
    with console.page() as out:
        head = f"{plan.requirements.members} members, protocol {plan.protocol} ({plan.fit.name})"
        out.title(head)
        out.indented(plan.guarantee)
        out.points(*plan.notes)
        out.heading("Invented counts, and the same counts with one noise share of each member")
        members = console.table("member", "count", "with its noise share", right=(1, 2))
        for name, count, noised in zip(done.names, done.counts, done.noised, strict=True):
            members.add_row(name, f"{count:,}", f"{noised:,}")
        out.print(members)
        out.heading("Rounds")
        rounds = console.table(
            "round", "posted", "lost", "everybody reads", "each other member reads", right=(3, 4)
        )
        for step in done.steps:
            posted, missing = ", ".join(step.posted), ", ".join(step.missing)
            rounds.add_row(step.name, posted, missing, _bytes(step.public), _bytes(step.private))
        out.print(rounds)
        if done.opened is None:
            out.indented(f"Nothing was opened: {done.stopped}. What was charged stays charged.")
        else:
            error = done.opened - done.truth
            out.indented(
                f"Opened: {done.opened:,}. The true sum of {', '.join(done.contributors)} is "
                f"{done.truth:,} (only because it is made up): {error:+,}, where 95 % are within "
                f"± {done.width:,}."
            )
        if len(done.lessons) > 1:
            out.heading("Why a sum with too few shares is never opened")
            out.points(*_lessons(done))


def _bytes(count: int) -> str:
    return f"{count} bytes" if count else ""


def _lessons(done: Simulation) -> list[str]:
    planned, epsilon = done.plan.honest, float(done.plan.requirements.epsilon)
    return [
        f"With {present} of {planned} honest noise shares in it, the sum would reveal ε {reached:.3g}"
        + (", as planned." if present >= planned else f" instead of {epsilon:.3g}.")
        for present, reached in done.lessons
    ]


def show_comparison(found: MeasuredErrors) -> None:
    """Show the measured errors of all ways to count."""
    with console.page() as out:
        head = f"Root mean square error of a share at ε = {float(found.epsilon):g}, in percentage points"
        out.title(head)
        names = list(found.by_size)
        sizes = sorted({n for points in found.by_size.values() for n, _ in points})
        titles = {
            "curator": "one curator", "shared": "3 members,\n1 may collude",
            "alone": "10 members,\n9 may collude", "everybody": "every person\na member",
            "local": "local model",
        }  # fmt: skip
        shown = console.table("people", *(titles[name] for name in names), right=range(len(names) + 1))
        for n in sizes:
            shown.add_row(f"{n:,}", *(_percent(dict(found.by_size[name]).get(n)) for name in names))
        out.print(shown)
        out.heading(f"{found.people:,} people, divided among more and more members")
        divided = console.table(
            "members", "fewer than half may collude", "all but one may", right=(0, 1, 2)
        )
        for m, error in found.by_members["shared"]:
            divided.add_row(str(m), _percent(error), _percent(dict(found.by_members["alone"]).get(m)))
        out.print(divided)


def _percent(error: float | None) -> str:
    return "" if error is None else f"{100 * error:.3g}"
