"""Protocol A: every member posts its own noised value, and anybody can add the values up.

Claim    for the rows of a member, everything that all others together see is as private as its one post;
         and all readers of a run, also a stranger with the transcript, open the same sum.
Because  a post depends only on the member's own value, which carries a whole noise (honest = 1), and on
         earlier releases. So every use of it is post-processing. To post in "agree" is to sign the set of
         values that this member saw; more than half must sign, and no two sets can have that.
Test     parties/protocols/test_protocols_views.py::test_no_view_tells_more_than_epsilon
         parties/protocols/test_protocols.py::test_no_two_sets_are_opened

The protocol needs no private channel. Agreement is not for privacy, but so that there is one sum. The local
model (L) sends the same messages: there the value is a count of rows that were randomized one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from lapwing.parties.protocols import protocol as rules
from lapwing.parties.protocols.protocol import Heard, OpenedSum, Post, Protocol, Publics, Setting
from lapwing.parties.protocols.secret_sharing import WORD


class OwnNoise(Protocol):
    """Protocol A. Members post noised values publicly, then sign the set of values that they saw."""

    name: ClassVar[str] = "own noise"
    rounds: ClassVar[tuple[str, ...]] = ("post", "agree")

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        """Return why this protocol cannot serve the setting, or None."""
        return rules.quorum_refusal(setting, cls.agreeing(setting))

    @classmethod
    def threshold(cls, setting: Setting) -> int:
        """Return how many members must sign which values are in the sum."""
        return setting.majority

    @classmethod
    def agreeing(cls, setting: Setting) -> int:
        """Return more than half: agreement is not for privacy here, but so that there is one sum."""
        return setting.majority

    @classmethod
    def honest(cls, setting: Setting) -> int:
        """Return 1: each member's noise must hide its value alone."""
        return 1

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[rules.RoundTraffic, ...]:
        """Return the size of one member's post in every round."""
        return rules.RoundTraffic(WORD * setting.length), rules.RoundTraffic(0)

    @classmethod
    def _rule(cls, setting: Setting, rounds: Sequence[Publics]) -> rules.RoundRule:
        if len(rounds) == 1:
            return rules.RoundRule(setting.least, "too few members posted their value", setting.length)
        return rules.RoundRule(cls.agreeing(setting), rules.TOO_FEW_AGREED)

    def _post(self, number: int) -> Post:
        return Post() if number else Post(self.field.to_bytes(self.value))

    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        """Keep nothing: no part of a post is private."""

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        """Return the sum that the public parts of all rounds open."""
        return rules.total_of(setting, rounds[0], contributors=rounds[0])


class LocalModel(OwnNoise):
    """Protocol L: the messages of protocol A, for counts of rows that were randomized one by one."""

    name: ClassVar[str] = "local model"
