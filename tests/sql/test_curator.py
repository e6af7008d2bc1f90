"""One curator for several analysts: one ledger, one pool of readers, a session for each analyst."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import EngineFailed
from lapwing.errors import BadParameter
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.opening import open as open_dataset
from lapwing.sql.policy.policy_file import load_policy
from sql.conftest import POLICY, write_visits
from sql.test_curator_threads import COUNT, asker, in_threads
from sql.test_releasing import spent
from support.raised import named

ANALYSTS = [f"analyst{number}" for number in range(8)]


@pytest.fixture
def curator(tmp_path: Path) -> Iterator[Curator]:
    """A curator of 300 people, whose policy is read from its file."""
    write_visits(tmp_path, range(300))
    path = tmp_path / "visits.toml"
    path.write_text(POLICY.format(more=""))
    with Curator(path) as made:
        yield made


def test_eight_analysts_of_one_curator_ask_at_once(curator: Curator) -> None:
    """Each question is charged once, to the analyst who asked; all use one ledger object."""
    sessions = [Dataset(curator, analyst=name) for name in ANALYSTS]
    works = [asker(session, range(k, 40, 8)) for k, session in enumerate(sessions)]
    assert sum(in_threads(works)) == 40
    assert spent(sessions[0]) == 0.4
    assert {id(session.ledger) for session in sessions} == {id(curator.ledger)}


def test_answers_belong_to_the_analyst_who_asked(curator: Curator) -> None:
    curator.policy = replace(curator.policy, shares_answers=False)
    ann, bob = Dataset(curator, analyst="ann"), Dataset(curator, analyst="bob")
    first = ann.ask(COUNT, epsilon=1)
    assert ann.ask(COUNT, epsilon=1).is_replay
    second = bob.ask(COUNT, epsilon=1)
    assert not second.is_replay
    assert first.receipt.record["by"] != second.receipt.record["by"]


def test_readers_are_shared_by_sessions(curator: Curator) -> None:
    ann, bob = Dataset(curator, analyst="ann"), Dataset(curator, analyst="bob")
    with ann.curator.reading() as first:
        pass
    with bob.curator.reading() as second:
        assert second is first


@pytest.fixture
def opened_engines(monkeypatch: pytest.MonkeyPatch) -> list[DuckDbEngine]:
    """All engines that the test opens, in turn."""
    made: list[DuckDbEngine] = []
    whole = DuckDbEngine.open.__func__  # type: ignore[attr-defined]

    def opens(cls: type[DuckDbEngine], *given: Any, **more: Any) -> DuckDbEngine:
        made.append(whole(cls, *given, **more))
        return made[-1]

    monkeypatch.setattr(DuckDbEngine, "open", classmethod(opens))
    return made


def test_a_first_question_opens_one_engine_to_prepare_and_one_to_read(
    curator: Curator, opened_engines: list[DuckDbEngine]
) -> None:
    """The engine that reads the ids of the copy answers, too. It reaches no more than any other."""
    Dataset(curator, analyst="ann").ask(COUNT, epsilon=1)
    preparing, reading = opened_engines
    with curator.reading() as lent:
        assert lent.engine is reading
    with pytest.raises(EngineFailed):
        preparing.run("SELECT 1")  # closed
    for beyond in (
        f"SELECT * FROM '{curator.policy.path.parent}/visits.parquet'",
        "DROP TABLE prepared.visits",
    ):
        with pytest.raises(EngineFailed):
            reading.run(beyond)
    curator.prepare(again=True)
    with pytest.raises(EngineFailed):
        reading.run("SELECT 1")  # its copy is no longer the current one
    with curator.reading() as lent:
        assert lent.engine is opened_engines[-1]
        assert lent.engine is not reading


def test_preparing_reads_no_public_table(tmp_path: Path, opened_engines: list[DuckDbEngine]) -> None:
    write_visits(tmp_path, range(300))
    (tmp_path / "wards.csv").write_text("ward\nA\n")
    table = '[tables.wards]\nsource = "wards.csv"\npublic = true\ncolumns.ward.values = ["A"]\n'
    (tmp_path / "visits.toml").write_text(POLICY.format(more="") + table)
    with Curator(tmp_path / "visits.toml") as curator:
        (tmp_path / "wards.csv").unlink()
        assert curator.prepare()
        for engine in opened_engines:
            with pytest.raises(EngineFailed):
                engine.run("SELECT 1")  # closed


def test_closing_a_session_leaves_the_curator_open(curator: Curator) -> None:
    with Dataset(curator, analyst="ann") as ann:
        ann.ask(COUNT, epsilon=1)
        ledger = ann.ledger
    assert curator.ledger is ledger
    assert Dataset(curator, analyst="ann").ask(COUNT, epsilon=1).is_replay


def closed_with(opened: Callable[[], Dataset]) -> bool:
    with opened() as dataset:
        ledger = dataset.ledger
        assert dataset.ledger is ledger
    return dataset.curator._ledger is None


def test_a_session_with_its_own_curator_closes_it(curator: Curator) -> None:
    path = curator.policy.path
    assert closed_with(lambda: open_dataset(path, analyst="ann"))
    assert closed_with(lambda: Dataset(load_policy(path), analyst="ann"))
    assert not closed_with(lambda: Dataset(curator, analyst="ann"))


def test_a_session_needs_a_good_name(curator: Curator) -> None:
    with pytest.raises(BadParameter, check=named("analyst")):
        Dataset(curator, analyst="")


def test_notices_are_shown_by_one_answer(curator: Curator) -> None:
    first = Dataset(curator, analyst="ann").ask(COUNT, epsilon=1)
    assert any("for life" in note or "ledger" in note for note in first.notes)
    assert not any("ledger" in note for note in Dataset(curator, analyst="bob").ask(COUNT, epsilon=1).notes)
