"""A data set of a server is asked as one of this machine, and charged once."""

from __future__ import annotations

import threading
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest

import lapwing
from client.conftest import Place
from lapwing.client.remote_dataset import RemoteDataset
from lapwing.client.replied_errors import RequestRefused
from lapwing.errors import BadParameter, OverBudget, TokenSpent
from lapwing.server.people.person import Role
from support.door_process import DoorProcess, new_token, start
from support.raised import named
from support.served import COUNT, write_data


def charges(visits: RemoteDataset) -> int:
    return len(visits.history(last=1000))


def test_a_plan_is_free_and_says_what_the_library_says(visits: RemoteDataset) -> None:
    before = charges(visits)
    plan = visits.plan(COUNT, epsilon=0.5, confidence="0.9")
    assert plan.cost.epsilon == Fraction(1, 2)
    assert str(plan.cost) == "ε 0.5"
    assert plan.confidence == 0.9
    assert "Laplace noise, scale 4" in str(plan)
    assert "± " in plan.spread["n"]
    assert plan.to_json()["cost"] == {"epsilon": 0.5, "delta": 0.0}
    assert charges(visits) == before


def test_an_answer_has_intervals_a_price_and_a_receipt(visits: RemoteDataset) -> None:
    answer = visits.ask("SELECT ward, SUM(stay) AS stay FROM visits GROUP BY ward", epsilon="0.25")
    assert [column.name for column in answer.columns] == ["ward", "stay"]
    assert answer.columns[1].low is not None
    assert answer.cost is not None
    assert answer.cost.epsilon == Fraction(1, 4)
    assert answer.left is not None
    assert answer.left.epsilon == visits.left().epsilon
    assert answer.receipt is not None
    printed = str(answer)
    for words in (" to ", "charged ε 0.25", "Budget left: ε", f"Receipt: {answer.receipt.position}"):
        assert words in printed
    assert "<table>" in answer._repr_html_()
    again = visits.answer(answer.id, confidence="0.5")
    assert again.columns[1].values == answer.columns[1].values
    assert again.confidence == 0.5
    assert visits.answers(last=1)[0]["id"] == answer.id


def test_a_table_has_the_servers_types(visits: RemoteDataset) -> None:
    answer = visits.ask(COUNT, epsilon="0.125")
    table = answer.to_arrow()
    assert table.schema.names == ["ward", "n", "n_low", "n_high"]
    assert table.schema.field("n").type == pa.int64()
    assert table.column("n").to_pylist() == answer.columns[1].values
    assert answer.to_pandas()["n"].tolist() == answer.to_polars()["n"].to_list()
    fake = visits.dry_run(COUNT, epsilon="0.125")
    assert fake.is_fake
    assert fake.to_arrow().schema.names == ["ward", "n", "n_low", "n_high"]


def test_a_plan_that_is_released_again_costs_nothing(visits: RemoteDataset) -> None:
    plan = visits.plan(COUNT, epsilon="0.11")
    first = plan.release()
    before = charges(visits)
    assert plan.release().columns == first.columns
    assert visits.release(plan.id).is_replay
    assert visits.ask(COUNT, epsilon="0.11").is_replay
    assert charges(visits) == before
    fresh = plan.release(fresh=True)
    assert not fresh.is_replay
    assert charges(visits) == before + 1
    with pytest.raises(BadParameter, check=named("fresh")):
        visits.release(plan.id, fresh=True)


def test_eight_clients_with_one_question_are_all_answered_for_one_charge(
    place: Place, visits: RemoteDataset
) -> None:
    before, told = charges(visits), []

    def ask() -> None:
        with place.connect() as own:
            told.append(own.ask(COUNT, epsilon="0.07").columns)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 8
    assert all(one == told[0] for one in told)
    assert charges(visits) == before + 1


