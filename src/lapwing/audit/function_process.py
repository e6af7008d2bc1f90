"""Calls of somebody else's function, each list of calls in a fresh process with limits.

Claim    nothing that the function returns is executed here, and a function that hangs or takes too much
         memory is ended.
Because  `function_worker.py` runs in a new interpreter and a new process group, without standard input,
         with limits of memory, processor time and size of files; at the wall-clock limit the whole group
         is killed. Outputs come back as plain numbers and JSON, in files that are read only if they are
         regular files of limited size.
Test     tests/audit/test_function_process.py

The limits catch mistakes. They are no sandbox: the function has the rights of the user who audits it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.audit import function_worker
from lapwing.audit.stages.inside import Raised
from lapwing.audit.stages.outputs import Outputs
from lapwing.errors import BadParameter

Call = tuple[int, int, int]  # the pair, the side, the number of outputs
# What a program needs in order to start. The rest is left out, so that no setting reaches it by mistake.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")
_LARGEST_FILE = 1 << 30


class FunctionEnded(Exception):
    """A function's process ended without a reply: too much time or memory, or a crash."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The pairs of data in words, and the outcomes and seconds of a few calls on all of them."""

    neighbours: list[tuple[str, str]]
    results: list[Outputs | Raised]
    seconds: list[float]


@dataclass(frozen=True, slots=True)
class MadeCalls:
    """The outcomes of calls, their seconds, the types of single outputs, and the bytes of all outputs."""

    results: list[Outputs | Raised]
    seconds: list[float]
    types: list[str]
    size: int


@dataclass(frozen=True, slots=True)
class AuditedFunction:
    """Somebody else's function `(data, size) -> outputs`, and the limits of each process that runs it.

    Args:
        module: The name of a module, or the path of a .py file.
        function: The function's name.
        data: Pairs of neighbouring data, as JSON; None if the module has them as `NEIGHBOURS`.
        seconds: The wall-clock limit of one process; its processor time has the same limit.
        memory: The limit of its memory in bytes.
        default: The pairs of data if there are no others.
    """

    module: str
    function: str
    data: Sequence[Sequence[Any]] | None
    seconds: float = 60.0
    memory: int = 4 << 30
    default: Sequence[Sequence[Any]] = ()

    @property
    def name(self) -> str:
        """The function as the user wrote it."""
        return f"{self.module}:{self.function}"

    def tried(self, sizes: Sequence[int]) -> Trial:
        """Call the function on each side of each pair; raises BadParameter for bad names and outputs."""
        with _Running(self, [], sizes) as running:
            return Trial(
                [(str(first), str(second)) for first, second in running.reply()["neighbours"]],
                running.results(),
                running.seconds(),
            )

    def results(self, calls: Sequence[Call]) -> list[Outputs | Raised]:
        """Make the calls in a fresh process. A call that raises gives one `Raised`."""
        return self.made(calls).results

    def made(self, calls: Sequence[Call]) -> MadeCalls:
        """Make the calls in a fresh process, and return how long each took, too."""
        with _Running(self, calls) as running:
            return MadeCalls(running.results(), running.seconds(), running.types(), running.size())

    def both_results(self, calls: Sequence[Call]) -> tuple[list[Outputs | Raised], list[Outputs | Raised]]:
        """Make the same calls in two fresh processes that run at the same time."""
        with _Running(self, calls) as first, _Running(self, calls) as second:
            return first.results(), second.results()


