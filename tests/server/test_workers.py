"""Several worker processes on one port: one charge for one question, and a killed worker is replaced."""

from __future__ import annotations

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from lapwing.errors import BadParameter
from lapwing.ledger import Ledger
from lapwing.server.people.person import Role
from lapwing.server.workers import ServedHow, serve_with_workers
from support.postgres import fresh_url
from support.served import COUNT, write_data
from support.served_process import serving, until


@pytest.mark.parametrize("ledger", ["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.slow)])
def test_workers_share_a_port_a_ledger_and_plans_and_a_killed_one_is_replaced(
    tmp_path: Path, ledger: str
) -> None:
    if ledger == "SQLite":
        write_data(tmp_path)
    else:
        url, keys, anchor = fresh_url(), tmp_path / "keys", str(tmp_path / "anchor")
        Ledger.create(url, curator=tmp_path / "curator", keys=keys, anchor=anchor).close()
        own = f'[ledger]\nurl = "{url}"\nkeys = "keys"\nanchor = "anchor"'
        write_data(tmp_path, after=own)
    with serving(tmp_path, "--workers", "2") as server:
        until(lambda: len(server.children()) == 2)
        ann = server.client("ann", Role.ANALYST)
        body = {"data": "visits", "sql": COUNT, "epsilon": "0.5"}
        plan = ann.post("/v1/plans", json=body).json()["id"]

        def release(_: int) -> httpx.Response:  # each over a connection of its own, to any worker
            with httpx.Client(base_url=server.address, headers=ann.headers, timeout=60) as client:
                return client.post(f"/v1/plans/{plan}/release")

        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(release, range(8)))
        assert [reply.status_code for reply in replies] == [200] * 8, replies[0].text
        assert len({reply.json()["id"] for reply in replies}) == 1
        gone = server.children()[0]
        os.kill(gone, signal.SIGKILL)
        until(lambda: gone not in server.children() and len(server.children()) == 2)
        for _ in range(4):
            assert release(0).json()["id"] == replies[0].json()["id"]
        history = ann.get("/v1/data/visits/history").json()["history"]
        assert len(history) == 1
        officer = server.client("olga", Role.OFFICER)
        assert {reply.status_code for reply in (officer.get("/readyz"), officer.get("/metrics"))} == {200}
        labels = re.findall(r'process="(\d+)"', officer.get("/metrics").text)  # each counts its own
        assert set(map(int, labels)) <= set(server.children())
        assert server.stop() == 0
        assert server.children() == [] if server.process.poll() is None else True
    lines = (tmp_path / "stderr").read_text().splitlines()
    assert all(line.startswith('{"time"') for line in lines), lines


def test_a_worker_that_cannot_begin_ends_the_server_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="cannot be served"):
        serve_with_workers(ServedHow(tmp_path, "192.0.2.1", 0, behind_tls_proxy=True), 2, ready=print)
    with pytest.raises(BadParameter, match="plain HTTP"):
        serve_with_workers(ServedHow(tmp_path, "192.0.2.1", 0), 2, ready=print)
    with pytest.raises(AssertionError, match="no policy"), serving(tmp_path, "--workers", "2"):
        pass
