"""Shell completion, as bash asks for it: fast, from the commands alone, and no ledger is opened."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.cli.main import COMMANDS
from support.shell import Shell

SCRIPT = Path(sys.executable).with_name("lapwing")
MODULE = [sys.executable, "-m", "lapwing"]


def completed(words: str, place: int, *, command: list[str] = MODULE, folder: Path) -> list[str]:
    asked = {"_LAPWING_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    done = subprocess.run(
        command, env=os.environ | asked, cwd=folder, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.split()


def test_subcommands_are_completed(tmp_path: Path) -> None:
    assert completed("lapwing ledger ver", 2, folder=tmp_path) == ["verify"]
    assert "--within" in completed("lapwing ask --wi", 2, folder=tmp_path)


def test_all_commands_are_offered_in_the_order_of_the_help_and_old_names_are_not(tmp_path: Path) -> None:
    found = completed("lapwing ", 1, folder=tmp_path)
    wanted = [one for some in COMMANDS.values() for one in some]
    names = [one[0] if isinstance(one, tuple) else one.__name__.replace("_", "-") for one in wanted]
    assert found == names
    assert not {"dropped", "looked"} & set(found)


def test_a_file_is_left_to_the_shell_and_not_opened(tmp_path: Path) -> None:
    (tmp_path / "visits.ledger").write_text("this is no ledger")
    (tmp_path / "visits.toml").write_text("this is no policy")
    for words in ("lapwing budget vis", "lapwing ask vis"):
        assert completed(words, words.count(" "), folder=tmp_path) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_with_the_script_that_the_program_shows(tmp_path: Path) -> None:
    source = subprocess.run(
        [SCRIPT], env=os.environ | {"_LAPWING_COMPLETE": "source_bash"},
        capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip
    asked = f'COMP_WORDS=("{SCRIPT}" his); COMP_CWORD=1; _lapwing_completion "{SCRIPT}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{source}\n{asked}; echo "${{COMPREPLY[@]}}"'],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["history"]


def test_the_help_names_both_options(shell: Shell) -> None:
    shown = shell.good("--help").out
    assert "--install-completion" in shown
    assert "--show-completion" in shown
