"""An error of a server is the library's error of that code."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import lapwing
from lapwing.client.replied_errors import RequestRefused, class_of, error_of
from lapwing.errors import (
    AllHeld,
    BadFile,
    BadParameter,
    Held,
    InProgress,
    KeyReused,
    LapwingError,
    OverBudget,
    TokenSpent,
    TooManyRequests,
    Unavailable,
    WorkEnded,
    fields_of,
)  # fmt: skip
from lapwing.sql.question.refusal import Refused
from support.cases import each

ERRORS: list[LapwingError] = [
    OverBudget("ε 1", "ε 0.5 of 1", "Ask for less.", where='"visits"'),
    BadParameter("epsilon", "must be above 0"),
    BadFile(["a", "b"]),
    Refused("rows are never shown", "Ask for COUNT(*)", (1, 8)),
    Held(7),
    AllHeld([7, 8]),
    KeyReused(),
    InProgress(),
    WorkEnded(),
    Unavailable("away"),
    TooManyRequests(3),
]


@each("error", ERRORS)
def test_an_error_comes_back_as_it_was(error: LapwingError) -> None:
    said = {"error": {"code": error.code, "message": str(error), **fields_of(error)}}
    again = error_of(422, said)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert fields_of(again) == fields_of(error)
    assert again.code == error.code
    assert str(pickle.loads(pickle.dumps(again))) == str(error)


def test_a_token_that_is_spent_is_told_by_its_class() -> None:
    said = {
        "code": "token-spent",
        "message": "asked ε 1",
        "asked": "ε 1",
        "left": "ε 0 of 1",
        "what_now": "-",
    }
    error = error_of(403, {"error": said})
    assert isinstance(error, TokenSpent)
    assert error.left == "ε 0 of 1"


def test_words_of_servers_alone_have_a_class_of_their_own() -> None:
    error = error_of(404, {"error": {"code": "not-found", "message": "there is nothing here for you"}})
    assert isinstance(error, RequestRefused)
    assert (error.code, error.status, str(error)) == ("not-found", 404, "there is nothing here for you")


@each("content", [None, 3, [], {}, {"error": 3}, {"error": {"code": 3}}, {"error": {"message": "x"}}])
def test_other_replies_are_said_to_be_none_of_ours(content: Any) -> None:
    error = error_of(500, content)
    assert isinstance(error, RequestRefused)
    assert "500" in str(error)


def test_fields_cannot_replace_what_an_error_is() -> None:
    said = {"code": "over-budget", "message": "m", "__class__": "x", "_a": 1, "args": "a", "with space": 1}
    error = error_of(422, {"error": said})
    assert type(error) is OverBudget
    assert "_a" not in vars(error)
    assert str(error) == "m"


@each("code", ["lapwing-error", "", "no-such-code", "__class__"])
def test_no_code_makes_a_class_that_is_not_raised(code: str) -> None:
    assert class_of(code) is None


def test_the_code_of_a_broken_file_without_mistakes_still_prints() -> None:
    assert "m" in str(error_of(422, {"error": {"code": "bad-file", "message": "m"}}))


def test_public_names_are_raised() -> None:
    assert class_of("refused") is lapwing.Refused
    with pytest.raises(lapwing.OverBudget):
        raise error_of(422, {"error": {"code": "over-budget", "message": "m"}})
