"""What a device reads of a survey: exact numbers, known fields, one digest and one fingerprint."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadValue
from lapwing.survey.credentials import PublicKey
from lapwing.survey.designing import LARGEST_SURVEY, design
from lapwing.survey.message_words import odds_in_words
from lapwing.survey.offered import (
    exact_json,
    fingerprint,
    is_browser_exact,
    parse_exact_json,
    read_offered,
)
from lapwing.survey.respondent import Respondent
from lapwing.survey.survey_file import load
from support.survey_site import EVERY_KIND, one_question

RFC = json.loads((Path(__file__).parent / "rfc9474.json").read_text())
WORD = '\n[[questions]]\nname = "word"\ntext = "?"\nkind = "word"\nletters = 12\n'
TICKS = '\n[[questions]]\nname = "ticks"\ntext = "?"\nkind = "several"\noptions = {}\n'


def public_of(folder: Path, content: str) -> dict[str, Any]:
    file = folder / "survey.toml"
    file.write_text(content)
    return design(load(file)).public()


@pytest.mark.parametrize(
    "content",
    [EVERY_KIND, one_question() + WORD, one_question() + TICKS.format([f"o{k}" for k in range(60)])],
    ids=["every kind", "words", "ticks"],
)
def test_every_survey_that_can_be_made_is_in_order(tmp_path: Path, content: str) -> None:
    public = public_of(tmp_path, content)
    planned = design(load(tmp_path / "survey.toml"))
    assert read_offered(public).digest == planned.digest
    assert read_offered(parse_exact_json(json.dumps(public).encode())) == read_offered(public)
    assert read_offered(public).layout.size == planned.report_size


def test_the_fingerprint_is_half_a_hash_of_digest_and_key() -> None:
    key = PublicKey(int(RFC["n"], 16), 65537)
    digest = "ab" * 32
    whole = hashlib.sha256(bytes.fromhex(digest) + key.n.to_bytes(key.size, "big") + b"\1\0\1").hexdigest()
    assert fingerprint(digest, key).replace(" ", "") == whole[:32]
    assert fingerprint(digest, key).split(" ") == [whole[at : at + 4] for at in range(0, 32, 4)]
    assert fingerprint("ac" * 32, key) != fingerprint(digest, key)
    assert fingerprint(digest, PublicKey(key.n + 2, 65537)) != fingerprint(digest, key)


@pytest.mark.parametrize(
    "text",
    [
        "1.0", "1e0", "[0.5]", "NaN", "Infinity", '{"a": -Infinity}', "", "{", "\xff", '"\x01"', "9" * 5000,
        "[" * 200_000, "[" * 200_000 + "]" * 200_000, '{"a":' * 50_000 + "1" + "}" * 50_000,
    ],
    ids=range(14),
)  # fmt: skip
def test_texts_that_are_no_survey_are_refused(text: str) -> None:
    raw = text.encode("latin-1")
    with pytest.raises(BadValue, match="not JSON as surveys have it"):
        parse_exact_json(raw)


def test_a_text_beyond_all_measure_is_refused() -> None:
    assert parse_exact_json(b"1" + b" " * (LARGEST_SURVEY - 1)) == 1
    with pytest.raises(BadValue, match="at most 16 MB"):
        parse_exact_json(b"1" + b" " * LARGEST_SURVEY)


@pytest.mark.parametrize("value", [0.5, float("nan"), None, (1 << 53) + 1, -(1 << 53), 1 << 63, b"", (1,)])
def test_values_without_one_text_are_refused(value: object) -> None:
    with pytest.raises(BadValue):
        exact_json({"a": [value]})


def test_exact_numbers_are_those_that_a_browser_reads_as_they_are() -> None:
    taken = [0, 1, -1, (1 << 53) - 1, 1 - (1 << 53), 1 << 53, 1 << 60, 1 << 62]
    refused = [(1 << 53) + 1, 3 << 53, 1 << 63, -(1 << 53), -(1 << 60), (1 << 60) + 1]
    assert [is_browser_exact(number) for number in taken] == [True] * len(taken)
    assert [is_browser_exact(number) for number in refused] == [False] * len(refused)
    assert all(int(float(number)) == number for number in taken)


@pytest.mark.parametrize(("low", "high"), [("0001-01-01", "0001-02-01"), ("9999-11-01", "9999-12-31")])
def test_windows_beyond_the_calendar_are_told_all_the_same(tmp_path: Path, low: str, high: str) -> None:
    content = (
        one_question()
        + f'\n[[questions]]\nname = "d"\ntext = "?"\nkind = "date"\nlow = {low}\nhigh = {high}\n'
    )
    question = read_offered(public_of(tmp_path, content)).questions[1]
    assert question.randomizer.kind == "window"
    first = odds_in_words(question)[0]
    assert "between 0001-01-01" in first or "and 9999-12-31" in first


def test_a_survey_too_deep_to_walk_is_refused(tmp_path: Path) -> None:
    public = public_of(tmp_path, one_question())
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    public["questions"][0]["labels"] = deep
    device = Respondent(tmp_path / "me")
    with pytest.raises(BadValue, match="not in order"):
        device.answer(public, {"shop": "yes"})
