"""The consortium: one text that all sign; whatever is changed in it is refused, or signed by nobody."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.parties.consortium import Consortium
from lapwing.parties.identity import MemberKeys
from lapwing.parties.joint_plan import plan_jointly
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.statistics import CellBlock
from support.raised import named

NAMES = ("east", "north", "south")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[MemberKeys]:
    folder = tmp_path_factory.mktemp("keys")
    return [MemberKeys.create(name, folder / name) for name in (*NAMES, "west")]


@pytest.fixture
def unsigned(keys: list[MemberKeys]) -> Consortium:
    wish = JointRequirements(
        members=3,
        coalition=1,
        losses=0,
        adversary="unbounded",
        protocol="auto",
        epsilon=Fraction(1),
        delta=Fraction(0),
        people_at=1,
        noise="auto",
    )
    return Consortium(
        name="wards",
        cards=tuple(one.card for one in keys[:3]),
        host=keys[1].card,
        address="127.0.0.1:7443",
        statistic={"kind": "vector", "length": 4, "l1": 1, "l2_squared": 1, "labels": list("abcd")},
        meaning="00" * 32,
        plan=plan_jointly(wish, [CellBlock("rows", 4, 1, 1)]),
        lobby_seconds=300,
        round_seconds=60,
    )


@pytest.fixture
def signed(unsigned: Consortium, keys: list[MemberKeys]) -> Consortium:
    for one in keys[:3]:
        unsigned = unsigned.signed(one)
    return unsigned


def test_it_is_read_as_it_was_written(signed: Consortium, tmp_path: Path) -> None:
    again = Consortium.from_text(signed.to_text())
    assert again == signed
    assert again.signatures == signed.signatures
    assert again.digest == signed.digest
    again.require_signed_by_all()
    path = tmp_path / "wards.consortium"
    path.write_text(signed.to_text())
    assert Consortium.read(path) == signed
    assert signed.guarantee in signed.to_text()


def test_a_quorum_is_signed_and_a_majority_is_written_as_before(
    signed: Consortium, keys: list[MemberKeys]
) -> None:
    """Files that were signed before there was a choice mean a majority, and keep their digests."""
    assert "quorum" not in signed.document["wish"]
    five = [*keys, MemberKeys.create("zone", keys[0].folder.parent / "zone")]
    wish = replace(signed.plan.requirements, members=5, coalition=2, losses=1, quorum="honest")
    plan = plan_jointly(wish, signed.plan.blocks)
    safe = replace(signed, cards=tuple(one.card for one in five), plan=plan, signatures={})
    assert safe.document["wish"]["quorum"] == "honest"
    assert Consortium.from_text(safe.to_text()) == safe
    assert safe.run_configuration(1).setting(0).quorum == 4
    before = json.loads(safe.to_text())
    del before["consortium"]["wish"]["quorum"]
    old = Consortium.from_text(json.dumps(before))
    assert old.plan.requirements.quorum == "majority"
    assert old.run_configuration(1).setting(0).quorum == 3
    assert old.digest != safe.digest
    assert "quorum" not in old.document["wish"]
    before["consortium"]["wish"]["quorum"] = "majority"
    with pytest.raises(BadParameter, match="is not written as"):
        Consortium.from_text(json.dumps(before))


def test_the_table_of_a_run_is_that_of_the_consortium(signed: Consortium) -> None:
    one, other = signed.run_configuration(1), signed.run_configuration(2)
    assert one.names == NAMES
    assert (one.protocol, one.coalition, one.losses, one.length, one.stages) == ("C", 1, 0, 4, 1)
    assert one.digest == signed.digest
    assert one.run_id != other.run_id
    assert one.document == signed.to_text()


def test_who_has_not_signed_is_named(unsigned: Consortium, keys: list[MemberKeys]) -> None:
    with pytest.raises(BadParameter, match="east, north, south have not signed"):
        unsigned.require_signed_by_all()
    two = unsigned.signed(keys[0]).signed(keys[1])
    with pytest.raises(BadParameter, match="south has not signed"):
        two.require_signed_by_all()
    third = unsigned.signed(keys[2])
    two.merged(third).require_signed_by_all()


def test_only_members_sign_and_only_this(unsigned: Consortium, keys: list[MemberKeys]) -> None:
    with pytest.raises(BadParameter, check=named("member")):
        unsigned.signed(keys[3])
    other = replace(unsigned, name="other").signed(keys[0])
    with pytest.raises(BadParameter, check=named("copy")):
        unsigned.merged(other)
    with pytest.raises(BadParameter, match="east has signed something else"):
        replace(unsigned, signatures=other.signatures)
    with pytest.raises(BadParameter, match="not a member"):
        replace(unsigned, signatures={"west": other.signatures["east"]})


def set_at(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_at("name", to="evil"),
        set_at("name", to=""),
        set_at("name", to=3),
        set_at("format", to=2),
        set_at("members", to=[]),
        set_at("members", 0, "name", to="ghost"),
        set_at("members", 0, "box", to="AAAA"),
        set_at("relay", "address", to="10.0.0.1:7443"),
        set_at("relay", "address", to="nowhere"),
        set_at("statistic", "l1", to=2),
        set_at("statistic", to=[]),
        set_at("meaning", to="11" * 32),
        set_at("blocks", 0, "l1", to=2),
        set_at("blocks", 0, "length", to=True),
        set_at("blocks", 0, "weight", to="0"),
        set_at("stages", to=2),
        set_at("wish", "coalition", to=0),
        set_at("wish", "epsilon", to="2"),
        set_at("wish", "epsilon", to=1),
        set_at("wish", "people_at", to=2),
        set_at("wish", "extra", to=2),
        set_at("plan", "protocol", to="A"),
        set_at("plan", "protocol", to="B"),
        set_at("plan", "parts", to=["2"]),
        set_at("plan", "parts", to=["1/2", "1/2"]),
        set_at("plan", "honest", to=3),
        set_at("plan", "least_members", to=2),
        set_at("plan", "guarantee", to="nobody learns anything"),
        set_at("plan", "why", to="nobody learns anything"),
        set_at("deadlines", "round", to=0),
        set_at("deadlines", "lobby", to=1.5),
        set_at("extra", to=1),
    ],
)
def test_whatever_is_changed_after_it_was_signed_is_refused(
    signed: Consortium, change: Callable[[dict[str, Any]], None]
) -> None:
    whole = json.loads(signed.to_text())
    changed = copy.deepcopy(whole)
    change(changed["consortium"])
    assert changed != whole
    with pytest.raises(BadParameter):
        Consortium.from_text(json.dumps(changed))


ESCAPE = "\x1b[2J\x1b[32mNothing is charged"


@pytest.mark.parametrize(
    "change",
    [
        set_at("name", to=ESCAPE),
        set_at("relay", "address", to=f"{ESCAPE}:7443"),
        set_at("relay", "address", to="127.0.0.1\n  - Nothing is charged:7443"),
        set_at("relay", "address", to="127.0.0.1. Nothing is charged, nothing is read:7443"),
        set_at("relay", "address", to="a" * 1000 + ":7443"),
        set_at("meaning", to="00\u202e00"),
        set_at("statistic", "labels", 0, to="a\r"),
        set_at("statistic", ESCAPE, to=1),
        set_at("statistic", "labels", to=[[{"deep": ESCAPE}]]),
        set_at("blocks", 0, "label", to="rows\x9b2J"),
        set_at("members", 0, "certificate", to=ESCAPE),
        set_at("plan", "why", to="every expert agrees: nothing is charged"),
    ],
)
def test_nobody_is_shown_what_the_inviter_made_up(
    unsigned: Consortium, change: Callable[[dict[str, Any]], None]
) -> None:
    """Nobody has signed yet: no signature speaks against a document that its writer has changed."""
    whole = json.loads(unsigned.to_text())
    change(whole["consortium"])
    with pytest.raises(BadParameter) as refused:
        Consortium.from_text(json.dumps(whole))
    assert str(refused.value).isprintable()


def test_what_could_not_be_read_again_cannot_be_written(unsigned: Consortium) -> None:
    with pytest.raises(BadParameter, match="cannot be printed"):
        replace(unsigned, statistic={"kind": "vector", "labels": ("a", "b\n")})


def test_a_document_that_is_nested_too_deeply_is_refused(unsigned: Consortium) -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    whole = unsigned.to_text().replace('"meaning": "', f'"meaning": {deep}, "x": "')
    with pytest.raises(BadParameter):
        Consortium.from_text(whole)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"consortium": {}}', '{"consortium": {}, "signatures": {}}', "[" * 100_000],
)
def test_what_is_no_consortium_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        Consortium.from_text(text)


@pytest.mark.parametrize("found", [{"north": "?"}, {"north": 3}, ["north"], {"north": "AAAA"}])
def test_signatures_that_are_none_are_refused(signed: Consortium, found: object) -> None:
    whole = json.loads(signed.to_text())
    with pytest.raises(BadParameter):
        Consortium.from_text(json.dumps({**whole, "signatures": found}))


def test_files_that_cannot_be_read_are_told_by_name(tmp_path: Path) -> None:
    for path, content in ((tmp_path / "raw", b"\xff\xfe"), (tmp_path / "x", b"{}")):
        path.write_bytes(content)
        with pytest.raises(BadFile, match=path.name):
            Consortium.read(path)
    with pytest.raises(BadParameter, match="none cannot be read") as missing:
        Consortium.read(tmp_path / "none")
    assert not isinstance(missing.value, BadFile)  # a file that is not there has no mistakes


def test_members_must_differ_and_the_host_must_be_who_it_says(
    unsigned: Consortium, keys: list[MemberKeys], tmp_path: Path
) -> None:
    with pytest.raises(BadParameter, match="for 3, not 2"):
        replace(unsigned, cards=unsigned.cards[:2])
    with pytest.raises(BadParameter, match="different names"):
        replace(unsigned, cards=(unsigned.cards[0],) * 3)
    with pytest.raises(BadParameter, match="in their order"):
        replace(unsigned, cards=unsigned.cards[::-1])
    false = MemberKeys.create("north", tmp_path / "false")
    with pytest.raises(BadParameter, match="not its card"):
        replace(unsigned, host=false.card)
    assert replace(unsigned, host=keys[3].card).run_configuration(1).host.name == "west"
