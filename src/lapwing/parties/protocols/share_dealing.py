"""What protocols have in common whose members deal pieces of their values, and open the sums of pieces.

Protocol B: additive shares. Everybody who is present deals pieces of its value to all who are present.

Claim    the view of a coalition (t members, and the relay) can be made from its own values and the sum of
         the values of the honest members who are present, at least members - t - losses of them; without
         that sum, if the run stops before "open".
Because  of every honest value one piece stays with each honest member, so what the coalition gets of it is
         uniform. What an honest member opens is the sum of its pieces: uniform again, but for their total.
Test     parties/test_views.py::test_no_view_tells_more_than_epsilon; proof in docs/arguments/parties.md

Who is lost before "deal" is left out; a loss after it stops the run.

Protocol C: Shamir shares. Everybody deals points of a polynomial; any t + 1 members open the sum.

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

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from lapwing.parties.protocols.protocol import (
    Heard,
    OpenedSum,
    Post,
    Protocol,
    ProtocolStopped,
    Publics,
    RoundTraffic,
    Setting,
    coalition_refusal,
    quorum_refusal,
    read_elements,
    require_all,
    require_elements,
    require_empty,
    require_posts,
)
from lapwing.parties.protocols.secret_sharing import (
    WORD,
    Elements,
    Field,
    additive_pieces,
    inconsistent_members,
    reconstruct,
    shamir_pieces,
)


class ShareDealing(Protocol):
    """Has the rounds "deal", "agree" and "open". Who opens posts the sum of all pieces that it holds."""

    _own: Elements  # the piece that this member keeps of its own value
    _held: Elements  # the sum of all pieces that it holds

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        return coalition_refusal(setting) or quorum_refusal(setting, setting.quorum)

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[RoundTraffic, ...]:
        size = WORD * setting.length
        return RoundTraffic(0, size, setting.members - 1), RoundTraffic(0), RoundTraffic(size)

    @abstractmethod
    def _deal(self) -> dict[int, Elements]:
        """Pieces of this member's value by who gets them, itself among them."""

    def _post(self, number: int) -> Post:
        match self.rounds[number]:
            case "deal":
                pieces = self._deal()
                self._own = pieces.pop(self.me)
                return Post(private={i: self.field.to_bytes(piece) for i, piece in pieces.items()})
            case "open":
                return Post(self.field.to_bytes(self._held))
            case _:
                return Post()

    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        if self.rounds[number] == "deal":
            length = self.setting.length
            others = (
                read_elements(self.setting, post.private, length, sender=i)
                for i, post in posts.items()
                if i != self.me
            )
            self._held = self.field.add(self._own, self.field.total(others, length))


ADDITIVE_PRESENT, ADDITIVE_DEAL, ADDITIVE_AGREE, ADDITIVE_OPEN = range(4)


class AdditiveSharing(ShareDealing):
    """All who were present must stay to the end."""

    name: ClassVar[str] = "additive shares"
    rounds: ClassVar[tuple[str, ...]] = ("present", "deal", "agree", "open")

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[RoundTraffic, ...]:
        return RoundTraffic(0), *super().traffic(setting)

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        last = rounds[-1]
        match len(rounds) - 1:
            case 0:  # PRESENT
                require_empty(last)
                require_posts(setting, last, least=setting.least, why="too few members are present")
            case 1:  # DEAL
                require_empty(last)
                require_all(
                    rounds[ADDITIVE_PRESENT], last, why="a member was lost before it had dealt its shares"
                )
            case 2:  # AGREE
                require_empty(last)
                require_all(rounds[ADDITIVE_PRESENT], last, why="a member was lost before it had agreed")
            case _:  # OPEN
                require_all(
                    rounds[ADDITIVE_PRESENT], last, why="a member was lost before it had opened its part"
                )
                require_elements(setting, last, setting.length)

    def _deal(self) -> dict[int, Elements]:
        there = sorted(self.heard[ADDITIVE_PRESENT])
        pieces = additive_pieces(self.field, self.value, len(there), self.coins)
        return dict(zip(there, pieces, strict=True))

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        field = Field(setting.modulus)
        partials = (field.from_bytes(public, setting.length) for public in rounds[ADDITIVE_OPEN].values())
        return OpenedSum(
            field.to_signed(field.total(partials, setting.length)), tuple(sorted(rounds[ADDITIVE_DEAL]))
        )


SHAMIR_DEAL, SHAMIR_AGREE, SHAMIR_OPEN = range(3)


class ShamirSharing(ShareDealing):
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
                require_empty(last)
                require_posts(setting, last, least=setting.least, why="too few members dealt their shares")
            case 1:  # AGREE
                require_empty(last)
                require_posts(
                    setting, last, least=setting.quorum, why="too few members agreed on who is in the sum"
                )
            case _:  # OPEN
                require_posts(
                    setting, last, least=cls.threshold(setting), why="too few members opened their part"
                )
                require_elements(setting, last, setting.length)

    def _deal(self) -> dict[int, Elements]:
        threshold, members = self.threshold(self.setting), self.setting.members
        pieces = shamir_pieces(
            self.field, self.value, threshold=threshold, members=members, coins=self.coins
        )
        return dict(enumerate(pieces))

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        field = Field(setting.modulus)
        points = {i: field.from_bytes(public, setting.length) for i, public in rounds[SHAMIR_OPEN].items()}
        wrong = inconsistent_members(field, points, threshold=cls.threshold(setting))
        if wrong:
            raise ProtocolStopped("opened points do not lie on one polynomial", wrong)
        total = reconstruct(field, points, threshold=cls.threshold(setting))
        return OpenedSum(field.to_signed(total), tuple(sorted(rounds[SHAMIR_DEAL])))