def test_a_release_outlives_a_server_that_dies_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAPWING_STATE", str(tmp_path / "state"))
    write_data(tmp_path)
    token = new_token(tmp_path, "ann", Role.ANALYST)
    door = start(tmp_path)
    port = int(door.address.rpartition(":")[2])
    with lapwing.connect(door.address, token=token, patience=60.0) as visits:
        plan = visits.plan(COUNT, epsilon="0.5")
        paid = visits.plan(COUNT, epsilon="0.25")
        first = paid.release()
        door.kill()
        later: list[DoorProcess] = []
        again = threading.Timer(1.0, lambda: later.append(start(tmp_path, port=port)))
        again.start()
        try:
            answer = plan.release()  # begins while there is no server
            assert not answer.is_replay
            assert paid.release().receipt == first.receipt  # paid before, and not again
            assert charges(visits) == 2
        finally:
            again.join()
            for one in (door, *later):
                if one.process.poll() is None:
                    one.stop()
                assert one.process.stdout is not None
                one.process.stdout.close()


def test_a_dashboard_is_one_charge(visits: RemoteDataset) -> None:
    before = charges(visits)
    batch = visits.batch(
        ["SELECT COUNT(*) AS n FROM visits", "SELECT AVG(stay) AS stay FROM visits"],
        epsilon="0.3",
        weights=[1, 2],
    )
    assert batch.cost.epsilon == Fraction(3, 10)
    assert "2 questions cost ε 0.3 together" in str(batch)
    assert charges(visits) == before
    counted, stayed = batch.release()
    assert [answer.columns[0].name for answer in (counted, stayed)] == ["n", "stay"]
    assert counted.receipt == stayed.receipt
    assert charges(visits) == before + 1
    assert [one.columns for one in batch.release()] == [counted.columns, stayed.columns]
    assert charges(visits) == before + 1
    assert counted.to_arrow().schema.names[0] == "n"
    own = visits.batch([(COUNT, {"epsilon": 0.031}), (COUNT, {"epsilon": "0.031"})])
    assert own.charged == (0,)


def test_example_rows_come_from_the_policy_alone(visits: RemoteDataset) -> None:
    rows = visits.example_rows("visits", rows=17)
    assert rows.num_rows == 17
    assert set(rows.column("ward").to_pylist()) <= {"A", "B"}
    with pytest.raises(BadParameter):
        visits.example_rows("nothing")


def test_jobs_are_for_those_who_may_start_them(place: Place, visits: RemoteDataset) -> None:
    assert visits.jobs() == []
    with pytest.raises(RequestRefused) as caught:
        visits.start_job("prepare")
    assert caught.value.code == "not-allowed"
    token = new_token(place.folder, "sue", Role.STEWARD)
    with lapwing.connect(place.door.address, token=token) as steward:
        assert steward.start_job("prepare")["kind"] == "prepare"
        assert [job["kind"] for job in steward.jobs()] == ["prepare"]


def test_errors_are_the_librarys(place: Place, visits: RemoteDataset) -> None:
    with pytest.raises(lapwing.Refused) as refused:
        visits.plan("SELECT * FROM visits", epsilon=1)
    assert refused.value.place == (1, 8)
    with pytest.raises(OverBudget) as over:
        visits.ask(COUNT, epsilon=50)
    assert "50" in over.value.asked
    with pytest.raises(RequestRefused) as missing:
        visits.answer("visits.999999")
    assert missing.value.code == "not-found"
    for odd in ("", "..", 3):
        with pytest.raises(BadParameter, check=named("id")):
            visits.answer(odd)  # type: ignore[arg-type]
    token = new_token(place.folder, "tom", Role.ANALYST, most_epsilon=Fraction(1, 100))
    with (
        lapwing.connect(place.door.address, token=token) as poor,
        pytest.raises(TokenSpent) as spent,
    ):
        poor.ask("SELECT COUNT(*) FROM visits", epsilon="0.03")
    assert "0.01" in spent.value.left


def test_schema_and_what_is_shown_in_a_notebook(visits: RemoteDataset) -> None:
    assert [table["table"] for table in visits.schema()["tables"]] == ["visits"]
    shown = visits._repr_html_()
    for words in ("ward", "A, B", "0 to 10", "Budget left"):
        assert words in shown
    assert "<table>" in visits.plan(COUNT, epsilon=1)._repr_html_()


def test_no_request_goes_out_for_what_is_no_sql(visits: RemoteDataset) -> None:
    with pytest.raises(BadParameter, check=named("question")):
        visits.plan(3, epsilon=1)  # type: ignore[arg-type]
