"""The documentation site is built strictly: what is wrong ends `make docs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

from support.scripts import ROOT

BUILD = "mkdocs build --strict"


def test_make_docs_is_strict() -> None:
    """With --quiet, MkDocs hides its warnings from --strict, too."""
    [line] = [line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line]
    assert line.endswith(BUILD)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "text", "told"),
    [
        ("glossary.md", "[broken](nowhere.md)", "nowhere.md"),
        ("glossary.md", "[broken](limits.md#nothing)", "#nothing"),
        ("unlisted.md", "# A page that no menu has", "unlisted.md"),
        ("reference/python.md", None, "lapwing.open is not on the page"),
    ],
)
def test_a_mistake_ends_the_build(page: str, text: str | None, told: str, tmp_path: Path) -> None:
    copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "mkdocs.yml").write_bytes((ROOT / "mkdocs.yml").read_bytes())
    file = tmp_path / "docs" / page
    if text is None:
        file.write_text(file.read_text().replace("::: lapwing.open\n", ""))
    else:
        file.write_text((file.read_text() if file.exists() else "") + f"\n{text}\n")
    command = [str(Path(sys.executable).parent / "mkdocs"), *BUILD.split()[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert told in done.stderr
