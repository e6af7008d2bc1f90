"""`lapwing init`: a draft that is no policy leaves the folder as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.shell import Shell

FACTS = ("--unit", "who", "--rows-per-unit", "5", "--delta", "1e-7", "--column", "city=Oslo,Bergen")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.csv").write_text("who,city\n1,Oslo\n2,Bergen\n")
    return tmp_path


def test_a_refused_number_can_be_corrected_without_force(shell: Shell, folder: Path) -> None:
    done = shell("init", "orders.csv", *FACTS, "--epsilon", "-1")
    assert (done.code, "budget.epsilon: must be above 0" in done.error) == (2, True)
    assert [path.name for path in folder.iterdir()] == ["orders.csv"]
    assert "is ready" in shell.good("init", "orders.csv", *FACTS, "--epsilon", "1").out


def test_force_keeps_the_earlier_policy_if_the_draft_is_refused(shell: Shell, folder: Path) -> None:
    shell.good("init", "orders.csv", *FACTS, "--epsilon", "1")
    before = (folder / "orders.toml").read_bytes()
    assert shell("init", "orders.csv", *FACTS, "--epsilon", "-1", "--force").code == 2
    assert (folder / "orders.toml").read_bytes() == before


def test_a_question_far_over_budget_says_its_price(shell: Shell, folder: Path) -> None:
    shell.good("init", "orders.csv", *FACTS, "--epsilon", "1")
    done = shell("ask", "orders.toml", "SELECT COUNT(*) FROM orders", "--epsilon", "99", "--json")
    assert done.code == 3
    assert (done.json["error"]["asked"], done.json["error"]["left"]) == ("ε 99", "ε 1 of 1")
    assert 'asked ε 99, but ε 1 of 1 is left on "orders". Ask for ε 1 or less.' in done.error
    assert folder.joinpath("orders.toml").is_file()


def test_a_plan_writes_large_errors_in_full(shell: Shell, folder: Path) -> None:
    (folder / "orders.csv").write_text("who,city,amount\n1,Oslo,3.5\n2,Bergen,4.5\n")
    shell.good("init", "orders.csv", *FACTS, "--column", "amount=0..500/0.01", "--epsilon", "1")
    sql = "SELECT AVG(amount) AS mean FROM orders"
    shown = shell.good("plan", "orders.toml", sql, "--epsilon", "0.25").out
    assert "± 29,960 / n" in shown
    assert "1,000,000" in shown
    assert "e+0" not in shown
    found = shell.good("plan", "orders.toml", sql, "--epsilon", "0.25", "--json").json
    assert found["columns"]["mean"]["formula"] == "29960 / n"


def test_a_word_for_a_type_declares_it_and_leaves_its_bounds_to_be_filled_in(
    shell: Shell, folder: Path
) -> None:
    (folder / "orders.csv").write_text("who,city,Visit Date,amount\n1,Oslo,2026-01-02,3.5\n")
    given = ("--column", "Visit Date=date", "--column", "amount=number", "--epsilon", "1")
    done = shell.good("init", "orders.csv", *FACTS, *given)
    assert "Fill in orders.toml" in done.out
    lines = [line.split("  #")[0].rstrip() for line in (folder / "orders.toml").read_text().splitlines()]
    day = lines.index("[tables.orders.columns.visit_date]")
    assert lines[day + 1 : day + 4] == ['source = "Visit Date"', 'low = "TODO"', 'high = "TODO"']
    assert 'step = "TODO"' in lines
    assert "is still TODO" in shell("plan", "orders.toml", "SELECT COUNT(*) FROM orders").error
    text = (folder / "orders.toml").read_text()
    for old, new in (("low", "2026-01-01"), ("high", "2026-12-31"), ("low", "0.0"), ("high", "9.0")):
        text = text.replace(f'{old} = "TODO"', f"{old} = {new}", 1)
    (folder / "orders.toml").write_text(text.replace('step = "TODO"', "step = 0.1"))
    days = "SELECT COUNT(*) AS n FROM orders WHERE visit_date >= '2026-01-02'"
    shell.good("plan", "orders.toml", days, "--epsilon", "0.5")
