"""Work through the API to its end, on data of one's own; and processes that are killed in the middle."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from lapwing.audit.signed_audit import is_signed_by
from lapwing.learn.stream import Stream
from lapwing.server.people.person import Role
from support.ride_streams import COHORTS, POLICY, write_rides
from support.served import Door, person, write_data
from support.served_process import serving, until

PIPELINE = """
[pipeline]
name = "mean-minutes"
stream = "rides.toml"
features = "SELECT minutes FROM rides"
label = "minutes"
[trainer]
kind = "mean"
[validator]
kind = "error"
target = {target}
eta = 0.05
[strategy]
kind = "conserve"
epsilon = [0.05, {most}]
blocks = [4, 4]
"""
RELEASE = """
[release]
name = "stays"
policy = "visits.toml"
rows = "SELECT ward, stay FROM visits"
method = "independent"
epsilon = 1.0
delta = 1e-9
"""


def _ended(client: httpx.Client, job: str) -> dict[str, Any]:
    """Follow a job by its events; return its end."""
    text = client.get(f"/v1/jobs/{job}/events").text
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line[:5] == "data:"]
    assert all(event["steps"] == events[0]["steps"] for event in events)
    last: dict[str, Any] = events[-1]
    return last


def _start(client: httpx.Client, data: str, kind: str, **more: object) -> str:
    reply = client.post("/v1/jobs", json={"data": data, "kind": kind, **more})
    assert reply.status_code == 202, reply.text
    return str(reply.json()["id"])


def _write_stream(folder: Path, *, target: float = 10.0, most: float = 0.2) -> None:
    """A stream of rides, and a pipeline for it."""
    (folder / "rides").mkdir()
    write_rides(folder / "rides" / "january.parquet", 1, range(2000))
    (folder / "rides.toml").write_text(POLICY.format(protects="person", epsilon="1.0", blocks=COHORTS))
    (folder / "minutes.toml").write_text(PIPELINE.format(target=target, most=most))
    with Stream.open(folder / "rides.toml") as stream:
        stream.append()


@pytest.mark.slow
def test_training_to_its_end_and_who_gets_the_model(tmp_path: Path) -> None:
    _write_stream(tmp_path)
    door = Door(tmp_path)
    steward = door.client("sue", Role.STEWARD, data="rides")
    job = _start(steward, "rides", "train", file="minutes.toml")
    last = _ended(steward, job)
    assert (last["state"], last["done"], last["result"]["end"]) == ("done", 3, "accepted"), last
    ann, olga = (door.client(name, role, data="rides") for name, role in
                 (("ann", Role.ANALYST), ("olga", Role.OFFICER)))  # fmt: skip
    eve = door.client("eve", Role.ANALYST, data="others")
    for who in (ann, olga, eve):
        never = who.get("/v1/jobs/never")
        for address in (f"/v1/jobs/{job}", f"/v1/jobs/{job}/events"):
            reply = who.get(address)
            assert (reply.status_code, reply.content) == (404, never.content)
    run = last["result"]["model"]
    of_run = f"/v1/models/{run}/files"
    for who in (steward, ann, olga):
        listed = {model["id"]: model for model in who.get("/v1/models").json()["models"]}
        assert set(listed) == {"minutes", run}
        assert (listed[run]["state"], listed[run]["data"]) == ("accepted", ["rides"])
        assert who.get(f"{of_run}/card.json").json()["verdict"] == "accepted"
        statistic = who.get(f"{of_run}/statistic.json")
        assert statistic.status_code == (404 if who is olga else 200)
        assert who.get(f"{of_run}/../card.json").status_code == 404
        assert who.get(f"{of_run}/%2e%2e%2f%2e%2e%2frides.toml").status_code == 404
    assert eve.get("/v1/models").json() == {"models": []}
    for address in (f"{of_run}/card.json", "/v1/models/never/files/card.json"):
        assert eve.get(address).content == eve.get("/v1/jobs/never").content
    sue = person("sue", Role.STEWARD, data="rides")
    charges = len(door.services.records.history(sue, "rides", 100))
    again = _ended(steward, _start(steward, "rides", "train", file="minutes.toml"))
    assert again["result"] == last["result"]
    assert len(door.services.records.history(sue, "rides", 100)) == charges
    door.close()


@pytest.mark.slow
def test_publishing_own_data_and_an_audit_to_their_ends(door: Door, tmp_path: Path) -> None:
    (tmp_path / "stays.toml").write_text(RELEASE)
    steward, ann = door.client("sue", Role.STEWARD), door.ann()
    last = _ended(steward, _start(steward, "visits", "publish", file="stays.toml"))
    assert last["state"] == "done", last
    bundle = last["result"]["release"]
    listed = {work["id"]: work for work in ann.get("/v1/releases").json()["releases"]}
    assert (listed[bundle]["state"], listed[bundle]["data"]) == ("released", ["visits"])
    for name in listed[bundle]["files"]:
        reply = ann.get(f"/v1/releases/{bundle}/files/{name}")
        assert reply.content == (tmp_path / bundle / name).read_bytes()
        assert reply.headers["content-disposition"].startswith("attachment")
    assert ann.get(f"/v1/releases/{bundle}/files/nothing").status_code == 404
    sql = "SELECT COUNT(*) AS n FROM visits"
    last = _ended(steward, _start(steward, "visits", "audit", sql=sql, epsilon="0.5", seconds=1))
    assert last["state"] == "done", last
    run = last["result"]["audit"]
    assert [work["id"] for work in ann.get("/v1/audits").json()["audits"]] == [run]
    told = ann.get(f"/v1/audits/{run}/files/{run}.json").json()
    assert (told["lapwing"], told["cases"][0]["name"]) == ("audit", f"query: {sql}")
    [data] = door.services.sets
    assert is_signed_by(told, data.curator.ledger.keys.signing.public)
    assert told["verdict"] == last["result"]["verdict"]


@pytest.mark.slow
def test_an_audit_with_time_for_all_its_stages_passes(door: Door) -> None:
    steward = door.client("sue", Role.STEWARD)
    assert _ended(steward, _start(steward, "visits", "prepare"))["state"] == "done"
    sql = "SELECT COUNT(*) AS n FROM visits"
    last = _ended(steward, _start(steward, "visits", "audit", sql=sql, epsilon="0.5", seconds=120))
    assert (last["state"], last["result"]["passed"]) == ("done", True), last


def test_a_killed_worker_and_a_killed_server_stop_no_job(tmp_path: Path) -> None:
    write_data(tmp_path)
    with serving(tmp_path) as server:
        steward = server.client("sue", Role.STEWARD)
        first = _start(steward, "visits", "prepare")
        until(server.children)
        [worker] = server.children()
        os.kill(worker, signal.SIGKILL)
        assert _ended(steward, first)["result"] == {"version": 1, "is_new": True}
        second = _start(steward, "visits", "prepare", again=True)
        until(server.children)
        [worker] = server.children()
        server.process.kill()
        server.process.wait(30)
        until(lambda: not Path(f"/proc/{worker}").exists())  # it never outlives the server
        token = steward.headers["authorization"]
    with serving(tmp_path) as server:
        again = httpx.Client(base_url=server.address, headers={"authorization": token}, timeout=60)
        assert _ended(again, second)["state"] == "done"
        again.close()


@pytest.mark.slow
def test_training_that_is_killed_after_a_charge_goes_on_and_charges_nothing_twice(tmp_path: Path) -> None:
    _write_stream(tmp_path, target=0.05, most=0.8)  # out of reach: it tries until ε 0.8
    with serving(tmp_path) as server:
        steward = server.client("sue", Role.STEWARD, data="rides")
        job, charged = _start(steward, "rides", "train", file="minutes.toml"), "/v1/data/rides/history"
        for kills in (1, 2):
            until(lambda kills=kills: len(steward.get(charged).json()["history"]) >= kills, 60)
            [worker] = server.children()
            os.kill(worker, signal.SIGKILL)
            until(lambda worker=worker: worker not in server.children())
        last = _ended(steward, job)
        assert last["state"] == "done", last
        run = last["result"]["model"]
        card = steward.get(f"/v1/models/{run}/files/card.json").json()
        assert len(steward.get(charged).json()["history"]) == len(card["attempts"])
