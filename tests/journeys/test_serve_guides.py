"""What the guides on servers say runs against a server in a process of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lapwing.cli import main
from lapwing.server.people.person import Role
from lapwing.server.settings import read_settings
from support.door_process import new_token, running
from support.served import write_data
from support.shell import Shell

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
CLIENT, OPERATIONS = GUIDES / "client.md", GUIDES / "serve-operations.md"
PUBLIC = "https://privacy.example.org"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPWING_STATE", str(folder / "state"))
        write_data(folder)
        patch.setenv("LAPWING_TOKEN", new_token(folder, "ann", Role.ANALYST))
        with running(folder) as started:
            yield started.address


def test_the_examples_of_the_client_run(door: str) -> None:
    found = blocks(CLIENT, "py")
    assert len(found) >= 5
    for code in found:
        assert PUBLIC in code
        exec(compile(code.replace(PUBLIC, door), "example", "exec"), {"__name__": "__main__"})


def test_its_commands_run(door: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(capsys)
    lines = "".join(blocks(CLIENT, "sh")).replace(PUBLIC, door).splitlines()
    assert len(lines) == 2
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "lapwing"
        assert shell(*arguments).code == 0


def test_the_commands_that_serve_are_understood() -> None:
    lines = "".join(blocks(OPERATIONS, "sh")).splitlines()
    assert len(lines) == 3
    group: Any = typer.main.get_command(main.app)
    for line in lines:
        program, command, *arguments = shlex.split(line)
        assert (program, command) == ("lapwing", "serve")
        group.commands["serve"].make_context("serve", arguments)


def test_the_settings_are_understood(tmp_path: Path) -> None:
    [text] = blocks(OPERATIONS, "toml")
    (tmp_path / "server.toml").write_text(text)
    settings = read_settings(tmp_path, behind_tls_proxy=True)
    assert settings.address == PUBLIC
    assert "privacy.example.org" in settings.hosts
