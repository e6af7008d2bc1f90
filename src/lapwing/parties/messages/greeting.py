"""Signed greetings: a member says that it is ready for a run, and the others can check that it did.

Claim    a greeting that is accepted was signed by its member for exactly this run, in this version of the
         protocol, after the member had read its data. A relay that says who is ready must show as many of
         them as the run needs. It may show what a member signed in any lobby of the same run, also one that
         was ended: then a member may be charged alone, once for the run (docs/limits.md).
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

# Of what members and relays say to one another. 1 knew neither versions nor who is ready: it says none.
VERSION = 2
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
        whole = [VERSION, self.run.hex(), self.sender, self.nonce.hex()]
        return b"lapwing ready\n" + json.dumps(whole).encode()

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


def other_version(said: object) -> str | None:
    """Why who says this version cannot be talked with, if so. None is what version 1 says."""
    if said == VERSION and type(said) is int:
        return None
    theirs = f"version {said}" if type(said) is int and 0 < said < 1 << 31 else "no version, as old ones do"
    return (
        f"it speaks {theirs}, and this is version {VERSION} of the protocol: all members and the host must "
        "have the same version of lapwing"
    )
