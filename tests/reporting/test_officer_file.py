"""The officer's file: a template without answers, answers that are merged, mistakes with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.reporting.officer_file import QUESTIONS, checked_day, officer_path, read_officer, template
from lapwing.reporting.sections import SECTIONS


def test_the_template_asks_every_question_and_answers_none(tmp_path: Path) -> None:
    path = tmp_path / "visits.report.toml"
    assert read_officer(path) == {}  # no file
    path.write_text(template())
    assert read_officer(path) == {}
    assert all(one.words in template() for one in QUESTIONS)
    assert {one.section for one in QUESTIONS} <= {key for key, _, _ in SECTIONS}


def test_answers_have_one_line(tmp_path: Path) -> None:
    path = tmp_path / "visits.report.toml"
    path.write_text('[data]\ncollection = """\n  By hand,\n  with consent. """\n')
    assert read_officer(path) == {"data.collection": "By hand, with consent."}


def test_mistakes_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "visits.report.toml"
    path.write_text('[data]\ncolection = "x"\nretention = 3\n[deployment]\npublished = "1/2/2026"\n')
    with pytest.raises(BadFile) as caught:
        read_officer(path)
    found = "\n".join(caught.value.mistakes)
    for text in (
        ":2: data.colection: is no question",
        "data.collection",
        ":3: data.retention",
        ":5: deploy",
    ):
        assert text in found


def test_where_it_lies(tmp_path: Path) -> None:
    assert officer_path(tmp_path / "visits.toml") == tmp_path / "visits.report.toml"
    assert officer_path(tmp_path / "joint.consortium") == tmp_path / "joint.report.toml"
    (tmp_path / "rows.v1").mkdir()
    assert officer_path(tmp_path / "rows.v1") == tmp_path / "rows.v1.report.toml"


def test_days() -> None:
    assert checked_day("2026-02-28", "date") == "2026-02-28"
    for wrong in ("2026-02-30", "20260228", "today"):
        with pytest.raises(BadParameter, match="is no day"):
            checked_day(wrong, "date")


def test_control_characters_are_refused(tmp_path: Path) -> None:
    """They could turn a line around on the screen, or end a program that reads the registry's file."""
    path = tmp_path / "visits.report.toml"
    for letter in ("\\u0007", "\\u007f", "\\u202e"):
        path.write_text(f'[data]\ncollection = "By{letter} hand"\n')
        with pytest.raises(BadFile, match="control character"):
            read_officer(path)
    path.write_text('[data]\ncollection = "\\u0645\\u06cc\\u200c\\u0634\\u0648\\u062f"\n')
    assert "data.collection" in read_officer(path)
