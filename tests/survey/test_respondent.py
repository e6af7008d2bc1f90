"""The respondent's device: one report per survey for ever, and never more than its lifetime."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadParameter, BadValue, OverBudget, Tampered
from lapwing.survey.designing import design
from lapwing.survey.message_words import odds_in_words, sent_in_words
from lapwing.survey.offered import read_offered, survey_digest
from lapwing.survey.respondent import Respondent
from lapwing.survey.survey_file import load
from support.faults import dies_at
from support.spoiled_surveys import SPOILED
from support.spoiled_surveys import spoiled as spoiled_survey
from support.survey_site import EVERY_KIND, one_question

Public = dict[str, Any]
YES = {"shop": "yes"}
ANSWERS: dict[str, object] = {
    "shop": "yes", "place": "outdoors", "leisure": ["sport"], "meals": None, "content": 4,
    "matters": ["money", "health", "family"], "sleep": "7.25", "holiday": "2026-03-04", "drink": "tea",
    "room": "room 17",
}  # fmt: skip


def public_of(folder: Path, content: str) -> Public:
    file = folder / "survey.toml"
    file.write_text(content)
    return design(load(file)).public()


@pytest.fixture
def single(tmp_path: Path) -> Public:
    return public_of(tmp_path, one_question(epsilon="3"))


@pytest.fixture
def every_kind(tmp_path: Path) -> Public:
    return public_of(tmp_path, EVERY_KIND)


def changed(public: Public, **more: Any) -> Public:
    """A copy of a survey with other values."""
    return {**json.loads(json.dumps(public)), **more}


def test_the_first_report_is_sent_for_ever_whatever_is_answered_later(
    tmp_path: Path, every_kind: Public
) -> None:
    device = Respondent(tmp_path / "me")
    first = device.answer(every_kind, ANSWERS)
    for _ in range(20):
        other = dict.fromkeys(ANSWERS)
        assert device.answer(every_kind, other) == first
        assert Respondent(tmp_path / "me").answer(every_kind, other) == first
    assert device.answered(every_kind) == first
    assert device.spent == Fraction(read_offered(every_kind).price, 10**9)


def test_a_report_is_one_that_the_survey_takes(tmp_path: Path, every_kind: Public) -> None:
    planned = design(load(tmp_path / "survey.toml"))
    assert survey_digest(every_kind) == planned.digest
    for number in range(5):
        report = Respondent(tmp_path / str(number)).answer(every_kind, ANSWERS)
        planned.check(report)
        assert len(report) == planned.report_size
        told = [
            sent_in_words(question, message) for question, message in read_offered(every_kind).parts(report)
        ]
        assert len(told) == 10


def test_a_changed_survey_is_a_new_charge(tmp_path: Path, single: Public) -> None:
    device = Respondent(tmp_path / "me", lifetime=100)
    price = read_offered(single).price
    for number in range(1, 6):
        device.answer(changed(single, text=f"version {number}", lifetime="100"), YES)
        assert device.spent == Fraction(number * price, 10**9)
    assert device.left == 100 - device.spent


def test_the_price_is_at_most_what_the_plan_says(tmp_path: Path, every_kind: Public) -> None:
    planned = design(load(tmp_path / "survey.toml"))
    assert Fraction(read_offered(every_kind).price, 10**9) <= planned.epsilon == 7
    assert planned.epsilon - Fraction(read_offered(every_kind).price, 10**9) < Fraction(1, 10**6)


def test_beyond_the_lifetime_nothing_is_thrown(tmp_path: Path, single: Public) -> None:
    device = Respondent(tmp_path / "me")
    for text in ("a", "b"):
        device.answer(changed(single, text=text), YES)
    third = changed(single, text="c")
    with pytest.raises(OverBudget, match="2 is left on this device"):
        device.answer(third, YES)
    assert device.answered(third) is None
    assert device.spent == 6
    cheap = public_of(tmp_path, one_question(epsilon="2"))
    device.answer(cheap, YES)
    assert device.left == 0
    assert device.answer(changed(single, text="a"), {}) == device.answered(changed(single, text="a"))


def test_an_owner_can_only_lower_the_lifetime(tmp_path: Path, single: Public) -> None:
    device = Respondent(tmp_path / "me")
    with pytest.raises(OverBudget):
        device.answer(changed(single, lifetime="2.5"), YES)
    for number in range(2):
        device.answer(changed(single, lifetime="1000", text=str(number)), YES)
    with pytest.raises(OverBudget):
        device.answer(changed(single, lifetime="1000", text="one more"), YES)


def test_the_lifetime_is_fixed_at_the_first_use(tmp_path: Path) -> None:
    assert Respondent(tmp_path / "me", lifetime="2.5").lifetime == Fraction(5, 2)
    assert Respondent(tmp_path / "me").lifetime == Fraction(5, 2)
    with pytest.raises(BadParameter, match="never changes"):
        Respondent(tmp_path / "me", lifetime=8)


def test_what_the_owner_says_about_price_and_odds_is_not_believed(tmp_path: Path, single: Public) -> None:
    lying = changed(single, epsilon="0.001", lifetime="1000")
    lying["questions"][0].update(epsilon="0.001", odds="It is all noise.")
    lying["questions"][0]["recipe"]["favoured"] = (1 << 48) - 1000
    assert read_offered(lying).price > 26 * 10**9
    assert "chance more than 99.9 %" in " ".join(odds_in_words(read_offered(lying).questions[0]))
    with pytest.raises(OverBudget):
        Respondent(tmp_path / "me").answer(lying, YES)


@pytest.mark.parametrize("how", SPOILED)
def test_a_survey_that_is_not_in_order_is_not_answered(tmp_path: Path, single: Public, how: str) -> None:
    device, wrong = Respondent(tmp_path / "me"), spoiled_survey(single, SPOILED[how])
    with pytest.raises(BadValue, match="not in order"):
        device.answer(wrong, YES)
    assert device.spent == 0


def test_an_impossible_answer_is_refused_unseen_and_uncharged(tmp_path: Path, single: Public) -> None:
    device = Respondent(tmp_path / "me")
    with pytest.raises(BadValue, match="shop: the answer must be one of: yes, no") as caught:
        device.answer(single, {"shop": "perhaps"})
    assert "perhaps" not in str(caught.value)
    with pytest.raises(BadValue, match="an answer is needed"):
        device.answer(single, {})
    assert device.spent == 0


def test_one_question_is_drawn_before_any_answer_and_stays(tmp_path: Path) -> None:
    public = public_of(tmp_path, EVERY_KIND.replace('ask = "all"', 'ask = "one"'))
    drawn = Counter[int]()
    for number in range(40):
        device = Respondent(tmp_path / str(number))
        (place,) = device.asked(public)
        assert device.asked(public) == (place,)
        assert device.spent == 0
        assert device.answer(public, ANSWERS)[0] == place
        drawn[place] += 1
    assert len(drawn) >= 6  # fewer of 10 in 40 draws: chance below 1 in 10^6


def spoiled(folder: Path, how: str, earlier: Path) -> Path:
    """The folder after a mishap."""
    content, seal = folder / "account.json", folder / "account.seal"
    match how:
        case "edited":
            content.write_text(content.read_text().replace('"price": 3', '"price": 1'))
        case "cut off":
            content.write_bytes(content.read_bytes()[:-20])
        case "emptied":
            content.write_bytes(b"")
        case "lost":
            content.unlink()
        case "unsealed":
            seal.unlink()
        case "broken seal":
            seal.write_text("0" * 64)
        case "put back":
            shutil.copy(earlier / "account.json", content)
        case "copied":
            shutil.copytree(folder, folder.with_name("copy"))
            return folder.with_name("copy")
    return folder


@pytest.mark.parametrize(
    "how", ["edited", "cut off", "emptied", "lost", "unsealed", "broken seal", "put back", "copied"]
)
def test_a_spoiled_or_copied_account_refuses_and_forgets_nothing(
    tmp_path: Path, single: Public, how: str
) -> None:
    folder = tmp_path / "me"
    device = Respondent(folder)
    device.answer(changed(single, text="a"), YES)
    shutil.copytree(folder, tmp_path / "earlier")
    device.answer(changed(single, text="b"), YES)
    found = spoiled(folder, how, tmp_path / "earlier")
    for _ in range(2):  # refusing must not repair it
        with pytest.raises(Tampered):
            Respondent(found)
    with pytest.raises(Tampered):
        Respondent(found, lifetime=100)


def test_a_moved_folder_is_still_the_same_device(tmp_path: Path, single: Public) -> None:
    first = Respondent(tmp_path / "me").answer(single, YES)
    (tmp_path / "me").rename(tmp_path / "moved")
    assert Respondent(tmp_path / "moved").answer(single, {"shop": "no"}) == first


def test_a_kill_at_any_point_forgets_nothing(tmp_path: Path, single: Public) -> None:
    moment, ended = 0, False
    stored = 0
    while not ended:
        moment += 1
        folder = tmp_path / str(moment)
        device = Respondent(folder)

        def work(device: Respondent = device) -> bytes:
            return device.answer(single, YES)

        ended, handed = dies_at(moment, work)
        memo = Respondent(folder).answered(single)
        assert not handed or handed == memo  # what was handed out was stored before
        assert Respondent(folder).spent == (3 if memo is not None else 0)
        stored += memo is not None
        again = Respondent(folder).answer(single, {"shop": "no"})
        assert memo in (None, again)
        assert Respondent(folder).spent == 3
    assert moment > 4
    assert 1 < stored < moment


def test_a_kill_while_the_device_is_first_set_up_leaves_it_usable(tmp_path: Path, single: Public) -> None:
    moment, ended = 0, False
    while not ended:
        moment += 1
        folder = tmp_path / str(moment)

        def work(folder: Path = folder) -> bytes:
            return str(Respondent(folder, lifetime=3).lifetime).encode()

        ended, _ = dies_at(moment, work)
        device = Respondent(folder)
        device.answer(single, YES)
        assert device.spent == 3


def test_devices_in_many_processes_spend_no_more_than_one(tmp_path: Path, single: Public) -> None:
    Respondent(tmp_path / "me")
    children = []
    for number in range(6):
        child = os.fork()
        if child == 0:
            try:
                Respondent(tmp_path / "me").answer(changed(single, text=str(number)), YES)
                os._exit(0)
            except OverBudget:
                os._exit(4)
            finally:
                os._exit(5)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(ends) == [0, 0, 4, 4, 4, 4]
    assert Respondent(tmp_path / "me").spent == 6


def test_chances_in_words_are_the_chances(tmp_path: Path) -> None:
    public = public_of(tmp_path, one_question(epsilon="1.0986122886", no_answer="false"))
    question = read_offered(public).questions[0]
    assert odds_in_words(question) == [
        "The message is one of “yes”, “no”.",
        "It is your own answer: chance 75.0 %. The other one: chance 25.0 %.",
        "No message is more than 3.0 times as likely with one answer as with another.",
    ]
    assert round(question.randomizer.probability(0, b"\0"), 6) == Fraction(3, 4)
