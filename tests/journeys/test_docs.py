"""Every example in the docs runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LENGTHY = {("learning.md", "console")}  # test_learning.py goes the same way in one process
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(language: str) -> list[object]:
    found: list[object] = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text[: match.start()].count("\n") + 2
            marks = [pytest.mark.slow] if (page.name, language) in LENGTHY else []
            found.append(pytest.param(match[1], id=f"{page.relative_to(ROOT)}:{line}", marks=marks))
    return found


@pytest.mark.parametrize("code", _blocks("python"))
def test_python_example_runs(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", _blocks("console"))
def test_console_example_runs(block: str, tmp_path: Path) -> None:
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    assert commands
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "lapwing"
        script = str(Path(sys.executable).parent / "lapwing")
        done = subprocess.run(
            [script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_readme_example_is_about_twenty_lines() -> None:
    code = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert code
    lines = [line for line in code[1].splitlines() if line.strip()]
    assert len(lines) <= 20
