"""Connections that only wait: they end, and while they last, others are served."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lapwing.web.connections import ConnectionGuard, ConnectionLimits
from lapwing.web.serving import RESERVED, guard_socket, limited_by_open_files
from support.collecting import credential
from support.survey_server import Process

GOOD = b"\x01\x00\x01"
HALVES = (
    b"",
    b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ",
    b"POST /report HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
)
POST = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: 2000000000\r\n\r\n"
JSON, TEXT = b"application/json", b"text/plain"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path, str(tmp_path / "survey.reports"))
    yield started
    started.stop()
    assert started.log.read_text() == ""


def end_of(connection: socket.socket, patience: float) -> tuple[bytes, float]:
    """What came until the server ended the connection, and after how many seconds it did."""
    begin, said = time.monotonic(), b""
    connection.settimeout(patience)
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            said += piece
    return said, time.monotonic() - begin


class TestAFlood:
    @pytest.mark.parametrize("per_address", [1000, 30])
    def test_of_half_open_connections_keeps_nobody_out(self, process: Process, per_address: int) -> None:
        process.more = {"limits": {"connections": 40, "per_address": per_address, "seconds": 60.0}}
        process.start()
        with ExitStack() as stack:
            for k in range(300):
                half = stack.enter_context(socket.create_connection(process.host_and_port, timeout=60))
                half.sendall(HALVES[k % 3])
                if k % 50 == 0:
                    assert process.report(*credential(), GOOD).status == 200
            begin = time.monotonic()
            for _ in range(5):
                assert process.ask("GET", "/survey.json").status == 200
                assert process.report(*credential(), GOOD).status == 200
            assert time.monotonic() - begin < 10

    def test_of_silent_ones_over_tls_is_counted_before_any_handshake(self) -> None:
        guard = ConnectionGuard(ConnectionLimits(connections=3))
        pairs = [socket.socketpair() for _ in range(5)]
        for own, _ in pairs:
            guard_socket(guard, own, "192.0.2.1")
        assert [far.recv(1, socket.MSG_DONTWAIT) for _, far in pairs[:2]] == [b"", b""]  # the oldest went
        for _, far in pairs[2:]:
            with pytest.raises(BlockingIOError):
                far.recv(1, socket.MSG_DONTWAIT)
        for own, far in pairs:
            own.close()
            far.close()


class TestTheDoor:
    def pair(self, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
        own, far = socket.socketpair()
        return stack.enter_context(own), stack.enter_context(far)

    def has_ended(self, far: socket.socket) -> bool:
        try:
            return far.recv(1, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False

    def test_ends_first_who_waited_longest_and_nobody_who_asked(self) -> None:
        with ExitStack() as stack:
            guard = ConnectionGuard(ConnectionLimits(connections=3, per_address=3))
            pairs = [self.pair(stack) for _ in range(6)]
            for own, _ in pairs[:3]:
                guard_socket(guard, own, "192.0.2.1")
            asked = guard.of(pairs[0][0].fileno())
            assert asked is not None
            asked.has_asked = True
            guard_socket(guard, pairs[3][0], "192.0.2.2")
            assert [self.has_ended(far) for _, far in pairs[:4]] == [False, True, False, False]
            for own, _ in (pairs[2], pairs[3]):
                entry = guard.of(own.fileno())
                assert entry is not None
                entry.has_asked = True
            guard_socket(guard, pairs[4][0], "192.0.2.3")
            assert self.has_ended(pairs[4][1])  # all the others are being answered
            guard.remove(asked)
            guard_socket(guard, pairs[5][0], "192.0.2.3")
            assert not self.has_ended(pairs[5][1])

    def test_gives_an_address_its_share_and_a_network_of_version_6_one(self) -> None:
        with ExitStack() as stack:
            guard = ConnectionGuard(ConnectionLimits(connections=100, per_address=1))
            pairs = [self.pair(stack) for _ in range(5)]
            addresses = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"]
            for (own, _), address in zip(pairs, addresses, strict=True):
                guard_socket(guard, own, address)
            assert [self.has_ended(far) for _, far in pairs] == [True, False, False, False, False]

    def test_remembers_no_address_that_left(self) -> None:
        with ExitStack() as stack:
            guard = ConnectionGuard(ConnectionLimits())
            own, _ = self.pair(stack)
            guard_socket(guard, own, "192.0.2.1")
            entry = guard.of(own.fileno())
            assert entry is not None
            guard.remove(entry)
            assert (guard._open, dict(guard._per_address)) == ({}, {})


class TestDeadlines:
    @pytest.mark.parametrize("half", HALVES)
    def test_what_is_not_finished_ends(self, process: Process, half: bytes) -> None:
        process.more = {"limits": {"seconds": 1.0}, "patience": 1.0}
        process.start()
        with socket.create_connection(process.host_and_port, timeout=60) as slow:
            slow.sendall(half)
            said, seconds = end_of(slow, 30)
        assert 0.5 < seconds < 15
        assert said == b"" if half != HALVES[2] else said.startswith(b"HTTP/1.1 408 ")

    def test_a_head_gets_no_more_time_by_dripping(self, process: Process) -> None:
        process.more = {"limits": {"seconds": 1.0}}
        process.start()
        with socket.create_connection(process.host_and_port, timeout=60) as slow:
            begin = time.monotonic()
            slow.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # also after a whole request
            with suppress(ConnectionError):
                while time.monotonic() - begin < 30:
                    slow.sendall(b"G")
                    time.sleep(0.1)
            assert time.monotonic() - begin < 15

    def test_who_asks_in_time_keeps_the_connection(self, process: Process) -> None:
        process.more = {"limits": {"seconds": 2.0}}
        process.start()
        connection = process.connect()
        for _ in range(6):
            assert process.ask("GET", "/", over=connection).status == 200
            time.sleep(0.5)
        connection.close()


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        (b"/report", JSON, 413),
        (b"/nothing", JSON, 404),
        (b"/survey.json", JSON, 405),
        (b"/sign", TEXT, 415),
    ],
)
def test_after_a_refusal_nothing_more_is_read(
    process: Process, path: bytes, kind: bytes, status: int
) -> None:
    """Two gigabytes are announced: the server answers, and goes."""
    process.start()
    with socket.create_connection(process.host_and_port, timeout=60) as connection:
        connection.sendall(POST % (path, kind))
        sent = 0
        with suppress(ConnectionError):
            while sent < 1 << 27:
                sent += connection.send(b"0" * (1 << 16))
        assert sent < 1 << 26, "it was read on and on"
        said, _ = end_of(connection, 30)
    # What was still on its way when the server closed may have cost the reply; without it, it is there.
    assert said in (b"",) or said.startswith(b"HTTP/1.1 %d " % status)
    with socket.create_connection(process.host_and_port, timeout=60) as connection:
        connection.sendall(POST % (path, kind) + (b"0" * ((1 << 20) + 1) if status == 413 else b""))
        said, _ = end_of(connection, 30)
    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in said


def test_connections_leave_files_for_everything_else() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        found = limited_by_open_files(ConnectionLimits())
        now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert now >= soft
        assert found.connections <= max(16, now - RESERVED)
        assert found.per_address <= found.connections
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
