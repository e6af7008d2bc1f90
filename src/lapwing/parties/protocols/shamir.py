"""Protocol C: Shamir shares. Everybody deals points of a polynomial; any t + 1 members open the sum.

Claim    the view of a coalition (t members, and the relay) can be made from its own values and the sum of
         the values of the honest members in the agreed set, at least members - t - losses of them; without
         that sum, if nobody honest comes to "open".
Because  t points of a polynomial of degree t are uniform, whatever its value at 0. An honest member opens
         one point of the sum of the polynomials of one set, a set that more than half have agreed on. All
         those points follow from the coalition's own points and the sum at 0.
Test     parties/test_views.py::test_no_view_tells_more_than_epsilon; proof in docs/arguments/parties.md

After "agree", all but t + 1 members may be lost. Points beyond t + 1 must lie on the same polynomial.
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
    Stop,
    need,
    need_elements,
    need_empty,
)
from lapwing.parties.protocols.sharing import off_the_polynomial, recombine, shamir_pieces

DEAL, AGREE, OPEN = range(3)


class Shamir(Dealing):
    """Survives the loss of members who have dealt."""

    name: ClassVar[str] = "Shamir shares"
    rounds: ClassVar[tuple[str, ...]] = ("deal", "agree", "open")

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        if 2 * setting.coalition >= setting.members:
            return "the coalition must be less than half of the members"
        if setting.members >= setting.modulus:
            return "there must be fewer members than the modulus"
        return super().refusal(setting)

    @classmethod
    def threshold(cls, setting: Setting) -> int:
        """So many points open the sum. Never more than the quorum."""
        return setting.coalition + 1

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        last = rounds[-1]
        match len(rounds) - 1:
            case 0:  # DEAL
                need_empty(last)
                need(setting, last, least=setting.least, why="too few members dealt their shares")
            case 1:  # AGREE
                need_empty(last)
                need(setting, last, least=setting.quorum, why="too few members agreed on who is in the sum")
            case _:  # OPEN
                need(setting, last, least=cls.threshold(setting), why="too few members opened their part")
                need_elements(setting, last, setting.length)

    def _deal(self) -> dict[int, Elements]:
        threshold, members = self.threshold(self.setting), self.setting.members
        pieces = shamir_pieces(
            self.field, self.value, threshold=threshold, members=members, coins=self.coins
        )
        return dict(enumerate(pieces))

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> Opened:
        field = Field(setting.modulus)
        points = {i: field.from_bytes(public, setting.length) for i, public in rounds[OPEN].items()}
        wrong = off_the_polynomial(field, points, threshold=cls.threshold(setting))
        if wrong:
            raise Stop("opened points do not lie on one polynomial", wrong)
        total = recombine(field, points, threshold=cls.threshold(setting))
        return Opened(field.to_signed(total), tuple(sorted(rounds[DEAL])))
