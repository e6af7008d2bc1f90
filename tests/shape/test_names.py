"""One concept has one name: no public class name twice, no module name twice within a part."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "lapwing"


def test_no_public_class_name_stands_for_two_things() -> None:
    homes = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_module_name_twice_within_a_part() -> None:
    homes = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        if path.name != "__init__.py":
            inside = path.relative_to(SOURCE)
            homes[inside.parts[0], inside.stem].append(str(inside))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
