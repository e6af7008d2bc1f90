"""There is one door: only `lapwing.ledger.gate` spends, and only `charging` moves budgets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "lapwing"
SPENDING = {"lapwing.ledger.charging"}
LEDGER = SOURCE / "ledger"
MAY_SPEND = {LEDGER / "gate.py"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute, so that this test sees them"
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def called(tree: ast.AST) -> Iterator[str]:
    """`charge` of `ledger.store.charge(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr


def others() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if LEDGER not in path.parents]


def spends(source: str) -> bool:
    if not any(word in source for word in ("charging", "debit", "store")):
        return False
    tree = ast.parse(source)
    return bool(SPENDING & set(imported(tree))) or "debit" in set(called(tree)) or reaches_the_store(tree)


def reaches_the_store(tree: ast.AST) -> bool:
    """`ledger.store` and whatever is done with it; not a method that happens to be called so."""
    methods = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return any(
        isinstance(node, ast.Attribute) and node.attr == "store" and node not in methods
        for node in ast.walk(tree)
    )


def test_nobody_but_the_gate_spends() -> None:
    assert [str(path.relative_to(SOURCE)) for path in others() if spends(path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    [
        "from lapwing.ledger.charging import charge",
        "from lapwing.ledger import charging",
        "import lapwing.ledger.charging as r",
        "tx.debit(posting)",
        "ledger.store.charge(posting)",
        "write = ledger.store.write",
    ],
)
def test_and_this_test_would_see_it(source: str) -> None:
    assert spends(source)


def test_inside_the_ledger_only_the_gate_imports_charging() -> None:
    trees = {path: ast.parse(path.read_text()) for path in LEDGER.rglob("*.py")}
    importing = {path for path, tree in trees.items() if SPENDING & set(imported(tree))}
    assert importing == MAY_SPEND


def test_private_data_is_read_by_charged_reads() -> None:
    """The others read none: credentials are drawn; the example and the auditor have rows of their own."""
    using = {path.relative_to(SOURCE) for path in others() if "ChargedRelease" in path.read_text()}
    assert using == {
        Path("survey/invitations.py"),
        Path("examples/clinic.py"),
        Path("audit/registry/gate.py"),
    }


def test_inside_the_ledger_only_charging_posts_charges() -> None:
    posts = re.compile(r"\b(tx\.debit|store\.charge)\(")
    posting = {path.name for path in LEDGER.rglob("*.py") if posts.search(path.read_text())}
    assert posting == {"charging.py", "sqlite_store.py"}
