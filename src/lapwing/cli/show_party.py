"""How joint computations look: plans, invitations, progress, answers, transcripts, simulations."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from lapwing.cli import console
from lapwing.cli.query import show_rows
from lapwing.core.loss_records import describe
from lapwing.ledger.request_log import pair_text, price_in_words

if TYPE_CHECKING:
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.joining import RunResult
    from lapwing.parties.joint_plan import JointPlan, ProtocolAlternative
    from lapwing.parties.messages import Progress, ProgressCallback
    from lapwing.parties.simulation import Simulation
    from lapwing.parties.transcript import VerifiedTranscript
    from lapwing.plots.accuracy import MeasuredErrors


MOST_BLOCKS = 20
MOST_SUMS = 12
SURE = Fraction(95, 100)


def charge_text(plan: JointPlan) -> str:
    """Return the charge to one member's ledger, in words."""
    return price_in_words(describe(plan.loss), (), Fraction(0))


def bytes_text(count: int) -> str:
    """Return a number of bytes as people read it."""
    if count < 10_000:
        return f"{count:,} bytes"
    return f"{count / 1e3:,.0f} kB" if count < 10_000_000 else f"{count / 1e6:,.1f} MB"


def show_plan(plan: JointPlan, name: str, title: str, *, why_not_local: str) -> None:
    """Show the plan of a joint statistic, and every protocol."""
    with console.page() as out:
        _plan(out, plan, name, title)
        out.heading("Every protocol")
        rows = [
            _alternative(alternative, plan.protocol)
            for alternative in plan.alternatives(why_not_local=why_not_local)
        ]
        heads = ("", "protocol", "error", "may fail later", "a member sends", "")
        out.table(*heads, right=(2, 3, 4), rows=rows)


def _plan(out: console.Page, plan: JointPlan, name: str, title: str) -> None:
    needs = plan.requirements
    out.title(console.printable(f"{name}: {title}"))
    chosen = "chosen" if needs.protocol == "auto" else "as asked"
    out.indented(f"{needs.members} members. Protocol {plan.protocol} ({plan.fit.name}), {chosen}.")
    out.heading("Guarantee")
    out.indented(console.printable(plan.guarantee))
    out.points(*plan.notes)
    out.heading("Cost")
    budget = pair_text(needs.epsilon, needs.delta if plan.noise == "gaussian" else Fraction(0))
    lines = [f"A person: {budget}, by all members together. Each member's own ledger: {charge_text(plan)}."]
    if not plan.is_local:
        lines.append(
            f"Noise is sized for {plan.honest} honest member{'s' if plan.honest > 1 else ''}: a sum with "
            f"fewer than {plan.least} members is never opened, and the charge stays."
        )
        lines.append(f"{plan.noise.capitalize()} noise: {plan.why}.")
    out.points(*lines)
    if needs.members > 1:
        out.heading("Loss of a person if more members belong together than planned")
        out.indented(_together(plan))
    out.heading("Expected error of every opened number (before further computation)")
    widths = [""] * len(plan.blocks) if plan.is_local else [f"± {width:,}" for width in plan.widths(SURE)]
    rows = [
        (console.printable(block.label), f"{block.length:,}", f"{deviation:,.4g}", within)
        for block, deviation, within in zip(plan.blocks, plan.deviations, widths, strict=True)
    ]
    if (more := len(rows) - MOST_BLOCKS) > 0:
        rows[MOST_BLOCKS:] = [(f"… {more} more", "", "", "")]
    out.table("numbers", "of", "deviation", "within, 0.95 sure", right=(1, 2, 3), rows=rows)
    cost = plan.cost
    rounds = f"{cost.rounds} round{'s' if cost.rounds > 1 else ''}"
    stages = f" in {plan.stages} stages" if plan.stages > 1 else ""
    out.heading("Traffic")
    out.indented(
        f"{rounds}{stages}, {cost.messages:,} messages. A member sends {bytes_text(cost.sent)} and gets "
        f"{bytes_text(cost.received)}; the relay carries {bytes_text(cost.in_all)} in all, and TLS adds a "
        "little."
    )


def _together(plan: JointPlan) -> str:
    from lapwing.parties.joint_plan import epsilon_by_coalition

    epsilons, planned = epsilon_by_coalition(plan), plan.requirements.coalition
    if max(epsilons.values()) <= plan.requirements.epsilon:
        return "No more than planned, whichever members belong together."
    texts = [
        f"{size} of {plan.requirements.members}{' (planned)' if size == planned else ''}"
        f": ε {float(epsilon):.3g}"
        for size, epsilon in epsilons.items()
    ]
    return "; ".join(texts) + ". Members with one owner or one operator belong together."


