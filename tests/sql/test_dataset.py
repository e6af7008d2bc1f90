"""Planning is free, releasing is charged, stored answers come again for nothing."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import pytest

import lapwing
from lapwing.engines.engine import EngineFailed
from lapwing.errors import BadParameter, Held, OverBudget, Tampered
from lapwing.sql.dataset import Dataset
from lapwing.sql.question.refusal import Refused
from lapwing.sql.reading import registration
from lapwing.sql.reading.reader import Reader
from sql.conftest import POLICY, write_visits
from support.raised import coded, named
from support.reached import reaching

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"
BY_WARD = "SELECT ward, COUNT(*) AS n, AVG(stay) AS days FROM visits GROUP BY ward"


def spent(dataset: Dataset) -> int:
    """In billionths of ε, on the first block."""
    return dataset.ledger.blocks("visits")[0].spent[1]


def test_an_answer_that_is_known_without_the_data_is_not_sold(opened: Open) -> None:
    dataset = opened()
    with pytest.raises(Refused, match="no row can meet WHERE"):
        dataset.plan("SELECT COUNT(*) AS n FROM visits WHERE ward LIKE 'z%'", epsilon=1)
    assert not dataset.curator.has_ledger


def test_an_answer_has_intervals_a_price_and_a_receipt(opened: Open) -> None:
    answer = opened().ask(BY_WARD, epsilon=5)
    table = answer.to_arrow()
    assert table.column_names == ["ward", "n", "n_low", "n_high", "days", "days_low", "days_high"]
    assert table.column("ward").to_pylist() == ["A", "B"]
    n = table.column("n").to_pylist()
    assert abs(n[0] - 200) < 40
    assert abs(n[1] - 400) < 40
    assert str(answer.cost) == "ε 5"
    assert str(answer.left).startswith("ε 5 of 10")
    assert json.loads(json.dumps(answer.to_json()))["columns"][0]["values"] == ["A", "B"]
    assert answer.to_pandas().shape == answer.to_polars().shape == (2, 7)
    assert "<table>" in answer._repr_html_()


def test_a_plan_is_free_reads_no_rows_and_makes_no_ledger(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    plan = dataset.plan(BY_WARD, epsilon=1)
    assert str(plan.cost) == "ε 1"
    assert plan.spread["n"].half is not None
    assert plan.spread["days"].formula is not None
    assert "truncated table" in plan.statements[0]
    assert "rank <= 2" in plan.statements[0]
    json.dumps(plan.to_json())
    assert "COUNT" not in str(plan)
    assert not list(tmp_path.glob("*.ledger*"))


def test_the_same_question_again_costs_nothing(opened: Open) -> None:
    dataset = opened()
    first = dataset.ask(BY_WARD, epsilon=1)
    before = spent(dataset)
    again = dataset.ask(
        "select ward, count(*) as n,   avg(stay) AS days from visits group by ward", epsilon=1
    )
    assert again.is_replay
    assert again.to_arrow().equals(first.to_arrow())
    assert spent(dataset) == before
    wider = dataset.ask(BY_WARD, epsilon=1, confidence="0.999")
    assert wider.is_replay
    assert wider.to_arrow().column("n_low")[0].as_py() < first.to_arrow().column("n_low")[0].as_py()


def test_another_process_finds_the_stored_answer(opened: Open) -> None:
    first = opened()
    answer = first.ask(COUNT, epsilon=1)
    first.close()
    again = opened(rewrite=False).ask(COUNT, epsilon=1)
    assert again.is_replay
    assert again.to_arrow().equals(answer.to_arrow())


def test_where_answers_are_not_shared_another_analyst_pays_for_themselves(opened: Open) -> None:
    ann, bob = opened(), opened(analyst="bob", rewrite=False)
    for one in (ann, bob):
        one.curator.policy = replace(one.policy, shares_answers=False)
    ann.ask(COUNT, epsilon=1)
    assert not bob.ask(COUNT, epsilon=1).is_replay
    assert spent(bob) == 2 * 10**9


def test_fresh_answers_are_combined_to_a_sharper_one(opened: Open) -> None:
    dataset = opened()
    first = dataset.ask(COUNT, epsilon=1)
    second = dataset.ask(COUNT, epsilon=4)
    assert (first.of, second.of) == (1, 2)
    third = dataset.ask(COUNT, epsilon=4, fresh=True)
    assert third.of == 3
    assert spent(dataset) == 9 * 10**9
    low, high = third.columns[0].low, third.columns[0].high
    assert low is not None
    assert high is not None
    assert low[0] <= 600 <= high[0] or abs(third.columns[0].values[0] - 600) < 20


def test_what_cannot_be_combined_stands_side_by_side(opened: Open) -> None:
    dataset = opened()
    dataset.ask(BY_WARD, epsilon=1)
    second = dataset.ask(BY_WARD, epsilon=2)
    assert second.of == 1
    assert len(second.earlier) == 1
    assert second.earlier[0].is_replay


def test_L12_over_budget_changes_nothing(opened: Open) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=9)
    with pytest.raises(OverBudget):
        opened(analyst="bob", rewrite=False).ask(COUNT, epsilon=2)
    assert spent(dataset) == 9 * 10**9


def test_an_analyst_with_a_quota_sees_what_is_left_of_it(opened: Open) -> None:
    dataset = opened(more="[analysts.ann]\nepsilon = 2\ndelta = 0\n")
    left = dataset.ask(COUNT, epsilon="0.5").left
    assert left.quota is not None
    assert [left.epsilon, left.quota.epsilon] == [Fraction("9.5"), Fraction("1.5")]
    assert [left.of, left.quota.of] == [Fraction(10), Fraction(2)]
    assert left == dataset.left()
    assert str(left) == "ε 1.5 of 2 of the analyst's quota, ε 9.5 of 10 of the data's budget"
    assert str(opened().ask(COUNT, epsilon="0.25").left) == "ε 9.25 of 10"


def test_quotas_are_charged_as_well(opened: Open) -> None:
    more = "[analysts.ann]\nepsilon = 1.0\ndelta = 0.0\n"
    with pytest.raises(OverBudget, match="quota of ann"):
        opened(more=more).ask(COUNT, epsilon=2)
    with pytest.raises(BadParameter, match="no quota"):
        opened(more=more, analyst="eve").ask(COUNT, epsilon="0.1")


def test_a_policy_whose_budget_was_edited_is_refused(opened: Open, tmp_path: Path) -> None:
    opened().ask(COUNT, epsilon=1)
    text = (tmp_path / "visits.toml").read_text()
    (tmp_path / "visits.toml").write_text(text.replace("epsilon = 10.0", "epsilon = 99.0"))
    with pytest.raises(BadParameter, match="has ε 10"):
        opened(rewrite=False).ask(COUNT, epsilon=1)


def test_prepared_and_not_give_the_same_sums(opened: Open) -> None:
    dataset = opened()
    plan = dataset.plan(BY_WARD, epsilon=1)
    with dataset.curator.reading() as reader:
        assert not reader.is_prepared
        slow = reader.exact(plan.question)
    dataset.prepare()
    with dataset.curator.reading() as reader:
        assert reader.is_prepared
        assert (slow[0].values == reader.exact(plan.question)[0].values).all()
    assert slow[0].values[:, 0].tolist() == [200, 400]


def test_a_source_that_changed_must_be_prepared_first(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.prepare()
    dataset.ask(COUNT, epsilon=1)
    write_visits(tmp_path, range(300, 400), "visits_new")
    with pytest.raises(BadParameter, match="changed since the ledger last saw it"):
        dataset.ask(COUNT, epsilon=1)
    dataset.prepare()
    answer = dataset.ask(COUNT, epsilon=1)  # another version: another answer, and another charge
    assert not answer.is_replay
    assert dataset.version() == 2
    assert spent(dataset) == 2 * 10**9


def test_blocks_that_a_condition_reaches_are_charged_alone(opened: Open) -> None:
    dataset = opened(more='[blocks]\nby = "unit"\ncohorts = 4\n')
    plan = dataset.plan("SELECT COUNT(*) AS n FROM visits WHERE cohort < 2", epsilon=1)
    assert plan.blocks == ("0", "1")
    plan.release()
    spent_by = {block.label: block.spent[1] for block in dataset.ledger.blocks("visits")}
    assert spent_by["0"] == spent_by["1"] == 10**9
    assert spent_by["2"] == spent_by["3"] == 0
    with pytest.raises(BadParameter, check=named("WHERE")):
        dataset.ask("SELECT COUNT(*) FROM visits WHERE cohort < 2 AND cohort > 2", epsilon=1)


def test_rows_sliced_by_month(opened: Open, tmp_path: Path) -> None:
    opened()
    more = '[blocks]\nby = "row"\ncolumn = "admitted"\nevery = "month"\n'
    text = POLICY.format(more=more).replace(
        'name = "visits"', 'name = "visits"\nprotects = "person-period"'
    )
    (tmp_path / "visits.toml").write_text(text)
    dataset = opened(rewrite=False)
    plan = dataset.plan("SELECT COUNT(*) AS n FROM visits WHERE admitted < DATE '2025-03-01'", epsilon=5)
    assert plan.blocks == ("2025-01", "2025-02")
    assert abs(plan.release().columns[0].values[0] - 2 * 59) < 20


def test_accuracy_first_and_two_stages(opened: Open) -> None:
    dataset = opened()
    plan = dataset.plan(COUNT, within=20, confidence="0.95")
    assert 0 < plan.cost.epsilon < 1
    assert plan.spread["n"].half is not None
    assert plan.spread["n"].half <= 20
    with pytest.raises(BadParameter, match="number of rows"):
        dataset.plan("SELECT AVG(stay) FROM visits", within=1)
    second, _ = dataset.two_stage(
        "SELECT ward, AVG(stay) AS d FROM visits GROUP BY ward", within=1, first=1
    )
    assert second.spread["d"].half is not None
    assert second.spread["d"].half <= 1


def test_bounds_and_dropped_rows_can_be_bought(opened: Open) -> None:
    dataset = opened()
    low, high, answer = dataset.search_bounds("visits", "stay", epsilon=2, step=1)
    assert low <= 0  # in one of 2,000 cases noise is taken for rows, and the bounds are wider
    assert high >= 16
    assert str(answer.cost) == "ε 2"
    more = dataset.truncated("visits", epsilon=5)
    assert abs(more.columns[0].values[0] - 300) < 20
    assert spent(dataset) == 7 * 10**9


def test_a_plan_shows_how_many_have_more_rows_once_that_was_bought(opened: Open) -> None:
    dataset = opened()
    assert "`lapwing truncated " in dataset.plan("SELECT COUNT(*) FROM visits", epsilon=1).bounds[0]
    people = dataset.truncated("visits", epsilon=5).columns[0].values[0]
    shown = dataset.plan("SELECT AVG(stay) FROM visits", epsilon=1).bounds[0]
    assert f"About {people:,.0f} people" in shown
    lowered = dataset.plan("SELECT COUNT(*) FROM visits", epsilon=1, rows=1).bounds[0]
    assert "`lapwing truncated " in lowered  # it is about other rows
    assert spent(dataset) == 5 * 10**9


def test_a_held_question_about_rows_keeps_no_plan_from_view(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened()
    dataset.ask("SELECT COUNT(*) FROM visits", epsilon="0.1")
    with monkeypatch.context() as broken:
        broken.setattr("lapwing.sql.releasing.add_noise", lambda *_, **__: 1 / 0)
        with pytest.raises(Held):
            dataset.truncated("visits", epsilon=1)
    assert "`lapwing truncated " in dataset.plan("SELECT AVG(stay) FROM visits", epsilon=1).bounds[0]


def test_a_dry_run_is_made_of_nothing_private(opened: Open, tmp_path: Path) -> None:
    answer = opened().plan("SELECT name, COUNT(*) AS n FROM visits GROUP BY name", epsilon=1).dry_run()
    assert answer.is_fake
    assert "secret" not in str(answer)
    assert not list(tmp_path.glob("*.ledger*"))


def test_undeclared_keys_come_only_with_enough_people(opened: Open) -> None:
    """Q1, S11: every name is of one person."""
    answer = opened().ask("SELECT name, COUNT(*) AS n FROM visits GROUP BY name", epsilon=1)
    assert len(answer) == 0
    assert "secret" not in str(answer)


def test_ibis_expressions_are_questions(opened: Open) -> None:
    visits = ibis.table({"patient_id": "int64", "ward": "string", "stay": "int64"}, name="visits")
    expression = visits.group_by("ward").aggregate(n=visits.count())
    answer = opened().ask(expression, epsilon=5)
    assert answer.to_arrow().column_names[:2] == ["ward", "n"]
    with pytest.raises(BadParameter, match="must be SQL"):
        opened(rewrite=False).plan(42, epsilon=1)


def test_lapwing_open_is_the_way_in(opened: Open, tmp_path: Path) -> None:
    opened()
    with lapwing.open(tmp_path / "visits.toml", analyst="ann") as dataset:
        assert len(dataset.ask(COUNT, epsilon=1)) == 1


@pytest.mark.parametrize(
    "options",
    [{}, {"epsilon": 1, "within": 5}, {"epsilon": "NaN"}, {"epsilon": -1}, {"epsilon": 0},
     {"epsilon": 1e-320}, {"epsilon": "1e999"}, {"epsilon": "inf"},
     {"epsilon": 1, "delta": 2}, {"epsilon": 1, "rows": 0},
     {"epsilon": 1, "rows": True},
     {"epsilon": 1, "confidence": 1}, {"epsilon": 1, "noise": "none"}, {"within": -1}],
)  # fmt: skip
# Case H2.
def test_N9_bad_wishes_are_refused_before_anything_is_made(
    opened: Open, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(BadParameter):
        opened().ask(COUNT, **options)
    assert not list(tmp_path.glob("*.ledger*"))


def test_X7_a_failing_engine_gives_one_reply_stays_charged_and_is_held(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)

    def fail(*_: object) -> None:
        raise EngineFailed

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "exact", fail)
        with pytest.raises(Held, check=coded("held")) as failed:
            dataset.ask(BY_WARD, epsilon=1)
    assert spent(dataset) == 2 * 10**9
    for fresh in (False, True):
        with pytest.raises(Held):
            dataset.ask(BY_WARD, epsilon=3, fresh=fresh)
    assert spent(dataset) == 2 * 10**9
    registration.clear_holds(dataset.policy, failed.value.position)
    assert len(dataset.ask(BY_WARD, epsilon=1)) == 2
    assert spent(dataset) == 3 * 10**9


def test_S6_what_reaches_the_mechanisms_is_the_bounded_table(opened: Open) -> None:
    dataset = opened()
    with reaching() as reached:
        dataset.ask(COUNT, epsilon=1)
    assert [one.values for one in reached] == [[600]]  # of 900 rows


def test_L13_an_answer_that_was_edited_is_noticed(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)
    store = dataset.ledger.store
    store._writer.execute("DROP TRIGGER answers_update")  # type: ignore[attr-defined]
    store._writer.execute("UPDATE answers SET bytes = CAST('{}' AS BLOB)")  # type: ignore[attr-defined]
    with pytest.raises(Tampered, match="answer"):
        dataset.ask(COUNT, epsilon=1)


def test_answers_plot_themselves(opened: Open, tmp_path: Path) -> None:
    answer = opened().ask(BY_WARD, epsilon=1)
    answer.plot(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    with pytest.raises(BadParameter):
        opened(rewrite=False).plan("SELECT MEDIAN(stay) FROM visits", epsilon=1).release().plot()


def test_stored_answers_hold_only_what_was_released(opened: Open) -> None:
    dataset = opened()
    dataset.ask("SELECT name, COUNT(*) AS n FROM visits GROUP BY name", epsilon=1)
    rows = dataset.ledger.store.read(lambda tx: tx.rows("SELECT bytes FROM answers"))
    assert all(b"secret" not in bytes(row[0]) for row in rows)


def test_ask_spells_the_options_of_plan() -> None:
    """With the same defaults, and in the same order."""
    planned, asked, staged = (
        inspect.signature(method).parameters for method in (Dataset.plan, Dataset.ask, Dataset.two_stage)
    )
    assert [*planned.values()] == [*asked.values()][:-1]
    assert all(asked[name].kind is inspect.Parameter.KEYWORD_ONLY for name in [*asked][2:])
    assert [*asked][-1] == "fresh"
    shared = [name for name in staged if name in planned and name != "within"]
    assert all(staged[name] == planned[name] for name in shared)
