"""The real command, run as a program: exit codes, one-line errors, JSON, plain text without colours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.shell import Shell
from support.slowly import slow

MODULE = [sys.executable, "-m", "lapwing"]
SCRIPT = [str(Path(sys.executable).with_name("lapwing"))]
GOOD = ["explain", "--epsilon", "0.5", "--delta", "1e-6", "--n", "10000"]


def run(
    *arguments: str, command: list[str] = MODULE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
        env=os.environ | environment,
    )


MISSING: list[list[str]] = [
    ["plan", "none.toml", "SELECT COUNT(*) FROM visits", "--epsilon", "1"],
    ["ask", "none.toml", "SELECT COUNT(*) FROM visits", "--epsilon", "1"],
    ["prepare", "none.toml"],
    ["bounds", "none.toml", "visits.cost", "--epsilon", "1", "--step", "1"],
    ["truncated", "none.toml", "visits", "--epsilon", "1"],
    ["check", "none.toml", "--epsilon", "1"],
    ["check", "none.toml", "--curator", "none.curator", "--into-a-file"],
    ["clear-hold", "none.toml", "4"],
    ["budget", "none.ledger"],
    ["history", "none.ledger"],
    ["history", "none.toml"],
    ["init", "none.csv"],
    ["train", "none.toml"],
    ["stream", "append", "none.toml"],
    ["stream", "status", "none.toml"],
    ["ledger", "account", "none.ledger", "a", "--epsilon", "1", "--delta", "0",
     "--unit", "row", "--relation", "replace"],
    ["ledger", "blocks", "none.ledger", "a", "b"],
    ["ledger", "raise", "none.ledger", "a", "--epsilon", "1", "--delta", "0", "--curator", "none.curator"],
    ["ledger", "log", "none.ledger"],
    ["ledger", "verify", "none.ledger"],
    ["ledger", "export", "none.ledger", "statement"],
    ["ledger", "prove", "none.ledger", "1", "proof"],
    ["ledger", "recover", "none.ledger", "--curator", "none.curator"],
    ["survey", "check", "none.toml"],
    ["survey", "plan", "none.toml", "--n", "10"],
    ["survey", "simulate", "none.toml", "--n", "10"],
    ["survey", "estimate", "none.toml"],
    ["survey", "invite", "none.toml", "--count", "1"],
    ["survey", "serve", "none.toml"],
    ["survey", "answer", "none.toml", "--out", "report"],
    ["survey", "collect", "none.toml", "reports"],
    ["survey", "close", "none.toml"],
    ["party", "plan", "none.toml", "--members", "3", "--policy", "none.toml"],
    ["party", "invite", "none.toml", "none.card", "--policy", "none.toml"],
    ["party", "join", "none.consortium", "--me", "none", "--policy", "none.toml", "--yes"],
    ["party", "run", "none.consortium", "--me", "none", "--policy", "none.toml"],
    ["party", "relay", "none.consortium", "--me", "none"],
    ["party", "verify", "none.transcript"],
]  # fmt: skip


def test_a_missing_file_has_one_exit_code(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in MISSING:
        done = shell(*arguments)
        assert (done.code, done.out) == (2, ""), (arguments, done.error)
        assert "none" in done.error or "there is no such file" in done.error, arguments


@pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["module", "script"])
def test_explain_speaks_plainly(command: list[str]) -> None:
    done = run(*GOOD, command=command)
    assert (done.returncode, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())
    assert "that you took part can rise to at most 1.65 : 1, that is from 50 % to at most 62.3 %" in said
    assert "that something is true of you can rise to at most 2.72 : 1" in said
    for words in ("1 in 1,000,000 cases", "± 6", "± 16", "Sensible values"):
        assert words in done.stdout
    assert "\x1b" not in done.stdout
    assert "…" not in done.stdout


def test_output_to_a_file_does_not_depend_on_the_terminal() -> None:
    narrow, wide = run(*GOOD, COLUMNS="20"), run(*GOOD, COLUMNS="300")
    assert narrow.stdout == wide.stdout
    assert all(line == line.rstrip() and len(line) <= 100 for line in wide.stdout.splitlines())


def test_letters_that_a_terminal_lacks_are_no_error() -> None:
    done = run(*GOOD, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "? 0.5, ? 1e-6" in done.stdout


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, "lapwing 0.1.0\n")


def test_json_has_the_same_content(shell: Shell) -> None:
    found = shell.good(*GOOD, "--json").json
    assert list(found) == [
        "epsilon",
        "delta",
        "n",
        "relation",
        "beliefs",
        "delta_means",
        "promised",
        "not_promised",
        "counts",
        "lifetimes",
        "advice",
        "warnings",
    ]
    assert (found["epsilon"], found["delta"], found["n"], found["warnings"]) == (0.5, 1e-6, 10_000, [])
    assert [set(count) for count in found["counts"]] == [
        {"mechanism", "parameter", "size", "within", "share"}
    ] * 2
    assert [count["within"] for count in found["counts"]] == [6, 16]
    assert set(found["lifetimes"][0]) == {"epsilon", "delta", "laplace", "gaussian"}
    part, fact = found["beliefs"]
    assert (part["belief"], fact["belief"]) == ("that you took part", "that something is true of you")
    assert set(part["guesses"][0]) == {"before", "at_least", "at_most"}


def test_a_large_delta_is_a_visible_warning_and_no_error(shell: Shell) -> None:
    arguments = ["explain", "--epsilon", "1", "--delta", "0.01", "--n", "1000"]
    assert "Warning: δ 0.01 is above 1/(10 n), which is 0.0001" in shell.good(*arguments).out
    assert len(shell.good(*arguments, "--json").json["warnings"]) == 1


def test_delta_may_be_left_out(shell: Shell) -> None:
    said = shell.good("explain", "--epsilon", "1", "--n", "1000").out
    assert "without exception" in said
    assert "needs a δ" in said


BAD = [
    ["explain", "--epsilon", "nan", "--n", "10"],
    ["explain", "--epsilon", "inf", "--n", "10"],
    ["explain", "--epsilon", "0", "--n", "10"],
    ["explain", "--epsilon", "-1", "--n", "10"],
    ["explain", "--epsilon", "1e999", "--n", "10"],
    ["explain", "--epsilon", "1e999999999", "--n", "10"],
    ["explain", "--epsilon", "", "--n", "10"],
    ["explain", "--epsilon", "one", "--n", "10"],
    ["explain", "--epsilon", "1", "--n", "0"],
    ["explain", "--epsilon", "1", "--n", "-5"],
    ["explain", "--epsilon", "1", "--n", "1.5"],
    ["explain", "--epsilon", "1", "--n", "9" * 5000],
    ["explain", "--epsilon", "1", "--n", "10", "--delta", "1"],
    ["explain", "--epsilon", "1", "--n", "10", "--delta", "nan"],
    ["explain", "--epsilon", "1"],
    ["explain", "--n", "10"],
    ["explain", "--epsilon", "1", "--n", "10", "--bogus"],
    ["explain", "--epsilon", "1", "--n", "10", "--plot", "picture.bmp"],
    ["explain", "--epsilon", "1", "--n", "10", "--plot", "/nowhere/at/all.svg"],
    ["explain", "--epsilon", "100", "--n", "10", "--plot", "picture.svg"],
    ["demo", "surplus"],
    ["unheard-of"],
]


def words(arguments: list[str]) -> str:
    return " ".join(arguments)[:60]


@pytest.mark.parametrize("arguments", BAD, ids=words)
def test_bad_input_is_answered_in_one_line(shell: Shell, arguments: list[str]) -> None:
    done = shell(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith("lapwing: ")
    assert done.error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [BAD[0], *(slow(bad) for bad in BAD[1:-1]), BAD[-1]],
    ids=words,
)
def test_so_it_is_by_the_program(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("lapwing: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_nothing_asked_shows_the_help() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (2, "")
    assert "explain" in done.stdout
    assert "demo" in done.stdout
    assert run("--help").returncode == 0


def test_the_picture_is_drawn_into_the_file(shell: Shell, tmp_path: Path) -> None:
    picture = tmp_path / "loss.svg"
    assert str(picture) in shell.good(*GOOD, "--plot", picture).out
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    done = run(*GOOD, "--plot", str(tmp_path / "x.svg"), PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'lapwing[plots]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_over_budget_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from lapwing.cli import main  # noqa: PLC0415
    from lapwing.errors import OverBudget  # noqa: PLC0415

    def refuse() -> None:
        raise OverBudget("ε 1", "ε 0.5", "Ask for less.")

    monkeypatch.setattr("lapwing.cli.demo.show_demo", refuse)
    with pytest.raises(SystemExit) as caught:
        main.run(["demo"])
    assert caught.value.code == 3


def test_a_closed_pipe_is_no_traceback() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"'{sys.executable}' -m lapwing demo | head -1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr
