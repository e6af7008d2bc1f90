"""Forms of questions: decimal text alone decides a price, and errors quote nothing."""

from __future__ import annotations

import pytest

from lapwing.errors import BadParameter
from lapwing.server.data.question_form import LONGEST_SQL, QuestionForm

SQL = '"sql": "SELECT COUNT(*) FROM visits"'


def _field(body: str) -> str:
    with pytest.raises(BadParameter) as caught:
        QuestionForm.read(body.encode())
    assert "canary" not in str(caught.value)
    return caught.value.name


def test_decimal_text_is_taken_as_it_is_written() -> None:
    for text in ("0.1", "1e-3", "5E-10", "000000000001.5", "1e2"):
        assert QuestionForm.read(f'{{{SQL}, "epsilon": "{text}"}}'.encode()).epsilon == text


def test_what_is_no_positive_decimal_text_is_refused() -> None:
    for number in (
        '"NaN"', '"1e999"', '"-1"', '"0"', '"0.0"', '"inf"', '"1/2"', '" 1"', '"1_0"', '"٠.٥"', '""', "0.5",
        "1", "true", "[]", "1e999",
    ):  # fmt: skip
        assert _field(f'{{{SQL}, "epsilon": {number}}}') == "epsilon", number
    assert _field(f'{{{SQL}, "epsilon": NaN}}') in ("epsilon", "body")


def test_every_other_field_has_its_own_form() -> None:
    for more, name in (
        ('"rows": "5"', "rows"), ('"rows": 0', "rows"), ('"rows": true', "rows"), ('"rows": 1.5', "rows"),
        ('"noise": "canary"', "noise"), ('"fresh": 1', "fresh"), ('"delta": "-1"', "delta"),
        ('"epsilom": "canary"', "epsilom"), ('"confidence": 0.95', "confidence"),
    ):  # fmt: skip
        assert _field(f'{{{SQL}, "epsilon": "1", {more}}}') == name
    assert _field('{"epsilon": "1"}') == "sql"
    assert _field(f'{{"sql": "{"x" * (LONGEST_SQL + 1)}", "epsilon": "1"}}') == "sql"


def test_what_is_no_json_object_is_refused() -> None:
    for body in (
        "",
        "[]",
        "null",
        "{",
        '"canary"',
        "[" * 100_000,
        '{"sql": "\ud800"}'.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape"),
    ):
        with pytest.raises(BadParameter) as caught:
            QuestionForm.read(body.encode("utf-8", "surrogateescape"))
        assert caught.value.name in ("body", "sql")


def test_only_what_was_given_is_an_option() -> None:
    """Other options may stand in the SQL: a default beside it would be given twice."""
    assert QuestionForm.read(f"{{{SQL}}}".encode()).options == {}
    given = QuestionForm.read(f'{{{SQL}, "confidence": "0.95", "fresh": true}}'.encode())
    assert given.options == {"confidence": "0.95"}
