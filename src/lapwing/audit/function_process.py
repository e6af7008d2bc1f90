"""Calls of somebody else's function, each list of calls in a fresh process with limits.

Claim    nothing that the function returns is executed here, and a function that hangs or takes too much
         memory is ended.
Because  `function_worker.py` runs in a new interpreter and a new process group, without standard input,
         with limits of memory, processor time and size of files; at the wall-clock limit the whole group
         is killed. Outputs come back as plain arrays and JSON.
Test     tests/audit/test_function_process.py

The limits catch mistakes. They are no sandbox: the function has the rights of the user who audits it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.audit import function_worker
from lapwing.audit.stages.outputs import Outputs, Raised
from lapwing.errors import BadParameter

Call = tuple[int, int, int]  # the pair, the side, the number of outputs
# What a program needs in order to start; secrets of the environment stay here.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")


class FunctionEnded(Exception):
    """A function's process ended without a reply: too much time or memory, or a crash."""


@dataclass(frozen=True, slots=True)
class AuditedFunction:
    """Somebody else's function `(data, size) -> outputs`, and the limits of each process that runs it.

    Args:
        module: The name of a module, or the path of a .py file.
        function: The function's name.
        data: Pairs of neighbouring data, as JSON; None if the module has them as `NEIGHBOURS`.
        seconds: The wall-clock limit of one process; its processor time has the same limit.
        memory: The limit of its memory in bytes.
    """

    module: str
    function: str
    data: Sequence[Sequence[Any]] | None
    seconds: float = 60.0
    memory: int = 4 << 30

    @property
    def name(self) -> str:
        """The function as the user wrote it."""
        return f"{self.module}:{self.function}"

    def neighbours(self) -> list[tuple[str, str]] | None:
        """Return the pairs of data in words, None if there are none; raises BadParameter for bad names."""
        with _Running(self, []) as running:
            reply = running.reply()
        if reply["neighbours"] is None:
            return None
        return [(one, other) for one, other in reply["neighbours"]]

    def results(self, calls: Sequence[Call]) -> list[Outputs | Raised]:
        """Make the calls in a fresh process. A call that raises gives one `Raised`."""
        with _Running(self, calls) as running:
            return running.results()

    def seconds_of(self, calls: Sequence[Call]) -> list[tuple[float, bool]]:
        """Return how long each call takes in a fresh process, and whether it raises."""
        with _Running(self, calls) as running:
            made = running.reply()["calls"]
        return [(float(call["seconds"]), call["form"] == "raised") for call in made]

    def both_results(self, calls: Sequence[Call]) -> tuple[list[Outputs | Raised], list[Outputs | Raised]]:
        """Make the same calls in two fresh processes that run at the same time."""
        with _Running(self, calls) as one, _Running(self, calls) as other:
            return one.results(), other.results()


class _Running:
    """One process, from its start until its folder is removed."""

    def __init__(self, function: AuditedFunction, calls: Sequence[Call]) -> None:
        self._function, self._calls = function, calls
        self._folder = tempfile.TemporaryDirectory(prefix="lapwing-audit-")
        self._path = Path(self._folder.name)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Running:
        request = {
            "module": self._function.module,
            "function": self._function.function,
            "data": self._function.data,
            "seconds": int(self._function.seconds) + 1,
            "memory": self._function.memory,
            "calls": self._calls,
        }
        (self._path / "request.json").write_text(json.dumps(request))
        self._process = subprocess.Popen(  # noqa: S603  our own worker, by its path
            [sys.executable, function_worker.__file__, str(self._path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={name: os.environ[name] for name in _KEPT if name in os.environ}
            | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._folder.cleanup()

    def reply(self) -> dict[str, Any]:
        """Wait for the reply; raise FunctionEnded if there is none, BadParameter if the names are wrong."""
        assert self._process is not None
        limit = self._function.seconds
        try:
            status = self._process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise FunctionEnded(f"it was stopped after {limit:g} seconds") from None
        path = self._path / "reply.json"
        if not path.is_file():
            raise FunctionEnded(_why(status, limit, self._function.memory))
        reply: dict[str, Any] = json.loads(path.read_text())
        self._check(reply)
        return reply

    def _check(self, reply: dict[str, Any]) -> None:
        module, function = self._function.module, self._function.function
        if "failed" in reply:
            advice = (
                "check the name, and the folder you are in" if reply["is_missing"] else "correct the module"
            )
            raise BadParameter("function", f"{module} cannot be used: {reply['failed']}. Now {advice}")
        if "no_function" in reply:
            close = ", ".join(reply["close"]) or "none"
            state = "is no function" if reply["is_there"] else "is not there"
            raise BadParameter("function", f"{function} {state} in {module}. Functions there: {close}")
        if "bad_neighbours" in reply:
            raise BadParameter("neighbours", "must be a list of pairs of data: [(one, other), …]")

    def results(self) -> list[Outputs | Raised]:
        """Return the outputs of each call."""
        made = self.reply()["calls"]
        if len(made) != len(self._calls):
            raise FunctionEnded("it replied to another number of calls than it was asked")
        return [self._result(number, call) for number, call in enumerate(made)]

    def _result(self, number: int, call: dict[str, Any]) -> Outputs | Raised:
        size = self._calls[number][2]
        match call["form"]:
            case "raised":
                return Raised(str(call["kind"]), str(call["message"]))
            case "array":
                outputs: Outputs = np.load(self._path / f"{number}.npy", allow_pickle=False)
            case "objects":
                outputs = [
                    decoded(value) for value in json.loads((self._path / f"{number}.json").read_text())
                ]
            case "memory":
                raise FunctionEnded(
                    f"it reached its limit of {self._function.memory >> 20:,} MiB of memory"
                )
            case form:
                raise BadParameter("function", _refusal(self._function.name, form, call, size))
        if len(outputs) != size:
            raise FunctionEnded("it wrote another number of outputs than it said")
        return outputs


def _refusal(name: str, form: str, call: dict[str, Any], size: int) -> str:
    asked = f"{name}(data, {size}) must return {size} outputs, but "
    if form == "nothing":
        return f"{asked}returned None. Return a list or an array"
    if form == "length":
        return f"{asked}returned {call['length']}. Return one output per draw"
    return f"{asked}returned a {call['name']}. Return numbers, texts, lists or mappings"


def _why(status: int, seconds: float, memory: int) -> str:
    if status in {-signal.SIGXCPU, -signal.SIGKILL}:
        return f"it was killed: it took more than {seconds:g} seconds of processor time, or too much memory"
    if status < 0:
        return f"it crashed ({signal.Signals(-status).name}), perhaps at its limit of {memory >> 20:,} MiB"
    return f"it ended without a reply (exit status {status})"


def decoded(value: Any) -> object:
    """Return an output from the worker's JSON."""
    if value is None or isinstance(value, bool | str):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise FunctionEnded("it wrote outputs that cannot be read")
    [(form, content)] = value.items()
    readers: dict[str, Callable[[Any], object]] = {
        "int": int,
        "float": lambda text: float("nan") if text == "nan" else float.fromhex(text),
        "bytes": bytes.fromhex,
        "raised": lambda both: Raised(*both),
        "dict": lambda items: {_hashable(decoded(key)): decoded(item) for key, item in items},
        "set": lambda items: frozenset(_hashable(decoded(item)) for item in items),
        "list": lambda items: [decoded(item) for item in items],
    }
    if form not in readers:
        raise FunctionEnded("it wrote outputs that cannot be read")
    return readers[form](content)


def _hashable(value: object) -> object:
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value
