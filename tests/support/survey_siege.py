"""A server under load from a second process, killed in the middle, and a count of what was lost.

Whoever was told "accepted" must find the report stored, with its very bytes; and at the end every report
is stored once, however often it was sent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lapwing.core.noise import uniform_int
from lapwing.survey.report_store import ReportStore, token_hash

CONNECTIONS = 64
PATIENCE = 300.0


class Besieged(Protocol):
    """A server that can be killed and started again at the same address."""

    @property
    def host_and_port(self) -> tuple[str, int]: ...
    def start(self) -> Any: ...
    def kill(self) -> None: ...


def body(digest: str, prepared: bytes, signature: bytes, report: bytes) -> bytes:
    """A request of `/report`."""
    made = {
        "digest": digest,
        "token": prepared.hex(),
        "signature": signature.hex(),
        "report": report.hex(),
    }
    return json.dumps(made).encode()


@dataclass
class Siege:
    """Requests to be sent, and what is known about them."""

    folder: Path
    bodies: list[bytes]
    seconds: float = 0.0  # from the first request to the last acknowledgement, without kills
    sent_again: int = 0
    kills: int = 0
    _expected: list[tuple[bytes, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "bodies").write_bytes(b"\n".join(self.bodies))
        self.diary = self.folder / "diary"
        self.diary.write_bytes(b"")
        for one in map(json.loads, self.bodies):
            self._expected.append((token_hash(bytes.fromhex(one["token"])), bytes.fromhex(one["report"])))

    def acknowledged(self) -> list[int]:
        """Which were accepted so far, as far as a respondent knows."""
        return [int(line) for line in self.diary.read_bytes().split(b"\n")[:-1]]

    def lay(self, server: Besieged, store: ReportStore, kills: int = 0) -> None:
        """Send everything; kill the server so often meanwhile, and look at once what was lost."""
        host, port = server.host_and_port
        load = subprocess.Popen(
            [sys.executable, "-m", "support.survey_load", host, str(port), str(self.folder / "bodies"),
             str(self.diary), str(CONNECTIONS)],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        assert load.stdout is not None
        try:
            assert load.stdout.readline() == b"ready\n"
            begin = time.perf_counter()
            for kill in range(kills):
                self._wait_for((kill + 1) * len(self.bodies) // (kills + 1), begin + PATIENCE)
                server.kill()
                self.kills += 1
                self.require_all_acknowledged(store)
                server.start()
            assert load.wait(PATIENCE) == 0
            self.seconds = time.perf_counter() - begin
            self.sent_again += int(load.stdout.read())
        finally:
            load.kill()
            load.wait()
            load.stdout.close()

    def _wait_for(self, count: int, end: float) -> None:
        """Until so many are acknowledged, and then some time that nobody can foresee."""
        while len(self.acknowledged()) < count:
            assert time.perf_counter() < end, "reports are not acknowledged"
            time.sleep(0.005)
        time.sleep(int(uniform_int(0, 20_000, 1)[0]) / 1e6)

    def require_all_acknowledged(self, store: ReportStore) -> None:
        """Nobody was told "accepted" whose report is not stored."""
        told = self.acknowledged()
        tokens = [self._expected[number][0] for number in told]
        assert store.stored(tokens) == set(tokens), "an acknowledged report was lost"

    def require_each_once(self, store: ReportStore) -> None:
        """All are stored, each once, each as it was sent."""
        assert sorted(self.acknowledged()) == list(range(len(self.bodies)))
        expected = [report for _, report in sorted(self._expected)]
        assert store.rows() == b"".join(expected), "a report was lost, changed or counted twice"
        assert store.state().reports == len(self.bodies)
