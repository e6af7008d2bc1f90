"""Write the import order of pyproject.toml into CONTRIBUTING.md and into its picture.

Run it with `make pictures` after a change of the contracts. tests/shape/test_layers.py fails if the files
are stale.
"""

from __future__ import annotations

import ast
import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = ROOT / "CONTRIBUTING.md"
PICTURE = ROOT / "docs" / "pictures" / "design.svg"
BEGIN, END = "<!-- layers: written by docs/layers.py -->", "<!-- end of layers -->"
LEFT, WIDTH, TOP, HEIGHT, GAP = 30, 920, 318, 34, 6


def layers() -> list[list[str]]:
    """Return the layers from top to bottom. The folders of one layer do not import one another."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contract = tools["importlinter"]["contracts"][0]
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def summary(name: str) -> str:
    """Return the first line of a folder's or module's docstring, without its last stop."""
    folder = ROOT / "src" / "lapwing" / name
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].rstrip(".")


def as_text() -> str:
    """Return the order for CONTRIBUTING.md: one line for each folder, siblings on neighbouring lines."""
    names = [name for layer in layers() for name in layer]
    width = max(map(len, names))
    lines = []
    for layer in layers():
        for place, name in enumerate(layer):
            mark = "" if len(layer) == 1 else ("  (siblings)" if place == 0 else "  (sibling)")
            lines.append(f"{name:<{width}}  {summary(name)}{mark}")
    return "\n".join(["```", *lines, "```"])


def as_boxes() -> tuple[str, int]:
    """Return the order as boxes of the SVG picture, and where they end."""
    rows = []
    for row, layer in enumerate(layers()):
        y = TOP + row * (HEIGHT + GAP)
        width = (WIDTH - GAP * (len(layer) - 1)) // len(layer)
        for place, name in enumerate(layer):
            x = LEFT + place * (width + GAP)
            text = f"{name}: {summary(name)}".replace("`", "") if len(layer) == 1 else name
            rows.append(
                f'<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="6" class="built"/>'
                f'<text x="{x + width // 2}" y="{y + 22}">{escape(text)}</text>'
            )
    bottom = TOP + len(layers()) * (HEIGHT + GAP) + 12
    return "\n    ".join(rows), bottom


def between(text: str, new: str) -> str:
    """Return `text` with `new` between the two marks."""
    return re.sub(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{new}\n{END}", text, flags=re.DOTALL
    )


def written() -> dict[Path, str]:
    """Return what both files should hold."""
    boxes, bottom = as_boxes()
    picture = between(PICTURE.read_text(encoding="utf-8"), f"    {boxes}")
    picture = re.sub(r'viewBox="0 0 980 \d+"', f'viewBox="0 0 980 {bottom}"', picture, count=1)
    picture = re.sub(
        r'<rect width="980" height="\d+"', f'<rect width="980" height="{bottom}"', picture, count=1
    )
    return {TEXT: between(TEXT.read_text(encoding="utf-8"), as_text()), PICTURE: picture}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
