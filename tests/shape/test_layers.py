"""The order of imports is written down in one place. Texts and pictures that show it are made from it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_order_in_contributing_and_the_picture_is_that_of_the_contracts() -> None:
    spec = importlib.util.spec_from_file_location("layers", ROOT / "docs" / "layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.written().items():
        assert path.read_text(encoding="utf-8") == text, f"run `make pictures`: {path.name} is stale"
