"""What client processes do: spend, and keep a diary of everything that they asked and were told.

A diary is a file of its own, synced after each line, so that it survives whatever happens to its writer.
`support.histories_check` compares all diaries with the ledger.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from lapwing.core.fixed_run import FixedRun
from lapwing.core.loss_records import describe
from lapwing.core.losses import Approximate, Concentrated, GaussianNoise, LaplaceNoise, Loss, Pure, Repeated
from lapwing.errors import BadParameter, InProgress, KeyReused, OverBudget, Unavailable, WorkEnded
from lapwing.ledger import Ledger
from lapwing.ledger.gate import ChargedRelease, Gate, ReleaseStep, Work
from lapwing.ledger.spending import Spending, Target
from support.clients import Place, Voice
from support.ledgers import spending

BLOCKS = 6
# Of different kinds, so that now one filter binds, now another.
LOSSES: tuple[Loss, ...] = (
    Pure(Fraction(1, 20)),
    Pure(Fraction(1, 9)),
    Concentrated(Fraction(1, 3000)),
    Approximate(Fraction(1, 30), Fraction(1, 10**9)),
    LaplaceNoise(Fraction(25), 1),
    GaussianNoise(Fraction(60), Fraction(1), 1),
)
STEP = Pure(Fraction(1, 100))
FIXED = FixedRun(((GaussianNoise(Fraction(200), Fraction(1), 1), 10),), Fraction(1, 10**9))
OUTCOMES: dict[type[BaseException], str] = {
    OverBudget: "refused",
    InProgress: "in progress",
    WorkEnded: "ended",
    KeyReused: "reused",
    Unavailable: "unknown",
    BadParameter: "not possible",
}


class Diary:
    """Lines that are on disk before the next thing happens."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._number = 0

    def _note(self, **what: Any) -> None:
        os.write(self._file, json.dumps({"time": time.monotonic_ns(), **what}).encode() + b"\n")
        os.fsync(self._file)

    def ask(self, what: str, do: Callable[[], dict[str, Any] | None], **asked: Any) -> bool:
        """Do something, with a line before and one after. Whether it was done."""
        self._number += 1
        self._note(number=self._number, what=what, **asked)
        try:
            told = do()
        except tuple(OUTCOMES) as error:
            # A subclass would be an outcome that nobody has thought of.
            outcome = OUTCOMES[type(error)]
            if isinstance(error.__context__, ZeroDivisionError):
                outcome = "failed"  # just now, and in our own hands
            self._note(number=self._number, outcome=outcome, why=str(error))
            if isinstance(error, Unavailable):
                time.sleep(0.05)  # a server that is down is not asked a thousand times a second
            return False
        self._note(number=self._number, outcome="done", **(told or {}))
        return True


