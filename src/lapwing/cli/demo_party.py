"""The demo's three hospitals: a joint count over real TLS, verified; and what the loss of one would do."""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import Future
from contextlib import redirect_stdout
from fractions import Fraction
from io import StringIO
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from threading import Thread

from lapwing.cli.demo_ledger import state_in
from lapwing.cli.party_run import taken
from lapwing.cli.party_simulate import MEMBERS, POLICY, WISH, example
from lapwing.cli.show import console, heading, indented, points, table
from lapwing.cli.show_party import Result
from lapwing.parties.consortium import Consortium, read_wish
from lapwing.parties.consortium.founding import found
from lapwing.parties.identity import Keys
from lapwing.parties.messages.progress import nobody_watches
from lapwing.parties.planning import JointWish
from lapwing.parties.simulation import simulate
from lapwing.parties.statistics import statistic_of
from lapwing.parties.verifying import Verified, verify
from lapwing.query.dataset import open as open_dataset

SURE = Fraction(95, 100)
INTERRUPTED = 130  # what shells expect of a program that was stopped by hand


def tell_party() -> None:
    """Three members in three threads, each with its own keys, data and ledger."""
    with (
        TemporaryDirectory(prefix="lapwing-demo-", ignore_cleanup_errors=True) as name,
        state_in(Path(name, "state")),
    ):
        folder = Path(name)
        with redirect_stdout(StringIO()):
            example(folder)
        wish = folder / WISH
        wish.write_text(
            wish.read_text(encoding="utf-8").replace("7443", str(_free_port())), encoding="utf-8"
        )
        keys = [Keys.create(member, folder / member) for member in MEMBERS]
        consortium = _signed(wish, keys, folder / MEMBERS[0] / POLICY)
        for member in MEMBERS:  # gone in a minute: members' commands would tell of them
            with open_dataset(folder / member / POLICY) as data:
                assert data.ledger.id
        results = _together(consortium, keys, folder)
        _show(consortium, results, verify(results[-1].transcript))


def _signed(wish: Path, keys: list[Keys], policy: Path) -> Consortium:
    file = read_wish(wish)
    with open_dataset(policy, analyst="the demo") as data:
        consortium = found(file, [one.card for one in keys], statistic_of(file.statistic, data))
    for one in keys:
        consortium = consortium.signed(one)
    return consortium


def _together(consortium: Consortium, keys: list[Keys], folder: Path) -> list[Result]:
    """Each member in a thread of its own. Who stops the demo does not wait for members who wait for one
    another: the process ends at once, as it would for each of three real members."""
    results: list[Future[Result]] = [Future() for _ in keys]
    try:
        for one, result in zip(keys, results, strict=True):
            Thread(target=_part, args=(consortium, one, folder, result), daemon=True).start()
        return [result.result() for result in results]
    except KeyboardInterrupt:
        rmtree(folder, ignore_errors=True)
        sys.stdout.flush()
        os._exit(INTERRUPTED)


def _part(consortium: Consortium, keys: Keys, folder: Path, result: Future[Result]) -> None:
    policy = folder / keys.name / POLICY
    try:
        done = taken(
            consortium, keys, policy, number=None, confidence=SURE, listen=None, watch=nobody_watches
        )
    except BaseException as error:
        result.set_exception(error)
    else:
        result.set_result(done)


def _show(consortium: Consortium, results: list[Result], checked: Verified) -> None:
    plan, answer = consortium.plan, results[0].answer
    headings, cells = answer.table()
    same = all(one.answer.to_json() == answer.to_json() for one in results)
    with console() as out:
        heading(out, "Three hospitals count together, and none sees another's rows")
        indented(out, f"{answer.title}  (invented, in three files, of three owners)")
        indented(out, f"Protocol {plan.protocol}, {plan.footing.name}. {plan.guarantee}")
        shown = table(*headings, right=range(len(headings)))
        for row in cells:
            shown.add_row(*row)
        out.print(shown)
        points(
            out,
            [
                f"{'All three have the same numbers' if same else 'THE NUMBERS DIFFER'}, over mutual TLS, "
                f"each after a charge to its own ledger ({results[0].left}).",
                f"The public transcript verifies: {len(checked.members)} members signed every step, and "
                "the sum follows from what they posted.",
                *_lost(),
            ],
        )


def _lost() -> list[str]:
    """Why a run with a member lost opens nothing."""
    wish = JointWish(
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
