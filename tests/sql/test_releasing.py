"""What is charged, what comes again for nothing, and what is never mixed with what."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lapwing.errors import BadParameter, Held, InProgress, SessionOver
from lapwing.sql import curator, policy_ledger
from lapwing.sql.dataset import Dataset
from lapwing.sql.earlier_answers import EarlierAnswers
from lapwing.sql.pricing.noise_shares import BudgetShares, divide_budget
from lapwing.sql.reading.reader import Reader
from sql.conftest import write_visits
from support.askers import ask, die
from support.forking import FORKING, forked
from support.raised import named
from support.reached import reaching

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"
SUMS = "SELECT SUM(stay) AS s, AVG(stay) AS a FROM visits"
WARDS = '[tables.wards]\nsource = "wards.csv"\npublic = true\n'
ARRIVALS = '[blocks]\nby = "unit"\nevery = "month"\n'


def spent(dataset: Dataset) -> float:
    """ε on the block that has spent most."""
    return max(block.spent[1] for block in dataset.ledger.blocks("visits")) / 10**9


def reopened(opened: Open, path: Path, old: str, new: str) -> Dataset:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return opened(rewrite=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("high = 10\n", "high = 1000\n"),  # another middle and other steps: the old numbers mean nothing
        ("high = 10\n", "high = 10\nmissing = 3\n"),
        ('type = "text"', "hidden = true"),  # the rows that count are chosen by what is declared
        ("rows_per_unit = 2", "rows_per_unit = 3"),
        ("rows_per_unit = 2", 'rows_per_unit = 2\nprimary_key = "hidden"'),
    ],
)
def test_another_policy_is_another_question(opened: Open, tmp_path: Path, old: str, new: str) -> None:
    opened().ask(SUMS, epsilon=1)
    again = reopened(opened, tmp_path / "visits.toml", old, new)
    answer = again.ask(SUMS, epsilon=1)
    assert not answer.is_replay
    assert answer.earlier == ()
    assert spent(again) == 2


def test_public_rows_are_part_of_the_question(opened: Open, tmp_path: Path) -> None:
    sql = "SELECT beds, COUNT(*) AS n FROM visits JOIN wards USING (ward) GROUP BY beds"
    for rows in ("A,1\nB,2\n", "A,2\nB,1\n"):
        (tmp_path / "wards.csv").write_text(f"ward,beds\n{rows}")
        answer = opened(more=WARDS).ask(sql, epsilon=1)
        assert not answer.is_replay
        assert answer.of == 1


def test_fewer_rows_of_a_person_are_another_question(opened: Open) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)
    fewer = dataset.ask(COUNT, epsilon=1, rows=1)
    assert (fewer.is_replay, fewer.of) == (False, 1)
    assert dataset.ask(COUNT, epsilon=1, rows=1).is_replay


@pytest.mark.parametrize("noise", ["auto", "laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", ["0.05", "1/3", "4"])
@pytest.mark.parametrize(
    "sql",
    [
        SUMS,
        "SELECT name, COUNT(*), SUM(stay) FROM visits GROUP BY name",
        "SELECT ward, name, COUNT(*) FROM visits GROUP BY ROLLUP (ward, name)",
        "SELECT ward, MEDIAN(stay), MAX(stay), COUNT(*) FROM visits GROUP BY ward",
        "SELECT ward, VARIANCE(stay), CORR(stay, stay) FROM visits GROUP BY CUBE (ward)",
        "SELECT name, MIN(stay) FROM visits GROUP BY name",
    ],
)
def test_the_mechanisms_are_found_again_from_what_is_stored(
    opened: Open, sql: str, epsilon: str, noise: str
) -> None:
    """The kind of noise is stored as it was chosen, δ as it was allowed."""
    dataset = opened(more="least_epsilon = 1e-6\n")
    plan = dataset.plan(sql, epsilon=epsilon, noise=noise, delta="1e-8")
    asked = plan.request
    again = divide_budget(plan.question, epsilon=asked.epsilon, delta=asked.delta, noise=asked.noise)
    assert (again.added, again.chosen, again.selected) == (
        plan.shares.added, plan.shares.chosen, plan.shares.selected,
    )  # fmt: skip
    assert again.loss == plan.shares.loss
    assert again.digest == asked.mechanisms


def test_answers_of_mechanisms_that_are_gone_are_left_alone(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened()
    with monkeypatch.context() as patch:
        patch.setattr(BudgetShares, "digest", property(lambda _: "of an older version of the code"))
        dataset.ask(COUNT, epsilon=1)
    second = dataset.ask(COUNT, epsilon=1)
    assert (second.is_replay, second.of) == (False, 1)
    assert dataset.ask(COUNT, epsilon=1).is_replay


def test_intervals_with_sampling_error_are_not_combined_without_it(opened: Open) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)
    second = dataset.ask(COUNT, epsilon=1, fresh=True, sampling=True)
    assert second.of == 1
    assert len(second.earlier) == 1


def test_a_copy_that_another_process_made_is_the_one_that_is_asked(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    with reaching() as reached:
        dataset.prepare()
        dataset.ask(COUNT, epsilon=1)
        write_visits(tmp_path, range(300, 400), "visits_new")
        opened(analyst="curator", rewrite=False).prepare()
        assert dataset.ask(COUNT, epsilon=1).receipt is not None
    assert [one.values for one in reached] == [[600], [800]]


@pytest.mark.parametrize("prepared", [True, False])
def test_nothing_is_told_of_a_source_that_changed_while_it_was_read(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    """The people who came were not registered, and so perhaps not charged."""
    dataset = opened()
    if prepared:
        dataset.prepare()
    dataset.version()
    exact = Reader.exact

    def late(reader: Reader, question: Any) -> Any:
        write_visits(tmp_path, range(900))
        return exact(reader, question)

    monkeypatch.setattr(Reader, "exact", late)
    with pytest.raises(Held):
        dataset.ask(COUNT, epsilon=1)
    assert spent(dataset) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [(("stay]", "stai]"), "no column 'stai'"), (('unit = "patient_id"', 'unit = "person"'), "no column")],
)
def test_a_policy_that_does_not_fit_its_source_charges_nothing(
    opened: Open, tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    opened()
    dataset = reopened(opened, tmp_path / "visits.toml", *change)
    with pytest.raises(BadParameter, match=says):
        dataset.ask(COUNT, epsilon=1)
    assert spent(dataset) == 0


def test_months_of_arrival_need_a_copy_before_anything_is_charged(opened: Open, tmp_path: Path) -> None:
    dataset = opened(more=ARRIVALS)
    assert dataset.plan(COUNT, epsilon=1).blocks == ()
    assert not list(tmp_path.glob("*.ledger*"))
    with pytest.raises(BadParameter, match="prepare"):
        dataset.ask(COUNT, epsilon=1)
    assert spent(dataset) == 0
    dataset.prepare()
    assert abs(dataset.ask(COUNT, epsilon=5).columns[0].values[0] - 600) < 30
    assert spent(dataset) == 5


def test_who_arrives_at_midnight_arrives_in_a_block_that_is_open(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: the month turns between registering and preparing."""

    class Clock(datetime):
        ticks = iter([datetime(2026, 1, 31, 23, 59, tzinfo=UTC)] + 99 * [datetime(2026, 2, 1, tzinfo=UTC)])

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return next(cls.ticks)

    from lapwing.sql.reading import prepare  # noqa: PLC0415

    for module in (curator, policy_ledger, prepare):
        monkeypatch.setattr(module, "datetime", Clock)
    one = opened(more=ARRIVALS)
    one.prepare()
    with duckdb.connect(str(next(tmp_path.glob("visits.prepared/copy*"))), read_only=True) as copy:
        codes = {row[0] for row in copy.execute("SELECT DISTINCT lapwing_block FROM visits").fetchall()}
    assert codes == {(date(2026, 1, 1).year - 1970) * 12}
    assert one.curator.all_blocks() == ["2026-01"]


