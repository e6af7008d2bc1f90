"""The command line, run in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import typer

from lapwing.cli import main
from support.ledgers import Home

# Which is no complaint
MADE = ("lapwing: New ledger ", "lapwing: New account ", "lapwing: A prepared copy ")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command came to."""

    code: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@cache
def _command() -> Any:
    """Build the tree of commands once. Typer reads the signature of every command at each call."""
    return typer.main.get_command(main.app)


class Shell:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Done:
        self._capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(main, "app", _command())
            with pytest.raises(SystemExit) as caught:
                main.run([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return Done(caught.value.code, captured.out, captured.err)

    def good(self, *arguments: object) -> Done:
        done = self(*arguments)
        told = [line for line in done.error.splitlines() if not line.startswith(MADE)]
        assert (done.code, told) == (0, [])
        return done


def at(home: Home) -> list[object]:
    return [home.where, "--keys", home.keys, "--anchor", home.anchor]
