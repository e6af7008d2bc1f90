"""Help: grouped by kind of user, and shown by -h at every command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from lapwing.cli.main import COMMANDS, app
from support.shell import Shell

USERS = [
    "Curators and analysts",
    "Servers",
    "Survey owners and respondents",
    "Parties",
    "Publishers",
    "Model builders",
    "Privacy officers and auditors",
    "Learn what it means",
]


def commands(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*before, name), command
        if hasattr(command, "commands"):
            yield from commands(command, *before, name)


ALL = list(commands(typer.main.get_command(app)))


def test_the_help_has_a_panel_for_each_kind_of_user_in_this_order(shell: Shell) -> None:
    assert list(COMMANDS) == USERS
    lines = shell.good("--help").out.splitlines()
    places = [next(k for k, line in enumerate(lines) if f"─ {user} ─" in line) for user in USERS]
    assert places == sorted(places)
    assert not any("─ Commands ─" in line for line in lines)


def test_every_command_that_is_shown_is_in_a_panel() -> None:
    for words, command in ALL:
        if len(words) == 1 and not command.hidden:
            assert command.rich_help_panel in USERS, words


@pytest.mark.parametrize("words", [(), *(words for words, _ in ALL)], ids=" ".join)
def test_h_shows_the_help(words: tuple[str, ...], shell: Shell) -> None:
    done = shell(*words, "-h")
    assert (done.code, done.error) == (0, "")
    assert "Usage: " in done.out
