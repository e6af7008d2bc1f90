"""The consortium's document: everything that members agree on before a run, and their signatures.

Claim    whoever has a consortium that is signed by all knows that each member has agreed to exactly this:
         members and their certificates, statistic and its bounds, protocol, noise, minimum, deadlines.
Because  signatures are over the digest of the one canonical text of the document; a text in another form
         is refused, and a plan that would spend more than its wish cannot be read at all.
Test     tests/parties/consortium/test_consortium.py
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lapwing.errors import BadFile, BadParameter
from lapwing.parties.consortium.document import document_of, parts_of, require_printable
from lapwing.parties.identity import Card, Keys
from lapwing.parties.messages.table import Table, where
from lapwing.parties.planning import JointPlan
from lapwing.toml.text import quoted

LARGEST_FILE = 1 << 24
LONGEST_WAIT = 86_400
LONGEST_ADDRESS = 300
SEPARATED = b"lapwing consortium\n"


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
        if len(names) != self.plan.wish.members:
            raise BadParameter("members", f"the plan is for {self.plan.wish.members}, not {len(names)}")
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
        where(self.address)
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
        return hashlib.sha256(SEPARATED + canonical(self.document)).digest()

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

    def signed(self, keys: Keys) -> Consortium:
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

    def table(self, number: int) -> Table:
        """What members and relay need for one run."""
        wish = self.plan.wish
        return Table(
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
        made = cls(**parts_of(whole["consortium"]), signatures=_signatures(whole["signatures"]))
        if canonical(made.document) != canonical(whole["consortium"]):
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


def canonical(value: object) -> bytes:
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