def _alternative(alternative: ProtocolAlternative, chosen: str) -> list[str]:
    mark = "→" if alternative.letter == chosen else ""
    name = f"{alternative.letter}  {alternative.name}"
    if alternative.why_not or alternative.error is None or alternative.cost is None:
        return [mark, name, "", "", "", alternative.why_not]
    return [
        mark,
        name,
        f"× {alternative.error:.3g}",
        f"{alternative.survives}",
        bytes_text(alternative.cost.sent),
        "",
    ]


def show_invitation(consortium: Consortium, me: str, title: str) -> None:
    """Show the consortium that a member is asked to sign."""
    with console.page() as out:
        _plan(out, consortium.plan, consortium.name, title)
        out.heading("Members")
        members = console.table("member", "has signed", "fingerprint of its card")
        for card in consortium.cards:
            you = " (you)" if card.name == me else ""
            signed = "yes" if card.name in consortium.signatures else "not yet"
            members.add_row(f"{card.name}{you}", signed, card.fingerprint)
        out.print(members)
        lines = [
            console.printable(f"Relay: {consortium.host.name}, at {consortium.address}."),
            f"Deadlines: {consortium.lobby_seconds} s to come, {consortium.round_seconds} s a round.",
            f"Fingerprint of all this, to be compared with the others: {consortium.fingerprint}",
        ]
        out.points(*lines)
        out.print()


def show_result(result: RunResult) -> None:
    """Show the result of a run."""
    with console.page() as out:
        head = f"{result.consortium.name}, run {result.number}: {result.answer.title}"
        out.title(head)
        show_rows(out, result.answer)
        out.indented(*result.truncation)
        if result.is_replay:
            out.indented(
                "This run was opened before: nothing was charged now. A new run is --number "
                f"{result.number + 1}, at every member, and is charged again."
            )
        else:
            out.indented(f"Charged to your own ledger: {charge_text(result.consortium.plan)}.")
        out.indented(f"Budget left: {result.left}.")
        out.print()
        out.indented("Transcript, which anybody can check:")
        # This line is to be copied, so it is never broken.
        out.print(Text(f"  lapwing party verify {result.transcript}"), soft_wrap=True)


def result_json(result: RunResult) -> dict[str, Any]:
    """Return plain values, for JSON."""
    plan = result.consortium.plan
    return {
        **result.answer.to_json(),
        "truncation": list(result.truncation),
        "consortium": result.consortium.digest.hex(),
        "run": result.number,
        "protocol": plan.protocol,
        "charged": None if result.is_replay else charge_text(plan),
        "left": result.left,
        "transcript": str(result.transcript),
        "guarantee": plan.guarantee,
    }


def verified_json(verified: VerifiedTranscript) -> dict[str, Any]:
    """Return plain values, for JSON."""
    return {
        "members": list(verified.members),
        "run": verified.number,
        "protocol": verified.protocol,
        "contributors": [list(names) for names in verified.contributors],
        "sums": [opening.values.tolist() for opening in verified.opened],
        "stopped": verified.stopped,
        "left": list(verified.left),
        "guarantee": verified.guarantee,
        "not_checked": list(verified.not_checked),
    }


def show_verified(verified: VerifiedTranscript, path: Path) -> None:
    """Show the result of checking a transcript."""
    with console.page() as out:
        out.title(f"{path} is in order")
        lines = [
            f"Run {verified.number} of {', '.join(verified.members)}, all of whom signed the consortium. "
            f"Protocol {verified.protocol}.",
            "Every post is signed by its member, for this run and round, on exactly the rounds before it.",
        ]
        for stage, (names, opened) in enumerate(
            zip(verified.contributors, verified.opened, strict=True), 1
        ):
            which = f"Sum {stage}" if len(verified.opened) > 1 else "The sum"
            sums = ", ".join(f"{value:,}" for value in opened.values[:MOST_SUMS].tolist())
            more = f" … ({len(opened.values):,} numbers)" if len(opened.values) > MOST_SUMS else ""
            lines.append(f"{which} follows from the posts of {', '.join(names)}: {sums}{more}.")
        if verified.stopped is not None:
            stopped = console.printable(verified.stopped)
            lines.append(f'The writer of this file says that the run stopped: "{stopped}"')
        lines += [console.printable(f"Left, and signed why: {reason}.") for reason in verified.left]
        out.points(*lines)
        out.heading("Guarantee about everything that was seen")
        out.indented(console.printable(verified.guarantee))
        out.heading("Facts that no transcript can show")
        out.points(*verified.not_checked)


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


