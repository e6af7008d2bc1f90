"""`lapwing history`: what was asked, by whom, when, at which price, and what came of it."""

from __future__ import annotations

import csv
import io
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lapwing.ledger.spending import Target
from lapwing.sql.reading.reader import Reader
from support.events import eventful
from support.ledgers import Home, open_account, release
from support.shell import Shell, at

COUNT = "SELECT COUNT(*) AS n FROM visits"
BY_WARD = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"


@pytest.fixture
def policy(shell: Shell, tmp_path: Path) -> Path:
    assert shell("example", tmp_path).code == 0
    return tmp_path / "visits.toml"


def asked(shell: Shell, where: object, *more: object) -> list[dict[str, Any]]:
    done = shell("history", where, "--json", *more)
    assert done.code == 0, done.error
    found: list[dict[str, Any]] = done.json
    return found


def ask(shell: Shell, policy: Path, sql: str, price: str, analyst: str) -> None:
    assert shell("ask", policy, sql, "--epsilon", price, "--as", analyst).code == 0


def test_questions_with_who_when_price_and_receipt(shell: Shell, policy: Path) -> None:
    ask(shell, policy, BY_WARD, "0.5", "ann")
    ask(shell, policy, BY_WARD.replace("AS visits", "AS n"), "0.5", "bob")  # which is stored
    ask(shell, policy, f"{COUNT} -- all of them", "0.25", "bob")
    for where in (policy, policy.with_name("lapwing.ledger")):
        first, second = asked(shell, where)
        assert (first["analyst"], first["question"], first["epsilon"]) == ("ann", BY_WARD, 0.5)
        assert (second["analyst"], second["question"], second["price"]) == ("bob", COUNT, "ε 0.25")
        assert first["state"] == second["state"] == "answered"
        assert first["time"] < second["time"]
        receipt = shell("ask", policy, BY_WARD, "--epsilon", "0.5", "--json", "--as", "ann").json["receipt"]
        assert first["receipt"] == receipt["position"]
    assert [one["question"] for one in asked(shell, policy, "--last", "1")] == [COUNT]
    shown = shell("history", policy).out
    assert BY_WARD in shown
    assert "ε 0.5, answered" in shown
    totals = asked(shell, policy, "--by", "analyst")
    assert [(one["analyst"], one["requests"], one["epsilon"]) for one in totals] == [
        ("ann", 1, 0.5),
        ("bob", 1, 0.25),
    ]
    assert "Sums of prices" in shell("history", policy, "--by", "analyst").out


def test_everything_that_spends_is_shown(home: Home, shell: Shell) -> None:
    ledger = eventful(home)
    ledger.close()
    done = shell("history", *at(home), "--json")
    assert done.code == 0, done.error
    found = [(one["analyst"], one["state"], one["price"], one["question"]) for one in done.json]
    assert found == [
        ("Ana", "answered", "ε 0.1", None),
        ("Ben", "failed", "ε 0.2", None),
        ("Cem", "reserved", "ρ 0.0002 (zCDP)", None),
    ]
    assert done.json[2]["what"] == "held for laplace"
    totals = shell("history", *at(home), "--by", "analyst", "--json").json
    assert [(one["failed"], one["rho"]) for one in totals] == [(0, 0.0), (1, 0.0), (0, 0.0002)]
    assert "Ben" in shell("history", *at(home)).out


def test_a_ledger_without_requests(home: Home, shell: Shell) -> None:
    home.create().close()
    assert shell("history", *at(home), "--json").json == []
    assert shell("history", *at(home), "--by", "analyst", "--csv").out.startswith("analyst,")
    assert "Nothing was asked yet" in shell("history", *at(home)).out


def test_a_policy_shows_its_own_account_alone(home: Home, shell: Shell, policy: Path) -> None:
    policy.write_text(f'ledger.url = "{home.where}"\nledger.keys = "{home.keys}"\n'
                      f'ledger.anchor = "{home.anchor}"\n{policy.read_text()}')  # fmt: skip
    ledger = home.create()
    open_account(ledger, "others")
    for number in range(5):
        release(ledger, "0.1", Target("others"), key=f"k{number}")
    ledger.close()
    ask(shell, policy, COUNT, "0.25", "bob")
    assert len(asked(shell, policy)) == 1
    assert len(asked(shell, policy, "--last", "3")) == 1
    assert len(shell("history", *at(home), "--json").json) == 6


def test_no_cell_moves_a_cursor_or_is_a_formula(home: Home, shell: Shell) -> None:
    ledger = home.create()
    open_account(ledger)
    hostile = "\x1b[2J\u202eeverything\x9b31m\r\n=cmd"
    release(ledger, "0.1", principal="=HYPERLINK(1)", parameters={"note": hostile})
    ledger.close()
    for more in ([], ["--csv"], ["--json"], ["--by", "analyst"], ["--by", "analyst", "--csv"]):
        out = shell("history", *at(home), *more).out
        assert all(one.isprintable() or one == "\n" for one in out)
    [row] = csv.DictReader(io.StringIO(shell("history", *at(home), "--csv").out))
    assert row["analyst"] == "'=HYPERLINK(1)"
    assert shell("history", *at(home), "--json").json[0]["what"].endswith(f"{hostile})")


def test_one_form_at_a_time(home: Home, shell: Shell) -> None:
    home.create().close()
    done = shell("history", *at(home), "--json", "--csv")
    assert done.code == 2
    assert shell("history", "nowhere.toml").code == 2


def test_a_question_that_failed_is_shown(
    shell: Shell, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Reader, "exact", lambda *_: (_ for _ in ()).throw(RuntimeError))
        assert shell("ask", policy, COUNT, "--epsilon", "0.1").code == 1
    [one] = asked(shell, policy)
    assert (one["state"], one["question"]) == ("failed", COUNT)
    ledger = policy.with_name("lapwing.ledger")
    assert shell("ledger", "verify", ledger).code == 0
    with sqlite3.connect(ledger) as program:
        with pytest.raises(sqlite3.Error, match="only grows"):
            program.execute("UPDATE requests SET key = 'other'")
        program.execute("DROP TRIGGER requests_update")
        program.execute("UPDATE requests SET asked = CAST(replace(asked, 'visits', 'others') AS BLOB)")
        program.execute(
            "CREATE TRIGGER requests_update AFTER UPDATE ON requests "
            "BEGIN SELECT RAISE(ABORT, 'requests only grows'); END"
        )
    done = shell("history", policy)
    assert "not the one that was charged" in done.error
    assert "not what was asked" in shell("ledger", "verify", ledger).error