class Spender:
    """One client: draws requests, many of which others draw as well."""

    def __init__(self, ledger: Ledger, diary: Diary, name: str, keys: int) -> None:
        self._ledger = ledger
        self._diary = diary
        self._name = name
        self._keys = keys
        self._draw = Random(name)
        self._count = 0

    def once(self) -> None:
        """One request of some kind."""
        self._count += 1
        dice = self._draw.random()
        if dice < 0.75:
            self._release()
        elif dice < 0.95:
            self._reserve()
        else:
            self._open_block()

    def _release(self) -> None:
        number = self._draw.randrange(self._keys)
        if self._draw.random() < 0.2:
            number = self._count // 4  # which the others draw at about the same time
        by, key = f"analyst {number % 4}", f"key {number}"
        # The request follows from the key, so that others ask the same; but some reuse a key wrongly.
        other = " again" if self._draw.random() < 0.05 else ""
        fate = Random(f"{by} {key}")
        asked = _request(fate.choice(LOSSES), _targets(fate), key + other)
        fails = fate.random() < 0.05

        def run() -> bytes:
            time.sleep(0.01 * fate.random())  # long enough for others to come with the same key
            if fails:
                raise ZeroDivisionError
            return os.urandom(12)

        def do() -> dict[str, Any]:
            release = Gate(self._ledger, principal=by).release(ChargedRelease(asked, run), key=key)
            return {
                "answer": release.answer.hex(),
                "replay": release.is_replay,
                "position": release.receipt.position,
            }

        self._diary.ask("charge", do, by=by, key=key, **_described(asked))

    def _reserve(self) -> None:
        by, key = f"trainer {self._draw.randrange(3)}", f"{self._name} {self._count}"
        gate = Gate(self._ledger, principal=by)
        fixed = self._draw.random() < 0.3
        loss: Loss = FIXED if fixed else Repeated(STEP, self._draw.randrange(1, 5))
        asked = _request(loss, _targets(self._draw), key)
        held: list[Work] = []

        def reserve() -> dict[str, Any]:
            held.append(gate.reserve(asked, key=key))
            return {"position": held[0].number}

        if not self._diary.ask("reserve", reserve, by=by, key=key, **_described(asked)):
            return
        [work] = held
        number = work.number
        for _ in range(1 if fixed else self._draw.randrange(6)):
            self._diary.ask(
                "step", lambda: work.step(None if fixed else STEP), reservation=number
            )  # fmt: skip
        if self._draw.random() < 0.8:
            lapses = self._draw.random() < 0.7
            self._diary.ask(
                "settle",
                lambda: work.settle(stopping_was_decided_from_released_values=lapses),
                reservation=number, lapses=lapses,
            )  # fmt: skip

    def _open_block(self) -> None:
        name = f"{self._name} {self._count}"
        self._diary.ask("open", lambda: self._ledger.open_blocks("visits", [name]), block=name)


def _targets(draw: Random) -> tuple[Target, ...]:
    blocks = [f"b{k}" for k in range(BLOCKS)]
    staff = (Target("staff"),) if draw.random() < 0.2 else ()
    match draw.randrange(8):
        case 0:
            return (Target("visits", everyone=True), *staff)
        case 1 | 2:
            return (Target("visits", draw.sample(blocks, draw.randrange(2, BLOCKS))), *staff)
        case 3:
            return (Target("staff"),)
        case _:
            return (Target("visits", [draw.choice(blocks)]), *staff)


def _request(loss: Loss, targets: tuple[Target, ...], text: str) -> Spending:
    """A request that can be recognized in its entry."""
    return spending(loss, *targets, request=text.encode(), parameters={"asked": text})


def _described(asked: Spending) -> dict[str, Any]:
    return {
        "request": asked.parameters["asked"],
        "loss": describe(asked.loss),
        "targets": [[target.account, list(target.blocks), target.everyone] for target in asked.targets],
    }


# Tasks


def spend(
    place: Place, voice: Voice, *, name: str, diary: str, count: int, keys: int, until: str = ""
) -> None:
    """Make requests: `count` of them, or until there is a file `until`."""
    try:
        ledger = place.open()
    except Unavailable:
        if not until:
            raise
        voice.say(unavailable=True)
        return
    spender = Spender(ledger, Diary(diary), name, keys)
    voice.say(ready=True)
    for _ in range(count):
        if until and Path(until).exists():
            break
        spender.once()
    ledger.close()
    voice.say(finished=True)


def ended_by_a_signal(_: Place, voice: Voice) -> None:
    """Die as code outside of Python can make a process die."""
    voice.say(ready=True)
    signal.raise_signal(signal.SIGSEGV)


def charge_once(place: Place, voice: Voice, *, principal: str, loss: str, start: str) -> None:
    """Open the ledger, wait for the file `start`, and charge everybody at the same moment as others."""
    ledger = place.open()
    voice.say(ready=True)
    while not Path(start).exists():
        time.sleep(0.001)
    try:
        Gate(ledger, principal=principal).release(ChargedRelease(spending(loss), lambda: b"42"))
        admitted = True
    except OverBudget:
        admitted = False
    ledger.close()
    voice.say(admitted=admitted)


