"""The planner: which protocol, which error, which guarantee, how many bytes; and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.parties.joint_noise import row_randomizer
from lapwing.parties.joint_plan import JointPlan, plan_jointly
from lapwing.parties.posts import SALT_BYTES, Envelope, Parcel, sealed_size
from lapwing.parties.requirements import JointRequirements, protocol_setting
from lapwing.parties.simulation import run_in_memory
from lapwing.parties.statistics import CellBlock
from support.raised import named

COUNT = (CellBlock("count", 1, 1, 1),)
V = 1.3569624860015788  # the deviation of one discrete Laplace noise at ε = 1


def wish(members: int, coalition: int, **other: Any) -> JointRequirements:
    said: dict[str, Any] = {
        "losses": 0,
        "adversary": "unbounded",
        "protocol": "auto",
        "epsilon": Fraction(1),
        "delta": Fraction(0),
        "people_at": 1,
        "noise": "auto",
    }
    return JointRequirements(members=members, coalition=coalition, **{**said, **other})


@pytest.mark.parametrize(
    ("members", "coalition", "other", "letter", "error"),
    [
        (1, 0, {}, "A", V),
        (2, 1, {}, "A", 2**0.5 * V),
        (3, 1, {}, "C", 1.66),
        (3, 2, {}, "A", 3**0.5 * V),
        (10, 4, {}, "C", 1.75),
        (10, 5, {}, "B", 2**0.5 * V),
        (10, 9, {}, "A", 4.29),
        (10, 4, {"losses": 3}, "C", (10 / 3) ** 0.5 * V),
        (10, 5, {"adversary": "bounded"}, "D", 2**0.5 * V),
        (10, 5, {"adversary": "bounded", "losses": 2}, "D", (10 / 3) ** 0.5 * V),
        (10, 4, {"protocol": "A"}, "A", 10**0.5 * V),
        (10, 4, {"protocol": "B"}, "B", (10 / 6) ** 0.5 * V),
        (10, 4, {"protocol": "D", "adversary": "bounded"}, "D", (10 / 6) ** 0.5 * V),
    ],
)
def test_the_protocol_with_the_least_error_is_chosen(
    members: int, coalition: int, other: dict[str, Any], letter: str, error: float
) -> None:
    plan = plan_jointly(wish(members, coalition, **other), COUNT)
    assert plan.protocol == letter
    assert plan.deviations == pytest.approx((error,), abs=0.005)
    assert plan.loss.pure == 1


def test_of_equal_errors_the_one_that_survives_more_and_then_the_smaller_one_is_chosen() -> None:
    long = (CellBlock("histogram", 10_000, 1, 1),)
    assert plan_jointly(wish(3, 1, adversary="bounded"), long).protocol == "D"  # as C, with fewer bytes
    assert plan_jointly(wish(4, 1, adversary="bounded"), long).protocol == "C"  # D needs three to open


def test_with_all_but_one_against_one_the_plan_says_that_cryptography_buys_nothing() -> None:
    plan = plan_jointly(wish(10, 9), COUNT)
    assert any("cryptography buys nothing" in note for note in plan.notes)
    assert all("cryptography" not in note for note in plan_jointly(wish(10, 4), COUNT).notes)
    errors = {one.letter: one.error for one in plan.alternatives()}
    assert errors["B"] == pytest.approx(1)  # no better than A


@pytest.mark.parametrize(
    ("letter", "words"),
    [
        ("A", "unbounded, over any network"),
        ("B", "unbounded coalition, computational network"),
        ("C", "unbounded coalition, computational network"),
        (
            "D",
            "computational: the masks hide values as long as nobody can break X25519, HKDF-SHA256 and "
            "AES-256",
        ),
        ("L", "unbounded, over any network: a member randomizes every one of its rows"),
        ("L", "Neighbours replace a row: what it says is hidden, and how many rows a member has is public"),
    ],
)
def test_the_guarantee_says_whom_and_against_whom(letter: str, words: str) -> None:
    block = (CellBlock("groups", 3, 1, 1),)
    asked = wish(5, 2, protocol=letter, adversary="bounded", people_at=2, losses=1)
    said = plan_jointly(asked, block).guarantee
    for part in (
        words,
        "up to 2 of the 5 members and the relay",
        "at most ε 1.",
        "at up to 2 members",
        "passive",
    ):
        assert part in said
    assert "1 more may fail" in said


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (wish(4, 2, protocol="C"), "less than half"),
        (wish(4, 1, protocol="D"), "bounded computing power"),
    ],
)
def test_what_does_not_hold_is_refused_and_listed_with_the_reason(
    asked: JointRequirements, why: str
) -> None:
    with pytest.raises(BadParameter, match=why):
        plan_jointly(asked, COUNT)
    other = plan_jointly(replace(asked, protocol="A"), COUNT)
    listed = {one.letter: one.why_not for one in other.alternatives()}
    assert why in listed[asked.protocol]


@pytest.mark.parametrize("letter", ["auto", "A", "B", "C", "D", "L"])
def test_losses_that_leave_nobody_to_agree_are_refused_by_every_protocol(letter: str) -> None:
    asked = wish(6, 1, protocol=letter, adversary="bounded", losses=3)
    with pytest.raises(BadParameter, match="losses must be at most 2"):
        plan_jointly(asked, COUNT)
    assert plan_jointly(replace(asked, losses=2), COUNT).least == 4


def test_with_own_noise_more_than_half_must_stay_to_agree() -> None:
    plan = plan_jointly(wish(5, 4), COUNT)
    assert (plan.protocol, plan.threshold, plan.fit.survives) == ("A", 3, 2)
    assert plan.cost.rounds == 2


def test_the_local_model_is_for_one_count_of_groups_and_never_chosen_unasked() -> None:
    groups = (CellBlock("groups", 4, 1, 1),)
    local = plan_jointly(wish(3, 2, protocol="L", people_at=2), groups)
    assert local.is_local
    assert local.shares == ()
    assert local.loss.pure == Fraction(1, 2)
    assert local.deviations[0] > 50  # of 10,000 rows
    for blocks, stages in (((CellBlock("sum", 1, 7, 49),), 1), (groups * 2, 1), (groups, 2)):
        with pytest.raises(BadParameter, match="local model"):
            plan_jointly(wish(3, 2, protocol="L"), blocks, stages)
    assert plan_jointly(wish(3, 2), groups).protocol == "A"


def test_gaussian_noise_is_taken_where_it_is_smaller() -> None:
    blocks = (CellBlock("wide", 1000, 100, 100),)
    with_delta = plan_jointly(wish(3, 1, delta=Fraction(1, 10**6)), blocks)
    without = plan_jointly(wish(3, 1), blocks)
    assert (with_delta.noise, without.noise) == ("gaussian", "laplace")
    assert with_delta.deviations[0] < 0.95 * without.deviations[0]
    assert "against" in with_delta.why
    assert plan_jointly(wish(3, 1, delta=Fraction(1, 10**6)), COUNT).noise == "laplace"


@pytest.mark.parametrize("letter", ["A", "B", "C", "D", "L"])
def test_the_bytes_are_those_of_real_posts(letter: str) -> None:
    asked = wish(4, 1, protocol=letter, adversary="bounded")
    cost = plan_jointly(asked, (CellBlock("groups", 7, 1, 1),)).cost
    done = run_in_memory(letter, protocol_setting(asked, 7), [np.zeros(7, dtype=np.int64)] * 4)
    sent, messages = 0, 0
    for spoken in done.rounds:
        post = spoken.posts[0]
        boxes = {
            to: bytes(sealed_size(SALT_BYTES + len(part))) for to, part in (post.private or {}).items()
        }
        commitments = dict.fromkeys(boxes, bytes(32))
        envelope = Envelope(bytes(32), 0, 0, 0, bytes(32), post.public, commitments, bytes(64))
        sent += len(Parcel(envelope.to_bytes(), boxes).to_bytes())
        messages += 4 * (1 + len(boxes))
    assert (cost.sent, cost.messages, cost.rounds) == (sent, messages, len(done.rounds))
    assert cost.in_all == 4 * (cost.sent + cost.received)


def test_a_plan_is_plain_values_and_cannot_spend_more_than_its_wish() -> None:
    plan = plan_jointly(wish(3, 1), (CellBlock("one", 2, 1, 1), CellBlock("two", 1, 5, 25, Fraction(3))), 4)
    said = json.loads(json.dumps(plan.to_json()))
    assert said["protocol"] == "C"
    assert [one["protocol"] for one in said["alternatives"]] == list("ABCDL")
    assert plan.loss.pure == 1
    more = tuple(2 * part for part in plan.parts)
    with pytest.raises(BadParameter, match="more than epsilon"):
        JointPlan(plan.requirements, plan.blocks, plan.stages, plan.protocol, plan.noise, more)
    with pytest.raises(BadParameter, match="one above 0"):
        replace(plan, parts=(Fraction(-1), Fraction(1, 4)))
    with pytest.raises(BadParameter, check=named("delta")):
        replace(plan, noise="gaussian", parts=(Fraction(1, 100),) * 2)
    with pytest.raises(BadParameter, match="not the one that was asked"):
        replace(plan, requirements=replace(plan.requirements, protocol="B"))
    with pytest.raises(BadParameter, match="not the one that was asked"):
        replace(plan, requirements=replace(plan.requirements, noise="gaussian", delta=Fraction(1, 10**6)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("members", 0),
        ("members", 1001),
        ("coalition", 3),
        ("coalition", -1),
        ("losses", 2),
        ("people_at", 0),
        ("people_at", 4),
        ("epsilon", 0),
        ("epsilon", "much"),
        ("delta", 1),
        ("adversary", "weak"),
        ("protocol", "E"),
        ("noise", "none"),
        ("noise", "gaussian"),
    ],
)
def test_wishes_that_promise_nothing_do_not_exist(name: str, value: object) -> None:
    said = {
        **{field: getattr(wish(3, 1), field) for field in JointRequirements.__dataclass_fields__},
        name: value,
    }
    with pytest.raises(BadParameter):
        JointRequirements(**said)


@pytest.mark.parametrize("letter", ["auto", "A", "B", "C", "D", "L"])
def test_members_are_protected_from_one_another(letter: str) -> None:
    """With coalition = 0 any member could open what others brought, under a part of a noise each."""
    with pytest.raises(BadParameter, match=r"protected from one another.*write 1") as refused:
        wish(3, 0, protocol=letter, adversary="bounded")
    assert refused.value.name == "coalition"
    assert plan_jointly(wish(1, 0), COUNT).protocol == "A"  # one member has no others


def test_nothing_about_privacy_has_a_default() -> None:
    with pytest.raises(TypeError):
        JointRequirements(members=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(("blocks", "stages"), [((), 1), (COUNT, 0), (COUNT, 65)])
def test_forms_that_cannot_be_are_refused(blocks: tuple[CellBlock, ...], stages: int) -> None:
    with pytest.raises(BadParameter):
        plan_jointly(wish(3, 1), blocks, stages)


def test_noise_that_fits_no_number_is_refused_with_the_name_of_the_block() -> None:
    with pytest.raises(BadParameter, match="huge"):
        plan_jointly(wish(3, 1, epsilon=Fraction(1, 10**6)), (CellBlock("huge", 1, 1 << 40, 1 << 80),))


def test_a_person_at_several_members_has_weaker_coins_at_each() -> None:
    asked = wish(3, 1, protocol="L", people_at=2)
    randomizer = row_randomizer(asked, CellBlock("rows", 4, 1, 1, Fraction(1)))
    assert 2 * randomizer.loss.pure == asked.epsilon