def show_comparison(errors: MeasuredErrors) -> None:
    """Show the measured errors of all ways to count."""
    with console.page() as out:
        head = f"Root mean square error of a share at ε = {float(errors.epsilon):g}, in percentage points"
        out.title(head)
        names = list(errors.by_size)
        sizes = sorted({n for points in errors.by_size.values() for n, _ in points})
        titles = {
            "curator": "one curator", "shared": "3 members,\n1 may collude",
            "alone": "10 members,\n9 may collude", "everybody": "every person\na member",
            "local": "local model",
        }  # fmt: skip
        shown = console.table("people", *(titles[name] for name in names), right=range(len(names) + 1))
        for n in sizes:
            shown.add_row(f"{n:,}", *(_percent(dict(errors.by_size[name]).get(n)) for name in names))
        out.print(shown)
        out.heading(f"{errors.people:,} people, divided among more and more members")
        divided = console.table(
            "members", "fewer than half may collude", "all but one may", right=(0, 1, 2)
        )
        for m, error in errors.by_members["shared"]:
            divided.add_row(str(m), _percent(error), _percent(dict(errors.by_members["alone"]).get(m)))
        out.print(divided)


def _percent(error: float | None) -> str:
    return "" if error is None else f"{100 * error:.3g}"


_MARKS = {"waiting": ("…", "dim"), "here": ("✓", "green"), "posted": ("✓", "green"), "lost": ("✗", "red")}


class MemberBoard:
    """The state of every member: present, posted, awaited, lost."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.state = dict.fromkeys(names, "waiting")
        self.said = "waiting for the members"

    def add(self, event: Progress) -> str | None:
        """Add one event. Return a line to print where there is no live table, or None."""
        stage = f"stage {event.stage + 1} of {event.stages}, " if event.stages > 1 else ""
        names, line = ", ".join(event.names), None
        match event.kind:
            case "arrived":
                self._mark(event.names, "here")
                line = f"here: {names}"
            case "ready":
                self._mark(event.names, "posted")
                self.said = "waiting until all have read their data; nothing is charged yet"
                line = f"ready: {names}"
            case "refused" | "unserved":
                line = f"{event.kind}: {names}: {event.why}"
            case "begun":
                self.state = {name: "waiting" if name in event.names else "lost" for name in self.names}
                line = f"begun with {names}"
            case "round":
                self._waiting()
                self.said = f"{stage}round {event.index + 1} of {event.rounds}: {event.round}"
            case "posted":
                self._mark(event.names, "posted")
            case "closed":
                self._mark(event.names, "posted")
                line = f"{stage}round {event.index + 1} of {event.rounds}, {event.round}: {names}"
            case "lost":
                self._mark(event.names, "lost")
                line = f"lost: {names}"
            case "opened":
                self.said = f"{stage}opened"
                line = f"{stage}opened the sum of {names}"
            case _:
                self.said = line = "the relay cannot be reached yet; trying again"
        return line

    def _mark(self, names: tuple[str, ...], state: str) -> None:
        for name in names:
            if name in self.state:
                self.state[name] = state

    def _waiting(self) -> None:
        self.state = {name: "lost" if was == "lost" else "waiting" for name, was in self.state.items()}

    def render(self) -> Grid:
        """Return the current table."""
        grid = Grid.grid(padding=(0, 2))
        grid.add_row(Text(self.said, style="bold"), *(self._cell(name) for name in self.names))
        return grid

    def _cell(self, name: str) -> Text:
        mark, style = _MARKS[self.state[name]]
        return Text(f"{mark} {name}", style=style)


class _Quiet(Console):
    """A console that goes quiet when stderr is gone. rich would end the process, and close stdout."""

    def on_broken_pipe(self) -> None:
        """Print nothing any more."""
        self.quiet = True


@contextmanager
def watching_run(names: tuple[str, ...]) -> Iterator[ProgressCallback]:
    """Show progress on stderr during a run: a live table on a terminal, else lines.

    The yielded function never raises, even if stderr is gone.
    """
    board, last = MemberBoard(names), ""
    live: Live | None = None

    def watch(event: Progress) -> None:
        nonlocal last
        line = board.add(event)
        with suppress(OSError, ValueError):
            if live is not None:
                live.update(board.render(), refresh=True)
            elif line is not None and line != last:
                last = line
                if sys.stderr is not None:
                    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)

    with suppress(OSError, ValueError):
        if sys.stderr is not None and sys.stderr.isatty():
            live = Live(board.render(), console=_Quiet(stderr=True), transient=True, auto_refresh=False)
            live.start(refresh=True)
    try:
        yield watch
    finally:
        with suppress(OSError, ValueError):
            if live is not None:
                live.stop()
