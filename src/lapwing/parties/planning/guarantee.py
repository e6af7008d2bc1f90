"""What the view of an adversary is promised to hide, in words that can be printed and signed."""

from __future__ import annotations

from fractions import Fraction

from lapwing.parties.planning.rules import ADDITIVE, LOCAL, MASKED, OWN_NOISE, SHAMIR
from lapwing.parties.planning.wish import JointWish

_SHARED = (
    "unbounded coalition, computational network: shares travel in sealed boxes over TLS, and are hidden "
    "from the relay as long as nobody can break those"
)
AGAINST = {
    OWN_NOISE: "unbounded, over any network: nothing that is sent needs to be kept secret",
    ADDITIVE: _SHARED,
    SHAMIR: _SHARED,
    MASKED: "computational: the masks hide values as long as nobody can break X25519, HKDF-SHA256 and "
    "AES-256-CTR",
    LOCAL: "unbounded, over any network: a member randomizes every one of its rows before it counts them, "
    "so that neither the relay nor all other members together have to be trusted. Neighbours replace a "
    "row: what it says is hidden, and how many rows a member has is public",
}
NOT_PROMISED = (
    "Members follow the protocol and draw their noise (passive adversary); nobody can check that they did."
)
BUYS_NOTHING = (
    "With all but one in the coalition, cryptography buys nothing: the coalition can subtract its own "
    "values and noise from any sum, so that the one honest member has to hide alone."
)


def digits(value: Fraction) -> str:
    """Six digits of a rational."""
    return f"{float(value):.6g}"


def budget_text(epsilon: Fraction, delta: Fraction) -> str:
    """ε 1, or ε 1 and δ 1e-06."""
    return f"ε {digits(epsilon)}" + (f" and δ {digits(delta)}" if delta else "")


def guarantee_of(wish: JointWish, letter: str, *, is_pure: bool) -> str:
    """Who learns at most what about whom, and what that rests on."""
    some = f"up to {wish.coalition} of the {wish.members} members and " if wish.coalition else ""
    delta = Fraction(0) if is_pure else wish.delta
    whose = (
        "a person's rows at any honest member"
        if wish.people_at == 1
        else f"a person's rows at up to {wish.people_at} members"
    )
    lost = f"{wish.losses} more may fail before they have shared. " if wish.losses else ""
    return (
        f"Whoever holds {some}the relay, and reads all that is published, learns about {whose} at most "
        f"{budget_text(wish.epsilon, delta)}. {lost}It holds against: {AGAINST[letter]}. {NOT_PROMISED}"
    )
