"""Two paths to one SQLite file would be two write-ahead logs, and so two budgets: only one path opens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lapwing.errors import OverBudget, Unavailable
from lapwing.ledger import Ledger
from support.ledgers import Home, open_account, release

FILES = ("", ".keys", ".anchor")
# Opens the ledger, says so, waits to be told, and spends 0.1 as often as it is let.
SPENDER = """
import sys
from lapwing.errors import OverBudget, Unavailable
from lapwing.ledger import Ledger
from support.ledgers import release
try:
    ledger = Ledger.open(sys.argv[1])
except Unavailable as error:
    print("refused", error, flush=True)
    sys.exit()
print("open", flush=True)
sys.stdin.readline()
spent = 0
try:
    while True:
        release(ledger, "0.1")
        spent += 1
except OverBudget:
    print(spent, flush=True)
ledger.close()
"""


def beside(home: Home, folder: Path, link: Callable[[Path, Path], None]) -> Path:
    """The ledger's files in another folder: the database by `link`, the others copied."""
    folder.mkdir()
    for end in FILES[1:]:
        shutil.copy(f"{home.where}{end}", folder / f"visits.ledger{end}")
    path = folder / "visits.ledger"
    link(Path(home.where), path)
    return path


@contextmanager
def spender(path: Path | str, *before: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has the ledger open by this path, or has said why not."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [*before, sys.executable, "-c", SPENDER, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def said(process: subprocess.Popen[str], told: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if told:
        process.stdin.write(told)
        process.stdin.flush()
    return process.stdout.readline().strip()


def ready(home: Home) -> Home:
    ledger = home.create()
    open_account(ledger)
    ledger.close()
    return home


def test_a_second_name_spends_nothing_of_its_own(file_home: Home, tmp_path: Path) -> None:
    """The reproduction: two processes by two hard links spent ten times 0.1 of ε 1 each."""
    with spender(ready(file_home).where) as first:
        assert said(first) == "open"
        other = beside(file_home, tmp_path / "other", os.link)
        with spender(other) as second:
            assert said(second).startswith("refused")
        assert said(first, "go\n") == "10"


# Case C4.
def test_a_ledger_of_two_names_is_not_opened(file_home: Home, tmp_path: Path) -> None:
    other = beside(ready(file_home), tmp_path / "other", os.link)
    for path in (other, file_home.where):
        with pytest.raises(Unavailable, match="2 names"):
            Ledger.open(path)
    other.unlink()
    file_home.open()


def test_a_ledger_that_was_moved_while_open_is_not_opened_by_its_new_name(
    file_home: Home, tmp_path: Path
) -> None:
    """One name, but another write-ahead log than that of the process which has it open."""
    with spender(ready(file_home).where) as first:
        assert said(first) == "open"
        other = beside(file_home, tmp_path / "other", os.rename)
        with pytest.raises(Unavailable, match="open by another path"):
            Ledger.open(other)
        assert said(first, "go\n") == "10"


def test_a_ledger_whose_lock_file_was_removed_meanwhile_is_not_opened_beside(file_home: Home) -> None:
    ledger = ready(file_home).open()
    Path(f"{file_home.where}.lock").unlink()
    with pytest.raises(Unavailable, match="lock file"):
        file_home.open()
    ledger.close()
    file_home.open()


def can_mount() -> bool:
    try:
        done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False, timeout=10)
    except OSError:
        return False
    return done.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount")
# Case C4.
def test_a_file_that_is_mounted_twice_is_opened_by_one_path(file_home: Home, tmp_path: Path) -> None:
    """A mount has no second name, so the link count says nothing."""
    other = beside(ready(file_home), tmp_path / "other", lambda _, new: new.touch())
    mount = f'mount --bind "{file_home.where}" "{other}" && exec "$@"'
    with spender(file_home.where) as first:
        assert said(first) == "open"
        with spender(other, "unshare", "--mount", "sh", "-c", mount, "sh") as second:
            assert said(second).startswith("refused")
        assert said(first, "go\n") == "10"
    with spender(other, "unshare", "--mount", "sh", "-c", mount, "sh") as alone:
        assert said(alone) == "open"


def test_several_stores_of_a_process_keep_the_locks_of_sqlite(file_home: Home) -> None:
    """Closing one descriptor of a file drops all its locks: who closed last would delete the log."""
    first, second = ready(file_home).open(), file_home.open()
    second.close()
    with spender(file_home.where) as other:
        assert said(other) == "open"
        assert said(other, "go\n") == "10"
        other.wait(20)
    with pytest.raises(OverBudget):
        release(first, "0.1")
    first.close()
    assert file_home.open().verify().findings == ()


def test_a_forked_child_leaves_the_claim_to_its_parent(file_home: Home, tmp_path: Path) -> None:
    ledger = ready(file_home).open()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    other = beside(file_home, tmp_path / "other", os.rename)
    with pytest.raises(Unavailable, match="open by another path"):
        Ledger.open(other)
    ledger.close()
