"""Data sets and records over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lapwing.server.people.person import Role
from support.cases import each
from support.served import COUNT, Door


def test_an_analyst_sees_what_may_be_asked_and_what_is_left(door: Door) -> None:
    ann = door.ann()
    assert ann.get("/v1/data").json()["data"] == [
        {"name": "visits", "title": "visits", "roles": ["analyst"]}
    ]
    assert [one["table"] for one in ann.get("/v1/data/visits/schema").json()["tables"]] == ["visits"]
    given = door.release(ann)
    assert ann.get("/v1/data/visits/left").json()["epsilon"] == given["left"]["epsilon"] == "9.5"
    budget = ann.get("/v1/data/visits/budget").json()
    assert (budget["epsilon"], budget["blocks"][0]["epsilon"]) == ("10", "9.5")
    [listed] = ann.get("/v1/data/visits/answers").json()["answers"]
    assert (listed["id"], listed["sql"]) == (given["id"], COUNT)
    [asked] = ann.get("/v1/data/visits/history?last=5").json()["history"]
    assert (asked["question"], asked["state"], asked["price"]) == (COUNT, "answered", "ε 0.5")
    for last in ("0", "-1", "x", "1e9", "99999999999", "١"):
        assert ann.get(f"/v1/data/visits/history?last={last}").status_code == 422


def test_example_rows_come_from_the_policy_alone(door: Door, tmp_path: Path) -> None:
    (tmp_path / "visits.parquet").unlink()
    ann = door.ann()
    reply = ann.get("/v1/data/visits/example.parquet?rows=7")
    table = pq.read_table(pa.BufferReader(reply.content))
    assert table.num_rows == 7
    assert {"ward", "stay"} <= set(table.column_names)
    for query in ("rows=0", "rows=100001", "table=nothing"):
        assert ann.get(f"/v1/data/visits/example.parquet?{query}").status_code == 422


def test_an_officer_checks_without_asking_anybody(door: Door) -> None:
    given = door.release(door.ann())
    officer = door.client("olga", Role.OFFICER)
    number = given["receipt"]["position"]
    assert officer.get(f"/v1/data/visits/receipts/{number}").json() == given["receipt"]
    for address in (f"receipts/{number}", f"proofs/{number}", "statement"):
        content = officer.get(f"/v1/data/visits/{address}").content
        found = officer.post("/v1/verify", content=content, headers={"content-type": "application/json"})
        assert found.json()["good"] is True, found.text
    changed = json.dumps({**given["receipt"], "principal": "eve"})
    assert officer.post("/v1/verify", json=json.loads(changed)).json()["good"] is False
    assert officer.get("/v1/data/visits/history").json()["history"][0]["question"] is None
    report = officer.get("/v1/data/visits/report?format=json")
    assert report.json()["lapwing"] == "report"
    assert officer.get("/v1/data/visits/report?format=pdf").status_code == 422


def test_no_reply_names_a_place_of_the_machine(door: Door, tmp_path: Path) -> None:
    ann, steward = door.ann(), door.client("sue", Role.STEWARD)
    door.release(ann)
    plan = door.plan(ann, fresh=True)
    (tmp_path / "visits.parquet").rename(tmp_path / "gone.parquet")
    for client in (ann, steward):
        for address in ("data", "data/visits/schema", "data/visits/budget", "data/visits/history"):
            assert str(tmp_path) not in client.get(f"/v1/{address}").text
    failed = ann.post(f"/v1/plans/{plan}/release")
    assert failed.status_code in (409, 422, 503)
    assert str(tmp_path) not in failed.text


def test_a_hold_is_cleared_by_a_steward_alone(door: Door) -> None:
    steward, ann = door.client("sue", Role.STEWARD), door.ann()
    assert steward.post("/v1/data/visits/holds/5/clear").status_code in (404, 422)
    door.release(ann)
    assert steward.post("/v1/data/visits/holds/4/clear").status_code == 422  # it was answered
    assert ann.post("/v1/data/visits/holds/4/clear").status_code == 403


def test_the_description_names_every_route_with_its_roles(door: Door) -> None:
    from lapwing.server.app import ROUTES  # noqa: PLC0415

    told = door.stranger().get("/v1/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    for route in ROUTES:
        operation = told["paths"][route.path.replace(":int", "").replace(":path", "")][route.method.lower()]
        assert operation["summary"] == route.summary
        assert all(role in operation["description"] for role in route.roles)
        assert {"401", "422", "503"} <= set(operation["responses"])
    assert "/v1/tokens" in told["paths"]
    names = [one["operationId"] for path in told["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))
    assert told["components"]["schemas"]["PlanForm"]["examples"]


@each("number", ("0", "999999", str(2**63), str(2**70), "9" * 5000, "-1", "1.0", "١", "x", "%31%00"))
def test_a_receipt_that_no_ledger_can_have_is_not_found(number: str, door: Door) -> None:
    steward = door.client("sue", *Role)
    door.release(steward)
    for method, place in (("GET", "receipts/{}"), ("GET", "proofs/{}"), ("POST", "holds/{}/clear")):
        reply = steward.request(method, f"/v1/data/visits/{place.format(number)}")
        known = reply.json()["error"]["code"] if reply.status_code != 200 else ""
        assert (reply.status_code, known) in ((404, "not-found"), (422, "bad-parameter")), (
            place,
            reply.text,
        )
        assert reply.status_code == 404 or "holds" in place
