"""A design: the best protocol for every question, what it costs, and whether one or all are asked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import pytest

from lapwing.core.chances import percent
from lapwing.core.exact import log_up
from lapwing.errors import BadParameter
from lapwing.survey.designing import CROSS_TABLES, Design, design
from lapwing.survey.randomizers import (
    ODDS,
    BitwiseResponse,
    DuchiResponse,
    HadamardResponse,
    HybridResponse,
    KaryResponse,
    Piecewise,
    PrefixResponse,
    ProjectiveResponse,
    SquareWave,
    SubsetSelection,
    UnaryEncoding,
    WindowResponse,
)
from lapwing.survey.survey_file import load
from support.raised import named

Designed = Callable[..., Design]
BINARY = ("yes_no", "no_answer = false")
COINS = ("yes_no", 'no_answer = false\nprotocol = "two_coins"')
SCALE = "low = 0\nhigh = 100\nstep = 1\n"
LN_3 = log_up(3)


def options(count: int, more: str = "no_answer = false") -> tuple[str, str]:
    return "choice", f"options = {json.dumps([f'o{n}' for n in range(count)])}\n{more}"


@pytest.mark.parametrize(
    ("question", "epsilon", "expected"),
    [
        (BINARY, "0.1", KaryResponse),
        (BINARY, "5", KaryResponse),
        (options(3), "0.1", KaryResponse),  # 3 / (e^ε + 1) is 1.43: one option is better than two
        (options(100), "1", SubsetSelection),
        (options(100), "5", KaryResponse),  # 100 / (e^5 + 1) is below 1
        (options(4096), "1", SubsetSelection),
        (("rating", ""), "1", KaryResponse),
        (("ranking", 'options = ["a", "b", "c", "d", "e", "f"]'), "1", SubsetSelection),
        (("several", 'options = ["a", "b", "c"]'), "1", BitwiseResponse),
        (("several", 'options = ["a", "b", "c", "d"]\nas = "set"'), "0.5", SubsetSelection),
        (options(5000), "1", HadamardResponse),
        (options(5000), "1.001", ProjectiveResponse),
        (("number", SCALE), "0.61", DuchiResponse),
        (("number", SCALE), "0.62", HybridResponse),
        (("number", SCALE + 'about = "distribution"'), "0.3", WindowResponse),
        (("date", "low = 2026-01-01\nhigh = 2026-12-31"), "1", WindowResponse),
        (("date", 'low = 2026-01-01\nhigh = 2026-12-31\nabout = "mean"'), "1", HybridResponse),
        (("word", ""), "2", PrefixResponse),
    ],
)
def test_each_question_gets_the_protocol_with_the_best_known_variance(
    designed: Designed, question: tuple[str, str], epsilon: str, expected: type
) -> None:
    (part,) = designed(question, epsilon=epsilon).parts
    assert isinstance(part.randomizer, expected)
    assert part.randomizer.inputs == part.question.inputs
    assert part.epsilon == Fraction(epsilon)
    assert part.why


def test_a_set_has_the_better_neighbour_of_its_ideal_size(designed: Designed) -> None:
    (part,) = designed(options(100), epsilon="1").parts
    assert isinstance(part.randomizer, SubsetSelection)
    assert part.randomizer.chosen in (26, 27)  # 100 / (e + 1) is 26.9
    assert part.randomizer.variance(0.0) == pytest.approx(3.590, abs=0.002)


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("choice", KaryResponse),
        ("subset", SubsetSelection),
        ("hadamard", HadamardResponse),
        ("projective", ProjectiveResponse),
        ("unary", UnaryEncoding),
    ],
)
def test_an_owner_can_force_a_protocol_for_shares(
    designed: Designed, protocol: str, expected: type
) -> None:
    (part,) = designed(options(20, f'protocol = "{protocol}"')).parts
    assert isinstance(part.randomizer, expected)
    assert part.randomizer.inputs == 21
    assert part.why == "forced by the survey"


@pytest.mark.parametrize(
    ("about", "protocol", "expected"),
    [
        ("mean", "duchi", DuchiResponse),
        ("mean", "piecewise", WindowResponse),
        ("mean", "hybrid", HybridResponse),
        ("distribution", "square_wave", WindowResponse),
        ("distribution", "piecewise", WindowResponse),
    ],
)
def test_an_owner_can_force_a_protocol_for_numbers(
    designed: Designed, about: str, protocol: str, expected: type
) -> None:
    keys = f'{SCALE}about = "{about}"\nprotocol = "{protocol}"'
    (part,) = designed(("number", keys)).parts
    assert isinstance(part.randomizer, expected)
    assert part.epsilon == 2
    if isinstance(part.randomizer, WindowResponse):
        maker = SquareWave if protocol == "square_wave" else Piecewise
        assert part.randomizer == maker.for_epsilon(2, steps=100, none=True)


def test_two_coins_cost_exactly_ln_3_and_m_ln_3(designed: Designed) -> None:
    one = designed(COINS)
    assert one.parts[0].randomizer.recipe() == {"kind": "choice", "options": 2, "favoured": 3 << 46}
    assert one.epsilon == LN_3
    three = designed(COINS, COINS, COINS, epsilon="3.3", ask="all")
    assert three.asks_all
    assert three.epsilon == 3 * LN_3
    bits = designed(("several", f'options = ["a", "b", "c"]\n{COINS[1]}'), epsilon="3.3")
    assert bits.parts[0].randomizer.recipe() == {"kind": "bits", "options": 3, "favoured": 3 << 46}
    assert float(bits.epsilon) == pytest.approx(3 * math.log(3), abs=1e-12)
    assert "3 ln 3" in bits.parts[0].why
    assert "a second coin answers" in one.parts[0].odds


def test_coins_cost_what_they_cost_and_the_others_share_the_rest(designed: Designed) -> None:
    made = designed(COINS, BINARY, BINARY, epsilon="2", ask="all")
    rest = (2 - LN_3) / 2
    assert [part.epsilon for part in made.parts] == [LN_3, rest, rest]
    assert made.epsilon == 2
    assert designed(COINS, COINS, epsilon="2").asks_all is False, "2 ln 3 is more than 2"


@pytest.mark.parametrize(
    ("count", "threshold"), [(2, "3.06"), (3, "3.71"), (5, "4.71"), (10, "6.53"), (20, "9.10")]
)
def test_one_question_at_random_wins_below_the_known_total(
    designed: Designed, count: int, threshold: str
) -> None:
    near = Fraction(threshold)
    below = designed(*[BINARY] * count, epsilon=str(float(near - Fraction(1, 100))))
    above = designed(*[BINARY] * count, epsilon=str(float(near + Fraction(1, 100))))
    assert not below.asks_all
    assert CROSS_TABLES in below.why
    assert above.asks_all
    assert CROSS_TABLES not in above.why
    assert below.epsilon == near - Fraction(1, 100), "whichever question is asked gets all of it"
    assert above.epsilon == near + Fraction(1, 100), "the equal parts add up again"


def test_the_survey_can_say_whether_all_or_one_are_asked(designed: Designed) -> None:
    assert designed(BINARY, BINARY, epsilon="0.5", ask="all").asks_all
    one = designed(BINARY, BINARY, epsilon="50", ask="one")
    assert not one.asks_all
    assert one.why == f"The survey says so: ask = one. {CROSS_TABLES}"
    assert designed(BINARY, ask="one").asks_all, "of one question, one is all"


def test_an_epsilon_too_small_for_any_coin_is_told_so(designed: Designed) -> None:
    with pytest.raises(BadParameter, check=named("epsilon")):
        designed(*[BINARY] * 99, epsilon="1e-9", ask="all")


def bundled() -> Design:
    return design(load(Path(str(files("lapwing.examples").joinpath("data", "wellbeing.toml")))))


def test_the_same_survey_always_has_the_same_design() -> None:
    first, second = bundled(), bundled()
    assert first.public() == second.public()
    assert first.digest == second.digest
    text = json.dumps(first.public(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert first.digest == hashlib.sha256(text.encode()).hexdigest()


def test_what_is_public_is_json_and_says_all_that_a_device_needs() -> None:
    made = bundled()
    public = json.loads(json.dumps(made.public(), allow_nan=False))
    assert public == made.public()
    assert (public["name"], public["ask"], public["epsilon"]) == ("wellbeing", "one", "2")
    assert public["report_size"] == 1 + max(question["size"] for question in public["questions"])
    by_name = {question["name"]: question for question in public["questions"]}
    for part in made.parts:
        question = by_name[part.question.name]
        assert question["recipe"] == part.randomizer.recipe()
        assert question["inputs"] == part.question.inputs == part.randomizer.inputs
        assert question["odds"].endswith(".")
        assert question["labels"] == list(part.question.labels)
    sleep = by_name["sleep"]
    assert (sleep["low"], sleep["high"], sleep["step"]) == ("0", "16", "0.25")
    holiday = by_name["holiday"]
    assert (holiday["low"], holiday["high"], holiday["step"]) == ("2025-01-01", "2026-12-31", "7")
    assert by_name["drink"]["letters"] == 6
    assert by_name["leisure"]["as"] == "set"
    assert by_name["pill"]["labels"] == ["A", "B", "no answer"]


def test_the_digest_changes_with_every_word_that_respondents_see(
    designed: Designed, tmp_path: Path
) -> None:
    made = designed(BINARY)
    text = (tmp_path / "test.toml").read_text()
    seen = {made.digest}
    for old, new in (
        ("What?", "Why?"),
        ("A test", "B test"),
        ("epsilon = 2", "epsilon = 1"),
        ("5000", "9"),
    ):
        (tmp_path / "test.toml").write_text(text.replace(old, new))
        seen.add(design(load(tmp_path / "test.toml")).digest)
    assert len(seen) == 5
    (tmp_path / "other.toml").write_text(text + "# a remark\n")
    assert design(load(tmp_path / "other.toml")).digest == made.digest


def test_epsilon_is_told_rounded_up(designed: Designed) -> None:
    assert designed(COINS).public()["epsilon"] == "1.098612289"
    assert math.log(3) < 1.098612289


@pytest.mark.parametrize(
    ("chance", "text"),
    [
        ("3/4", "75 %"),
        ("0.7311", "73.1 %"),
        ("0.99999", "more than 99.9 %"),
        ("0.0001", "less than 0.1 %"),
        ("1", "100 %"),
        ("0", "0 %"),
    ],
)
def test_what_is_not_certain_is_never_shown_as_certain(chance: str, text: str) -> None:
    assert percent(Fraction(chance)) == text


def test_odds_are_told_in_plain_words(designed: Designed) -> None:
    def odds(question: tuple[str, str], epsilon: str = "1") -> str:
        return designed(question, epsilon=epsilon).parts[0].odds

    assert odds(BINARY) == (
        "Your device sends your own answer with a chance of 73.1 %, and the other one with 26.9 %."
    )
    assert "each of the other 5 with" in odds(("rating", ""), "2")
    assert "a list with 27 of the 100 options" in odds(options(100))
    assert "For each of the 3 options by itself" in odds(("several", 'options = ["a", "b"]'))
    assert "code number" in odds(options(5000))
    assert "the truth with a chance of 62.2 %" in odds(
        ("several", 'options = ["a", "b"]\nno_answer = false')
    )
    duchi = odds(("number", SCALE), "0.5")
    assert '"low", "high" or "none"' in duchi
    assert "one of two ways" in odds(("number", SCALE), "2")
    assert "numbers is sent" in odds(("number", f'{SCALE}about = "distribution"'))
    assert "letters of your word" in odds(("word", "letters = 3"))


def test_the_odds_of_words_are_the_extremes_over_all_lengths() -> None:
    """Whatever their order: here the second of three is the most truthful one."""
    chances = (60, 90, 70)
    inner = tuple(
        SubsetSelection(32**level, 1, ODDS * part // 100) for level, part in enumerate(chances, 1)
    )
    told = PrefixResponse(3, (1, 2, 3), inner).stated_odds()
    assert "with a chance of 60 % to 90 %." in told
