"""Protocol A: every member posts its own noised value, and whoever likes adds them up.

Claim    for the rows of a member, everything that all others together see is as private as its one post.
Because  a post depends on nothing but the member's own value, which carries a whole noise (honest = 1), and
         on what was released before. So it is post-processing, whoever collects it and when.
Test     parties/test_views.py::test_no_view_tells_more_than_epsilon

Needs no private channel and no agreement: a relay that lies changes who is in the sum, not what anybody
learns. The local model (L) sends the same messages: there the value is a tally of rows that have randomized
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from lapwing.parties.protocols.field import WORD, Field
from lapwing.parties.protocols.protocol import (
    Heard,
    Opened,
    Post,
    Protocol,
    Publics,
    Setting,
    Traffic,
    need,
    read,
)


class OwnNoise(Protocol):
    """One round, in which noised values are posted for all to see."""

    name: ClassVar[str] = "own noise"
    rounds: ClassVar[tuple[str, ...]] = ("post",)

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        return None

    @classmethod
    def honest(cls, setting: Setting) -> int:
        return 1

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[Traffic, ...]:
        return (Traffic(WORD * setting.length),)

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        need(setting, rounds[0], least=setting.least, why="too few members posted their value")
        for i, public in rounds[0].items():
            read(setting, public, setting.length, sender=i)

    def _post(self, number: int) -> Post:
        return Post(self.field.to_bytes(self.value))

    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        """Nothing is private."""

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> Opened:
        field = Field(setting.modulus)
        values = (field.from_bytes(public, setting.length) for public in rounds[0].values())
        return Opened(field.to_signed(field.total(values, setting.length)), tuple(sorted(rounds[0])))


class LocalModel(OwnNoise):
    """Protocol L: as A, but each row has randomized itself before it was counted."""

    name: ClassVar[str] = "local model"
