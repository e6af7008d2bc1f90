"""Answers become whole numbers, each exactly one, and what is no answer is refused without being shown."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, permutations

import pytest

from lapwing.errors import BadValue
from lapwing.survey.questionnaire import (
    ALPHABET,
    NO_ANSWER,
    AnswerCoding,
    DateScale,
    NumberScale,
    OneOf,
    Ranked,
    Several,
    WordCoding,
    decimal_text,
    spell,
)
from support.cases import each

COLOURS = ("red", "green", "blue")
HALF_HOURS = NumberScale(Fraction(-1), Fraction(2), Fraction(1, 2), no_answer=True)
WEEKS = DateScale(date(2026, 1, 1), date(2026, 1, 31), 7, no_answer=True)


def everything(options: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [chosen for size in range(len(options) + 1) for chosen in combinations(options, size)]


@pytest.mark.parametrize(
    ("coding", "answers"),
    [
        (OneOf(COLOURS, no_answer=True), [*COLOURS, None]),
        (OneOf(COLOURS, no_answer=False), list(COLOURS)),
        (Several(COLOURS, no_answer=True, as_set=True), [*everything(COLOURS), None]),
        (Several(COLOURS, no_answer=False, as_set=True), everything(COLOURS)),
        (Several(COLOURS, no_answer=False, as_set=False), everything(COLOURS)),
        (Ranked(COLOURS, no_answer=True), [*permutations(COLOURS), None]),
        (Ranked(("a", "b", "c", "d", "e"), no_answer=False), list(permutations("abcde"))),
        (HALF_HOURS, [-1, "-0.5", 0.0, Decimal("0.5"), 1, Fraction(3, 2), 2, None]),
        (WEEKS, [date(2026, 1, 1), "2026-01-08", "2026-01-15", "2026-01-22", "2026-01-29", None]),
    ],
)
def test_every_answer_has_a_number_of_its_own_and_every_number_an_answer(
    coding: AnswerCoding, answers: list[object]
) -> None:
    assert sorted(coding.code(answer) for answer in answers) == list(range(coding.inputs))
    assert len({coding.text_of(code) for code in range(coding.inputs)}) == coding.inputs


def test_the_order_of_the_labels_is_the_order_of_the_numbers() -> None:
    assert [OneOf(COLOURS, no_answer=True).code(label) for label in (*COLOURS, NO_ANSWER)] == [0, 1, 2, 3]
    assert OneOf(("yes", "no"), no_answer=False).code(True) == 0
    assert OneOf(("yes", "no"), no_answer=False).code(False) == 1
    assert OneOf(("1", "2", "3"), no_answer=True).code(3) == 2


def test_orders_are_numbered_as_in_a_dictionary() -> None:
    ranked = Ranked(("a", "b", "c", "d"), no_answer=True)
    for number, order in enumerate(permutations("abcd")):
        assert ranked.code(order) == number
        assert "".join(ranked.options[k] for k in ranked.order(number)) == "".join(order)
        assert ranked.text_of(number) == " > ".join(order)
    assert ranked.order(24) == ()
    assert ranked.text_of(24) == NO_ANSWER


def test_bits_are_the_options_and_no_answer_is_a_bit_of_its_own() -> None:
    bits = Several(COLOURS, no_answer=True, as_set=False)
    assert bits.labels == (*COLOURS, NO_ANSWER)
    assert (bits.bits, bits.inputs) == (4, 16)
    assert [bits.code(answer) for answer in ([], ["red"], {"blue", "green"}, None)] == [0, 1, 6, 8]
    assert [bits.text_of(code) for code in (0, 5, 8)] == ["none of them", "red + blue", NO_ANSWER]


def test_numbers_stand_for_values() -> None:
    assert [HALF_HOURS.text_of(code) for code in (0, 1, 6, 7)] == ["-1", "-0.5", "2", NO_ANSWER]
    assert HALF_HOURS.text_of(1) == "-0.5"
    assert WEEKS.text_of(4) == "2026-01-29"
    assert WEEKS.text_of(5) == NO_ANSWER
    assert WEEKS.code(date(2026, 1, 14)) == 1, "days between two steps count to the earlier one"


def test_words_are_letters_of_five_bits() -> None:
    word = WordCoding(4, no_answer=True)
    assert word.inputs == 2**20
    assert word.code("a") == 1 << 15
    assert word.code(" Tea ") == (20 << 15) + (5 << 10) + (1 << 5)
    assert word.code("a-b'") == (1 << 15) + (28 << 10) + (2 << 5) + 29
    assert word.code("A  b") == (1 << 15) + (27 << 10) + (2 << 5)
    assert word.code("") == word.code(None) == word.code(NO_ANSWER) == 0
    assert [word.text_of(word.code(text)) for text in ("tea", "z", "a b")] == ["tea", "z", "a b"]
    assert word.text_of(0) == NO_ANSWER
    assert WordCoding.number("te") == word.code("te") >> 10
    assert spell(WordCoding.number("te"), 2) == "te"
    assert spell(31, 2) == "??", "no word ends before its first letter, and no letter is the 31st"
    assert len(ALPHABET) == 30


@each(
    ("coding", "answer", "expected"),
    [
        (OneOf(COLOURS, no_answer=True), "pink", "must be one of: red, green, blue"),
        (OneOf(COLOURS, no_answer=True), "Red", "must be one of"),
        (OneOf(COLOURS, no_answer=True), True, "must be one of"),
        (OneOf(COLOURS, no_answer=True), 0, "must be one of"),
        (OneOf(tuple("abcdefghijklmn"), no_answer=True), "z", "one of the 14 options"),
        (OneOf(COLOURS, no_answer=False), None, "has to be answered"),
        (OneOf(COLOURS, no_answer=False), NO_ANSWER, "has to be answered"),
        (Several(COLOURS, no_answer=False, as_set=True), None, "has to be answered"),
        (Several(COLOURS, no_answer=True, as_set=False), "red", "must be a list"),
        (Several(COLOURS, no_answer=True, as_set=False), 5, "must be a list"),
        (Several(COLOURS, no_answer=True, as_set=False), ["red", "red"], "comes twice"),
        (Several(COLOURS, no_answer=True, as_set=True), ["red", "pink"], "every option"),
        (Several(COLOURS, no_answer=True, as_set=True), [NO_ANSWER], "every option"),
        (Ranked(COLOURS, no_answer=True), ["red", "green"], "all options"),
        (Ranked(COLOURS, no_answer=True), set(COLOURS), "all options"),
        (Ranked(COLOURS, no_answer=False), None, "has to be answered"),
        (HALF_HOURS, 2.5, "between -1 and 2"),
        (HALF_HOURS, "1e300", "between -1 and 2"),
        (HALF_HOURS, 0.3, "a step of 0.5"),
        (HALF_HOURS, "many", "must be a number"),
        (HALF_HOURS, float("nan"), "must be a number"),
        (HALF_HOURS, True, "must be a number"),
        (WEEKS, "2026-02-01", "between 2026-01-01 and 2026-01-31"),
        (WEEKS, "tomorrow", "must be a date"),
        (WEEKS, datetime(2026, 1, 1), "must be a date"),
        (WEEKS, 5, "must be a date"),
        (WordCoding(4, no_answer=True), "coffee", "at most 4 letters"),
        (WordCoding(4, no_answer=True), "thé", "letters a-z"),
        (WordCoding(4, no_answer=True), "\0", "letters a-z"),
        (WordCoding(4, no_answer=True), "  ", "letters a-z"),
        (WordCoding(4, no_answer=True), 7, "letters a-z"),
        (WordCoding(4, no_answer=False), "", "has to be answered"),
    ],
)
def test_what_is_no_possible_answer_is_refused_and_not_shown(
    coding: AnswerCoding, answer: object, expected: str
) -> None:
    with pytest.raises(BadValue, match=expected) as caught:
        coding.code(answer)
    if isinstance(answer, str) and len(answer) > 3 and answer != NO_ANSWER:
        assert answer not in str(caught.value)


@pytest.mark.parametrize(
    "coding", [OneOf(COLOURS, no_answer=True), HALF_HOURS, WEEKS, WordCoding(2, no_answer=True)]
)
def test_numbers_that_no_answer_has_are_refused(coding: AnswerCoding) -> None:
    for code in (-1, coding.inputs):
        with pytest.raises(BadValue, match="number of an answer"):
            coding.text_of(code)


@pytest.mark.parametrize(
    ("value", "text"),
    [("0", "0"), ("-3", "-3"), ("1/4", "0.25"), ("-1/2", "-0.5"), ("-1/50", "-0.02"), ("10.50", "10.5")],
)
def test_decimals_are_written_as_people_do(value: str, text: str) -> None:
    assert decimal_text(Fraction(value)) == text
