"""One survey from its file to its estimates, by the commands that people type and a browser they use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.browser import Visitor, chromium
from support.slowly import slow

LAPWING = str(Path(sys.executable).parent / "lapwing")
SURE = "0.999999"  # of each of about 40 intervals: all hold but in one of 25,000 runs


def lapwing(folder: Path, *arguments: str) -> str:
    command = [LAPWING, "survey", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of its own."""
    command = [LAPWING, "survey", "serve", "wellbeing.toml", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().rpartition(" ")[2].strip()
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def answer(page: Page) -> None:
    """Whatever is asked: the first option, all ticks, the order as listed, or a value that fits."""
    if page.locator("input[type=radio]").count():
        page.locator("input[type=radio]").first.check()
    for place, select in enumerate(page.locator("select").all()):
        select.select_option(str(place + 1))
    for field in page.locator("input[type=date]").all():
        field.fill("2026-03-04")
    for field in page.locator("input[type=text]").all():
        is_number = field.get_attribute("inputmode") == "decimal"
        field.fill("7.5" if is_number else "tea")
    for box in page.locator("input[type=checkbox]:not([value=none])").all():
        box.check()


@pytest.mark.parametrize(("browsers", "simulated"), [(2, 5_000), slow(200, 100_000)])
def test_a_survey_from_its_file_to_its_estimates(tmp_path: Path, browsers: int, simulated: int) -> None:
    lapwing(tmp_path, "example")
    assert "8 questions" in lapwing(tmp_path, "check", "wellbeing.toml")
    assert "respondents" in lapwing(tmp_path, "plan", "wellbeing.toml", "--n", "5000")
    truth = json.loads(lapwing(tmp_path, "simulate", "wellbeing.toml", "--n", str(simulated), "--json"))
    with served(tmp_path) as address, chromium() as browser:
        base = address.rstrip("/")
        invite = (
            "invite",
            "wellbeing.toml",
            "--count",
            str(browsers),
            "--base",
            base,
            "--out",
            "links.txt",
        )
        lapwing(tmp_path, *invite)
        links = Path(tmp_path, "links.txt").read_text().split()
        assert len(links) == browsers
        for number, link in enumerate(links):
            context = browser.new_context(viewport={"width": 360 if number % 2 else 1100, "height": 900})
            visitor = Visitor(context)
            page = visitor.open(link)
            answer(page)
            visitor.submit()
            expect(page.get_by_text("Sent. Thank you!")).to_be_visible()
            page.screenshot(path=tmp_path / f"sent{number % 4}.png", full_page=True)
            assert visitor.complaints == []
            context.close()
    only = json.loads(lapwing(tmp_path, "estimate", "wellbeing.toml", "--json"))
    assert only["reports"] == browsers  # each counted once
    lapwing(tmp_path, "collect", "wellbeing.toml", "wellbeing.simulated")
    found = json.loads(
        lapwing(tmp_path, "estimate", "wellbeing.toml", "--json", "--plot", "all.png", "--confidence", SURE)
    )
    assert found["reports"] == browsers + simulated
    assert checked(found, truth["questions"], slack=4 * browsers / simulated) >= 20


def checked(found: dict[str, Any], truth: dict[str, Any], *, slack: float) -> int:
    """How many shares were compared with the truth about the simulated; the browsers' move it a little."""
    compared = 0
    for question in found["answers"]:
        known = truth[question["question"]]["truth"]
        if question["question"] == "leisure":  # whose truth is told by sets, and estimated by option
            continue
        for table in question["tables"]:
            if table["title"] != "share":
                continue
            for one in table["estimates"]:
                if one["label"] in known and one["population"] is not None:
                    compared += 1
                    interval = one["population"]
                    assert interval["low"] - slack <= known[one["label"]] <= interval["high"] + slack
    return compared
