"""Every example in the docs runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from lapwing.ledger import Ledger
from lapwing.plots import save
from support.doc_pictures import draw_pictures
from support.orders import typed_commands, write_orders
from support.shell import Shell

ROOT = Path(__file__).parents[2]
LENGTHY = {  # `make test` goes the same ways elsewhere
    ("learning.md", "console"),  # test_learning.py
    ("survey.md", "console"),  # typed twice, below
    ("audit.md", "console"),  # tests/cli/test_audit.py
    ("audit.md", "python"),
    ("attack.md", "console"),  # tests/cli/test_attack.py
    ("publish.md", "python"),  # test_publish.py, tests/publish/test_publication.py
    ("lapwing.audit.md", "python"),  # tests/audit/test_audit_run.py
    ("lapwing.learn.md", "python"),  # pipeline.md
}
PAGES = [  # of which each example of the first gets a process of its own
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def _blocks(language: str, *, alone: bool = False, pages: Sequence[Path] = PAGES) -> list[object]:
    """All examples in a language. Of those that get a process each, only the README's are quick enough."""
    found: list[object] = []
    for page in pages:
        text = page.read_text()
        is_slow = (page.name, language) in LENGTHY or (alone and page.name != "README.md")
        marks = [pytest.mark.slow] if is_slow else []
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text[: match.start()].count("\n") + 2
            found.append(pytest.param(match[1], id=f"{page.relative_to(ROOT)}:{line}", marks=marks))
    return found


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """The working directory. After an example the environment is what it was before.

    The `lapwing` command is on the path, as in an activated environment. For the README the reader's own
    CSV file is there, and for its Python what its first command made of it.
    """
    monkeypatch.chdir(tmp_path)
    if "README.md:" in request.node.name:
        write_orders(tmp_path / "orders.csv")
    if "README.md:" in request.node.name and "console" not in request.node.name:
        (program, *arguments), *_ = typed_commands((ROOT / "README.md").read_text())
        assert arguments[0] == "init"
        subprocess.run([Path(sys.executable).parent / program, *arguments], check=True, capture_output=True)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with patch.dict(os.environ):
        yield tmp_path


def _commands(block: str) -> Iterator[list[str]]:
    commands = typed_commands(block)
    assert commands
    for program, *arguments in commands:
        assert program == "lapwing"
        yield arguments


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", _blocks("python", pages=PAGES[1:]))
def test_python_example_runs(code: str) -> None:
    """In this process, which has imported most of what examples need."""
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("block", _blocks("console", pages=PAGES[1:]))
def test_console_example_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(capsys)
    for arguments in _commands(block):
        done = shell(*arguments)
        assert done.code == 0, done.error


REPEATED = (ROOT / "README.md", ROOT / "docs" / "tutorials" / "incomes.md")  # they say so


@pytest.mark.parametrize("code", _blocks("python", pages=REPEATED))
# Case C7.
def test_a_page_that_is_run_again_charges_nothing(code: str, folder: Path) -> None:
    """Not one entry comes to the ledger."""
    seen = []
    for _ in range(2):
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})
        with Ledger.open(str(folder / "lapwing.ledger")) as ledger:
            seen.append(ledger.store.read(lambda tx: tx.rows("SELECT body FROM entries ORDER BY seq")))
    assert seen[0] == seen[1]
    assert any(b'"kind":"charge"' in bytes(body) for (body,) in seen[0])


GUIDES = ROOT / "docs" / "guides"
REFUSED = {  # what each guide says beforehand of a second time: these commands refuse, and change nothing
    "python.md": (),
    "ledger.md": ("ledger init", "ledger account", "ledger blocks", "ledger export", "ledger prove"),
    "survey.md": ("survey invite",),
    "parties.md": ("party init", "party invite"),
    "learning.md": ("stream append",),
}


def _charges(folder: Path) -> dict[str, int]:
    """Count the charges in all ledgers below a folder."""
    found = {}
    for path in sorted(folder.rglob("*.ledger")):
        with Ledger.open(path) as ledger:
            rows = ledger.store.read(lambda tx: tx.rows("SELECT body FROM entries"))
        found[str(path)] = sum(b'"kind":"charge"' in bytes(body) for (body,) in rows)
    return found


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "learning.md" else []) for name in REFUSED],
)
def test_a_guide_can_be_typed_twice_in_one_folder(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First everything works; then only the named commands refuse, and nothing is charged again."""
    shell, charges = Shell(capsys), []
    examples = re.findall(
        r"^```(console|python)\n(.*?)^```", (GUIDES / name).read_text(), re.MULTILINE | re.DOTALL
    )
    for allowed in ((), REFUSED[name]):
        for language, text in examples:
            if language == "python":
                exec(compile(text, "example", "exec"), {"__name__": "__main__"})
                continue
            for arguments in _commands(text):
                done = shell(*arguments)
                refused = done.code == 2 and " ".join(arguments[:2]) in allowed
                assert done.code == 0 or refused, (arguments, done.error)
        charges.append(_charges(folder))
    assert charges[0] == charges[1]


@pytest.mark.parametrize("code", _blocks("python", alone=True))
def test_python_example_runs_alone(code: str, folder: Path) -> None:
    """In a new process: it imports all that it uses, and nothing warns."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", _blocks("console", alone=True))
def test_console_example_runs_alone(block: str, folder: Path) -> None:
    """As people type it."""
    script = str(Path(sys.executable).parent / "lapwing")
    for arguments in _commands(block):
        done = subprocess.run([script, *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_readme_example_is_about_twenty_lines() -> None:
    code = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert code
    lines = [line for line in code[1].splitlines() if line.strip()]
    assert len(lines) <= 20


def test_the_picture_of_the_readme_is_of_the_answer_that_it_prints(tmp_path: Path) -> None:
    """Numbers are drawn as paths: the same picture comes out again, but for its date and ids."""
    save(draw_pictures.readme_answer(), tmp_path / "answer.svg")
    stored = (ROOT / "docs" / "pictures" / "answer.svg").read_text()
    assert _drawn(stored) == _drawn((tmp_path / "answer.svg").read_text())


def _drawn(svg: str) -> list[str]:
    return re.findall(r' d="([^"]*)"', svg)


def test_the_readme_begins_with_the_install_and_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert any(line.startswith("pip install .") for line in lines[:10])
    assert len(lines) <= 150
