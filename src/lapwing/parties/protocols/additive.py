"""Protocol B: additive shares. Everybody who is present deals pieces of its value to all who are present.

Claim    the view of a coalition (t members, and the relay) can be made from its own values and the sum of
         the values of the honest members who are present, at least members - t - losses of them; without
         that sum, if the run stops before "open".
Because  of every honest value one piece stays with each honest member, so what the coalition gets of it is
         uniform. What an honest member opens is the sum of its pieces: uniform again, but for their total.
Test     parties/test_views.py::test_no_view_tells_more_than_epsilon; proof in docs/arguments/parties.md

Who is lost before "deal" is left out; a loss after it stops the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from lapwing.parties.protocols.coins import Elements
from lapwing.parties.protocols.dealing import Dealing
from lapwing.parties.protocols.field import Field
from lapwing.parties.protocols.protocol import (
    Opened,
    Publics,
    Setting,
    Traffic,
    need,
    need_all,
    need_elements,
    need_empty,
)
from lapwing.parties.protocols.sharing import additive_pieces

PRESENT, DEAL, AGREE, OPEN = range(4)


class Additive(Dealing):
    """All who were present must stay to the end."""

    name: ClassVar[str] = "additive shares"
    rounds: ClassVar[tuple[str, ...]] = ("present", "deal", "agree", "open")

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[Traffic, ...]:
        return Traffic(0), *super().traffic(setting)

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        last = rounds[-1]
        match len(rounds) - 1:
            case 0:  # PRESENT
                need_empty(last)
                need(setting, last, least=setting.least, why="too few members are present")
            case 1:  # DEAL
                need_empty(last)
                need_all(rounds[PRESENT], last, why="a member was lost before it had dealt its shares")
            case 2:  # AGREE
                need_empty(last)
                need_all(rounds[PRESENT], last, why="a member was lost before it had agreed")
            case _:  # OPEN
                need_all(rounds[PRESENT], last, why="a member was lost before it had opened its part")
                need_elements(setting, last, setting.length)

    def _deal(self) -> dict[int, Elements]:
        there = sorted(self.heard[PRESENT])
        pieces = additive_pieces(self.field, self.value, len(there), self.coins)
        return dict(zip(there, pieces, strict=True))

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> Opened:
        field = Field(setting.modulus)
        partials = (field.from_bytes(public, setting.length) for public in rounds[OPEN].values())
        return Opened(field.to_signed(field.total(partials, setting.length)), tuple(sorted(rounds[DEAL])))