def test_L7_another_price_at_the_same_time_is_told_to_wait(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened()
    find = EarlierAnswers.find

    def stale(look: EarlierAnswers, request: Any) -> Any:
        return [], find(look, request)[1].replace(":1", ":0")  # as it was before the other one

    dataset.ask(COUNT, epsilon=1)
    monkeypatch.setattr(EarlierAnswers, "find", stale)
    with pytest.raises(InProgress):
        dataset.ask(COUNT, epsilon=2)
    assert spent(dataset) == 1
    same = dataset.ask(COUNT, epsilon=1, fresh=True)
    assert same.is_replay
    assert spent(dataset) == 1


def test_L1_L3_L7_processes_that_ask_at_once_or_die(opened: Open, tmp_path: Path) -> None:
    """The first question of all registers the data, once; one process is charged; who dies stays so."""
    one = opened()
    assert one.ledger.id
    policy = tmp_path / "visits.toml"
    out = FORKING.Queue()
    asking = [forked(ask, policy, COUNT, "1", out) for _ in range(3)]
    for process in asking:
        process.start()
    answers = {out.get(timeout=120) for _ in asking} - {None}
    for process in asking:
        process.join()
    assert len(answers) == 1  # whoever got an answer got the same one
    assert (spent(one), one.version()) == (1, 1)
    dying = forked(die, policy, COUNT, "2")
    dying.start()
    dying.join()
    assert dying.exitcode == 9
    with pytest.raises(Held) as held:
        one.ask(COUNT, epsilon=1)
    assert spent(one) == 3
    for wrong in (held.value.position - 1, held.value.position + 1, 10**6):
        with pytest.raises(BadParameter, check=named("receipt")):
            one.clear_hold(wrong)
    one.clear_hold(held.value.position)
    assert one.ask(COUNT, epsilon=1).is_replay


def test_R1_a_forked_child_is_told_so(opened: Open) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)
    child = os.fork()
    if not child:
        try:
            dataset.ask(COUNT, epsilon=1)
        except SessionOver:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert spent(dataset) == 1


def test_an_answer_with_the_first_form_of_max_comes_again_for_nothing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made with equal slopes, and its note is about the rank that was aimed at then."""
    dataset, sql = opened(), "SELECT MAX(stay) AS top FROM visits"
    with monkeypatch.context() as older:
        older.setattr("lapwing.sql.planning.divide_budget", partial(divide_budget, steepness=1))
        first = dataset.ask(sql, epsilon=1)
    again = dataset.ask(sql, epsilon=1)
    assert again.is_replay
    assert again.receipt == first.receipt
    assert again.columns[0].values.tolist() == first.columns[0].values.tolist()
    assert again.columns[0].note == first.columns[0].note
    fresh = dataset.plan(sql, epsilon=1).release(fresh=True)
    assert not fresh.is_replay
    assert fresh.columns[0].note != first.columns[0].note
    assert dataset.ask(sql, epsilon=1).columns[0].note == fresh.columns[0].note
