"""Consortia to test with: members with keys, a table on a free port, members as processes."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lapwing.parties.identity import MemberKeys
from lapwing.parties.run_configuration import RunConfiguration
from support.forking import FORKING, forked
from support.parties_process import run, table_to_json

NAMES = ("north", "south", "east", *(f"ward-{i}" for i in range(4, 40)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass(frozen=True)
class Flock:
    """The members of a test, each with its folder under one root."""

    root: Path
    table: RunConfiguration
    keys: tuple[MemberKeys, ...]

    def folder(self, member: int) -> Path:
        return self.root / self.table.names[member]

    def journal(self, member: int) -> Path:
        return self.folder(member) / f"{self.table.label}.journal"

    def transcript(self, member: int) -> Path:
        return self.folder(member) / f"{self.table.label}.transcript"

    def run(self, number: int) -> Flock:
        """The same members in another run, on another port."""
        port = free_port()
        return Flock(self.root, replace(self.table, number=number, address=f"127.0.0.1:{port}"), self.keys)


def flock(
    root: Path,
    members: int = 3,
    *,
    protocol: str = "C",
    coalition: int = 1,
    losses: int = 0,
    length: int = 4,
    stages: int = 1,
    lobby: float = 20.0,
    deadline: float = 20.0,
) -> Flock:
    keys = tuple(MemberKeys.create(name, root / name) for name in NAMES[:members])
    table = RunConfiguration(
        digest=hashlib.sha256(str(root).encode()).digest(),
        number=1,
        cards=tuple(each.card for each in keys),
        host=keys[0].card,
        address=f"127.0.0.1:{free_port()}",
        protocol=protocol,
        coalition=coalition,
        losses=losses,
        length=length,
        stages=stages,
        lobby_seconds=lobby,
        round_seconds=deadline,
    )
    return Flock(root, table, keys)


class Process:
    """One member, or a relay, as a process of its own. It is forked from one that has imported all."""

    def __init__(self, flock: Flock, member: int, **orders: object) -> None:
        spec = {"table": table_to_json(flock.table), "member": member, "root": str(flock.root)} | orders
        self.member = member
        self._stderr = flock.root / f"stderr-{member}-{len(list(flock.root.glob('stderr-*')))}"
        self._stderr.touch()
        self._pipe, theirs = FORKING.Pipe()
        self._process = forked(run, spec, theirs, self._stderr)
        self._process.start()
        theirs.close()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    def wait_for(self, kind: str, within: float = 30.0) -> dict[str, Any]:
        """What it says, until something of this kind."""
        while self._pipe.poll(within):
            try:
                said: dict[str, Any] = self._pipe.recv()
            except EOFError:
                break
            if said["kind"] == kind:
                return said
        raise AssertionError(f"member {self.member} never said {kind}: {self.stderr}")

    def said(self) -> list[str]:
        """The kinds of all that it has said and nobody has waited for, until now."""
        kinds = []
        while self._pipe.poll():
            kinds.append(self._pipe.recv()["kind"])
        return kinds

    def go_on(self) -> None:
        """It waits for this where it was told to hold."""
        self._pipe.send("go on")

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.join()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def end(self) -> dict[str, Any]:
        """Its last word: `sums`, or `error` and `message`. A host may stay for who missed the end."""
        said = self.wait_for("ended")
        self._process.join(1)
        return said

    def close(self) -> None:
        if self._process.is_alive():
            self.kill()
        self._process.close()
        self._pipe.close()


def start_all(flock: Flock, orders: Mapping[int, Mapping[str, object]] | None = None) -> list[Process]:
    """All members as processes; the first hosts the relay."""
    return [
        Process(flock, i, **({"serve": i == 0} | dict((orders or {}).get(i, {}))))
        for i in range(len(flock.keys))
    ]


def close_all(processes: Sequence[Process]) -> None:
    for process in processes:
        process.close()
