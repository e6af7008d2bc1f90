"""A server stays as it is over thousands of requests: memory, open files, threads and CPU a request.

LAPWING_SOAK_SECONDS says how long it takes: 90 seconds, as `make test-all` carries it, or 1200 for a night.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from lapwing.server.people.person import Role
from support.served import write_data
from support.served_process import ServedProcess, serving
from support.server_people import GOOD

SECONDS = float(os.environ.get("LAPWING_SOAK_SECONDS", "90"))
TICKS = os.sysconf("SC_CLK_TCK")
ROUND = 20  # of each: plans, their releases, the same again, refusals, readings; and one sign-in
MORE_MEMORY = 0.15  # of the first half's end: what caches with a bound may still take
MORE_CPU = 1.5  # times: other processes share the processor's cache


@dataclass(frozen=True)
class _Used:
    """What a process uses: memory in MB, open files, threads, and CPU time in ms so far."""

    memory: float
    files: int
    threads: int
    cpu: float

    @classmethod
    def of(cls, process: int) -> _Used:
        place = Path(f"/proc/{process}")
        lines = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        return cls(
            int(lines["VmRSS"].split()[0]) / 1024,
            len(list((place / "fd").iterdir())),
            int(lines["Threads"]),
            (int(fields[11]) + int(fields[12])) * 1000 / TICKS,
        )


class _Visitors:
    """An analyst with a token, and a browser that signs in again and again."""

    def __init__(self, server: ServedProcess) -> None:
        server.person("ann", Role.ANALYST, password=GOOD)
        self.ann, self.browser = server.program("ann"), server.browser()
        self._numbers = count(1)

    def round(self) -> int:
        """Send some of each request; return how many."""
        sent = 0
        for _ in range(ROUND):
            sql = f"SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward LIMIT {next(self._numbers) + 9}"
            body = {"data": "visits", "sql": sql, "epsilon": "0.001"}
            plan = self._ok("POST", "/v1/plans", 201, json=body)["id"]
            answer = self._ok("POST", f"/v1/plans/{plan}/release")["id"]
            assert self._ok("POST", f"/v1/plans/{plan}/release")["id"] == answer
            self._ok("GET", f"/v1/answers/{answer}")
            self._ok("GET", "/v1/data/visits/left")
            self._ok("POST", "/v1/plans", 422, json={**body, "sql": "SELECT * FROM visits"})
            sent += 6
        signed = self.browser.post("/session", json={"name": "ann", "password": GOOD})
        assert signed.status_code == 204, signed.text
        assert self.browser.get("/d/visits").status_code == 200
        assert self.browser.delete("/session").status_code in (200, 204)
        return sent + 3

    def _ok(self, method: str, path: str, status: int = 200, **more: object) -> dict[str, object]:
        reply = self.ann.request(method, path, **more)  # type: ignore[arg-type]
        assert reply.status_code == status, (path, reply.status_code, reply.text)
        value: dict[str, object] = reply.json()
        return value


@pytest.mark.slow
def test_memory_files_threads_and_cpu_stay_flat(tmp_path: Path) -> None:
    policy = write_data(tmp_path, after="least_epsilon = 0.001")
    policy.write_text(policy.read_text().replace("epsilon = 10.0", "epsilon = 1000.0"))
    (tmp_path / "server.toml").write_text(
        "[server]\nreply_slot = 0.05\n"
        "[limits]\nrequests_per_minute = 1000000\nunknown_per_minute = 1000000\n"
    )
    with serving(tmp_path) as server:
        visitors, process = _Visitors(server), server.process.pid
        marks: list[_Used] = []
        for _ in range(2):
            visitors.round()  # everything is loaded
        for _ in range(3):  # the beginning, the middle and the end
            sent, end = 0, time.monotonic() + SECONDS / 3
            before = _Used.of(process)
            while time.monotonic() < end:
                sent += visitors.round()
            after = _Used.of(process)
            marks.append(replace(after, cpu=(after.cpu - before.cpu) / sent))
            print(sent, "requests", marks[-1])
        first, middle, last = marks
        assert last.files <= first.files + 4, marks
        assert last.threads <= first.threads + 4, marks
        assert last.memory <= middle.memory * (1 + MORE_MEMORY), marks
        assert last.cpu <= MORE_CPU * first.cpu, marks
