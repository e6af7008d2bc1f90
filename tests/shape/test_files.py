"""The tree keeps its shape."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


IGNORED = {".venv", "build", "dist", "__pycache__"}


def _tracked() -> list[Path]:
    if not (ROOT / ".git").exists():  # an unpacked source distribution
        files = [path for path in ROOT.rglob("*") if path.is_file()]
        return [path for path in files if not IGNORED & set(path.relative_to(ROOT).parts)]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_a_source_file_is_one_concept_and_not_very_long() -> None:
    for path in _tracked():
        if path.suffix == ".py" and "src" in path.parts:
            assert len(path.read_text().splitlines()) <= 600, path


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().split()}
    wanted = project["dependencies"] + [x for xs in project["optional-dependencies"].values() for x in xs]
    names = {re.split(r"[><=\[]", name)[0].lower() for name in wanted} - {"lapwing"}
    assert names <= pinned


def test_relative_links_in_the_docs_lead_somewhere() -> None:
    for path in _tracked():
        if path.suffix == ".md":
            for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", path.read_text()):
                assert (path.parent / target).exists(), f"{path.name} -> {target}"


def test_documents_cite_files_of_the_project_that_exist() -> None:
    """An argument that cites a test is worth nothing if nobody finds the test."""
    files = [path.relative_to(ROOT).as_posix() for path in _tracked() if path.suffix == ".py"]
    missing = [
        (page.relative_to(ROOT).as_posix(), cited)
        for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md")
        for cited in re.findall(r"`((?:\w+/)+\w+\.py|test_\w+\.py)[`:]", page.read_text())
        if not any(f"/{file}".endswith(f"/{cited}") for file in files) and "ASPECT" not in cited
    ]
    assert missing == []
