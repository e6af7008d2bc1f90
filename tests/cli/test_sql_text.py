"""SQL from the command line, a file or standard input, for `plan`, `ask` and `audit query`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from lapwing.cli.sql_text import read_sql
from lapwing.errors import BadParameter
from support.shell import Shell

COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def policy(shell: Shell, tmp_path: Path) -> Path:
    shell.good("example", tmp_path)
    return tmp_path / "visits.toml"


def type_in(content: bytes, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))


def test_three_ways_to_ask_are_one_question(
    shell: Shell, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "query.sql"
    file.write_text(f"-- how many\n{COUNT};\n", encoding="utf-8-sig")
    paid = shell.good("ask", policy, "--file", file, "--epsilon", "0.1", "--json").json
    assert not paid["replayed"]
    again = shell.good("ask", policy, COUNT, "--epsilon", "0.1", "--json").json
    type_in(COUNT.encode(), monkeypatch)
    piped = shell.good("ask", policy, "-", "--epsilon", "0.1", "--json").json
    type_in(COUNT.encode(), monkeypatch)
    named = shell.good("ask", policy, "-f", "-", "--epsilon", "0.1", "--json").json
    for one in (again, piped, named):
        assert one["replayed"]
        assert one["columns"] == paid["columns"]


def test_plan_and_audit_query_take_them_too(
    shell: Shell, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "query.sql"
    file.write_text(COUNT)
    assert shell.good("plan", policy, "-f", file, "--epsilon", "1", "--json").json["sql"] == COUNT
    type_in(COUNT.encode(), monkeypatch)
    assert shell.good("plan", policy, "-", "--epsilon", "1", "--json").json["sql"] == COUNT
    for command in (["audit", "query", policy], ["audit", "query", policy, COUNT, "--file", file]):
        done = shell(*command, "--exact-only")
        assert done.code == 2
        assert "--file" in done.error or "both given" in done.error


def test_letters_beyond_ascii_are_utf8_whatever_the_terminal_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT COUNT(*) AS größe FROM visits"
    type_in(sql.encode(), monkeypatch)
    assert read_sql("-", None) == sql
    file = tmp_path / "query.sql"
    file.write_text(sql, encoding="utf-8")
    assert read_sql(None, file) == sql


CONTENTS = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t\n", "is empty"),
    "latin": ("größe".encode("latin-1"), "is not UTF-8"),
    "large": (b"SELECT 1 " * 60_000, "is too large"),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_content_that_is_no_query_is_refused_before_the_policy_is_read(
    kind: str, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, why = CONTENTS[kind]
    file = tmp_path / "query.sql"
    file.write_bytes(content)
    nowhere = tmp_path / "none.toml"  # opening it would be another error
    for command in ("plan", "ask"):
        done = shell(command, nowhere, "--file", file, "--epsilon", "1")
        assert (done.code, done.out) == (2, "")
        assert f"{file} {why}" in done.error
    type_in(content, monkeypatch)
    with pytest.raises(BadParameter, match=f"standard input {why}"):
        read_sql("-", None)


def test_neither_both_and_a_missing_file_are_refused(shell: Shell, tmp_path: Path) -> None:
    nowhere = tmp_path / "none.toml"
    for command in (["plan"], ["ask"], ["audit", "query"]):
        assert "is missing. Write it after the policy" in shell(*command, nowhere).error
        assert "are both given" in shell(*command, nowhere, COUNT, "--file", "query.sql").error
        assert "cannot be read (No such file" in shell(*command, nowhere, "-f", tmp_path / "none.sql").error
        assert "cannot be read (Is a directory" in shell(*command, nowhere, "-f", tmp_path).error


def test_a_standard_input_that_is_closed_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadParameter, match="standard input is empty"):
        read_sql("-", None)
