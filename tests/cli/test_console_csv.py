"""CSV: plain numbers, ends of intervals as columns, and cells that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from lapwing.cli.console import csv_cell
from support.shell import Done, Shell

BY_WARD = "SELECT ward, COUNT(*) AS n, AVG(stay) AS days FROM visits GROUP BY ward"


@pytest.fixture
def policy(shell: Shell, tmp_path: Path) -> Path:
    shell.good("example", tmp_path)
    return tmp_path / "visits.toml"


def rows(done: Done) -> list[list[str]]:
    return list(csv.reader(io.StringIO(done.out)))


def test_an_answer_has_its_intervals_as_columns_and_the_numbers_of_the_json(
    shell: Shell, policy: Path
) -> None:
    done = shell("ask", policy, BY_WARD, "--epsilon", "0.5", "--csv")
    names, *cells = rows(done)
    assert names == ["ward", "n", "n_low", "n_high", "days", "days_low", "days_high"]
    ward, n, days = shell.good("ask", policy, BY_WARD, "--epsilon", "0.5", "--json").json["columns"]
    wanted = zip(
        ward["values"], *(column[end] for column in (n, days) for end in ("values", "low", "high")),
        strict=True,
    )  # fmt: skip
    assert [[one[0], *map(float, one[1:])] for one in cells] == [list(one) for one in wanted]
    assert [int(one[1]) for one in cells] == n["values"]  # whole numbers, without separators
    for words in ("charged ε 0.5", "Uses at most 5 rows", "Budget left: ε 2.5", "Receipt: "):
        assert words in done.error
        assert words not in done.out


def test_all_rows_are_written(shell: Shell, policy: Path) -> None:
    done = shell("ask", policy, "SELECT admitted, COUNT(*) AS n FROM visits GROUP BY 1", "--epsilon", "0.1",
                 "--csv")  # fmt: skip
    names, *cells = rows(done)
    assert names == ["admitted", "n", "n_low", "n_high"]
    assert sorted(one[0] for one in cells)[::729] == ["2025-01-01", "2026-12-31"]


def test_a_name_that_is_a_formula_is_made_harmless(shell: Shell, policy: Path) -> None:
    sql = 'SELECT COUNT(*) AS "=HYPERLINK(""http://x"")" FROM visits'
    done = shell("ask", policy, sql, "--epsilon", "0.1", "--csv")
    assert done.code == 0
    assert all(name.startswith("'=") for name in rows(done)[0])


def test_a_count_that_was_bought_first_is_told_beside_the_rows(shell: Shell, policy: Path) -> None:
    done = shell(
        "ask", policy, "SELECT AVG(stay) AS days FROM visits", "--within", "1", "--two-stage", "--csv"
    )
    assert [len(one) for one in rows(done)] == [3, 3]
    assert rows(done)[0][0] == "days"
    assert done.error.count("charged ε") == 2


def test_truncated_and_budget_have_it_too(shell: Shell, policy: Path) -> None:
    names, cells = rows(shell("truncated", policy, "visits", "--epsilon", "0.1", "--csv"))
    assert len(names) == len(cells)
    names, *blocks = rows(shell.good("budget", policy, "--csv"))
    found = shell.good("budget", policy, "--json").json["accounts"][0]["blocks"]
    assert [one[1] for one in blocks] == [one["block"] for one in found]
    left = names.index("epsilon_left")
    assert [float(one[left]) for one in blocks] == [one["epsilon_left"] for one in found]


def test_one_form_at_a_time(shell: Shell, tmp_path: Path) -> None:
    nowhere = tmp_path / "none.toml"
    for command in (["ask", nowhere, BY_WARD], ["truncated", nowhere, "visits", "--epsilon", "1"],
                    ["budget", nowhere], ["history", nowhere]):  # fmt: skip
        done = shell(*command, "--csv", "--json")
        assert done.code == 2
        assert "ask for one of them" in done.error


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (1234567, 1234567), (-3, -3), (0.25, 0.25), (1e-6, 1e-6), (None, ""), (float("inf"), ""),
        (float("nan"), ""), (True, "true"), (False, "false"), (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"), (["a", "b"], "a; b"),
        ("plain", "plain"), ("", ""), ("=1+1", "'=1+1"), ("+1", "'+1"), ("-1", "'-1"), ("@x", "'@x"),
        ("\uff1d1", "'\uff1d1"), ("a=1", "a=1"), ("\t=1", "' =1"), (" @x", "' @x"),
        ("\r=1", "\\u000d=1"), ("\x1b[31m", "\\u001b[31m"),
        ("a\nb", "a b"),
    ],
)  # fmt: skip
def test_cells(value: Any, cell: Any) -> None:
    assert csv_cell(value) == cell
    assert type(csv_cell(value)) is type(cell)
