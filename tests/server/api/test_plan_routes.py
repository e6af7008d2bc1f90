"""Questions over HTTP: free plans, releases that spend once, stored answers in three forms."""

from __future__ import annotations

import asyncio
import json

import httpx
import pyarrow as pa
import pytest

from lapwing.server.people.person import Role
from support.served import BASE, COUNT, Door


def test_a_plan_is_free_and_a_release_spends_once(door: Door) -> None:
    ann = door.ann()
    made = ann.post("/v1/plans", json={"data": "visits", "sql": COUNT, "epsilon": "0.5"})
    assert made.status_code == 201
    plan = made.json()
    assert plan["cost"] == {"epsilon": "0.5", "delta": "0"}
    assert plan["columns"]["n"]["words"] == "± 12"
    assert ann.get(f"/v1/plans/{plan['id']}").json() == plan
    assert ann.post(f"/v1/plans/{plan['id']}/dry-run").json()["is_fake"] is True
    assert door.charges() == 0
    replies = [ann.post(f"/v1/plans/{plan['id']}/release").json() for _ in range(3)]
    assert [one["is_replay"] for one in replies] == [False, True, True]
    assert len({json.dumps(one["columns"]) for one in replies}) == 1
    assert replies[0]["left"]["epsilon"] == "9.5"
    assert door.charges() == 1


def test_eight_clients_at_once_get_eight_answers_for_one_charge(door: Door) -> None:
    ann = door.ann()
    plans = [door.plan(ann, fresh=bool(one % 2)) for one in range(8)]

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(door.app)
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=ann.headers) as client:
            return await asyncio.gather(*(client.post(f"/v1/plans/{one}/release") for one in plans))

    replies = asyncio.run(ask())
    assert [one.status_code for one in replies] == [200] * 8
    assert len({one.json()["id"] for one in replies}) == 1
    assert door.charges() == 1


def test_a_stored_answer_comes_as_json_csv_and_arrow(door: Door) -> None:
    ann = door.ann()
    given = door.release(ann)
    where = f"/v1/answers/{given['id']}"
    again = ann.get(where)
    assert again.headers["content-type"] == "application/json"
    now = {"is_replay": False, "footer": None, "left": None}
    assert {**again.json(), **now} == {**given, **now}
    assert again.json()["left"] is None  # it is what it was: see /left
    csv = ann.get(where, headers={"accept": "text/csv"})
    assert csv.text.splitlines()[0] == "ward,n,n_low,n_high"
    table = pa.ipc.open_stream(ann.get(f"{where}?format=arrow").content).read_all()
    assert table.column("n").to_pylist() == given["columns"][1]["values"]
    assert ann.get(f"{where}?format=xml").status_code == 422
    wide = ann.get(f"{where}?confidence=0.999").json()
    assert wide["columns"][1]["low"][0] < given["columns"][1]["low"][0]
    assert door.charges() == 1


def test_what_is_no_number_of_ours_is_refused_and_nothing_is_charged(door: Door) -> None:
    ann = door.ann()
    for field in ("epsilon", "within", "delta", "confidence"):
        values: tuple[object, ...] = ("NaN", "1e999", "-1", 0.5, 1, True, [], {}, "1,5")
        for value in values:
            body = {
                "data": "visits",
                "sql": COUNT,
                **({} if field == "within" else {"epsilon": "1"}),
                field: value,
            }
            reply = ann.post(
                "/v1/plans", content=json.dumps(body), headers={"content-type": "application/json"}
            )
            assert reply.status_code == 422, (field, value)
            assert reply.json()["error"]["name"] == field
    for epsilon in ("0", "0.0", "0e1"):
        assert (
            ann.post("/v1/plans", json={"data": "visits", "sql": COUNT, "epsilon": epsilon}).status_code
            == 422
        )
    for content in (b"", b"[]", b"\xff", b"null", b'{"data": 1}'):
        reply = ann.post("/v1/plans", content=content, headers={"content-type": "application/json"})
        assert reply.status_code in (415, 422)
    assert (
        ann.post("/v1/plans", json={"data": "visits", "sql": "SELECT" * 10_000, "epsilon": "1"}).status_code
        == 422
    )
    assert door.charges() == 0


def test_anothers_ids_are_those_that_never_were(door: Door) -> None:
    ann, bob = door.ann(), door.client("bob", Role.ANALYST)
    plan, answer = door.plan(ann), door.release(ann)["id"]
    for method, mine, never in (
        ("GET", f"/v1/plans/{plan}", f"/v1/plans/{'0' * 32}"),
        ("POST", f"/v1/plans/{plan}/release", f"/v1/plans/{'0' * 32}/release"),
        ("POST", f"/v1/plans/{plan}/dry-run", f"/v1/plans/{'0' * 32}/dry-run"),
        ("GET", f"/v1/answers/{answer}", "/v1/answers/visits.999"),
    ):
        replies = [bob.request(method, address) for address in (mine, never)]
        assert [one.status_code for one in replies] == [404, 404]
        assert replies[0].content == replies[1].content
        assert replies[0].headers == replies[1].headers
    assert door.charges() == 1


def test_a_refusal_says_what_was_asked_what_is_left_and_what_now(door: Door) -> None:
    ann = door.ann()
    reply = ann.post(f"/v1/plans/{door.plan(ann, epsilon='50')}/release")
    assert reply.status_code == 422
    error = reply.json()["error"]
    assert (error["code"], error["asked"], error["left"]) == ("over-budget", "ε 50", "ε 10 of 10")
    assert error["what_now"] == "Ask for ε 10 or less."
    assert door.charges() == 0
    rows = ann.post("/v1/plans", json={"data": "visits", "sql": "SELECT * FROM visits", "epsilon": "1"})
    assert (rows.status_code, rows.json()["error"]["code"]) == (422, "refused")


def test_a_token_stops_at_its_most_epsilon(door: Door) -> None:
    from fractions import Fraction  # noqa: PLC0415

    program = door.client("ann", Role.ANALYST, most_epsilon=Fraction(6, 10))
    door.release(program)
    reply = program.post(f"/v1/plans/{door.plan(program, fresh=True)}/release")
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "token-spent")
    assert door.charges() == 1


def test_sql_with_its_price_inside_is_answered_once(door: Door) -> None:
    ann = door.ann()
    sql = COUNT.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.25)")
    replies = [ann.post("/v1/sql", json={"data": "visits", "sql": sql}) for _ in range(2)]
    assert [one.status_code for one in replies] == [200, 200]
    first, again = (one.json() for one in replies)
    assert (first["cost"]["epsilon"], first["id"], again["is_replay"]) == ("0.25", again["id"], True)
    for wrong, name in ((COUNT, "epsilon"), (sql.replace("epsilon", "epsilom"), "epsilom")):
        refused = ann.post("/v1/sql", json={"data": "visits", "sql": wrong})
        assert refused.status_code == 422
        assert name in refused.json()["error"]["message"]
    assert door.charges() == 1


@pytest.mark.parametrize("address", ["release", "dry-run"])
def test_only_post_spends(door: Door, address: str) -> None:
    ann = door.ann()
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert ann.request(method, f"/v1/plans/{door.plan(ann)}/{address}").status_code == 405
    assert door.charges() == 0
