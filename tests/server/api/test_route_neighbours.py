"""Neighbouring data: whatever is not noise is the same, byte for byte, with one person more or less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lapwing.server.people.person import Role
from support.served import COUNT, Door, write_data

QUESTIONS = (
    (COUNT, "0.5"),
    ("SELECT AVG(stay) AS a FROM visits WHERE stay > 9", "0.5"),
    ("SELECT COUNT(*) AS n FROM visits WHERE stay > 90", "0.5"),
    ("SELECT stay FROM visits", "0.5"),
    ("SELECT COUNT(*) AS n FROM visits", "99"),
    ("SELECT 1 / 0 AS n FROM visits", "0.5"),
    ("SELECT SUM(1 / stay) AS n FROM visits", "0.5"),
)
PUBLIC = ("id", "cost", "left", "is_replay", "truncation", "rows", "confidence", "combines", "data", "sql")


def _seen(folder: Path, people: int, patch: pytest.MonkeyPatch) -> list[Any]:
    """Return what an analyst sees of data about so many people, but for noisy numbers and random names."""
    folder.mkdir()
    patch.setenv("LAPWING_STATE", str(folder / "state"))
    write_data(folder, people=people)
    door, seen = Door(folder), list[Any]()
    ann = door.client("ann", Role.ANALYST)
    for sql, epsilon in QUESTIONS:
        made = ann.post("/v1/plans", json={"data": "visits", "sql": sql, "epsilon": epsilon})
        told = made.json()
        plan = told.pop("id", None)
        told.pop("made", None)
        seen.append((made.status_code, json.dumps(told)))
        if plan is None:
            continue
        for _ in range(2):
            reply = ann.post(f"/v1/plans/{plan}/release")
            told = reply.json()
            public = {name: told[name] for name in PUBLIC} if reply.status_code == 200 else told
            seen.append((reply.status_code, json.dumps(public)))
    for address in ("left", "budget", "schema"):
        seen.append(ann.get(f"/v1/data/visits/{address}").text)
    lines = ann.get("/v1/data/visits/history").json()["history"]
    seen.append([{name: value for name, value in line.items() if name != "time"} for line in lines])
    door.close()
    return seen


def test_one_person_changes_noise_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more, less = (_seen(tmp_path / str(n), n, monkeypatch) for n in (200, 199))
    assert more == less
