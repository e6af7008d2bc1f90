"""`lapwing survey answer`: the respondent's side in a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lapwing.cli.survey_answer import answer
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.planning import design
from lapwing.survey.planning.report_file import read_reports
from lapwing.survey.questionnaire import load
from support.survey_site import EVERY_KIND, Site, one_question

app = typer.Typer()
app.command()(answer)
GIVEN = [
    "shop=yes", "place=outdoors", "leisure=sport, music", "meals=", "content=4",
    "matters=money,health,family", "sleep=7.25", "holiday=2026-03-04", "drink=no answer", "room=room 60",
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("site"), one_question()).start()
    yield found
    found.stop()


def run(folder: Path, *words: str | Path) -> str:
    """What it prints; what it raises is raised."""
    arguments = [*map(str, words), "--folder", str(folder / "device")]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False, standalone_mode=False)
    return found.output


def options(given: list[str]) -> list[str]:
    return [word for each in given for word in ("--answer", each)]


def test_a_survey_file_becomes_a_report_file(tmp_path: Path) -> None:
    file, out = tmp_path / "survey.toml", tmp_path / "report"
    file.write_text(EVERY_KIND)
    told = run(tmp_path, file, "--out", out, *options(GIVEN))
    planned = design(load(file))
    (row,) = read_reports(out, planned)
    planned.check(row.tobytes())
    assert told.count("What can be sent, and how likely it is:") == 10
    assert "It costs ε 7. This device has ε 8 left" in told
    assert "ε 1 of 8" in told
    assert "the coins made" not in told  # a coin that was not sent yet is not shown


def test_the_same_report_comes_again(tmp_path: Path) -> None:
    file, saved = tmp_path / "survey.toml", tmp_path / "survey.json"
    file.write_text(one_question())
    saved.write_text(json.dumps({"survey": design(load(file)).public(), "version": 1}))
    run(tmp_path, file, "--out", tmp_path / "first", "--answer", "shop=yes")
    told = run(tmp_path, saved, "--out", tmp_path / "second", "--answer", "shop=no")
    assert "used again as it is" in told
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_link_is_answered_and_sent(tmp_path: Path, site: Site) -> None:
    before = len(site.reports())
    told = run(tmp_path, site.link(), "--answer", "shop=yes")
    assert told.index("What can be sent") < told.index("Sent. This is what the coins made of it:")
    assert len(site.reports()) == before + 1
    run(tmp_path, site.file, "--send", site.link())
    assert len(site.reports()) == before + 1


def test_what_is_missing_is_told(tmp_path: Path, site: Site) -> None:
    with pytest.raises(BadParameter, match="--answer shop="):
        run(tmp_path, site.link())
    with pytest.raises(BadParameter, match="either the link"):
        run(tmp_path, site.file)
    with pytest.raises(BadParameter, match="either the link"):
        run(tmp_path, site.link(), "--out", tmp_path / "report")
    with pytest.raises(BadParameter, match="the whole link"):
        run(tmp_path, site.address)
    with pytest.raises(BadParameter, match="no file"):
        run(tmp_path, tmp_path / "nothing.json", "--out", tmp_path / "report")
    with pytest.raises(BadParameter, match="with the name of a question"):
        run(tmp_path, site.file, "--out", tmp_path / "report", "--answer", "shops=yes")
    with pytest.raises(BadValue, match="must be one of: yes, no"):
        run(tmp_path, site.file, "--out", tmp_path / "report", "--answer", "shop=perhaps")


def test_nothing_is_written_over(tmp_path: Path, site: Site) -> None:
    out = tmp_path / "report"
    out.write_text("mine")
    with pytest.raises(BadParameter, match="nothing is written over"):
        run(tmp_path, site.file, "--out", out, "--answer", "shop=yes")
    assert out.read_text() == "mine"


def test_at_a_terminal_it_asks_until_an_answer_is_possible(tmp_path: Path, site: Site) -> None:
    ours, theirs = pty.openpty()
    script = "import typer; from lapwing.cli.survey_answer import answer; typer.run(answer)"
    order = [sys.executable, "-c", script, site.link(), "--folder", str(tmp_path / "device")]
    process = subprocess.Popen(order, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"perhaps\nno answer\ny\n")
    told = b""
    with suppress(OSError):  # the end of a terminal
        while piece := os.read(ours, 4096):
            told += piece
    os.close(ours)
    assert process.wait(60) == 0
    text = told.decode()
    assert "the answer must be one of: yes, no" in text
    assert text.index("Throw the coins and send?") < text.index("Sent. This is what the coins made")
