"""Files of reports: every file has a mark of its own, and earlier files are still read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.survey.designing import Design, design
from lapwing.survey.report_file import (
    HEADER_START,
    MARK_BYTES,
    read_reports,
    report_file_header,
    write_reports,
)
from lapwing.survey.survey_file import load
from support.raised import named
from support.survey_site import one_question


@pytest.fixture
def planned(tmp_path: Path) -> Design:
    (tmp_path / "survey.toml").write_text(one_question())
    return design(load(tmp_path / "survey.toml"))


def test_files_with_equal_reports_differ_by_their_marks(tmp_path: Path, planned: Design) -> None:
    reports = np.tile(np.array([255, 1], dtype=np.uint8), (5, 1))
    for name in ("a", "b"):
        write_reports(tmp_path / name, planned, reports)
        assert np.array_equal(read_reports(tmp_path / name, planned), reports)
    first, second = ((tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first != second
    assert len(first.partition(b"\n")[0]) == len(HEADER_START) + 64 + 1 + 2 * MARK_BYTES


def test_a_mark_that_is_given_is_kept(tmp_path: Path, planned: Design) -> None:
    mark = bytes(range(MARK_BYTES))
    write_reports(tmp_path / "a", planned, np.array([[255, 1]], dtype=np.uint8), mark=mark)
    content = (tmp_path / "a").read_bytes()
    assert content == report_file_header(planned.digest, mark) + b"\xff\x01"
    assert content == HEADER_START + f"{planned.digest} {mark.hex()}\n".encode() + b"\xff\x01"
    with pytest.raises(BadParameter, check=named("mark")):
        report_file_header(planned.digest, b"short")


@pytest.mark.parametrize("line", ["lapwing reports 1 {}", "lapwing reports 2 {}"])
def test_files_without_a_mark_are_read(tmp_path: Path, planned: Design, line: str) -> None:
    (tmp_path / "a").write_bytes(line.format(planned.digest).encode() + b"\n\xff\x01\xff\x00")
    assert read_reports(tmp_path / "a", planned).tolist() == [[255, 1], [255, 0]]


@pytest.mark.parametrize(
    "line", ["lapwing reports 3 {}", "lapwing reports 2 {} 00", "lapwing reports 1 {} " + "0" * 32, "{}"]
)
def test_other_first_lines_are_refused(tmp_path: Path, planned: Design, line: str) -> None:
    (tmp_path / "a").write_bytes(line.format(planned.digest).encode() + b"\n\xff\x01")
    with pytest.raises(BadParameter, match="not a file of reports"):
        read_reports(tmp_path / "a", planned)
