"""What the guides of analysts and stewards and the page of addresses show in code runs against a server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lapwing.cli import main
from lapwing.examples.visits import write_visits
from lapwing.server.people.person import Role
from lapwing.sql.policy.policy_file import load_policy
from support.door_process import new_token, running
from support.served import write_data

DOCS = Path(__file__).parents[2] / "docs"
ANALYST, STEWARD = DOCS / "guides" / "serve-analyst.md", DOCS / "guides" / "serve-steward.md"
PUBLIC = "https://privacy.example.org"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a server, and a token."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPWING_STATE", str(folder / "state"))
        write_data(folder)
        token = new_token(folder, "ann", Role.ANALYST)
        patch.setenv("LAPWING_TOKEN", token)
        with running(folder) as started:
            yield started.address, token


@pytest.mark.parametrize("page", [ANALYST, DOCS / "reference" / "http.md"], ids=lambda page: page.name)
def test_code_of_the_page_runs(page: Path, served: tuple[str, str]) -> None:
    address, token = served
    [code] = blocks(page, "py")
    assert PUBLIC in code
    exec(
        compile(code.replace(PUBLIC, address), "example", "exec"), {"__name__": "__main__", "TOKEN": token}
    )


def test_quotas_of_the_guide_are_a_part_of_a_policy(tmp_path: Path) -> None:
    write_visits(tmp_path)
    [quotas] = blocks(STEWARD, "toml")
    policy = tmp_path / "visits.toml"
    policy.write_text(policy.read_text() + "\n" + quotas)
    assert {"ann", "ben"} <= load_policy(policy).quotas.keys()


def test_the_command_that_serves_is_understood() -> None:
    [line] = "".join(blocks(STEWARD, "sh")).splitlines()
    program, command, *arguments = shlex.split(line)
    assert (program, command) == ("lapwing", "serve")
    group: Any = typer.main.get_command(main.app)
    group.commands["serve"].make_context("serve", arguments)
