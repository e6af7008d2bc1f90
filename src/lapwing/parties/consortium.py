"""The consortium's document: everything that members agree on before a run, and their signatures.

Claim    a consortium that is signed by all shows that each member has agreed to exactly this: members and
         their certificates, statistic and its bounds, protocol, noise, minimum, deadlines.
Because  signatures are over the digest of the one canonical text of the document; a text in another form
         is refused, and a plan that would spend more than its requirements allow cannot be read at all.
Test     tests/parties/test_consortium.py

Claim    no text in a document can control a reader's terminal, and no words about privacy come from the
         document's writer: they are those of `JointPlan`.
Because  every text in it is printable, and the guarantee is compared with that of the plan.
Test     tests/parties/test_consortium.py
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from lapwing.canonical_json import canonical_json
from lapwing.config.toml_text import quoted
from lapwing.core.exact import exact
from lapwing.errors import BadFile, BadParameter
from lapwing.parties.identity import Card, MemberKeys
from lapwing.parties.joint_plan import JointPlan
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.run_configuration import RunConfiguration, parse_address
from lapwing.parties.statistics import CellBlock
from lapwing.storage.private_file import PUBLIC, replaced_private_file

CONSORTIUM_FORMAT = 1
LARGEST_FILE = 1 << 24
LONGEST_WAIT = 86_400
LONGEST_ADDRESS = 300
LONGEST_NAME = 80
DIGEST_PREFIX = b"lapwing consortium\n"
_TOP_KEYS = "format name members relay statistic meaning blocks stages wish plan deadlines"
_PLAN_KEYS = "protocol noise parts honest threshold least_members guarantee"
_REQUIREMENT_KEYS = "members coalition losses adversary protocol epsilon delta people_at noise"


@dataclass(frozen=True)
class Consortium:
    """An agreement of members to compute one statistic together, with their signatures.

    Args:
        name: the consortium's name.
        cards: the members' cards, in the order of their names.
        host: the card of the relay's host: a member or not.
        address: where the relay listens, as host:port.
        statistic: the statistic as plain values: see `lapwing.parties.statistics.statistic_of`.
        meaning: a digest of the parts of members' policies that must be equal at all members.
        plan: the protocol, the noise and the guarantee.
        lobby_seconds: how long the relay waits for members to arrive.
        round_seconds: how long a round may take.
        signatures: the members' signatures by name; they are not compared.

    Raises:
        BadParameter: a part is invalid, or a signature is not the member's.

    Example:
        >>> consortium = Consortium.read(Path("joint.consortium"))  # doctest: +SKIP
        >>> consortium.signed(MemberKeys.open(Path("north"))).unsigned  # doctest: +SKIP
        ('south',)
    """

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
        names, planned = list(self.names), self.plan.requirements.members
        if len(names) < 2:
            raise BadParameter("members", "must be at least two")
        if len(names) != planned:
            raise BadParameter("members", f"the plan is for {planned}, not {len(names)}")
        if names != sorted(set(names)):
            raise BadParameter("members", "must have different names, and stand in their order")
        for name in ("lobby_seconds", "round_seconds"):
            if not 1 <= getattr(self, name) <= LONGEST_WAIT:
                raise BadParameter(name, f"must be 1 to {LONGEST_WAIT:,} seconds")
        parse_address(self.address)
        if len(self.address) > LONGEST_ADDRESS or len(self.address.split()) != 1:
            raise BadParameter("address", f"must be without spaces, and at most {LONGEST_ADDRESS} long")
        _require_printable(self.document)
        self._check_cards()
        self.run_configuration(0)

    def _check_cards(self) -> None:
        cards = {card.name: card for card in self.cards}
        if self.host.name in cards and cards[self.host.name] != self.host:
            raise BadParameter("host", "has a member's name, but not its card")
        for name, signature in self.signatures.items():
            if name not in cards:
                raise BadParameter("signatures", f"{quoted(name, at_most=40)} is not a member")
            if not cards[name].verifies(signature, self._to_sign):
                raise BadParameter("signatures", f"{name} has signed something else")

    # The document

    @property
    def document(self) -> dict[str, Any]:
        """The agreement as plain values, without the signatures."""
        plan = self.plan
        return {
            "format": CONSORTIUM_FORMAT,
            "name": self.name,
            "members": [card.to_json() for card in self.cards],
            "relay": {"host": self.host.to_json(), "address": self.address},
            "statistic": dict(self.statistic),
            "meaning": self.meaning,
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
            "deadlines": {"lobby": self.lobby_seconds, "round": self.round_seconds},
        }

    @property
    def digest(self) -> bytes:
        """The digest of the document's canonical text."""
        return hashlib.sha256(DIGEST_PREFIX + document_bytes(self.document)).digest()

    @property
    def fingerprint(self) -> str:
        """The digest in a form that people compare over another channel."""
        return " ".join(self.digest.hex()[i : i + 8] for i in range(0, 64, 8))

    @property
    def _to_sign(self) -> bytes:
        return b"lapwing: I take part in\n" + self.digest

    @property
    def guarantee(self) -> str:
        """The privacy guarantee against the adversary, in words."""
        return self.plan.guarantee

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, by number."""
        return tuple(card.name for card in self.cards)

    # Signatures

    def signed(self, keys: MemberKeys) -> Consortium:
        """Return the same consortium with this member's signature. Raises `BadParameter`."""
        if keys.card not in self.cards:
            raise BadParameter("member", f"{keys.name} (with this key) is none of {', '.join(self.names)}")
        return replace(self, signatures={**self.signatures, keys.name: keys.sign(self._to_sign)})

    def merged(self, other: Consortium) -> Consortium:
        """Return the consortium with the signatures of two copies. Raises `BadParameter`."""
        if other.digest != self.digest:
            raise BadParameter("copy", "is of another consortium: its signatures are not for this one")
        return replace(self, signatures={**self.signatures, **other.signatures})

    @property
    def unsigned(self) -> tuple[str, ...]:
        """The names of the members that have not signed yet."""
        return tuple(name for name in self.names if name not in self.signatures)

    def require_signed_by_all(self) -> None:
        """Raise `BadParameter` unless all members have signed."""
        match self.unsigned:
            case ():
                return
            case (name,):
                why = f"{name} has not signed: lapwing party join FILE --me {name}"
            case names:
                why = f"{', '.join(names)} have not signed. Each does with: lapwing party join FILE"
        raise BadParameter("consortium", why)

    # Runs

    def number_of(self, keys: MemberKeys) -> int:
        """Return the number of the member with these keys. Raises `BadParameter` if there is none."""
        if keys.card not in self.cards:
            raise BadParameter("me", f"{keys.name} (with this key) is none of {', '.join(self.names)}")
        return self.cards.index(keys.card)

    def run_configuration(self, number: int) -> RunConfiguration:
        """Return the configuration of a run. Runs are numbered from 1; 0 is only for checks."""
        requirements = self.plan.requirements
        return RunConfiguration(
            digest=self.digest,
            number=number,
            cards=self.cards,
            host=self.host,
            address=self.address,
            protocol=self.plan.protocol,
            coalition=requirements.coalition,
            losses=requirements.losses,
            length=self.plan.length,
            stages=self.plan.stages,
            lobby_seconds=self.lobby_seconds,
            round_seconds=self.round_seconds,
            document=self.to_text(),
            honest_quorum=requirements.quorum == "honest",
        )

    # Files

    def to_text(self) -> str:
        """Return the text of the file: the document and its signatures, readable."""
        signatures = {
            name: base64.b64encode(signature).decode() for name, signature in self.signatures.items()
        }
        whole = {"consortium": self.document, "signatures": signatures}
        return json.dumps(whole, indent=2, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Consortium:
        """Read a consortium as `to_text` writes it. Raises `BadParameter` for all other texts."""
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError):
            raise BadParameter("consortium", "is not JSON, as lapwing party invite writes it") from None
        if not isinstance(whole, dict) or set(whole) != {"consortium", "signatures"}:
            raise BadParameter("consortium", "must have the parts consortium and signatures, and no other")
        made = cls(**consortium_fields(whole["consortium"]), signatures=_signatures(whole["signatures"]))
        if document_bytes(made.document) != document_bytes(whole["consortium"]):
            raise BadParameter("consortium", "is not written as lapwing party invite writes it")
        return made

    @classmethod
    def read(cls, path: Path) -> Consortium:
        """Read a .consortium file. Raises `BadParameter` or `BadFile`."""
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

    def write_signatures(self, path: Path) -> Consortium:
        """Add the signatures to those in a file, and return the consortium with all of them.

        Others may have signed the same file meanwhile: none of their signatures is lost. The file is
        replaced as a whole or not at all. Raises `BadParameter`, `BadFile` or `OSError`.
        """
        with _locked(path):
            merged = Consortium.read(path).merged(self)
            with replaced_private_file(path, mode=PUBLIC) as file:
                file.write(merged.to_text().encode())
        return merged


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file. If it was replaced during the wait, lock the new one."""
    while True:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock.fileno()).st_ino == path.stat().st_ino:
                yield
                return


def document_bytes(value: object) -> bytes:
    """Return the one text of plain values, for digests. Raises `BadParameter`."""
    try:
        return canonical_json(value, ascii_only=False).encode()
    except (ValueError, TypeError, RecursionError):
        raise BadParameter("consortium", "has values that cannot be written as JSON") from None


def consortium_fields(document: object) -> dict[str, Any]:
    """Read the fields of a consortium from a document. Raises `BadParameter`.

    The caller compares the derived parts of the document, such as the guarantee.
    """
    _require_printable(document)
    top = _table(document, "consortium", _TOP_KEYS)
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


def _require_printable(document: object) -> None:
    """Raise `BadParameter` unless every text in it can be printed, also keys: members read it to sign it.

    A certificate has several lines. It is never shown.
    """
    left = [document]
    while left:  # without recursion, so that deep nesting does no harm
        node = left.pop()
        if isinstance(node, dict):
            left += [*node, *(value for key, value in node.items() if key != "certificate")]
            left += str(node.get("certificate", "")).split("\n")
        elif isinstance(node, list | tuple):
            left += node
        elif isinstance(node, str) and not node.isprintable():
            raise BadParameter(
                "consortium", f"has a text that cannot be printed: {quoted(node, at_most=40)}"
            )


def _plan(top: Mapping[str, Any]) -> JointPlan:
    said = _table(top["plan"], "plan", _PLAN_KEYS)
    is_old = isinstance(top["wish"], dict) and "quorum" not in top["wish"]
    wish = _table(top["wish"], "wish", _REQUIREMENT_KEYS + ("" if is_old else " quorum"))
    fields: dict[str, Any] = {
        **{key: _whole(wish, key) for key in ("members", "coalition", "losses", "people_at")},
        **{key: _rational(wish, key) for key in ("epsilon", "delta")},
        **{key: _text(wish, key) for key in ("adversary", "protocol", "noise")},
    }
    requirements = JointRequirements(**fields, quorum="majority" if is_old else _text(wish, "quorum"))
    parts = tuple(_rational({"parts": part}, "parts") for part in _list(said, "parts"))
    blocks, stages = tuple(_block(block) for block in _list(top, "blocks")), _whole(top, "stages")
    return JointPlan(requirements, blocks, stages, _text(said, "protocol"), _text(said, "noise"), parts)


def _block(value: object) -> CellBlock:
    block = _table(value, "blocks", "label length l1 l2_squared weight")
    length, l1, l2_squared = (_whole(block, key) for key in ("length", "l1", "l2_squared"))
    return CellBlock(_text(block, "label"), length, l1, l2_squared, _rational(block, "weight"))


def _signatures(value: object) -> dict[str, bytes]:
    if not isinstance(value, dict) or not all(isinstance(signature, str) for signature in value.values()):
        raise BadParameter("signatures", "must be a text for each name")
    try:
        return {name: base64.b64decode(signature, validate=True) for name, signature in value.items()}
    except ValueError:
        raise BadParameter("signatures", "must be base64") from None


def _table(value: object, name: str, keys: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or set(value) != set(keys.split()):
        raise BadParameter(name, f"must have {', '.join(keys.split())}, and nothing else")
    return value


def _typed(table: Mapping[str, Any], name: str, *, kind: type, what: str) -> Any:
    if type(table[name]) is not kind:
        raise BadParameter(name, f"must be {what}")
    return table[name]


_list = partial(_typed, kind=list, what="a list")
_text = partial(_typed, kind=str, what="a text")
_whole = partial(_typed, kind=int, what="a whole number")


def _rational(table: Mapping[str, Any], name: str) -> Fraction:
    return exact(_text(table, name), name)
