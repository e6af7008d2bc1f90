"""How much travels: posts, and bytes with everything around them, but for TLS itself."""

from __future__ import annotations

from dataclasses import dataclass

from lapwing.parties.messages.box import sealed_size
from lapwing.parties.messages.envelope import SALT_BYTES, Envelope
from lapwing.parties.messages.parcel import Parcel
from lapwing.parties.planning.rules import setting_of
from lapwing.parties.planning.wish import JointWish
from lapwing.parties.protocols import PROTOCOLS


@dataclass(frozen=True, slots=True)
class Cost:
    """What travels when nobody is lost. A member's bytes are those it sends and those it gets."""

    rounds: int
    messages: int
    sent: int
    received: int
    in_all: int  # through the relay, both ways


def cost_of(wish: JointWish, letter: str, length: int, stages: int) -> Cost:
    """By the protocol's own sizes and those of envelopes and boxes."""
    m = wish.members
    posts = PROTOCOLS[letter].traffic(setting_of(wish, length))
    sent = received = messages = 0
    for post in posts:
        envelope = Envelope.size(post.public, post.recipients)
        box = sealed_size(SALT_BYTES + post.private)
        sent += Parcel.size(envelope, box, post.recipients)
        received += m * envelope + post.recipients * box  # everybody's envelopes, and the boxes for it
        messages += m * (1 + post.recipients)
    return Cost(
        rounds=stages * len(posts),
        messages=stages * messages,
        sent=stages * sent,
        received=stages * received,
        in_all=stages * m * (sent + received),
    )
