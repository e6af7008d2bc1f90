"""The script that draws the pictures of the documentation, as a module."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).parents[2] / "docs" / "draw_pictures.py"
_spec = spec_from_file_location("draw_pictures", _SCRIPT)
assert _spec is not None
assert _spec.loader is not None
draw_pictures: Any = module_from_spec(_spec)
_spec.loader.exec_module(draw_pictures)
