"""Processes that are forked from one that has imported all they need: to start one takes no time.

They share nothing with the test: that one was started afresh and has only imported modules.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    [
        "__main__",
        "support.parties_process",
        "support.survey_server",
        "support.survey_site",
        "support.askers",
    ]
)
TESTS = str(Path(__file__).parent.parent)


def _start_forking() -> None:
    """Python 3.11's fork server forgets the path of whoever starts it, and would import nothing."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([TESTS, *([before] if before else [])])
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _work(environment: dict[str, str], work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """Have the environment that the test has now, instead of that in which the first process was forked."""
    os.environ.clear()
    os.environ.update(environment)
    work(*arguments)


def forked(work: Callable[..., object], *arguments: Any) -> BaseProcess:
    """A process that will do this work, not started yet."""
    _start_forking()
    return FORKING.Process(target=_work, args=(dict(os.environ), work, arguments), daemon=True)


def _speak(
    said: Connection, log: Path | None, work: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    os.dup2(said.fileno(), 1)
    said.close()
    if log is not None:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
    work(*arguments)


class Program:
    """A process that does this work as if it were a program: what it prints is read from `stdout`.

    What it says to stderr comes to the file `log`, if there is one.
    """

    stdout: IO[bytes]

    def __init__(self, work: Callable[..., object], *arguments: Any, log: Path | None = None) -> None:
        heard, said = FORKING.Pipe(duplex=False)
        self._process = forked(_speak, said, log, work, arguments)
        self._process.start()
        said.close()
        self.stdout = os.fdopen(os.dup(heard.fileno()), "rb")
        heard.close()

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """How it ended, at most so many seconds later."""
        self._process.join(seconds)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._process.name, seconds)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
