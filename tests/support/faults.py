"""Processes that die at a chosen moment: at the n-th time that something is made to last."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

DEADLY = ("fsync", "replace", "pwrite")
KILLED = 9
FAILED = 3


def dies_at(moment: int, work: Callable[[], bytes]) -> tuple[bool, bytes]:
    """Runs `work` in a child that ends just before its `moment`-th durable step, as by kill -9.

    Returns whether it came to its end, and what it had handed out by then.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child(moment, work, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        handed = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED), "the child failed"
    return status == 0, handed


def _child(moment: int, work: Callable[[], bytes], writing: int) -> None:
    steps = 0

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == moment:
                os._exit(KILLED)
            return real(*arguments, **more)

        return step

    try:
        for name in DEADLY:
            setattr(os, name, deadly(getattr(os, name)))
        os.write(writing, work())
        os._exit(0)
    finally:
        os._exit(FAILED)
