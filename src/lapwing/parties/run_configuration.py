"""The configuration of one run: the facts that its members and its relay agreed on before it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from lapwing.errors import BadParameter
from lapwing.parties.identity import Card
from lapwing.parties.protocols.protocol import Setting
from lapwing.parties.protocols.registry import PROTOCOLS

RoundKey = tuple[int, int]  # stage and round, both from 0


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """Members, relay, protocol and deadlines of one run, from a consortium that all members have signed.

    A member's number is the position of its card. `document` is the text of the consortium's file: it goes
    into the transcript, so that a third party can verify that.
    """

    digest: bytes  # of the consortium, without signatures
    number: int  # of this run, from 0
    cards: tuple[Card, ...]
    host: Card  # the relay shows this card's certificate; the host may be a member or not
    address: str  # host:port
    protocol: str  # A, B, C, D or L
    coalition: int
    losses: int
    length: int  # of every stage's sum
    stages: int
    lobby_seconds: float
    round_seconds: float
    document: str = field(default="", repr=False)
    honest_quorum: bool = False  # whether any two agreements share a member outside of the coalition

    def __post_init__(self) -> None:
        if len(self.digest) != 32:
            raise BadParameter("digest", "must have 32 bytes")
        if not 0 <= self.number < 1 << 63:
            raise BadParameter("number", "a run's number must be a whole number, from 0")
        if self.protocol not in PROTOCOLS:
            raise BadParameter("protocol", f"must be one of {', '.join(PROTOCOLS)}")
        if not 1 <= self.stages <= 1000:
            raise BadParameter("stages", "must be 1 to 1,000")
        for name in ("lobby_seconds", "round_seconds"):
            if not 0 < getattr(self, name) <= 7 * 86_400:
                raise BadParameter(name, "must be above 0, and at most a week")
        self._check_cards()
        parse_address(self.address)
        refusal = PROTOCOLS[self.protocol].refusal(self.setting(0))
        if refusal is not None:
            raise BadParameter("protocol", refusal)

    def _check_cards(self) -> None:
        for what, distinct in (
            ("names", {card.name for card in self.cards}),
            ("certificates", {card.der for card in self.cards}),
            ("box keys", {card.box for card in self.cards}),
        ):
            if len(distinct) != len(self.cards):
                raise BadParameter("cards", f"members must have different {what}")
        # A certificate carries its card's name and nothing else, so TLS distinguishes hosts by their names.
        if self.host not in self.cards and self.host.name in self.names:
            raise BadParameter("host", f"{self.host.name} is a member's name, but not with this card")

    @property
    def run_id(self) -> bytes:
        """The identifier of this run alone. It keeps messages of other runs out."""
        return self.run_id_of(self.digest, self.number)

    @staticmethod
    def run_id_of(digest: bytes, number: int) -> bytes:
        """Return the identifier of a consortium's run."""
        return hashlib.sha256(b"lapwing run" + digest + number.to_bytes(8)).digest()

    @property
    def label(self) -> str:
        """The beginning of the names of the run's files."""
        return f"{self.digest.hex()[:8]}-run-{self.number}"

    @property
    def rounds(self) -> tuple[str, ...]:
        """The names of a stage's rounds."""
        return PROTOCOLS[self.protocol].rounds

    def setting(self, stage: int) -> Setting:
        """Return the parameters of the protocol in one stage."""
        return Setting(
            members=len(self.cards),
            coalition=self.coalition,
            losses=self.losses,
            length=self.length,
            run=hashlib.sha256(self.run_id + stage.to_bytes(4)).digest(),
            honest_quorum=self.honest_quorum,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, by number."""
        return tuple(card.name for card in self.cards)


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port". An IPv6 host stands in brackets. Raises `BadParameter`."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise BadParameter("address", "must be host:port, such as 127.0.0.1:7443")
    return host, int(port)
