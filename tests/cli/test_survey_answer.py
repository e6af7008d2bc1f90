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
from lapwing.errors import BadParameter, BadValue, OverBudget
from lapwing.survey.designing import design
from lapwing.survey.offered import fingerprint, survey_digest
from lapwing.survey.report_file import read_reports
from lapwing.survey.respondent import Respondent
from lapwing.survey.survey_client import SurveyClient
from lapwing.survey.survey_file import load
from support.shell import Shell
from support.spoiled_surveys import SPOILED, spoiled
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
    arguments = [*map(str, words), "--folder", str(folder / "device"), "--wait", "0"]
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


def test_the_credential_comes_before_the_answer_and_the_report_seconds_after_it(
    tmp_path: Path, site: Site
) -> None:
    before, words = len(site.asked()), [site.link(), "--answer", "shop=yes", "--folder", str(tmp_path)]
    found = CliRunner().invoke(app, [*words, "--wait", "4"], catch_exceptions=False, standalone_mode=False)
    said = [
        found.output.index(text)
        for text in (
            "What can be sent",
            "Your invitation is used now",
            "at a random moment within 4 s",
            "Sent.",
        )
    ]
    assert said == sorted(said)
    asked = [one for one in site.asked()[before:] if one.path != "/survey.json"]
    assert [one.path for one in asked] == ["/sign", "/report"]
    assert 1 <= asked[1].second - asked[0].second <= 8
    assert asked[0].port != asked[1].port


def test_what_cannot_be_answered_uses_no_invitation(tmp_path: Path, site: Site) -> None:
    before, link = len(site.asked()), site.link()
    with pytest.raises(BadValue, match="shop: the answer must be one of: yes, no"):
        run(tmp_path, link, "--answer", "shop=perhaps")
    with pytest.raises(BadParameter, match="is not answered"):
        run(tmp_path, link)
    poor = Respondent(tmp_path / "poor" / "device", lifetime="0.5")
    with pytest.raises(OverBudget):
        run(tmp_path / "poor", link, "--answer", "shop=yes")
    assert {one.path for one in site.asked()[before:]} == {"/survey.json"}
    assert poor.left == poor.lifetime
    run(tmp_path, link, "--answer", "shop=yes")


def test_a_second_person_cannot_go_on_with_what_the_first_one_began(tmp_path: Path, site: Site) -> None:
    mine = site.link()
    Respondent(tmp_path / "device").authorize(site.address, mine.partition("#")[2])
    with pytest.raises(BadParameter, match="one device, one person"):
        run(tmp_path, site.link(), "--answer", "shop=yes")
    run(tmp_path, mine, "--answer", "shop=yes")


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


def test_equal_reports_of_two_people_are_two_different_files(tmp_path: Path, site: Site) -> None:
    contents = set()
    for person in range(2):
        folder = tmp_path / str(person)
        for number in range(2):
            run(folder, site.file, "--out", tmp_path / f"{person}.{number}", "--answer", "shop=yes")
        first, again = ((tmp_path / f"{person}.{number}").read_bytes() for number in range(2))
        assert first == again
        contents.add(first.partition(b"\n")[0])
        assert len(read_reports(tmp_path / f"{person}.0", site.design)) == 1
    assert len(contents) == 2


def test_the_fingerprint_is_shown_before_the_coins_are_thrown(tmp_path: Path, site: Site) -> None:
    public, key = SurveyClient(site.address).survey()
    shown = fingerprint(survey_digest(public), key)
    told = run(tmp_path, site.link(), "--answer", "shop=yes")
    assert told.index(shown) < told.index("Compare this with others who were invited") < told.index("Sent.")
    by_file = run(tmp_path / "other", site.file, "--send", site.link(), "--answer", "shop=yes")
    assert shown in by_file
    alone = run(tmp_path / "alone", site.file, "--out", tmp_path / "report", "--answer", "shop=yes")
    assert f"The digest of this survey: {survey_digest(public)[:4]} {survey_digest(public)[4:8]}" in alone


def test_a_file_must_be_the_survey_that_the_link_leads_to(tmp_path: Path, site: Site) -> None:
    file = tmp_path / "survey.toml"
    file.write_text(one_question(text="Is it not?"))
    with pytest.raises(BadParameter, match="another survey than this file"):
        run(tmp_path, file, "--send", site.link(), "--answer", "shop=yes")


