"""Notices at 50, 80 and 95 % of a budget: each once, and again if it could not be sent."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from lapwing.server.data.budget_notices import BudgetNotices, sender
from lapwing.server.people.person import Role
from lapwing.server.state import ServerState
from support.served import COUNT, Served, asked, write_data
from support.served_process import serving, until


def _spend(visits: Served, epsilon: str) -> None:
    visits.released(question=asked(epsilon=epsilon, fresh=True))


def test_each_threshold_is_told_once_by_all_processes(visits: Served, tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    state = ServerState.open(tmp_path / ".lapwing-server")
    many = [BudgetNotices(state, lambda content: told.append(json.loads(content))) for _ in range(2)]
    [data] = visits.sets
    steps = [(None, []), ("4", []), ("1.5", [50]), ("3", [80]), ("1", [95]), ("0.1", [])]
    for epsilon, percents in steps:
        if epsilon is not None:
            _spend(visits, epsilon)
        assert [one for notices in many for one in notices.tell(data)] == percents
    assert told[0] == {
        "id": "visits 50", "data": "visits", "account": "visits", "percent": 50, "left": "4.5", "of": "10"
    }  # fmt: skip
    state.close()


def test_a_notice_that_failed_is_sent_again(visits: Served, tmp_path: Path) -> None:
    state, fails, told = ServerState.open(tmp_path / ".lapwing-server"), [True], list[bytes]()

    def send(content: bytes) -> None:
        if fails[0]:
            raise OSError("away")
        told.append(content)

    notices, [data] = BudgetNotices(state, send), visits.sets
    _spend(visits, "9")
    with pytest.raises(OSError, match="away"):
        notices.tell(data)
    fails[0] = False
    assert notices.tell(data) == [50, 80]
    assert len(told) == 2
    state.close()


def test_a_command_gets_the_notice_on_its_input_without_a_shell(tmp_path: Path) -> None:
    target = tmp_path / "told"
    code = f"import sys; open({str(target)!r}, 'w').write(sys.stdin.read())"
    send = sender("", (sys.executable, "-c", code))
    assert send is not None
    send(b'{"percent": 50}')
    assert target.read_text() == '{"percent": 50}'
    with pytest.raises(Exception, match="non-zero"):
        sender("", (sys.executable, "-c", "raise SystemExit(1)"))(b"{}")  # type: ignore[misc]
    assert sender("", ()) is None


class _Hook(BaseHTTPRequestHandler):
    """Takes notices, slowly."""

    def do_POST(self) -> None:
        self.server.arrived.append(self.rfile.read(int(self.headers["content-length"])))  # type: ignore[attr-defined]
        time.sleep(self.server.seconds)  # type: ignore[attr-defined]
        with suppress(OSError):  # the server may have been killed meanwhile
            self.send_response(204)
            self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _hook(seconds: float) -> Iterator[tuple[str, list[bytes]]]:
    server, arrived = ThreadingHTTPServer(("127.0.0.1", 0), _Hook), list[bytes]()
    server.arrived, server.seconds = arrived, seconds  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", arrived
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _percents(arrived: list[bytes]) -> list[int]:
    return [json.loads(content)["percent"] for content in arrived]


@pytest.mark.slow
def test_a_slow_address_gets_each_threshold_once_from_all_workers_also_after_a_kill(tmp_path: Path) -> None:
    write_data(tmp_path)
    slow = 3.0
    with _hook(slow) as (address, arrived):
        (tmp_path / "server.toml").write_text(
            f'[server]\nreply_slot = 0.05\n[notices]\nwebhook = "{address}"\n'
        )

        def spend(client: httpx.Client, epsilon: str) -> float:
            body = {"data": "visits", "sql": COUNT, "epsilon": epsilon, "fresh": True}
            plan = client.post("/v1/plans", json=body).json()["id"]
            began = time.monotonic()
            assert client.post(f"/v1/plans/{plan}/release").status_code == 200
            return time.monotonic() - began

        with serving(tmp_path, "--workers", "2") as server:
            ann = server.client("ann", Role.ANALYST)
            headers = ann.headers
            assert spend(ann, "5.5") < slow
            with ThreadPoolExecutor(6) as pool:  # each over a connection of its own, to any worker

                def fresh(_: int) -> float:
                    with httpx.Client(base_url=server.address, headers=headers, timeout=60) as client:
                        return spend(client, "0.01")

                taken = list(pool.map(fresh, range(6)))
            until(lambda: arrived)
            assert max(taken) < slow  # they were answered while the notice was on its way
            time.sleep(2 * slow)  # longer than any further notice would need to begin
            assert _percents(arrived) == [50]
            spend(ann, "3")
            until(lambda: len(arrived) == 2)
            for worker in server.children():
                os.kill(worker, signal.SIGKILL)  # while the notice is being sent
            server.process.kill()
        with serving(tmp_path):
            until(lambda: len(arrived) == 3)  # nobody knows whether it was read: it is sent again
            time.sleep(2 * slow)
        with serving(tmp_path):
            time.sleep(slow)
        assert _percents(arrived) == [50, 80, 80]
        told = [json.loads(content) for content in arrived]
        assert told[1]["id"] == told[2]["id"] == "visits 80"
        assert set(told[0]) == {"id", "data", "account", "percent", "left", "of"}
