"""`lapwing demo --serve`, as a process: its links, its pages, and that a second start charges nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from lapwing.cli.demo_serve import AUDIT, PEOPLE, QUESTIONS, SURVEY
from lapwing.examples import town
from lapwing.ledger import Ledger
from lapwing.publish.bundle.manifest import MANIFEST
from support.shell import Shell

OPENED = {"accept": "text/html", "sec-fetch-site": "none"}  # a link that was typed or clicked elsewhere
ENDED = "Stopped. Everything stays in the folder; the same command opens it again."
BUNDLE = "town-census-bundle"


@dataclass
class Demo:
    """A running demo, with what it printed before it was ready."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    @property
    def links(self) -> dict[str, str]:
        found = re.findall(r"^ +(\w+) \([\w-]+\): (http://\S+)$", "\n".join(self.lines), re.MULTILINE)
        return {shown.lower(): link for shown, link in found}

    def stop(self) -> str:
        """End it as Ctrl-C does, and return the rest of its words."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, rest
        return rest


@contextmanager
def _demo(folder: Path) -> Iterator[Demo]:
    command = [sys.executable, "-m", "lapwing", "demo", "--serve", str(folder), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    demo = Demo(process)
    try:
        while line := process.stdout.readline():
            demo.lines.append(line.rstrip())
            if line.startswith("Ctrl-C"):
                break
        assert demo.links, demo.lines
        yield demo
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
        process.stdout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which the long parts are there already. They are files of no meaning, which stay."""
    place = tmp_path / "demo"
    for name in ("durations.runs/run-1/card.json", f"{BUNDLE}/{MANIFEST}", AUDIT):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return place


def _browser() -> httpx.Client:
    return httpx.Client(headers=OPENED, follow_redirects=True, timeout=60)


def _charges(folder: Path) -> list[int]:
    """Return the number of charges in each ledger of a folder."""
    found = []
    for path in sorted(folder.glob("*.ledger")):
        with Ledger.open(path) as ledger:
            rows = ledger.store.read(lambda tx: tx.rows("SELECT body FROM entries"))
        found.append(sum(b'"kind":"charge"' in bytes(body) for (body,) in rows))
    return found


def test_the_start_link_opens_the_guided_console_once(folder: Path) -> None:
    with _demo(folder) as demo:
        assert demo.links.keys() == PEOPLE.keys()
        with _browser() as ann, _browser() as other, _browser() as sue:
            page = ann.get(demo.links["ann"])
            assert (page.status_code, page.url.path) == (200, "/")
            assert "This takes two minutes" in page.text
            assert "Hello, Ann" in page.text
            refused = other.get(demo.links["ann"])
            assert (refused.status_code, refused.url.path) == (401, "/start")
            assert "This link does not sign in" in refused.text
            assert other.get(str(page.url)).url.path == "/sign-in"
            assert ann.get(demo.links["ann"]).status_code == 401  # also in the browser that used it
            assert "Hello, Ann" in ann.get(str(page.url)).text
            page = sue.get(demo.links["sue"])
            assert page.status_code == 200
            assert "This takes two minutes" not in page.text  # a steward asks no questions
        assert "the same command opens it again" in demo.stop()
    assert (folder / AUDIT).read_text() == "{}"  # what is there is left as it is
    charged = _charges(folder)
    assert charged[0] == len(QUESTIONS)
    with _demo(folder) as demo:
        assert demo.stop().split("\n") == ["", ENDED, ""]  # at once: nothing else is said
    assert _charges(folder) == charged


def _pages(demo: Demo, name: str) -> dict[str, str]:
    paths = (
        "/d/visits/history",
        "/d/visits/budget",
        "/surveys",
        "/releases",
        "/models",
        "/audits",
        "/people",
    )
    with _browser() as browser:
        root = browser.get(demo.links[name]).url
        return {path: browser.get(root.join(path)).text for path in paths}


@pytest.mark.slow
def test_every_page_has_something_to_show_and_a_second_start_charges_nothing(tmp_path: Path) -> None:
    folder, seen = tmp_path / "demo", []
    for _ in range(2):
        with _demo(folder) as demo:
            pages = _pages(demo, "sue")
            demo.stop()
        for path, words in (
            ("/d/visits/history", "cardiology"),
            ("/surveys", SURVEY),
            ("/releases", BUNDLE),
            ("/models", "accepted"),
            ("/audits", "passed"),
            ("/people", "Olga"),
        ):
            assert words in pages[path], path
        seen.append(_charges(folder))
    assert seen[0] == seen[1]
    assert seen[0][0] > len(QUESTIONS)  # the model and the release are charged, too
    assert len(seen[0]) == 2  # the data, and the respondents


def test_a_folder_is_for_serving_alone_and_files_of_others_stay(shell: Shell, tmp_path: Path) -> None:
    refused = shell("demo", tmp_path)
    assert refused.code == 2
    assert "--serve" in refused.error
    (tmp_path / town.TOWN_POLICY).write_text("mine")
    refused = shell("demo", "--serve", tmp_path, "--port", "0")
    assert refused.code == 2
    assert "nothing is written over" in refused.error
    assert (tmp_path / town.TOWN_POLICY).read_text() == "mine"
