"""Every route, page and command is in the documentation. (Settings: tests/server/test_settings.py.)"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from starlette.routing import Route

from lapwing.cli import main
from lapwing.server.console.frame import menu
from lapwing.server.people.person import Requester, Role
from support.scripts import ROOT, load_script
from support.served import Door, write_data

http_routes = load_script("docs/http_routes.py")
GUIDE = ROOT / "docs" / "guides" / "serve-steward.md"
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _served(routes: Any) -> Iterator[tuple[str, str]]:
    """Yield method and address of all routes of an application, also of routers within."""
    for route in routes:
        if isinstance(route, Route):
            yield from ((method, re.sub(r":\w+}", "}", route.path)) for method in route.methods or ())
        else:
            yield from _served(route.original_router.routes)


def test_the_page_of_addresses_is_that_of_the_routes() -> None:
    assert http_routes.PAGE.read_text(encoding="utf-8") == http_routes.written(), (
        "run `make pictures`: docs/reference/http.md is stale"
    )


def test_every_route_of_a_server_is_on_the_page_with_words(tmp_path: Path) -> None:
    write_data(tmp_path)
    door = Door(tmp_path)
    try:
        served = {row for row in _served(door.app.router.routes) if row[0] != "HEAD"}
    finally:
        door.close()
    page = http_routes.PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| `([^`]+)` \| (.{10,}) \|$", page, re.MULTILINE)
    assert {(method, path) for method, path, _ in rows} == served
    assert len(rows) == len(served)


def test_every_page_of_the_menu_is_in_the_guides() -> None:
    everybody = Requester("ann", {"visits": frozenset(Role)}, "session", "s")
    pages = {item.label for item in menu(everybody, "visits", "")}
    assert len(pages) > 10
    text = GUIDE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w ]+) \| [^|]+ \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    assert set(rows) - {"page"} == pages


def _commands(group: Any, *before: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, *before, name)
        else:
            yield " ".join((*before, name))


def test_every_command_is_in_the_documentation() -> None:
    commands = list(_commands(typer.main.get_command(main.app), "lapwing"))
    assert len(commands) > 60
    text = "\n".join(page.read_text(encoding="utf-8") for page in TEXTS)
    text = re.sub(r"\\\n\s*", "", text)
    missing = [name for name in commands if not re.search(rf"{name}(?![\w-])", text)]
    assert missing == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "guides").glob("*.md")), ids=lambda page: page.stem
)
def test_every_guide_is_in_the_menu_of_the_site(page: Path) -> None:
    assert f"guides/{page.name}" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