def test_a_second_person_does_not_see_the_first_one_s_report(tmp_path: Path, site: Site) -> None:
    mine = site.link()
    assert "the coins made of it" in run(tmp_path, mine, "--answer", "shop=yes")
    told = run(tmp_path, site.link(), "--answer", "shop=yes")
    assert "another invitation" in told
    assert "the coins made of it" not in told
    assert "shop:" not in told
    assert "the coins made of it" in run(tmp_path, mine)


UNSEEN = "\x1b[2J\x1b[8m\r\x07\x9b1A\u202e\u200b\ue000\ud800\U000e0001"


def test_nothing_of_a_survey_can_steer_the_terminal(tmp_path: Path, site: Site) -> None:
    public = site.design.public()
    public.update(title=f"T{UNSEEN}", text=f"one\ntwo{UNSEEN}")
    public["questions"][0].update(text=f"Q{UNSEEN}", labels=[f"yes{UNSEEN}", "no", "no answer"])
    saved = tmp_path / "survey.json"
    saved.write_text(json.dumps(public))
    with pytest.raises(BadValue) as caught:
        run(tmp_path, saved, "--out", tmp_path / "report", "--answer", "shop=perhaps")
    assert not set(UNSEEN) - set("[2J8m1A") & set(str(caught.value))
    told = run(tmp_path, saved, "--out", tmp_path / "report", "--answer", "shop=no")
    assert not set(UNSEEN) - set("[2J8m1A") & set(told)
    assert "one\ntwo\N{REPLACEMENT CHARACTER}[2J" in told
    assert "yes\N{REPLACEMENT CHARACTER}[2J" in told


DEEP = "[" * 200_000
BAD_FILES = {
    "deep": DEEP,
    "deep and whole": DEEP + "]" * 200_000,
    "endless": '{"report_size": Infinity}',
    "no table": "7",
    "a broken recipe": '{"survey": {"questions": [{"recipe": 5}]}}',
    "a list": '{"survey": {"ask": [1]}}',
    "large": " " * (16 << 20) + "{}",
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_files_that_are_no_survey_are_told_in_one_line(tmp_path: Path, shell: Shell, content: str) -> None:
    saved = tmp_path / "survey.json"
    saved.write_text(content)
    told = shell("survey", "answer", saved, "--out", tmp_path / "out", "--folder", tmp_path / "device")
    assert told.code == 2
    assert told.error.count("\n") == 1
    assert told.out == ""


@pytest.mark.parametrize(
    "link",
    [
        "https://[/#A", "http://[::1]:x/#A", "https://a..b/#A", f"https://{'a' * 300}/#A",
        "https://xn--\u2603/#x", "https://exa mple/#A", "http://127.0.0.1:99999/#A", "https:///#A",
    ],
)  # fmt: skip
def test_links_that_lead_nowhere_are_told_in_one_line(tmp_path: Path, shell: Shell, link: str) -> None:
    told = shell("survey", "answer", link, "--folder", tmp_path / "device")
    assert told.code == 2
    assert told.error.count("\n") == 1


@pytest.mark.parametrize("how", ["a day's step of 0", "a step of 0", "a size beyond all memory"])
def test_a_survey_that_is_not_in_order_is_told_in_one_line(
    tmp_path: Path, shell: Shell, site: Site, how: str
) -> None:
    saved = tmp_path / "survey.json"
    saved.write_text(json.dumps(spoiled(site.design.public(), SPOILED[how])))
    told = shell("survey", "answer", saved, "--out", tmp_path / "out", "--folder", tmp_path / "device")
    assert told.code == 2
    assert told.error.count("\n") == 1
    assert "not in order" in told.error


def test_at_a_terminal_it_asks_until_an_answer_is_possible(tmp_path: Path, site: Site) -> None:
    ours, theirs = pty.openpty()
    script = "import typer; from lapwing.cli.survey_answer import answer; typer.run(answer)"
    order = [sys.executable, "-c", script, site.link(), "--folder", str(tmp_path / "device"), "--wait", "0"]
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
