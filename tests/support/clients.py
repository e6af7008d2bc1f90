"""Client processes for fault tests: real ones, which can be killed at any moment.

A nursery process imports everything once, opens nothing, and forks a client whenever it is asked. So a
client starts within milliseconds, and inherits no ledger, no connection and no lock from anybody. The
nursery has one thread. It waits for its children, and says of each how it ended, with its stderr.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from lapwing.ledger import Ledger
from support.ledgers import Home

_REPLY = 64
PATIENCE = 120.0  # seconds after which a client that goes on counts as blocked


@dataclass(frozen=True, slots=True)
class Place:
    """How a client finds a ledger."""

    where: str
    keys: str
    anchor: str
    state: str

    @classmethod
    def of(cls, home: Home) -> Place:
        return cls(home.where, str(home.keys), str(home.anchor), os.environ["LAPWING_STATE"])

    def open(self) -> Ledger:
        os.environ["LAPWING_STATE"] = self.state
        return Ledger.open(self.where, keys=Path(self.keys), anchor=self.anchor)


class Client:
    """A process that was started, and what it says."""

    def __init__(self, process: int, output: int) -> None:
        self._process = process  # a file that stands for the process: its number could be used again
        self._output = output
        self._said = b""
        self.end = "it has not ended"

    def kill(self) -> None:
        """End it as a crash would: it can do nothing about it."""
        signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def says(self, patience: float = PATIENCE) -> dict[str, Any] | None:
        """The next thing it says; None once it is over."""
        end = time.monotonic() + patience
        while b"\n" not in self._said:
            ready, _, _ = select.select([self._output], [], [], max(end - time.monotonic(), 0))
            if not ready:
                raise TimeoutError("a client is blocked")
            piece = os.read(self._output, 1 << 16)
            if not piece:
                return None
            self._said += piece
        line, _, self._said = self._said.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        if "broke" in said:
            raise AssertionError(f"a client broke: {said['broke']}")
        if "ended" in said:
            self.end = said["ended"]
            return None
        return said

    def wait(self, patience: float = PATIENCE) -> list[dict[str, Any]]:
        """All that it still says. Afterwards the process is gone, with its locks."""
        said = []
        while (one := self.says(patience)) is not None:
            said.append(one)
        ready, _, _ = select.select([self._process], [], [], patience)
        if not ready:
            raise TimeoutError("a client does not end")
        for file in (self._process, self._output):
            os.close(file)
        return said

    def last(self, word: str, patience: float = PATIENCE) -> Any:
        """Wait for it, and return what it said last, which is this word's. A client that died says how."""
        said = self.wait(patience)
        assert said, f"a client said nothing: {self.end}"
        assert word in said[-1], f"a client ended after {said[-1]}: {self.end}"
        return said[-1][word]


class Nursery:
    """Starts clients."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from support.clients import nurse; nurse({other.fileno()})"],
                pass_fds=[other.fileno()], stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip

    def start(self, task: str, place: Place, **arguments: Any) -> Client:
        """A new process that does `task`, which is `module:function` of the package `support`."""
        order = {"task": task, "place": [place.where, place.keys, place.anchor, place.state], **arguments}
        self._socket.sendall(json.dumps(order).encode() + b"\n")
        said, files, _, _ = socket.recv_fds(self._socket, _REPLY, 2)
        if said != b"born" or len(files) != 2:
            raise RuntimeError("the nursery is gone")
        return Client(*files)


@cache
def nursery() -> Nursery:
    """The one of this test process. It ends when we do, since its input ends."""
    return Nursery()


@dataclass(frozen=True, slots=True)
class _Child:
    """A client as the nursery knows it: its process id, the end of its pipe, and its stderr."""

    number: int
    output: int
    stderr: int

    def bury(self) -> None:
        """Say how it ended, as the last words of its pipe."""
        _, status = os.waitpid(self.number, 0)
        code = os.waitstatus_to_exitcode(status)
        how = f"exit status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        wrote = os.pread(self.stderr, 1 << 14, 0).decode(errors="replace")
        os.set_blocking(self.output, False)  # nobody may be reading
        with suppress(BrokenPipeError, BlockingIOError):
            Voice(self.output).say(ended=f"{how}\n{wrote}" if wrote else how)
        self.forget()

    def forget(self) -> None:
        os.close(self.output)
        os.close(self.stderr)


def nurse(number: int) -> None:
    """What the nursery does: fork a client for each order, and bury those that end."""
    import lapwing.ledger.postgres_store  # noqa: F401, PLC0415
    import support.spenders  # noqa: F401, PLC0415

    assert threading.active_count() == 1  # a fork of several threads could inherit a lock that is held
    children: dict[int, _Child] = {}
    rest = b""
    with socket.socket(fileno=number) as orders:
        while True:
            waiting: list[Any] = [orders, *children]
            ready, _, _ = select.select(waiting, [], [])
            for process in [one for one in children if one in ready]:
                children.pop(process).bury()
                os.close(process)
            if orders not in ready:
                continue
            piece = orders.recv(1 << 16)
            if not piece:
                return
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                output, input_ = os.pipe()
                stderr = os.memfd_create("stderr")
                child = os.fork()
                if child == 0:
                    for process, other in children.items():
                        os.close(process)
                        other.forget()
                    os.close(output)
                    _live(orders, json.loads(line), input_, stderr)
                process = os.pidfd_open(child)
                children[process] = _Child(child, input_, stderr)
                socket.send_fds(orders, [b"born"], [process, output])
                os.close(output)


def _live(orders: socket.socket, order: dict[str, Any], output: int, stderr: int) -> NoReturn:
    status = 1
    try:
        os.close(orders.detach())  # or the nursery would seem alive as long as we are
        os.dup2(stderr, 2)
        faulthandler.enable(2)
        module, _, name = order.pop("task").partition(":")
        task = getattr(sys.modules[f"support.{module}"], name)
        task(Place(*order.pop("place")), Voice(output), **order)
        status = 0
    except BaseException:
        traceback.print_exc(file=open(2, "w", closefd=False))  # noqa: SIM115
        Voice(output).say(broke=traceback.format_exc())
    finally:
        os._exit(status)


class Voice:
    """How a client says something that outlives it."""

    def __init__(self, output: int) -> None:
        self._output = output

    def say(self, **what: Any) -> None:
        os.write(self._output, json.dumps(what).encode() + b"\n")

    def fall_silent(self) -> None:
        """So that others do not wait for more."""
        os.close(self._output)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if it takes longer: a lock that nobody opens would hang the test. For the main thread."""

    def late(*_: object) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
