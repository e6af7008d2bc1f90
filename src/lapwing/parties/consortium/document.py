"""The plain values of a consortium, written and read. Whatever is not exactly of this form is refused.

Claim    nothing in a document can write to a terminal as it likes, and no words about privacy are its
         writer's: they are what `JointPlan` says.
Because  every text in it is printable, and the guarantee is compared with that of the plan.
Test     tests/parties/consortium/test_consortium.py
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter
from lapwing.exact import exact
from lapwing.parties.identity import Card
from lapwing.parties.planning import JointPlan, JointWish
from lapwing.parties.statistics import Block
from lapwing.toml.text import quoted

FORMAT = 1
LONGEST_NAME = 80


def document_of(
    *,
    name: str,
    cards: tuple[Card, ...],
    host: Card,
    address: str,
    statistic: Mapping[str, Any],
    meaning: str,
    plan: JointPlan,
    lobby: int,
    round_seconds: int,
) -> dict[str, Any]:
    """Everything that is signed."""
    return {
        "format": FORMAT,
        "name": name,
        "members": [card.to_json() for card in cards],
        "relay": {"host": host.to_json(), "address": address},
        "statistic": dict(statistic),
        "meaning": meaning,
        "blocks": [block.to_json() for block in plan.blocks],
        "stages": plan.stages,
        "wish": plan.wish.to_json(),
        "plan": {
            "protocol": plan.protocol,
            "noise": plan.noise,
            "parts": [str(part) for part in plan.parts],
            "honest": plan.honest,
            "threshold": plan.threshold,
            "least_members": plan.least,
            "guarantee": plan.guarantee,
        },
        "deadlines": {"lobby": lobby, "round": round_seconds},
    }


def parts_of(found: object) -> dict[str, Any]:
    """The fields of a consortium. What follows from others (the guarantee) is compared by the caller."""
    require_printable(found)
    top = _table(
        found,
        "consortium",
        "format name members relay statistic meaning blocks stages wish plan deadlines",
    )
    if top["format"] != FORMAT:
        raise BadParameter("format", f"must be {FORMAT}: this file was written by another version")
    name, meaning = _text(top, "name"), _text(top, "meaning")
    if not name or len(name) > LONGEST_NAME:
        raise BadParameter("name", f"must be a text, and at most {LONGEST_NAME} long")
    relay = _table(top["relay"], "relay", "host address")
    deadlines = _table(top["deadlines"], "deadlines", "lobby round")
    if not isinstance(top["statistic"], dict):
        raise BadParameter("statistic", "must be a table")
    return {
        "name": name,
        "cards": tuple(Card.from_json(card) for card in _list(top, "members")),
        "host": Card.from_json(relay["host"]),
        "address": _text(relay, "address"),
        "statistic": top["statistic"],
        "meaning": meaning,
        "plan": _plan(top),
        "lobby_seconds": _whole(deadlines, "lobby"),
        "round_seconds": _whole(deadlines, "round"),
    }


def require_printable(document: object) -> None:
    """Every text in it, keys among them: members read it on their terminals before they sign.

    A certificate is in lines. It is never shown.
    """
    left = [document]
    while left:  # however deeply it is nested
        one = left.pop()
        if isinstance(one, dict):
            left += [*one, *(value for key, value in one.items() if key != "certificate")]
            left += str(one.get("certificate", "")).split("\n")
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, str) and not one.isprintable():
            raise BadParameter(
                "consortium", f"has a text that cannot be printed: {quoted(one, at_most=40)}"
            )


def _plan(top: Mapping[str, Any]) -> JointPlan:
    said = _table(top["plan"], "plan", "protocol noise parts honest threshold least_members guarantee")
    is_old = isinstance(top["wish"], dict) and "quorum" not in top["wish"]
    wish = _table(
        top["wish"],
        "wish",
        "members coalition losses adversary protocol epsilon delta people_at noise"
        + ("" if is_old else " quorum"),
    )
    asked = JointWish(
        members=_whole(wish, "members"),
        coalition=_whole(wish, "coalition"),
        losses=_whole(wish, "losses"),
        adversary=_text(wish, "adversary"),
        protocol=_text(wish, "protocol"),
        epsilon=_rational(wish, "epsilon"),
        delta=_rational(wish, "delta"),
        people_at=_whole(wish, "people_at"),
        noise=_text(wish, "noise"),
        quorum="majority" if is_old else _text(wish, "quorum"),
    )
    parts = tuple(_rational({"parts": one}, "parts") for one in _list(said, "parts"))
    return JointPlan(
        asked,
        tuple(_block(one) for one in _list(top, "blocks")),
        _whole(top, "stages"),
        _text(said, "protocol"),
        _text(said, "noise"),
        parts,
    )


def _block(found: object) -> Block:
    block = _table(found, "blocks", "label length l1 l2_squared weight")
    return Block(
        _text(block, "label"),
        _whole(block, "length"),
        _whole(block, "l1"),
        _whole(block, "l2_squared"),
        _rational(block, "weight"),
    )


def _table(found: object, name: str, keys: str) -> Mapping[str, Any]:
    if not isinstance(found, dict) or set(found) != set(keys.split()):
        raise BadParameter(name, f"must have {', '.join(keys.split())}, and nothing else")
    return found


def _list(table: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(table[name], list):
        raise BadParameter(name, "must be a list")
    return list(table[name])


def _text(table: Mapping[str, Any], name: str) -> str:
    if not isinstance(table[name], str):
        raise BadParameter(name, "must be a text")
    return str(table[name])


def _whole(table: Mapping[str, Any], name: str) -> int:
    if isinstance(table[name], bool) or not isinstance(table[name], int):
        raise BadParameter(name, "must be a whole number")
    return int(table[name])


def _rational(table: Mapping[str, Any], name: str) -> Fraction:
    return exact(_text(table, name), name)
