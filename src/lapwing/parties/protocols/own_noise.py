"""Protocol A: every member posts its own noised value, and whoever likes adds them up.

Claim    for the rows of a member, everything that all others together see is as private as its one post;
         and all who open a sum, a stranger with the transcript among them, open the same one.
Because  a post depends on nothing but the member's own value, which carries a whole noise (honest = 1), and
         on what was released before. So it is post-processing, whoever collects it and when. To post in
         "agree" is to sign the set that was heard; more than half must, and no two sets have that.
Test     parties/test_views.py::test_no_view_tells_more_than_epsilon
         parties/protocols/test_protocols.py::test_no_two_sets_are_opened

Needs no private channel. Agreement is not for privacy, but so that there is one sum. The local model (L)
sends the same messages: there the value is a tally of rows that have randomized themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from lapwing.parties.protocols.protocol import (
    Heard,
    OpenedSum,
    Post,
    Protocol,
    Publics,
    RoundTraffic,
    Setting,
    quorum_refusal,
    require_elements,
    require_empty,
    require_posts,
)
from lapwing.parties.protocols.secret_sharing import WORD, Field

POST, AGREE = range(2)


class OwnNoise(Protocol):
    """Noised values are posted for all to see; then members sign whose they have seen."""

    name: ClassVar[str] = "own noise"
    rounds: ClassVar[tuple[str, ...]] = ("post", "agree")

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        return quorum_refusal(setting, setting.majority)

    @classmethod
    def honest(cls, setting: Setting) -> int:
        return 1

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[RoundTraffic, ...]:
        return RoundTraffic(WORD * setting.length), RoundTraffic(0)

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        last = rounds[-1]
        if len(rounds) - 1 == POST:
            require_posts(setting, last, least=setting.least, why="too few members posted their value")
            require_elements(setting, last, setting.length)
        else:
            require_empty(last)
            require_posts(
                setting, last, least=setting.majority, why="too few members agreed on who is in the sum"
            )

    def _post(self, number: int) -> Post:
        return Post(self.field.to_bytes(self.value)) if number == POST else Post()

    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        """Nothing is private."""

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        field = Field(setting.modulus)
        values = (field.from_bytes(public, setting.length) for public in rounds[POST].values())
        return OpenedSum(field.to_signed(field.total(values, setting.length)), tuple(sorted(rounds[POST])))


class LocalModel(OwnNoise):
    """Protocol L: as A, but each row has randomized itself before it was counted."""

    name: ClassVar[str] = "local model"
