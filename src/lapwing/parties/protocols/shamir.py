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

from collections.abc import Mapping, Sequence
from typing import ClassVar

from lapwing.parties.protocols.coins import Elements
from lapwing.parties.protocols.field import WORD, Field
from lapwing.parties.protocols.protocol import (
    Heard,
    Opened,
    Post,
    Protocol,
    Publics,
    Setting,
    Stop,
    Traffic,
    agreed_by_half,
    need,
    need_empty,
    not_from_one_another,
    read,
)
from lapwing.parties.protocols.sharing import off_the_polynomial, recombine, shamir_pieces

DEAL, AGREE, OPEN = range(3)


class Shamir(Protocol):
    """Survives the loss of members who have dealt."""

    name: ClassVar[str] = "Shamir shares"
    rounds: ClassVar[tuple[str, ...]] = ("deal", "agree", "open")
    _pieces: Sequence[Elements]  # dealt by this member, one for each member
    _point: Elements  # of the sum of all polynomials of the set

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        if 2 * setting.coalition >= setting.members:
            return "the coalition must be less than half of the members"
        if setting.members >= setting.modulus:
            return "there must be fewer members than the modulus"
        return not_from_one_another(setting) or agreed_by_half(setting)

    @classmethod
    def honest(cls, setting: Setting) -> int:
        return setting.members - setting.coalition - setting.losses

    @classmethod
    def threshold(cls, setting: Setting) -> int:
        """So many points open the sum. Never more than the quorum."""
        return setting.coalition + 1

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[Traffic, ...]:
        size = WORD * setting.length
        return Traffic(0, size, setting.members - 1), Traffic(0), Traffic(size)

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
                for i, public in last.items():
                    read(setting, public, setting.length, sender=i)

    def _post(self, number: int) -> Post:
        if number == DEAL:
            members = self.setting.members
            threshold = self.threshold(self.setting)
            self._pieces = shamir_pieces(
                self.field, self.value, threshold=threshold, members=members, coins=self.coins
            )
            others = (i for i in range(members) if i != self.me)
            return Post(private={i: self.field.to_bytes(self._pieces[i]) for i in others})
        if number == OPEN:
            return Post(self.field.to_bytes(self._point))
        return Post()

    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        if number == DEAL:
            length = self.setting.length
            others = (
                read(self.setting, post.private, length, sender=i)
                for i, post in posts.items()
                if i != self.me
            )
            self._point = self.field.add(self._pieces[self.me], self.field.total(others, length))

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> Opened:
        field = Field(setting.modulus)
        points = {i: field.from_bytes(public, setting.length) for i, public in rounds[OPEN].items()}
        wrong = off_the_polynomial(field, points, threshold=cls.threshold(setting))
        if wrong:
            raise Stop("opened points do not lie on one polynomial", wrong)
        total = recombine(field, points, threshold=cls.threshold(setting))
        return Opened(field.to_signed(total), tuple(sorted(rounds[DEAL])))
