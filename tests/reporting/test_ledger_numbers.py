"""Every number of a report is the ledger's, and follows from a statement alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.ledger import Ledger, Target
from lapwing.ledger.budget_history import overview, overview_json
from lapwing.ledger.publishing import export_statement
from lapwing.ledger.request_log import LoggedRequest, each_request
from lapwing.reporting.ledger_numbers import ledger_numbers
from lapwing.reporting.privacy_report import LEDGER, ReportFact, ReportTable, value_at
from lapwing.reporting.writing import MadeReport
from support.events import eventful
from support.ledgers import Home, open_account, release


def statement(ledger: Ledger, folder: Path) -> bytes:
    path = folder / "statement"
    path.unlink(missing_ok=True)
    export_statement(ledger, path)
    return path.read_bytes()


def test_budgets_are_those_of_the_overview(file_home: Home, tmp_path: Path) -> None:
    ledger = eventful(file_home)
    said = overview_json(overview(ledger))
    roots = [family["parts"][0]["number"] for family in said["accounts"]]
    found = ledger_numbers(statement(ledger, tmp_path), roots, since=None, by_analyst=False)
    for one, family in zip(found["accounts"], said["accounts"], strict=True):
        for name in ("unit", "relation", "slices", "rule", "epsilon", "delta"):
            assert one[name] == family[name], name
        assert [(part["account"], part["epsilon"]) for part in one["parts"]] == [
            (part["number"], part["epsilon"]) for part in family["parts"]
        ]
        lefts = sorted(block["epsilon_left"] for block in family["blocks"])
        assert lefts == [left["epsilon"] for left in one["left"] for _ in range(left["blocks"])]


def test_charges_are_those_of_the_history(file_home: Home, tmp_path: Path) -> None:
    ledger = eventful(file_home)
    asked: list[LoggedRequest] = []
    each_request(ledger, asked.append, words_of=lambda _: None)
    found = ledger_numbers(statement(ledger, tmp_path), [1, 2], since=None, by_analyst=True)
    for one, label in zip(found["accounts"], ("visits", "survey"), strict=True):
        mine = [each for each in asked if label in each.line.accounts]
        assert one["charges"] == len(mine)
        assert one["answered"] == sum(each.state == "answered" for each in mine)
        assert one["failed"] == sum(each.state == "failed" for each in mine)
        assert one["analysts"] == len({each.line.principal for each in mine})
        assert one["sum_of_prices"]["epsilon"] == pytest.approx(
            float(sum(each.price.epsilon or 0 for each in mine))
        )
    assert sum(one["charges"] for one in found["analysts"]) == len(asked)
    kinds = [one["kind"] for one in found["exceptions"]]
    assert kinds == ["data", "account"]  # other people, a raise
    assert "raise of account 2 by ε 0.5" in found["exceptions"][1]["what"]


def test_since_tells_apart_what_came_after(file_home: Home, tmp_path: Path) -> None:
    ledger = file_home.create()
    open_account(ledger)
    first = release(ledger, "0.1", Target("visits")).receipt.position
    release(ledger, "0.2", Target("visits"))
    ledger.raise_budget("visits", epsilon="1", delta=0, curator=file_home.curator)
    release(ledger, "0.25", Target("visits"))
    text = statement(ledger, tmp_path)
    since = ledger_numbers(text, [1], since=first, by_analyst=False)["since"]
    assert since["receipt"] == first
    assert since["accounts"][0]["charges"] == 2
    assert since["accounts"][0]["sum_of_prices"]["epsilon"] == 0.45
    assert [one["kind"] for one in since["exceptions"]] == ["account"]
    for wrong in (1, first + 1, 10_000):  # the beginning, an answer, nothing
        with pytest.raises(BadParameter, match=f"{wrong} is no receipt"):
            ledger_numbers(text, [1], since=wrong, by_analyst=False)
    with pytest.raises(BadParameter, match="no account 7"):
        ledger_numbers(text, [7], since=None, by_analyst=False)


def test_every_value_of_a_ledger_fact_is_at_its_path(made: MadeReport) -> None:
    found: list[ReportFact | ReportTable] = []
    for section in made.report.sections:
        found += [*section.facts, *section.tables]
    values = [one for fact in found if fact.source == LEDGER for one in fact.values.items()]
    paths = {path for path, _ in values}
    assert {"accounts.0.epsilon", "accounts.0.left", "exceptions", "since.receipt"} <= paths
    for path, value in values:
        assert value_at(made.report.ledger, path) == value
