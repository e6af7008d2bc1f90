"""Signed greetings: a member says that it has come to a run, and the others can check that it did.

Claim    a greeting that is accepted was signed by its member for exactly this run. A relay that says who
         has come must show as many of them as the run needs: alone it cannot make a member begin, and be
         charged. It may show again what a member signed in an earlier lobby of the same run.
Test     tests/parties/running/test_messages.py, tests/faults/test_parties_lies.py
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lapwing.errors import BadValue
from lapwing.noise import random_bytes

if TYPE_CHECKING:
    from lapwing.parties.identity import Card, Keys

_NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Greeting:
    """`nonce` is fresh each time a member takes part: no two greetings are alike."""

    run: bytes
    sender: int
    nonce: bytes
    signature: bytes = b""

    @classmethod
    def fresh(cls, run: bytes, sender: int, keys: Keys) -> Greeting:
        """A new one, signed."""
        unsigned = cls(run, sender, random_bytes(_NONCE_BYTES))
        return replace(unsigned, signature=keys.sign(unsigned._signed_part()))

    def _signed_part(self) -> bytes:
        return b"lapwing greeting\n" + json.dumps([self.run.hex(), self.sender, self.nonce.hex()]).encode()

    def is_signed_by(self, card: Card) -> bool:
        """Whether the signature is the card's."""
        return card.verifies(self.signature, self._signed_part())

    def to_json(self) -> list[object]:
        """Member, nonce and signature; the run is known to whoever reads it."""
        return [
            self.sender,
            base64.b64encode(self.nonce).decode(),
            base64.b64encode(self.signature).decode(),
        ]

    @classmethod
    def from_json(cls, run: bytes, value: object) -> Greeting:
        """What `to_json` gave. Raises `BadValue`."""
        match value:
            case [int(sender), str(nonce), str(signature)]:
                try:
                    return cls(
                        run,
                        sender,
                        base64.b64decode(nonce, validate=True),
                        base64.b64decode(signature, validate=True),
                    )
                except ValueError as error:
                    raise BadValue("a greeting is not of the right form") from error
        raise BadValue("a greeting is not of the right form")
