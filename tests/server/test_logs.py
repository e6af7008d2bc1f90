"""Logs: what stands in a line, and that no canary is in any of them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import Unavailable
from lapwing.server.app import create_app
from lapwing.server.logs import LineLog, slot_text
from lapwing.server.people.person import Role
from support.served import Door, write_data

CANARIES = ("canary", "CANARY", "lapwing_", "127.0.0.1", "SELECT", "visits.", "0.37")


def test_a_line_has_six_things_and_no_canary(tmp_path: Path) -> None:
    write_data(tmp_path)
    door, path = Door(tmp_path), tmp_path / "log.jsonl"
    door.app = create_app(door.services, write=LineLog(path).write)
    ann = door.client("ann", Role.ANALYST)
    given = door.release(ann, sql="SELECT COUNT(*) AS canary FROM visits", epsilon="0.37")
    ann.get(f"/v1/answers/{given['id']}?canary=canary")
    ann.get("/canary/canary", headers={"user-agent": "canary", "x-canary": "canary"})
    ann.get("/v1/data/canary/schema")
    ann.post("/v1/plans", json={"data": "visits", "sql": "canary", "epsilon": "canary"})
    door.stranger().get("/v1/data", headers={"authorization": "Bearer lapwing_canary"})
    door.stranger().request("CANARY", "/canary")
    door.close()
    text = path.read_text()
    assert [one for one in CANARIES if one in text] == []
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert all(list(line) == ["time", "person", "method", "route", "status", "receipt"] for line in lines)
    told = [(line["route"], line["status"], line["person"], line["receipt"]) for line in lines]
    assert told[:2] == [
        ("/v1/plans", 201, "ann", None),
        ("/v1/plans/{plan}/release", 200, "ann", given["receipt"]["position"]),
    ]
    assert told[-2][:3] == ("/v1/data", 401, None)
    assert {one[0] for one in told} >= {"/v1/answers/{answer}", "/v1/data/{name}/schema", "(unknown)"}
    assert path.stat().st_mode & 0o077 == 0


def test_a_time_is_the_beginning_of_its_slot() -> None:
    for now in (1795135995.01, 1795135995.26, 1795135995.49):
        assert datetime.fromisoformat(slot_text(0.5, now)).timestamp() == 1795135995.0


def test_a_log_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        LineLog(tmp_path / "no" / "log.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unavailable):
        LineLog(tmp_path / "link")
