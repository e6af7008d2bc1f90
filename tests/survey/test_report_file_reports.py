"""Reports: one size for all, packed and unpacked without loss, and impossible ones refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import BadParameter, BadValue
from lapwing.survey.designing import Design
from lapwing.survey.planning import simulate_answers
from lapwing.survey.randomize import ByteCoins
from lapwing.survey.report_file import HEADER_START, read_reports, write_reports

Designed = Callable[..., Design]
EVERY_KIND = (
    ("yes_no", ""),
    ("choice", 'options = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]'),
    ("several", 'options = ["a", "b", "c"]'),
    ("several", 'options = ["a", "b", "c", "d"]\nas = "set"'),
    ("rating", ""),
    ("ranking", 'options = ["a", "b", "c", "d"]'),
    ("number", "low = 0\nhigh = 24\nstep = 0.5"),
    ("date", "low = 2026-01-01\nhigh = 2026-12-31"),
    ("word", "letters = 4"),
)


@pytest.fixture(params=["all", "one"])
def made(designed: Designed, request: pytest.FixtureRequest) -> Design:
    return designed(*EVERY_KIND, epsilon="8", ask=request.param)


def simulated(made: Design, n: int) -> np.ndarray:
    return made.simulate({name: one.answers for name, one in simulate_answers(made.survey, n).items()})


def test_simulated_reports_are_possible_and_of_one_size(made: Design) -> None:
    reports = simulated(made, 3000)
    assert reports.shape == (3000, made.report_size)
    found = made.unpack(reports)
    assert sorted(found) == list(range(len(made.parts)))
    rows = np.concatenate([rows for rows, _ in found.values()])
    assert len(rows) == 3000 * (len(made.parts) if made.asks_all else 1)
    for place, (rows, messages) in found.items():
        assert len(rows) == len(messages)
        start = 1 + sum(part.randomizer.size for part in made.parts[:place]) * made.asks_all
        size = made.parts[place].randomizer.size
        again = made.parts[place].randomizer.encode(messages)
        assert np.array_equal(again, reports[rows, start : start + size])


def test_a_devices_messages_make_a_report_that_is_possible(made: Design) -> None:
    for _ in range(20):
        thrown = [part.randomizer.randomize(part.question.inputs - 1, ByteCoins()) for part in made.parts]
        if made.asks_all:
            report = made.layout.pack(dict(enumerate(thrown)))
            assert report == b"\xff" + b"".join(thrown)
            made.check(report)
            continue
        for place, message in enumerate(thrown):
            report = made.layout.pack({place: message})
            assert report == (bytes([place]) + message).ljust(made.report_size, b"\0")
            made.check(report)


def test_one_at_random_asks_all_alike(designed: Designed) -> None:
    made = designed(*[("yes_no", "")] * 4, epsilon="1", ask="one")
    heads = np.bincount(simulated(made, 40_000)[:, 0], minlength=4)
    # Each is binomial with standard deviation 87; 6 of them are missed once in 10^8 runs.
    assert np.abs(heads - 10_000).max() < 6 * 87


def test_nothing_that_no_device_sends_is_unpacked(designed: Designed) -> None:
    one = designed(*EVERY_KIND, epsilon="8", ask="one")
    every = designed(*EVERY_KIND, epsilon="8", ask="all")
    for made in (one, every):
        good = simulated(made, 1)[0].tobytes()
        made.check(good)
        for bad in (b"", good[:-1], good + b"\0"):
            with pytest.raises(BadValue, match=f"must have {made.report_size} bytes"):
                made.check(bad)
    with pytest.raises(BadValue, match="must answer all questions"):
        every.check(bytes([0]) + simulated(every, 1)[0, 1:].tobytes())
    for head in (len(EVERY_KIND), 255):
        with pytest.raises(BadValue, match="a question that is not asked"):
            one.check(bytes([head]).ljust(one.report_size, b"\0"))
    with pytest.raises(BadValue, match="something after its message"):
        one.check(bytes([0]).ljust(one.report_size - 1, b"\0") + b"\1")
    with pytest.raises(BadValue, match="impossible"):
        one.check(bytes([0, 3]).ljust(one.report_size, b"\0"))  # a third option of yes, no, no answer


def test_a_set_with_a_wrong_number_of_bits_is_impossible(designed: Designed) -> None:
    options = ", ".join(f'"o{n}"' for n in range(40))
    made = designed(("choice", f"options = [{options}]"), epsilon="1")
    report = simulated(made, 1)[0].copy()
    made.check(report.tobytes())
    place = int(np.flatnonzero(report[1:])[0]) + 1
    report[place] &= report[place] - 1  # one option less
    with pytest.raises(BadValue, match="impossible"):
        made.check(report.tobytes())


def test_arrays_of_another_form_are_refused(made: Design) -> None:
    for bad in (
        np.zeros((2, made.report_size), dtype=np.int64),
        np.zeros(made.report_size, dtype=np.uint8),
        np.zeros((2, made.report_size + 1), dtype=np.uint8),
    ):
        with pytest.raises(BadValue, match="a report must have"):
            made.unpack(bad)  # type: ignore[arg-type]


def test_no_reports_are_no_mistake(made: Design) -> None:
    found = made.unpack(np.zeros((0, made.report_size), dtype=np.uint8))
    assert all(len(rows) == len(messages) == 0 for rows, messages in found.values())


@pytest.mark.parametrize(
    ("ask", "messages", "expected"),
    [
        ("all", {0: b"\0"}, "to every question"),
        ("all", {}, "to every question"),
        ("all", {0: b"\0", 1: b"\0\0"}, "has not the size"),
        ("one", {}, "to one question"),
        ("one", {0: b"\0", 1: b"\0"}, "to one question"),
        ("one", {2: b"\0"}, "belongs to no question"),
        ("one", {-1: b"\0"}, "belongs to no question"),
        ("one", {0: b""}, "has not the size"),
    ],
)
def test_only_whole_reports_are_packed(
    designed: Designed, ask: str, messages: dict[int, bytes], expected: str
) -> None:
    made = designed(("yes_no", ""), ("yes_no", ""), ask=ask)
    with pytest.raises(BadValue, match=expected):
        made.layout.pack(messages)


def test_impossible_messages_are_not_packed(designed: Designed) -> None:
    made = designed(("yes_no", ""), ("yes_no", ""), ask="all")
    assert made.layout.pack({0: b"\0", 1: b"\2"}) == b"\xff\0\2"
    with pytest.raises(BadValue, match="impossible"):
        made.layout.pack({0: b"\0", 1: b"\3"})
    with pytest.raises(BadValue, match="must be bytes"):
        made.layout.pack({0: "a", 1: b"\0"})  # type: ignore[dict-item]


@pytest.mark.parametrize("report", [None, "text", 3, [255, 0], np.zeros(2, dtype=np.uint8)])
def test_what_is_not_bytes_is_no_report(designed: Designed, report: object) -> None:
    made = designed(("yes_no", ""))
    with pytest.raises(BadValue, match="must be bytes"):
        made.check(report)  # type: ignore[arg-type]


def test_answers_to_every_question_are_needed_to_simulate(designed: Designed) -> None:
    made = designed(("yes_no", ""), ("yes_no", ""))
    few, many = np.zeros(2, dtype=np.int64), np.zeros(3, dtype=np.int64)
    with pytest.raises(BadParameter, match="every question"):
        made.simulate({"q1": few})
    with pytest.raises(BadParameter, match="as many to each"):
        made.simulate({"q1": few, "q2": many})
    with pytest.raises(BadValue):
        made.simulate({"q1": few + 3, "q2": few + 3})


def test_reports_come_back_from_a_file(made: Design, tmp_path: Path) -> None:
    reports = simulated(made, 100)
    path = tmp_path / "reports.bin"
    write_reports(path, made, reports)
    assert np.array_equal(read_reports(path, made), reports)
    with pytest.raises(BadParameter, match="nothing is written over"):
        write_reports(path, made, reports)
    with pytest.raises(BadParameter, match="cannot be written"):
        write_reports(tmp_path / "gone" / "x", made, reports)


def test_files_of_something_else_are_refused(designed: Designed, tmp_path: Path) -> None:
    made = designed(("yes_no", ""))
    other = designed(("rating", ""))
    path = tmp_path / "reports.bin"
    write_reports(path, other, simulated(other, 10))
    with pytest.raises(BadParameter, match="another survey"):
        read_reports(path, made)
    with pytest.raises(BadParameter, match="there is no file"):
        read_reports(tmp_path / "gone", made)
    path.write_bytes(b"hello")
    with pytest.raises(BadParameter, match="not a file of reports"):
        read_reports(path, made)
    path.write_bytes(HEADER_START + made.digest.encode() + b"\n\xff")
    with pytest.raises(BadParameter, match="cut off"):
        read_reports(path, made)