def squeezed(place: Place, voice: Voice, *, name: str, diary: str, how: str, balloon: str = "") -> None:
    """Make requests while there is space, while there is none, and when there is space again."""
    ledger = place.open()
    spender = Spender(ledger, Diary(diary), name, keys=400)
    for _ in range(20):
        spender.once()
    squeeze = {"file size": _no_longer_files, "pages": _no_more_pages, "disk": _full_disk}[how]
    with squeeze(ledger, balloon):
        for _ in range(20):
            spender.once()
    for _ in range(20):
        spender.once()
    ledger.close()
    voice.say(finished=True)


@contextmanager
def _no_longer_files(ledger: Ledger, balloon: str) -> Iterator[None]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    longest = max(Path(f"{ledger.store.where}{end}").stat().st_size for end in ("", "-wal"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest + 9000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def _no_more_pages(ledger: Ledger, _: str) -> Iterator[None]:
    run = ledger.store._writer.execute  # type: ignore[attr-defined]
    [(pages,)] = run("PRAGMA page_count")
    run(f"PRAGMA max_page_count = {pages}").fetchall()
    try:
        yield
    finally:
        run("PRAGMA max_page_count = 1000000").fetchall()


@contextmanager
def _full_disk(_: Ledger, balloon: str) -> Iterator[None]:
    fill(balloon)
    try:
        yield
    finally:
        os.unlink(balloon)


def fill(balloon: str) -> None:
    """Take all the space that there is on the disk."""
    file = os.open(balloon, os.O_WRONLY | os.O_CREAT)
    try:
        for piece in (bytes(1 << 16), bytes(1 << 10), bytes(1)):
            with suppress(OSError):
                while True:
                    os.write(file, piece)
    finally:
        os.close(file)


class Crash:
    """Watches what a client does, and kills it by SIGKILL at a point such as `answer committed`."""

    def __init__(self, at: str) -> None:
        self._at = at
        self.doing = ""

    def gate(self, point: ReleaseStep) -> None:
        self._pass(point.value)
        if point is ReleaseStep.RAN:
            self.doing = "answer"

    def store(self, point: str) -> None:
        self._pass(f"{self.doing} {point}")

    def returned(self) -> None:
        self._pass("returned")

    def _pass(self, point: str) -> None:
        if point == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


def crash(
    place: Place, voice: Voice, *, what: str, at: str, everyone: bool = False, child: bool = False
) -> None:
    """Release or reserve with the key `k`, and crash at a point. A `child`, forked before, lives on."""
    ledger = place.open()
    crash = Crash(at)
    ledger.store._watch = crash.store  # type: ignore[attr-defined]
    if child:
        number = os.fork()
        if number == 0:
            voice.fall_silent()
            time.sleep(600)
            os._exit(0)
        voice.say(child=number)
    {"release": _release, "reserve": _reserve}[what](ledger, voice, crash, everyone)
    crash.returned()
    ledger.close()


def _release(ledger: Ledger, voice: Voice, crash: Crash, everyone: bool) -> None:
    def run() -> bytes:
        answer = os.urandom(12)
        voice.say(made=answer.hex())
        return answer

    crash.doing = "charge"
    gate = Gate(ledger, principal="analyst", watch=crash.gate)
    voice.say(left=gate.release(ChargedRelease(request_of_a_crash(everyone), run), key="k").answer.hex())


def _reserve(ledger: Ledger, voice: Voice, crash: Crash, everyone: bool) -> None:
    crash.doing = "reserve"
    work = Gate(ledger, principal="analyst").reserve(reservation_of_a_crash(everyone), key="k")
    voice.say(reserved=work.number)
    crash.doing = "step"
    work.step(STEP)
    voice.say(stepped=True)
    crash.doing = "settle"
    work.settle(stopping_was_decided_from_released_values=True)
    voice.say(settled=True)


def request_of_a_crash(everyone: bool = False) -> Spending:
    """What `crash` asks with the key `k`."""
    return spending("0.1", Target("visits", () if everyone else ["b0", "b2"], everyone=everyone))


def reservation_of_a_crash(everyone: bool = False) -> Spending:
    """What `crash` reserves with the key `k`."""
    loss = Repeated(STEP, 3)
    return spending(loss, Target("visits", () if everyone else ["b0", "b2"], everyone=everyone))
