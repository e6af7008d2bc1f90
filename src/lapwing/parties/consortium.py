"""A consortium: who computes what together, how, and under which promise; signed by all members.

The consortium's document: everything that members agree on before a run, and their signatures.

Claim    whoever has a consortium that is signed by all knows that each member has agreed to exactly this:
         members and their certificates, statistic and its bounds, protocol, noise, minimum, deadlines.
Because  signatures are over the digest of the one canonical text of the document; a text in another form
         is refused, and a plan that would spend more than its wish cannot be read at all.
Test     tests/parties/consortium/test_consortium.py

The plain values of a consortium, written and read. Whatever is not exactly of this form is refused.

Claim    nothing in a document can write to a terminal as it likes, and no words about privacy are its
         writer's: they are what `JointPlan` says.
Because  every text in it is printable, and the guarantee is compared with that of the plan.
Test     tests/parties/consortium/test_consortium.py
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.config.toml_text import quoted
from lapwing.core.exact import exact
from lapwing.errors import BadFile, BadParameter
from lapwing.parties.draft import ConsortiumDraft, read_draft
from lapwing.parties.identity import Card, MemberKeys
from lapwing.parties.joint_plan import JointPlan
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.run_configuration import RunConfiguration, parse_address
from lapwing.parties.statistics import CellBlock

CONSORTIUM_FORMAT = 1
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
        "format": CONSORTIUM_FORMAT,
        "name": name,
        "members": [card.to_json() for card in cards],
        "relay": {"host": host.to_json(), "address": address},
        "statistic": dict(statistic),
        "meaning": meaning,
        "blocks": [block.to_json() for block in plan.blocks],
        "stages": plan.stages,
        "wish": plan.requirements.to_json(),
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


def consortium_fields(found: object) -> dict[str, Any]:
    """The fields of a consortium. What follows from others (the guarantee) is compared by the caller."""
    require_printable(found)
    top = _table(
        found,
        "consortium",
        "format name members relay statistic meaning blocks stages wish plan deadlines",
    )
    if top["format"] != CONSORTIUM_FORMAT:
        raise BadParameter(
            "format", f"must be {CONSORTIUM_FORMAT}: this file was written by another version"
        )
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
    asked = JointRequirements(
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


def _block(found: object) -> CellBlock:
    block = _table(found, "blocks", "label length l1 l2_squared weight")
    return CellBlock(
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


LARGEST_FILE = 1 << 24
LONGEST_WAIT = 86_400
LONGEST_ADDRESS = 300
DIGEST_PREFIX = b"lapwing consortium\n"


@dataclass(frozen=True)
class Consortium:
    """What is to be computed, by whom and how. Members are in the order of their names."""

    name: str
    cards: tuple[Card, ...]
    host: Card
    address: str
    statistic: Mapping[str, Any]
    meaning: str
    plan: JointPlan
    lobby_seconds: int
    round_seconds: int
    signatures: Mapping[str, bytes] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        names = [card.name for card in self.cards]
        if len(names) < 2:
            raise BadParameter("members", "must be at least two")
        if len(names) != self.plan.requirements.members:
            raise BadParameter(
                "members", f"the plan is for {self.plan.requirements.members}, not {len(names)}"
            )
        if names != sorted(set(names)):
            raise BadParameter("members", "must have different names, and stand in their order")
        for name in ("lobby_seconds", "round_seconds"):
            if not 1 <= getattr(self, name) <= LONGEST_WAIT:
                raise BadParameter(name, f"must be 1 to {LONGEST_WAIT:,} seconds")
        known = {card.name: card for card in self.cards}
        if self.host.name in known and known[self.host.name] != self.host:
            raise BadParameter("host", "has a member's name, but not its card")
        self._check_texts()
        for name, signature in self.signatures.items():
            if name not in known:
                raise BadParameter("signatures", f"{quoted(name, at_most=40)} is not a member")
            if not known[name].verifies(signature, self._to_sign):
                raise BadParameter("signatures", f"{name} has signed something else")
        self.table(0)

    def _check_texts(self) -> None:
        parse_address(self.address)
        if len(self.address) > LONGEST_ADDRESS or len(self.address.split()) != 1:
            raise BadParameter("address", f"must be without spaces, and at most {LONGEST_ADDRESS} long")
        require_printable(self.document)

    # The document

    @property
    def document(self) -> dict[str, Any]:
        """Plain values: all but the signatures."""
        return document_of(
            name=self.name,
            cards=self.cards,
            host=self.host,
            address=self.address,
            statistic=self.statistic,
            meaning=self.meaning,
            plan=self.plan,
            lobby=self.lobby_seconds,
            round_seconds=self.round_seconds,
        )

    @property
    def digest(self) -> bytes:
        """Of the canonical text of the document."""
        return hashlib.sha256(DIGEST_PREFIX + canonical_json(self.document)).digest()

    @property
    def fingerprint(self) -> str:
        """To be compared by people, over another channel."""
        return " ".join(self.digest.hex()[i : i + 8] for i in range(0, 64, 8))

    @property
    def _to_sign(self) -> bytes:
        return b"lapwing: I take part in\n" + self.digest

    @property
    def guarantee(self) -> str:
        """What the adversary's view is promised to hide."""
        return self.plan.guarantee

    @property
    def names(self) -> tuple[str, ...]:
        """Of the members, by number."""
        return tuple(card.name for card in self.cards)

    # Signatures

    def signed(self, keys: MemberKeys) -> Consortium:
        """The same, with one signature more."""
        if keys.card not in self.cards:
            raise BadParameter("member", f"{keys.name} (with this key) is none of {', '.join(self.names)}")
        return replace(self, signatures={**self.signatures, keys.name: keys.sign(self._to_sign)})

    def merged(self, other: Consortium) -> Consortium:
        """The signatures of two copies of the same consortium."""
        if other.digest != self.digest:
            raise BadParameter("copy", "is of another consortium: what was signed there is not this")
        return replace(self, signatures={**self.signatures, **other.signatures})

    @property
    def unsigned(self) -> tuple[str, ...]:
        """Who has not signed yet."""
        return tuple(name for name in self.names if name not in self.signatures)

    def require_signed_by_all(self) -> None:
        """Nobody runs what somebody has not agreed to."""
        if self.unsigned:
            raise BadParameter(
                "consortium",
                f"{', '.join(self.unsigned)} have not signed. Each does with: lapwing party join FILE"
                if len(self.unsigned) > 1
                else f"{self.unsigned[0]} has not signed: lapwing party join FILE --me {self.unsigned[0]}",
            )

    # Running

    def table(self, number: int) -> RunConfiguration:
        """What members and relay need for one run."""
        wish = self.plan.requirements
        return RunConfiguration(
            digest=self.digest,
            number=number,
            cards=self.cards,
            host=self.host,
            address=self.address,
            protocol=self.plan.protocol,
            coalition=wish.coalition,
            losses=wish.losses,
            length=self.plan.length,
            stages=self.plan.stages,
            lobby_seconds=self.lobby_seconds,
            round_seconds=self.round_seconds,
            document=self.to_text(),
            honest_quorum=wish.quorum == "honest",
        )

    # Files

    def to_text(self) -> str:
        """The file: the document and its signatures, readable."""
        signatures = {name: base64.b64encode(one).decode() for name, one in self.signatures.items()}
        whole = {"consortium": self.document, "signatures": signatures}
        return json.dumps(whole, indent=2, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Consortium:
        """What `to_text` gave. Raises `BadParameter`, whatever was written instead."""
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError):
            raise BadParameter("consortium", "is not JSON, as lapwing party invite writes it") from None
        if not isinstance(whole, dict) or set(whole) != {"consortium", "signatures"}:
            raise BadParameter("consortium", "must have the parts consortium and signatures, and no other")
        made = cls(**consortium_fields(whole["consortium"]), signatures=_signatures(whole["signatures"]))
        if canonical_json(made.document) != canonical_json(whole["consortium"]):
            raise BadParameter("consortium", "is not written as lapwing party invite writes it")
        return made

    @classmethod
    def read(cls, path: Path) -> Consortium:
        """From a .consortium file."""
        try:
            with Path(path).open("rb") as file:
                raw = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise BadParameter("consortium", f"{path} cannot be read ({error.strerror})") from None
        if len(raw) > LARGEST_FILE:
            raise BadFile([f"{path}: is too large to be a consortium"])
        try:
            return cls.from_text(raw.decode())
        except BadParameter as error:
            raise BadFile([f"{path}: {error}"]) from None
        except UnicodeDecodeError:
            raise BadFile([f"{path}: is not text, as lapwing party invite writes it"]) from None


def canonical_json(value: object) -> bytes:
    """The one text of plain values, which is signed."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (ValueError, TypeError, RecursionError):
        raise BadParameter("consortium", "has values that cannot be written as JSON") from None


def _signatures(found: object) -> dict[str, bytes]:
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise BadParameter("signatures", "must be a text for each name")
    try:
        return {name: base64.b64decode(one, validate=True) for name, one in found.items()}
    except ValueError:
        raise BadParameter("signatures", "must be base64") from None


__all__ = ["Consortium", "ConsortiumDraft", "read_draft"]
