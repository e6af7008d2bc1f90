"""Signed notices: a member that leaves a run says so, and why, so that nobody has to wait for it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lapwing.errors import BadValue

if TYPE_CHECKING:
    from lapwing.parties.identity import Card, Keys

LONGEST_WHY = 300
_FIELDS = {"run", "stage", "round", "member", "why", "signature"}


@dataclass(frozen=True, slots=True)
class Notice:
    """`why` is public: it names members and rounds, never data."""

    run: bytes
    stage: int
    round: int
    sender: int
    why: str
    signature: bytes = b""

    def _signed_part(self) -> bytes:
        whole = [self.run.hex(), self.stage, self.round, self.sender, self.why]
        return b"lapwing notice\n" + json.dumps(whole).encode()

    def signed(self, keys: Keys) -> Notice:
        """The same, signed."""
        signature = keys.sign(self._signed_part())
        return Notice(self.run, self.stage, self.round, self.sender, self.why, signature)

    def is_signed_by(self, card: Card) -> bool:
        """Whether the signature is the card's."""
        return card.verifies(self.signature, self._signed_part())

    def to_json(self) -> dict[str, object]:
        """As in a transcript."""
        return {
            "run": self.run.hex(),
            "stage": self.stage,
            "round": self.round,
            "member": self.sender,
            "why": self.why,
            "signature": base64.b64encode(self.signature).decode(),
        }

    @classmethod
    def from_json(cls, value: object) -> Notice:
        """What `to_json` gave. Raises `BadValue`."""
        if not isinstance(value, dict) or set(value) != _FIELDS:
            raise BadValue("a notice is not of the right form")
        match value:
            case {
                "run": str(run),
                "stage": int(stage),
                "round": int(round_),
                "member": int(sender),
                "why": str(why),
                "signature": str(signature),
            } if len(why) <= LONGEST_WHY and why.isprintable():
                try:
                    raw = base64.b64decode(signature, validate=True)
                    return cls(bytes.fromhex(run), stage, round_, sender, why, raw)
                except ValueError as error:
                    raise BadValue("a notice is not of the right form") from error
        raise BadValue("a notice is not of the right form")
