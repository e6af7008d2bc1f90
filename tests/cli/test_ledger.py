"""`lapwing ledger`: what it shows is what the ledger says, and what is asked wrongly changes nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.cli.console import working
from lapwing.ledger.ledger_place import without_password
from lapwing.ledger.request_log import log_lines
from lapwing.ledger.spending import Target
from support.cases import each
from support.events import eventful
from support.ledgers import Home, open_account, open_sliced, release
from support.shell import Shell, at

# From beginning to end


def test_a_ledger_from_init_to_proof(home: Home, shell: Shell, tmp_path: Path) -> None:
    made = shell.good("ledger", "init", *at(home), "--curator", home.curator_path)
    assert f"Move {home.curator_path}" in " ".join(made.out.split())
    for path in (home.keys, home.anchor, home.curator_path):
        assert path.is_file()
        assert str(path) in made.out.replace("\n", "").replace(" ", "")
    terms = ["--epsilon", "1", "--delta", "1e-6", "--unit", "person", "--relation", "add-remove"]
    opened = shell.good(
        "ledger", "account", *at(home), "visits", *terms, "--slices", "units", "--rule", "month"
    )
    assert "ε 1, δ 1e-6 for life" in opened.out
    assert shell.good("ledger", "blocks", *at(home), "visits", "May", "June").out.startswith("2 blocks")
    with home.open() as ledger:
        receipt = release(ledger, "0.25", Target("visits", ["May"])).receipt
    raised = shell.good(
        "ledger",
        "raise",
        *at(home),
        "visits",
        "--epsilon",
        "0.5",
        "--delta",
        "0",
        "--curator",
        home.curator_path,
    )
    assert "ε 1.5, δ 1e-6 for life, that is ε 1, δ 1e-6, then ε 0.5, δ 0" in raised.out
    assert "ε 0.25, by analyst" in shell.good("ledger", "log", *at(home)).out
    key = shell.good("ledger", "verify", *at(home), "--json").json["key"]
    statement, proof = tmp_path / "statement", tmp_path / "proof"
    assert f"--key {key}" in shell.good("ledger", "export", *at(home), statement).out
    checked = shell.good("ledger", "verify", statement, "--key", key)
    assert "Warning" not in checked.out
    assert "raised, so this is the sum of" in checked.out
    assert "Warning: no --key" in shell.good("ledger", "verify", statement).out
    shell.good("ledger", "prove", *at(home), receipt.position, proof)
    proved = shell.good("ledger", "verify", proof, "--key", key, "--json").json
    assert proved["kind"] == "proof"
    assert proved["entry"]["hash"] == receipt.hash
    assert proved["entry"]["request"] == receipt.request


def test_the_places_may_come_from_the_environment(
    file_home: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAPWING_KEYS", str(file_home.keys) + "2")
    monkeypatch.setenv("LAPWING_ANCHOR", str(file_home.anchor) + "2")
    shell.good("ledger", "init", file_home.where)
    assert Path(f"{file_home.keys}2").is_file()
    assert Path(f"{file_home.anchor}2").is_file()
    shell.good("ledger", "verify", file_home.where)


def test_the_real_command_runs(tmp_path: Path) -> None:
    script = str(Path(sys.executable).with_name("lapwing"))
    for arguments in (["init", "x.ledger"], ["verify", "x.ledger"]):
        done = subprocess.run(
            [script, "ledger", *arguments], cwd=tmp_path, capture_output=True, timeout=300, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_who_asks_for_help_does_not_wait_for_the_ledger() -> None:
    code = (
        "import sys, lapwing.cli.main; "
        "sys.exit(any(name in sys.modules for name in ('numpy', 'flint', 'sqlite3', 'lapwing.ledger')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Asked wrongly

UNIT = ["--unit", "row", "--relation", "replace"]
TERMS = ["--epsilon", "1", "--delta", "0", *UNIT]
RAISE = ["--epsilon", "1", "--delta", "0", "--curator"]
BAD = [
    ["account", "LEDGER", "x", "--epsilon", "nan", "--delta", "0", *UNIT],
    ["account", "LEDGER", "x", "--epsilon", "-1", "--delta", "0", *UNIT],
    ["account", "LEDGER", "x", "--epsilon", "1e999999999", "--delta", "0", *UNIT],
    ["account", "LEDGER", "x", "--epsilon", "1", "--delta", "1", *UNIT],
    ["account", "LEDGER", "x", "--epsilon", "1", "--delta", "inf", *UNIT],
    [
        "account",
        "LEDGER",
        "x",
        "--epsilon",
        "1",
        "--delta",
        "0",
        "--unit",
        "mouse",
        "--relation",
        "replace",
    ],
    ["account", "LEDGER", "x", "--epsilon", "1", "--delta", "0", "--unit", "row"],
    ["account", "LEDGER", "x", "--epsilon", "1", "--delta", "0", "--relation", "replace"],
    ["account", "LEDGER", "x", "--epsilon", "1", *UNIT],
    ["account", "LEDGER", "x", *TERMS, "--slices", "units"],
    ["account", "LEDGER", "x", *TERMS, "--slices", "periods", "--rule", "week"],
    ["account", "LEDGER", "x", *TERMS, "--rule", "week"],
    ["account", "LEDGER", "", *TERMS],
    ["account", "LEDGER", "visits", *TERMS],
    ["account", "LEDGER", "\x1b[31m", *TERMS],
    ["blocks", "LEDGER", "visits"],
    ["blocks", "LEDGER", "visits", "new", "b1"],
    ["blocks", "LEDGER", "visits", "new", "new"],
    ["blocks", "LEDGER", "visits", "*"],
    ["blocks", "LEDGER", "survey", "new"],
    ["blocks", "LEDGER", "unheard-of", "new"],
    ["raise", "LEDGER", "visits", "--epsilon", "0", "--delta", "0", "--curator", "CURATOR"],
    ["raise", "LEDGER", "unheard-of", *RAISE, "CURATOR"],
    ["raise", "LEDGER", "visits", *RAISE, "KEYS"],
    ["raise", "LEDGER", "visits", *RAISE[:-1]],
    ["log", "LEDGER", "--last", "0"],
    ["log", "LEDGER", "--last", "-3"],
    ["log", "LEDGER", "--last", "9" * 30],
    ["log", "LEDGER", "--last", "two"],
    ["prove", "LEDGER", "0", "NEW"],
    ["prove", "LEDGER", "9999", "NEW"],
    ["prove", "LEDGER", "9" * 30, "NEW"],
    ["prove", "LEDGER", "2", "LEDGER"],
    ["prove", "LEDGER", "2", "/nowhere/at/all"],
    ["export", "LEDGER", "LEDGER"],
    ["export", "LEDGER", "/nowhere/at/all"],
    ["backup", "LEDGER", "LEDGER"],
    ["verify", "LEDGER", "--key", "abc"],
    ["verify", "NEW"],
    ["verify", "CURATOR"],
    ["recover", "LEDGER", "--curator", "CURATOR"],
    ["init", "LEDGER"],
    ["init", "NEW", "--curator", "CURATOR"],
    ["init", "NEW", "--curator", "/nowhere/at/all"],
    ["init", "NEW", "--keys", "/nowhere/at/all"],
    ["init", "NEW", "--anchor", "/nowhere/at/all"],
    ["init", "NEW", "--anchor", "htp://mistyped"],
    ["unheard-of", "LEDGER"],
]


def _marks(home: Home) -> list[str]:
    return [line for line in home.anchor.read_text("ascii").splitlines() if line.startswith("m")]


@pytest.fixture
def used(file_home: Home) -> Home:
    with file_home.create() as ledger:
        open_sliced(ledger, 3)
        open_account(ledger, "survey")
    return file_home


def _filled(arguments: list[str], home: Home) -> list[str]:
    real = {
        "LEDGER": home.where,
        "NEW": f"{home.where}.new",
        "CURATOR": str(home.curator_path),
        "KEYS": str(home.keys),
    }
    return [real.get(argument, argument) for argument in arguments]


@each("arguments", BAD)
def test_what_is_asked_wrongly_changes_nothing(arguments: list[str], used: Home, shell: Shell) -> None:
    marks, files = _marks(used), set(used.keys.parent.iterdir())
    done = shell("ledger", *_filled(arguments, used))
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith("lapwing: ")
    assert done.error.count("\n") == 1
    assert _marks(used) == marks
    assert set(used.keys.parent.iterdir()) - files <= {Path(f"{used.where}-wal"), Path(f"{used.where}-shm")}


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "NEW"],
        ["log", "/"],
        ["log", "LEDGER", "--keys", "/nowhere/at/all"],
        ["export", "NEW", "NEW"],
        ["backup", "NEW", "NEW"],
        ["backup", "LEDGER", "/nowhere/at/all"],
        ["recover", "NEW", "--curator", "CURATOR"],
        ["raise", "LEDGER", "visits", "--epsilon", "1", "--delta", "0", "--curator", "/nowhere/at/all"],
        ["init", "/nowhere/at/all"],
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_said_in_one_line(arguments: list[str], used: Home, shell: Shell) -> None:
    done = shell("ledger", *_filled(arguments, used))
    assert (done.code in (1, 2), done.out) == (True, "")
    assert done.error.count("\n") == 1


@pytest.mark.parametrize("command", ["log", "verify", "init"])
def test_an_endless_path_is_said_in_one_line(command: str, shell: Shell) -> None:
    done = shell("ledger", command, "a" * 10_000_000)
    assert done.code in (1, 2)
    assert done.error.count("\n") == 1


def test_an_endless_name_is_refused(used: Home, shell: Shell) -> None:
    terms = ["--epsilon", "1", "--delta", "0", "--unit", "row", "--relation", "replace"]
    marks = _marks(used)
    for arguments in (
        ["account", used.where, "a" * 10_000_000, *terms],
        ["blocks", used.where, "visits", "a" * 10_000_000],
    ):
        done = shell("ledger", *arguments)
        assert done.code == 2
        assert len(done.error) < 200
    assert _marks(used) == marks


def test_a_password_is_never_shown(shell: Shell, used: Home) -> None:
    url = "postgresql://me:hush@127.0.0.1:1/none#x"
    for command in ("log", "verify", "init"):
        keys = f"{used.keys}.new" if command == "init" else used.keys
        done = shell("ledger", command, url, "--keys", keys, "--anchor", f"{used.anchor}.new")
        assert done.code == 1
        assert "hush" not in done.out + done.error
    assert "hush" not in without_password(url)


# The history


def test_the_table_shows_everything(home: Home, shell: Shell) -> None:
    eventful(home).close()
    table = shell.good("ledger", "log", *at(home), "--last", "100").out
    for words in ("b0, b1, b2 and 1 more", "by Ana", "held for laplace", 'data "clinic", version 2'):
        assert words in " ".join(table.split())
    assert "Greedy" not in table
    assert all(len(line) <= 100 for line in table.splitlines())


def test_the_newest_are_shown_and_json_has_stable_names(file_home: Home, shell: Shell) -> None:
    ledger = eventful(file_home)
    newest = log_lines(ledger, last=3)
    assert newest == log_lines(ledger, last=1000)[-3:]
    ledger.close()
    found = shell.good("ledger", "log", *at(file_home), "--last", "3", "--json").json
    assert [line["number"] for line in found] == [line.number for line in newest]
    assert list(found[0]) == [
        "number", "time", "kind", "principal", "accounts", "blocks", "block_count", "price", "what",
    ]  # fmt: skip
    assert found[-1]["kind"] == "account"


# Statements, proofs and what is wrong with them


def test_names_are_in_a_statement_only_if_asked_for(home: Home, shell: Shell, tmp_path: Path) -> None:
    eventful(home).close()
    secret, told = tmp_path / "secret", tmp_path / "told"
    shell.good("ledger", "export", *at(home), secret)
    shell.good("ledger", "export", *at(home), told, "--names")
    for statement in (secret, told):
        found = shell.good("ledger", "verify", statement, "--json").json
        assert (found["good"], found["kind"], found["findings"]) == (True, "statement", [])
        assert found["seal"]["size"] == found["entries"]
    names = {
        json.loads(line)["label"] for line in told.read_text().splitlines() if line.startswith('{"name"')
    }
    # Somebody who was only ever refused stands in no entry, so a statement does not tell of them.
    assert names == {
        "Ana", "Ben", "Cem", "visits", "survey", "clinic", "office", "hospital", "town",
        *(f"b{k}" for k in range(6)),
    }  # fmt: skip
    text = secret.read_text()
    assert not any(f'"{name}"' in text for name in names)
    assert "Greedy" not in told.read_text()


def test_names_are_told_after_blocks_moved(file_home: Home, shell: Shell, tmp_path: Path) -> None:
    with file_home.create() as ledger:
        open_sliced(ledger, 3)
        ledger.raise_budget("visits", epsilon=1, delta=0, curator=file_home.curator)
        ledger.open_blocks("visits", ["later"])
        ledger.raise_budget("visits", epsilon=1, delta=0, curator=file_home.curator)
    shell.good("ledger", "export", *at(file_home), tmp_path / "told", "--names")
    shell.good("ledger", "verify", tmp_path / "told")


def test_verify_says_what_differs_each_on_its_own_line(
    file_home: Home, shell: Shell, tmp_path: Path
) -> None:
    eventful(file_home).close()
    statement = tmp_path / "statement"
    shell.good("ledger", "export", *at(file_home), statement)
    statement.write_text(statement.read_text().replace("laplace", "laplacE"))
    done = shell("ledger", "verify", statement)
    assert (done.code, done.out) == (1, "")
    first, *found, last = done.error.splitlines()
    assert first.startswith("lapwing: ")
    assert len(found) > 1
    assert all(line.startswith("  - ") for line in found)
    assert 'docs/guides/ledger.md, section "The anchor does not match: what now"' in last
    as_json = shell("ledger", "verify", statement, "--json")
    assert as_json.code == 1
    assert as_json.json["good"] is False
    assert as_json.json["findings"] == [line[4:] for line in found]


def test_no_changed_byte_of_a_proof_passes(file_home: Home, shell: Shell, tmp_path: Path) -> None:
    eventful(file_home).close()
    proof, changed = tmp_path / "proof", tmp_path / "changed"
    shell.good("ledger", "prove", *at(file_home), 5, proof)
    content = proof.read_bytes().rstrip()
    for place in range(0, len(content), 41):
        changed.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        if json.loads(content) != _or_nothing(changed):
            assert shell("ledger", "verify", changed).code in (1, 2)
    for content in (
        b'{"lapwing":"proof"}',
        b'{"lapwing":"proof",' + b"[" * 100_000,
        b'["lapwing","proof"]',
    ):
        changed.write_bytes(content)
        assert shell("ledger", "verify", changed).code == 1


def _or_nothing(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None


def test_another_key_is_noticed(file_home: Home, shell: Shell, tmp_path: Path) -> None:
    file_home.create().close()
    shell.good("ledger", "export", *at(file_home), tmp_path / "statement")
    shell.good("ledger", "prove", *at(file_home), 1, tmp_path / "proof")
    for what in ([tmp_path / "statement"], [tmp_path / "proof"], at(file_home)):
        done = shell("ledger", "verify", *what, "--key", "ab" * 32)
        assert done.code == 1
        assert "another key than the one that was given" in done.error


def test_an_older_copy_is_noticed_and_recovered(file_home: Home, shell: Shell, tmp_path: Path) -> None:
    home = file_home
    with home.create() as ledger:
        open_account(ledger)
    shutil.copy(home.where, tmp_path / "copy")
    with home.open() as ledger:
        release(ledger, "0.5")
    for leftover in (f"{home.where}-wal", f"{home.where}-shm"):
        Path(leftover).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy", home.where)
    for command in (["log"], ["verify"], ["export"]):
        more = [tmp_path / "never"] if command == ["export"] else []
        done = shell("ledger", *command, home.where, *more, "--keys", home.keys, "--anchor", home.anchor)
        assert done.code == 1
        assert "this is an older copy" in done.error
        assert "what now" in done.error
    assert not (tmp_path / "never").exists()
    found = shell("ledger", "verify", *at(home), "--json")
    assert (found.code, found.json["good"]) == (1, False)
    recovered = shell.good("ledger", "recover", *at(home), "--curator", home.curator_path)
    assert "1 block is closed" in recovered.out
    shell.good("ledger", "verify", *at(home))
    assert "counts as spent" in " ".join(shell.good("ledger", "log", *at(home)).out.split())


def test_an_edited_ledger_is_not_opened(used: Home, shell: Shell) -> None:
    content = Path(used.where).read_bytes()
    Path(used.where).write_bytes(content.replace(b"survey", b"Survey"))
    for command in ("log", "verify"):
        done = shell("ledger", command, used.where)
        assert (done.code, done.out) == (1, "")
        assert "Traceback" not in done.error


def test_an_edited_entry_is_found_by_verifying(used: Home, shell: Shell) -> None:
    """Opening goes on from a signed state, and does not look at entries before it."""
    content = Path(used.where).read_bytes()
    Path(used.where).write_bytes(content.replace(b'"epsilon":"1"', b'"epsilon":"9"'))
    done = shell("ledger", "verify", used.where)
    assert done.code == 1
    assert "entry" in done.out + done.error
    assert "Traceback" not in done.error


def test_bars_are_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with working("long work") as told:
        told(5, 10)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with working("long work") as told:
        told(5, 10)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "long work" in captured.err


def test_a_backup_says_what_it_has_and_can_be_checked(used: Home, shell: Shell, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    said = shell.good("ledger", "backup", *at(used), copy).out
    assert said.startswith(f"{copy}: the ledger up to entry ")
    assert "no backup gives a budget back" in said
    shell.good("ledger", "verify", copy, "--keys", used.keys, "--anchor", used.anchor)
