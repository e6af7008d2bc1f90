"""From reports to estimates, end to end. Simulations are seeded and state their false-alarm rates."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import BadParameter, BadValue
from lapwing.survey.estimating.results import EstimatedValue
from lapwing.survey.estimating.survey_estimates import estimate
from support.estimated import by_name, designed, exactly
from support.laws import between
from support.streams import SeededStream

YES_NO = 'kind = "yes_no"\nno_answer = false'
COINS = f'{YES_NO}\nprotocol = "two_coins"'
CHOICE = 'kind = "choice"\noptions = ["a", "b", "c"]'
RATING = 'kind = "rating"'
RANKING = 'kind = "ranking"\noptions = ["a", "b", "c"]'
SET = 'kind = "several"\nas = "set"\noptions = ["x", "y", "z"]'
BITS = 'kind = "several"\noptions = ["x", "y", "z"]'
NUMBER = 'kind = "number"\nlow = 0\nhigh = 10\nstep = 1\nabout = "mean"'


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(530))


def near(one: EstimatedValue, truth: float) -> None:
    """Within six standard errors of the coins alone: false alarm 2e-9."""
    assert one.respondents is not None
    assert abs(one.value - truth) < 6 * one.respondents.error


def test_two_coins_are_twice_the_mean_less_a_half(tmp_path: Path) -> None:
    made = designed(tmp_path, COINS)
    question = made.parts[0].question
    reports = made.simulate(by_name(made, [exactly(question, [("yes", 3), ("no", 7)], 1000)]))
    said_yes = float((reports[:, 1] == question.code("yes")).mean())
    found = estimate(made, reports).answers[0].table("share").estimates
    assert found[question.code("yes")].value == pytest.approx(2 * said_yes - 0.5)


@pytest.mark.parametrize("protocol", ["choice", "subset", "hadamard", "unary", "projective"])
def test_shares_are_found_by_every_protocol(protocol: str, tmp_path: Path) -> None:
    made = designed(tmp_path, f'{CHOICE}\nprotocol = "{protocol}"', epsilon="2")
    shares: list[tuple[object, int]] = [("a", 5), ("b", 3), ("c", 1), (None, 1)]
    answers = exactly(made.parts[0].question, shares, 20_000)
    found = estimate(made, made.simulate(by_name(made, [answers]))).answers[0]
    table = found.table("share").estimates
    for one, (_, part) in zip(table, shares, strict=True):
        near(one, part / 10)
    assert sum(one.fitted or 0 for one in table) == pytest.approx(1)
    for one, (_, part) in zip(
        found.table("share of those who answered").estimates, shares[:3], strict=True
    ):
        near(one, part / 9)


def test_ratings_rankings_and_sets_have_their_functions(tmp_path: Path) -> None:
    made = designed(tmp_path, RATING, RANKING, SET, BITS, epsilon="8")
    rating, ranking, sets, bits = (part.question for part in made.parts)
    chosen: list[tuple[object, int]] = [(["x"], 4), (["x", "y"], 2), ([], 2), (None, 2)]
    answers = [
        exactly(rating, [(1, 2), (4, 6), (None, 2)], 20_000),
        exactly(ranking, [(["c", "a", "b"], 6), (["a", "b", "c"], 3), (None, 1)], 20_000),
        exactly(sets, chosen, 20_000),
        exactly(bits, chosen, 20_000),
    ]
    found = estimate(made, made.simulate(by_name(made, answers)))
    near(found.answer("q0").table("mean").estimates[0], (2 * 1 + 6 * 4) / 8)
    ranks = {one.label: one for one in found.answer("q1").table("mean rank").estimates}
    near(ranks["c"], (6 * 1 + 3 * 3) / 9)
    near(ranks["a"], (6 * 2 + 3 * 1) / 9)
    pairs = {one.label: one for one in found.answer("q1").table("preferred").estimates}
    near(pairs["a before b"], 1.0)
    near(pairs["b before c"], 3 / 9)
    near(found.answer("q1").table("share").estimates[0], 0.1)
    for name in ("q2", "q3"):
        shares = {one.label: one for one in found.answer(name).table("share").estimates}
        for label, truth in (("x", 0.6), ("y", 0.2), ("z", 0.0), ("no answer", 0.2)):
            near(shares[label], truth)


def test_cross_tables_are_unbiased(tmp_path: Path) -> None:
    """The mean over all reports of a respondent, by the exact law of both coins."""
    made = designed(tmp_path, COINS, f"{CHOICE}\nno_answer = false", epsilon="2.5")
    one, other = (part.randomizer for part in made.parts)
    total = np.zeros((2, 3))
    for first in range(2):
        for second in range(3):
            messages = {0: bytes([first]), 1: bytes([second])}
            row = np.frombuffer(made.layout.pack(messages), dtype=np.uint8)[np.newaxis]
            cross = estimate(made, row, cross=[("q0", "q1")]).crosses[0]
            cells = np.array([[cell.value for cell in table.estimates] for _, table in cross.lines])
            p = one.probability(1, messages[0]) * other.probability(2, messages[1])
            total += float(p) * cells
    assert total == pytest.approx(np.array([[0, 0, 0], [0, 0, 1]]), abs=1e-9)


@pytest.mark.slow
def test_cross_tables_and_groups_hold(tmp_path: Path) -> None:
    """250 surveys; false alarm 1e-9 for each of six tests that coverage is at least 94 %."""
    made = designed(tmp_path, COINS, f"{CHOICE}\nno_answer = false", NUMBER, epsilon="5")
    generator = np.random.Generator(np.random.Philox(531))
    yes = made.parts[0].question.code("yes")
    law = np.array([0.1, 0.2, 0.1, 0.3, 0.1, 0.2])  # of first times three plus second
    runs, held = 250, np.zeros(6, dtype=np.int64)
    for _ in range(runs):
        drawn = generator.choice(6, size=1000, p=law)
        first, second = drawn // 3, drawn % 3
        number = np.minimum(generator.integers(0, 6, 1000) + 5 * (first == yes), 10)
        found = estimate(
            made,
            made.simulate(by_name(made, [first, second, number])),
            by="q0",
            cross=[("q0", "q1")],
        )
        cell = found.crosses[0].lines[yes][1].estimates[1]
        group = "q0: yes"
        share = found.answer("q1", group).table("share").estimates[1]
        mean = found.answer("q2", group).table("mean").estimates[0]
        mine = (first == yes) & (second == 1)
        truths = law.reshape(2, 3)[yes, 1], law.reshape(2, 3)[yes, 1] / law.reshape(2, 3)[yes].sum(), 7.5
        drawn_ = mine.mean(), mine.sum() / (first == yes).sum(), number[first == yes].mean()
        for place, (shown, truth, here) in enumerate(zip((cell, share, mean), truths, drawn_, strict=True)):
            assert shown.population is not None
            assert shown.respondents is not None
            held[place] += shown.population.low <= truth <= shown.population.high
            held[3 + place] += shown.respondents.low <= here <= shown.respondents.high
    for count in held.tolist():
        assert between(count, runs)[1] >= 0.94, f"{held.tolist()} of {runs}"


def test_one_question_each_has_fewer_reports_and_no_cross_tables(tmp_path: Path) -> None:
    made = designed(tmp_path, YES_NO, CHOICE, ask="one", epsilon="1")
    answers = [np.zeros(8_000, dtype=np.int64), np.ones(8_000, dtype=np.int64)]
    reports = made.simulate(by_name(made, answers))
    found = estimate(made, reports, liars="0.01")
    assert sum(answer.reports for answer in found.answers) == 8_000
    near(found.answer("q0").table("share").estimates[0], 1.0)
    lies = found.answer("q0").table("share").estimates[0].adversarial_shift
    assert lies is not None
    assert lies[1] > 0.01 * 1.9, "all liars may go for one question"
    with pytest.raises(BadParameter, match="one question"):
        estimate(made, reports, by="q0")
    with pytest.raises(BadParameter, match="one question"):
        estimate(made, reports, cross=[("q0", "q1")])


def test_one_question_each_holds_for_all_respondents(tmp_path: Path) -> None:
    """250 surveys at ε 4; false alarm 1e-9 for each of four tests that coverage is at least 94 %.

    The coins alone, of those who were asked, held for all respondents in about half of the surveys.
    """
    made = designed(tmp_path, YES_NO, RATING, NUMBER, BITS, ask="one", epsilon="4")
    generator = np.random.Generator(np.random.Philox(532))
    law = np.array([0.1, 0.1, 0.2, 0.25, 0.25, 0.1])  # of 1 .. 5, and no answer
    runs, held = 250, np.zeros(4, dtype=np.int64)
    for _ in range(runs):
        answers = [
            generator.integers(0, 2, 1200),
            generator.choice(6, size=1200, p=law),
            generator.integers(0, 11, 1200),
            generator.integers(0, 8, 1200),
        ]
        found = estimate(made, made.simulate(by_name(made, answers)))
        rated = answers[1][answers[1] < 5] + 1
        for place, (title, option, truth) in enumerate(
            (
                ("share", 1, answers[0].mean()),
                ("mean", 0, rated.mean()),
                ("mean", 0, answers[2].mean()),
                ("share", 0, (answers[3] & 1).mean()),
            )
        ):
            shown = found.answers[place].table(title).estimates[option].respondents
            assert shown is not None
            held[place] += shown.low <= truth <= shown.high
    for count in held.tolist():
        assert between(count, runs)[1] >= 0.94, f"{held.tolist()} of {runs}"


def test_a_question_that_nobody_got_has_no_tables(tmp_path: Path) -> None:
    made = designed(tmp_path, YES_NO, CHOICE, ask="one", epsilon="1")
    reports = made.simulate(by_name(made, [np.zeros(50, dtype=np.int64)] * 2))
    found = estimate(made, reports[reports[:, 0] == 1])
    assert found.answer("q0").tables == ()
    assert found.answer("q0").reports == 0


def test_blocks_give_what_the_whole_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = designed(tmp_path, YES_NO, RATING, NUMBER, 'kind = "word"\nletters = 4', epsilon="8")
    answers = [np.arange(700) % part.question.inputs for part in made.parts]
    reports = made.simulate(by_name(made, answers))
    seen: list[tuple[int, int]] = []
    whole = estimate(made, reports, by="q0")
    monkeypatch.setattr("lapwing.survey.estimating.survey_estimates.BLOCK_REPORTS", 64)
    parts = estimate(made, reports, by="q0", progress=lambda done, of: seen.append((done, of)))
    for one, other in zip(whole.rows(), parts.rows(), strict=True):
        assert one.label == other.label
        assert (one.share, one.low, one.high) == pytest.approx((other.share, other.low, other.high))
    assert seen[-1] == (700, 700)
    assert len(seen) == 11


def test_rows_and_json_have_every_number(tmp_path: Path) -> None:
    made = designed(tmp_path, YES_NO, CHOICE, NUMBER, epsilon="6")
    answers = [np.arange(900) % part.question.inputs for part in made.parts]
    reports = made.simulate(by_name(made, answers))
    found = estimate(made, reports, confidence="0.9", by="q1", cross=[("q0", "q1")], liars="0.05")
    text = json.dumps(found.to_json(), allow_nan=False)
    back = json.loads(text)
    assert (back["reports"], back["confidence"], back["liars"]) == (900, 0.9, 0.05)
    assert [answer["question"] for answer in back["answers"][:3]] == ["q0", "q1", "q2"]
    assert back["crosses"][0]["rows_of"] == "q0"
    rows = found.rows()
    assert {row.kind for row in rows} == {"respondents", "population"}
    assert all(row.low <= row.high for row in rows)
    assert {row.group for row in rows} >= {None, "q1: a", "q1: no answer"}
    table = found.answer("q0").table("share")
    assert table.show(0.123) == "12.3 %"
    assert table.show(math.nan) == "unknown"


@pytest.mark.parametrize(
    ("by", "cross"), [("q9", []), ("q2", []), (None, [("q0", "q0")]), (None, [("q0", "q2")])]
)
def test_groups_that_cannot_be_formed_are_refused(
    by: str | None, cross: list[tuple[str, str]], tmp_path: Path
) -> None:
    made = designed(tmp_path, YES_NO, CHOICE, NUMBER, epsilon="6")
    reports = made.simulate(by_name(made, [np.zeros(9, dtype=np.int64)] * 3))
    with pytest.raises(BadParameter):
        estimate(made, reports, by=by, cross=cross)


def test_no_reports_and_impossible_ones_are_refused(tmp_path: Path) -> None:
    made = designed(tmp_path, YES_NO)
    with pytest.raises(BadValue):
        estimate(made, np.zeros((0, made.report_size), dtype=np.uint8))
    with pytest.raises(BadValue):
        estimate(made, np.full((3, made.report_size), 9, dtype=np.uint8))
