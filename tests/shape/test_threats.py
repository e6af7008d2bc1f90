"""The threat model of a server: each row has a test that exists, and no actor or asset is left out."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "arguments" / "threats.md"
ACTORS = {
    *("stranger", "analyst", "stolen token", "steward", "officer", "survey owner", "network"),
    *("holder of the state folder", "reader of logs and metrics", "page of another site"),
    *("provider of sign-in", "worker that crashes"),
}


def _rows(heading: str) -> list[list[str]]:
    """Return the rows of the table under its head."""
    text = PAGE.read_text(encoding="utf-8")
    _, _, table = text.partition(f"{heading}\n|---")
    lines = table.split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@lru_cache(maxsize=64)
def _tests_of(path: Path) -> frozenset[str]:
    """Return the names of the functions of a test file that pytest runs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in found if name.startswith("test_"))


def test_each_row_names_tests_that_exist() -> None:
    rows = _rows("| actor | asset | what protects it | test |")
    assert len(rows) > 40
    for actor, asset, what, cited in rows:
        assert actor
        assert asset
        assert what
        ids = re.findall(r"`([\w/]+\.py)::(\w+)`", cited)
        assert len(ids) == cited.count("`") // 2 >= 1, cited
        for file, name in ids:
            path = ROOT / "tests" / file
            assert path.is_file(), file
            assert name in _tests_of(path), f"{file}::{name}"
    assert len({tuple(row) for row in rows}) == len(rows)


def test_every_actor_and_every_asset_has_a_row() -> None:
    rows = _rows("| actor | asset | what protects it | test |")
    assets = {asset for asset, _ in _rows("| asset | what it is |")}
    assert {actor for actor, *_ in rows} == ACTORS
    assert {asset for _, found, *_ in rows for asset in found.split(", ")} == assets