class _Running:
    """One process, from its start until its folder is removed."""

    def __init__(self, function: AuditedFunction, calls: Sequence[Call], sizes: Sequence[int] = ()) -> None:
        self._function, self._calls, self._sizes = function, calls, sizes
        self._folder = tempfile.TemporaryDirectory(prefix="lapwing-audit-", ignore_cleanup_errors=True)
        self._reply: dict[str, Any] | None = None
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
            "sizes": self._sizes,
            "default": self._function.default,
        }
        (self._path / "request.json").write_text(json.dumps(request))
        self._process = subprocess.Popen(  # noqa: S603  our own worker, by its path
            [sys.executable, "-P", function_worker.__file__, str(self._path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={name: os.environ[name] for name in _KEPT if name in os.environ}
            | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
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
        if self._reply is not None:
            return self._reply
        assert self._process is not None
        limit = self._function.seconds
        try:
            status = self._process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise FunctionEnded(f"it was stopped after {limit:g} seconds") from None
        if not (self._path / "reply.json").exists():
            raise FunctionEnded(_why(status, limit, self._function.memory))
        with _read_safely():
            reply: dict[str, Any] = dict(json.loads(self._content("reply.json")))
        self._check(reply)
        self._reply = reply
        return reply

    def _content(self, name: str) -> bytes:
        """Return a file that the function's process wrote; refuse pipes, links and huge files."""
        status = (self._path / name).lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
            raise ValueError("it is no regular file of limited size")
        return (self._path / name).read_bytes()

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
        reply = self.reply()
        with _read_safely():
            made = list(reply["calls"])
            sizes = [size for _, _, size in self._calls] or [
                size for _ in range(2 * len(reply["neighbours"])) for size in self._sizes
            ]
            if len(made) != len(sizes):
                raise FunctionEnded("it replied to another number of calls than it was asked")
            content = self._content("outputs.bin")
            return [self._result(call, size, content) for call, size in zip(made, sizes, strict=True)]

    def seconds(self) -> list[float]:
        """Return how long each call took."""
        with _read_safely():
            return [float(call["seconds"]) for call in self.reply()["calls"]]

    def types(self) -> list[str]:
        """Return the type of the output of each call that has one output; empty for others."""
        with _read_safely():
            return [str(call.get("type", "")) for call in self.reply()["calls"]]

    def size(self) -> int:
        """Return the number of bytes of all outputs."""
        with _read_safely():
            return sum(int(call.get("bytes", 0)) for call in self.reply()["calls"])

    def _result(self, call: dict[str, Any], size: int, content: bytes) -> Outputs | Raised:
        match call["form"]:
            case "raised":
                return Raised(str(call["kind"]), str(call["message"]))
            case "array":
                shape = tuple(int(each) for each in call["shape"])
                flat = np.frombuffer(content, np.float64, int(np.prod(shape)), int(call["at"]))
                outputs: Outputs = flat.reshape(shape)
            case "objects":
                part = content[int(call["at"]) : int(call["at"]) + int(call["bytes"])]
                outputs = [decoded(value) for value in json.loads(part)]
            case "memory":
                raise FunctionEnded(
                    f"it reached its limit of {self._function.memory >> 20:,} MiB of memory"
                )
            case form:
                raise BadParameter("function", _refusal(self._function.name, form, call, size))
        if len(outputs) != size:
            raise FunctionEnded("it wrote another number of outputs than it said")
        return outputs


@contextlib.contextmanager
def _read_safely() -> Iterator[None]:
    """Turn all that may be wrong with a reply into FunctionEnded."""
    try:
        yield
    except BadParameter:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError, OverflowError):
        raise FunctionEnded("its reply cannot be read") from None


def _refusal(name: str, form: str, call: dict[str, Any], size: int) -> str:
    asked = f"{name}(data, {size}) must return {size} outputs, but "
    if form == "large":
        return f"{asked}returned more than 64 KiB an output or 512 MiB in all. Return a short summary"
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
        "int": lambda text: int(text, 16),
        "float": lambda text: struct.unpack("<d", bytes.fromhex(text))[0],
        "bytes": bytes.fromhex,
        "raised": lambda both: Raised(*both),
        "dict": lambda items: {_hashable(decoded(key)): decoded(item) for key, item in items},
        "set": lambda items: frozenset(_hashable(decoded(item)) for item in items),
        "list": lambda items: [decoded(item) for item in items],
        "tuple": lambda items: tuple(decoded(item) for item in items),
    }
    if form not in readers:
        raise FunctionEnded("it wrote outputs that cannot be read")
    return readers[form](content)


def _hashable(value: object) -> object:
    return tuple(_hashable(item) for item in value) if isinstance(value, list | tuple) else value
