"""Strangers without a card who open connections, and say nothing: a run goes on among its members."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.parties import relay_server
from lapwing.parties.member import take_part
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.relay_server import relay_in_thread
from lapwing.parties.run_configuration import parse_address
from support.parties import Flock, flock


@contextmanager
def flooding(address: str, connections: int) -> Iterator[None]:
    """So many idle connections, opened again as soon as they are closed."""
    over = threading.Event()
    with ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(parse_address(address)))
            for _ in range(connections)
        ]

        def again() -> None:
            at = 0
            while not over.wait(0.005):
                at = (at + 1) % connections
                idle[at].close()
                with suppress(OSError):
                    idle[at] = socket.create_connection(parse_address(address), timeout=1)
            for each in idle:
                each.close()

        thread = threading.Thread(target=again)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def sums(group: Flock, flood: int) -> list[list[int]]:
    found: dict[int, list[int]] = {}

    def part(i: int) -> None:
        def contribute(stage: int, earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
            del stage, earlier
            return np.full(group.table.length, i + 1, dtype=np.int64)

        done = take_part(group.table, i, group.keys[i], folder=group.folder(i), contribute=contribute)
        found[i] = done.opened[0].values.tolist()

    with (
        relay_in_thread(group.table, group.keys[0], folder=group.root),
        flooding(group.table.address, flood),
    ):
        threads = [threading.Thread(target=part, args=(i,)) for i in range(len(group.keys))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [found[i] for i in range(len(group.keys))]


def test_idle_strangers_keep_no_member_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(relay_server, "most_unidentified", lambda: 16)
    assert sums(flock(tmp_path), 100) == [[6] * 4] * 3
    assert capfd.readouterr().err == ""


def test_strangers_have_far_fewer_places_than_the_host_has_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit, expected in ((1024, 128), (1 << 20, 256), (64, 16), (resource.RLIM_INFINITY, 256)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert relay_server.most_unidentified() == expected


class TestTheDoor:
    def test_gives_up_the_oldest_of_the_address_that_has_most(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(relay_server, "most_unidentified", lambda: 3)

        async def act() -> list[bool]:
            entrance = relay_server.RelayListener(None, None)  # type: ignore[arg-type]
            tasks = [asyncio.create_task(asyncio.sleep(60)) for _ in range(5)]
            for task, address in zip(tasks, ("lone", "crowd", "crowd", "crowd", "lone"), strict=True):
                entrance._take_place(task, address)
                await asyncio.sleep(0)
            was = [task.cancelled() for task in tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return was

        assert asyncio.run(act()) == [False, True, True, False, False]

    def test_waits_only_so_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also for a member that shows its certificate, and then nothing."""
        monkeypatch.setattr(relay_server, "HANDSHAKE_SECONDS", 0.2)
        group = flock(tmp_path, lobby=0.8)
        with relay_in_thread(group.table, group.keys[0], folder=group.root), ExitStack() as stack:
            silent = [
                socket.create_connection(parse_address(group.table.address), timeout=5) for _ in range(2)
            ]
            stack.enter_context(silent[0])
            context: Any = group.keys[1].tls(trusting=(group.table.host,), server=False)
            member = stack.enter_context(context.wrap_socket(silent[1]))
            for each in (silent[0], member):
                with suppress(ConnectionError):
                    assert each.recv(1) == b""
