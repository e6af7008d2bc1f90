"""`lapwing example`, `plan`, `ask`, `prepare`, `bounds`, `truncated`, `clear-hold`: as users type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.sql.reading.reader import Reader
from support.shell import Shell

BY_WARD = "SELECT ward, COUNT(*) AS n, AVG(stay) AS days FROM visits GROUP BY ward"
COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def policy(shell: Shell, tmp_path: Path) -> Path:
    assert shell("example", tmp_path).code == 0
    return tmp_path / "visits.toml"


def test_the_example_can_be_asked_at_once(shell: Shell, policy: Path) -> None:
    done = shell("ask", policy, BY_WARD, "--epsilon", "0.5")
    assert done.code == 0
    assert "emergency" in done.out
    assert "charged ε 0.5" in done.out
    assert "Budget left: ε 2.5 of 3" in done.out
    assert "lapwing: A prepared copy of the data was made first, in visits.prepared" in done.error
    again = shell("ask", policy, BY_WARD, "--epsilon", "0.5")
    assert "nothing was charged" in again.out


def test_the_example_is_not_written_over_anything(shell: Shell, policy: Path) -> None:
    times = [path.stat().st_mtime_ns for path in sorted(policy.parent.glob("*.parquet"))]
    assert "left as it was" in shell.good("example", policy.parent).out
    assert times == [path.stat().st_mtime_ns for path in sorted(policy.parent.glob("*.parquet"))]
    policy.write_text(policy.read_text() + "# mine\n")
    done = shell("example", policy.parent)
    assert done.code == 2
    assert "nothing is written over" in done.error


def test_where_the_example_cannot_be_written_it_says_so(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "letter").touch()
    done = shell("example", tmp_path / "letter" / "below")
    assert done.code == 2
    assert "cannot be written" in done.error


def test_what_is_left_is_of_the_budget_that_is_open(shell: Shell, policy: Path) -> None:
    assert shell("ask", policy, COUNT, "--epsilon", "3").code == 0
    ledger = policy.with_name("lapwing.ledger")
    curator = policy.with_name("lapwing.ledger.curator")
    more = ("--epsilon", "1", "--delta", "1e-9", "--curator", curator)
    assert shell("ledger", "raise", ledger, "visits", *more).code == 0
    assert "Budget left: ε 0.5 of 1" in shell("ask", policy, BY_WARD, "--epsilon", "0.5").out


def test_prepared_answers_say_nothing_of_slowness(shell: Shell, policy: Path) -> None:
    assert "version 1" in shell("prepare", policy).out
    done = shell("ask", policy, COUNT, "--epsilon", "0.1", "--json")
    assert done.code == 0
    assert done.json["notes"] == []
    assert done.json["columns"][0]["low"] < done.json["columns"][0]["values"]
    assert done.json["receipt"]["mechanism"] == "private SQL"


def test_a_plan_shows_price_error_mechanisms_and_sql(shell: Shell, policy: Path) -> None:
    done = shell("plan", policy, BY_WARD, "--epsilon", "0.5")
    assert done.code == 0
    for text in ("Would cost ε 0.5", "±", "Laplace noise", "rows of each person", "SELECT", "GROUP BY"):
        assert text in done.out
    found = shell("plan", policy, COUNT, "--within", "50", "--json").json
    assert found["columns"]["n"]["half"] <= 50
    assert "least for" in found["why"]
    assert not list(policy.parent.glob("*.ledger*"))


def test_undeclared_keys_say_from_how_many_people_on_they_are_shown(shell: Shell, policy: Path) -> None:
    done = shell("plan", policy, "SELECT diagnosis, COUNT(*) FROM visits GROUP BY 1", "--epsilon", "1")
    assert "partition selection" in done.out
    assert "people is" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT * FROM visits", "*"),
        ("SELECT COUNT(*) FROM visit", 'Did you mean "visits"?'),
        ("SELECT COUNT(*) FROM visits WHERE ward = 'x'", "not a declared value"),
        ("DROP TABLE visits", "only SELECT"),
        ("SELECT COUNT(*) FROM visits; SELECT 1", "several statements"),
    ],
)
def test_refused_sql_exits_with_2_and_says_what_to_write(
    shell: Shell, policy: Path, sql: str, says: str
) -> None:
    done = shell("ask", policy, sql, "--epsilon", "1")
    assert done.code == 2
    assert says in done.error
    assert not list(policy.parent.glob("*.ledger*"))


def test_the_price_may_stand_in_the_sql(shell: Shell, policy: Path) -> None:
    priced = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) {COUNT.removeprefix('SELECT ')}"
    assert "Would cost ε 0.5" in shell("plan", policy, priced).out
    assert shell("ask", policy, priced, "--json").json["price"]["epsilon"] == 0.5
    both = shell("plan", policy, priced, "--epsilon", "1")
    assert both.code == 2
    assert "stands in the SQL" in both.error


def test_over_budget_exits_with_3(shell: Shell, policy: Path) -> None:
    done = shell("ask", policy, COUNT, "--epsilon", "4")
    assert done.code == 3
    assert "ε 3" in done.error


def test_mistakes_in_a_policy_are_listed_line_by_line(shell: Shell, policy: Path) -> None:
    policy.write_text(
        policy.read_text().replace("high = 60", "hihg = 60").replace("public = true", "public = 7")
    )
    done = shell("plan", policy, COUNT, "--epsilon", "1")
    assert done.code == 2
    assert 'Did you mean "high"?' in done.error
    assert len([line for line in done.error.splitlines() if "visits.toml:" in line]) >= 2


def test_two_stages_show_both_prices(shell: Shell, policy: Path) -> None:
    sql = "SELECT ward, AVG(stay) AS days FROM visits GROUP BY ward"
    done = shell("ask", policy, sql, "--within", "3", "--two-stage")
    assert done.code == 0
    assert done.out.count("charged ε") == 2
    assert shell("ask", policy, sql, "--epsilon", "1", "--two-stage").code == 2


def test_a_dry_run_buys_nothing_in_two_stages_either(shell: Shell, policy: Path) -> None:
    sql = "SELECT ward, AVG(stay) AS days FROM visits GROUP BY ward"
    for more in (["--dry-run"], ["--n", "100"], ["--epsilon", "1"]):
        done = shell("ask", policy, sql, "--within", "3", "--two-stage", *more)
        assert done.code == 2
        assert "two-stage" in done.error
    assert not list(policy.parent.glob("*.ledger*"))


def test_what_was_paid_for_is_shown_also_if_it_cannot_be_drawn(shell: Shell, policy: Path) -> None:
    picture = policy.parent / "a.png"
    done = shell("ask", policy, "SELECT MEDIAN(stay) AS m FROM visits", "--epsilon", "1", "--plot", picture)
    assert done.code == 2
    assert "charged ε 1" in done.out
    assert "no number with an interval" in done.error


def test_only_receipts_of_failed_questions_are_cleared(shell: Shell, policy: Path) -> None:
    assert shell("clear-hold", policy, "4").code == 2
    assert not list(policy.parent.glob("*.ledger*"))
    shell("ask", policy, COUNT, "--epsilon", "0.1")
    for receipt in ("1", "5", "99"):
        assert shell("clear-hold", policy, receipt).code == 2


def test_old_names_of_commands_still_work_and_tell_the_new_ones(shell: Shell, policy: Path) -> None:
    for old, new, more in (
        ("looked", "clear-hold", ["4"]),
        ("dropped", "truncated", ["visits", "--epsilon", "0.5"]),
    ):
        done = shell(old, policy, *more)
        assert done.error.count(f"lapwing: this command is called {new} now\n") == 1
        assert done.code == (2 if old == "looked" else 0)
        assert old not in shell("--help").out
        assert new in shell("--help").out


def test_bounds_and_truncated(shell: Shell, policy: Path) -> None:
    done = shell("bounds", policy, "visits.cost", "--epsilon", "0.5", "--step", "1")
    assert done.code == 0
    assert float(done.out.split("high = ")[1].split()[0]) >= 4096
    assert shell("bounds", policy, "cost", "--epsilon", "0.5", "--step", "1").code == 2
    more = shell("truncated", policy, "visits", "--epsilon", "0.5", "--json")
    assert more.json["columns"][0]["name"] == "people_with_more_rows"


def test_every_answer_says_how_many_rows_of_a_person_it_uses_and_what_is_left_out(
    shell: Shell, policy: Path
) -> None:
    done = shell("ask", policy, COUNT, "--epsilon", "0.1")
    told = " ".join(done.out.split())
    assert 'Uses at most 5 rows of each person in "visits". What that leaves out can be bought: `' in told
    assert "--beyond 100 --epsilon …`" in told
    found = shell("bounds", policy, "visits.cost", "--epsilon", "0.5", "--step", "1")
    assert "Uses at most 5 rows of each person" in found.out
    more = shell("truncated", policy, "visits", "--epsilon", "0.5", "--beyond", "100", "--json")
    assert [one["name"] for one in more.json["columns"]][:2] == ["rows_left_out", "rows_that_count"]
    again = shell("ask", policy, COUNT, "--epsilon", "0.1", "--json")
    assert again.json["replayed"]
    left = more.json["columns"][0]["values"][0]
    receipt = more.json["receipt"]["position"]
    assert f"about {left:,} rows (" in again.json["truncation"][0]
    assert f"(receipt {receipt})" in again.json["truncation"][0]
    assert shell("truncated", policy, "visits", "--epsilon", "0.5", "--beyond", "7").code == 2


def test_dry_runs_pictures_and_fresh_answers(shell: Shell, policy: Path) -> None:
    done = shell("ask", policy, BY_WARD, "--epsilon", "1", "--dry-run")
    assert "nothing was read or charged" in done.out
    assert not list(policy.parent.glob("*.ledger*"))
    picture = policy.parent / "a.png"
    assert shell("ask", policy, BY_WARD, "--epsilon", "0.1", "--plot", picture).code == 0
    assert picture.stat().st_size > 5_000
    assert shell("ask", policy, BY_WARD, "--epsilon", "0.1", "--plot", "a.doc").code == 2
    shell("ask", policy, COUNT, "--epsilon", "0.1")
    assert "narrowest of 2 releases" in shell("ask", policy, COUNT, "--epsilon", "0.1", "--fresh").out


def test_a_failed_question_waits_for_the_curator(
    shell: Shell, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("patient 17 has a secret")

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "exact", fail)
        failed = shell("ask", policy, COUNT, "--epsilon", "0.1")
    assert failed.code == 1
    assert "could not be answered (receipt" in failed.error
    assert "secret" not in failed.error + failed.out
    assert shell("ask", policy, COUNT, "--epsilon", "0.1").code == 1
    receipt = failed.error.split("receipt ")[1].split(")")[0]
    assert shell("clear-hold", policy, receipt).code == 0
    assert shell("ask", policy, COUNT, "--epsilon", "0.1").code == 0


def test_prepare_says_that_untouched_files_stay(shell: Shell, policy: Path) -> None:
    assert "is prepared: version 1" in shell("prepare", policy).out
    done = shell("prepare", policy)
    assert done.code == 0
    assert "Nobody has written to its files since version 1" in done.out
    assert "--again" in done.out
    assert "version 2" in shell("prepare", policy, "--again").out
