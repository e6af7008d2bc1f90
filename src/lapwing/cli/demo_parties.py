"""A chapter of `lapwing demo`: three hospitals count together, each with its own keys, data and ledger."""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import Future
from fractions import Fraction
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from threading import Thread

from lapwing import open as open_dataset
from lapwing.cli import console
from lapwing.examples.clinic import state_in
from lapwing.examples.hospitals import MEMBERS, POLICY, WISH, write_hospitals
from lapwing.parties import Consortium, JointRequirements, simulate
from lapwing.parties.draft import found_consortium, read_draft
from lapwing.parties.identity import MemberKeys
from lapwing.parties.joining import RunResult, join_run, open_statistic
from lapwing.parties.statistics import statistic_of
from lapwing.parties.transcript import VerifiedTranscript, verify_transcript

SURE = Fraction(95, 100)
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C


def tell_party() -> None:
    """Show a joint count of three members in three threads, each with its own keys, data and ledger."""
    with (
        TemporaryDirectory(prefix="lapwing-demo-", ignore_cleanup_errors=True) as name,
        state_in(Path(name, "state")),
    ):
        folder = Path(name)
        write_hospitals(folder)
        wish = folder / WISH
        wish.write_text(
            wish.read_text(encoding="utf-8").replace("7443", str(_free_port())), encoding="utf-8"
        )
        keys = [MemberKeys.create(member, folder / member) for member in MEMBERS]
        consortium = _signed(wish, keys, folder / MEMBERS[0] / POLICY)
        for member in MEMBERS:  # makes ledgers and copies now, so that members tell nothing about new ones
            with open_dataset(folder / member / POLICY) as data:
                data.prepare()
        results = _together(consortium, keys, folder)
        _show_joint(consortium, results, verify_transcript(results[-1].transcript))


def _signed(wish: Path, keys: list[MemberKeys], policy: Path) -> Consortium:
    file = read_draft(wish)
    with open_dataset(policy, analyst="the demo") as data:
        consortium = found_consortium(
            file, [member.card for member in keys], statistic_of(file.statistic, data)
        )
    for member in keys:
        consortium = consortium.signed(member)
    return consortium


def _together(consortium: Consortium, keys: list[MemberKeys], folder: Path) -> list[RunResult]:
    """Run each member in a thread. If the demo is stopped, end the process at once.

    The members wait for one another: the process must not wait for them.
    """
    results: list[Future[RunResult]] = [Future() for _ in keys]
    try:
        for member, result in zip(keys, results, strict=True):
            Thread(target=_take_part, args=(consortium, member, folder, result), daemon=True).start()
        return [result.result() for result in results]
    except KeyboardInterrupt:
        rmtree(folder, ignore_errors=True)
        sys.stdout.flush()
        os._exit(INTERRUPTED)


def _take_part(consortium: Consortium, keys: MemberKeys, folder: Path, result: Future[RunResult]) -> None:
    policy = folder / keys.name / POLICY
    try:
        with open_statistic(consortium.statistic, policy, tell=console.tell) as (data, statistic):
            done = join_run(consortium, keys, data, statistic, confidence=SURE, tell=console.tell)
    except BaseException as error:
        result.set_exception(error)
    else:
        result.set_result(done)


def _show_joint(consortium: Consortium, results: list[RunResult], checked: VerifiedTranscript) -> None:
    plan, answer = consortium.plan, results[0].answer
    headings, cells = answer.table()
    same = all(result.answer.to_json() == answer.to_json() for result in results)
    with console.page() as out:
        out.heading("Three hospitals count together, and none sees another's rows")
        out.indented(f"{answer.title}  (invented, in three files, of three owners)")
        out.indented(f"Protocol {plan.protocol}, {plan.fit.name}. {plan.guarantee}")
        out.table(*headings, right=range(len(headings)), rows=cells)
        out.points(
            f"{'All three have the same numbers' if same else 'THE NUMBERS DIFFER'}, over mutual TLS, "
            f"each after a charge to its own ledger ({results[0].left}).",
            f"The public transcript verifies: {len(checked.members)} members signed every step, and "
            "the sum follows from what they posted.",
            *_lost(),
        )


def _lost() -> list[str]:
    """Show why a run that lost a member opens nothing."""
    wish = JointRequirements(
        members=3,
        coalition=1,
        losses=0,
        adversary="unbounded",
        protocol="auto",
        epsilon=Fraction(1),
        delta=Fraction(0),
        people_at=1,
        noise="laplace",
    )
    done = simulate(wish, (120, 45, 230), MEMBERS, lose={"south": "deal"})
    (half, would), *_ = done.lessons
    return [
        f"If one fails before it has shared: {done.stopped}, and nothing is opened. With {half} of "
        f"{done.plan.honest} honest noise shares the sum would reveal ε {would:.3g} instead of 1."
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
