"""Protocols B and C: members send pieces of their values to one another, and open the sums of pieces.

Protocol B, additive sharing. Every present member sends a piece of its value to all present members.

Claim    the view of a coalition (t members, and the relay) can be simulated from its own values and the sum
         of the values of the present honest members, at least members - t - losses of them; without that
         sum, if the run stops before "open".
Because  one piece of every honest value stays with each honest member, so the coalition's pieces of it are
         uniform. An honest member opens the sum of its pieces: uniform again, except for the total.
Test     parties/protocols/test_protocols_views.py::test_no_view_tells_more_than_epsilon; proof in
         docs/arguments/parties.md

A member that is lost before "deal" is left out of the sum. A later loss stops the run.

Protocol C, Shamir sharing. Every member sends points of a polynomial; any t + 1 members open the sum.

Claim    the view of a coalition (t members, and the relay) can be simulated from its own values and the sum
         of the values of the honest members in the agreed set, at least members - t - losses of them;
         without that sum, if no honest member reaches "open".
Because  t points of a polynomial of degree t are uniform, for every value at 0. An honest member opens one
         point of the sum of the polynomials of one set, on which more than half of the members agreed. All
         those points follow from the coalition's own points and the sum at 0.
Test     parties/protocols/test_protocols_views.py::test_no_view_tells_more_than_epsilon; proof in
         docs/arguments/parties.md

After "agree", all but t + 1 members may be lost. Points beyond t + 1 must lie on the same polynomial.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from lapwing.parties.protocols import protocol as rules
from lapwing.parties.protocols.protocol import Heard, OpenedSum, Post, Protocol, Publics, Setting
from lapwing.parties.protocols.secret_sharing import WORD, Elements


class ShareDealing(Protocol):
    """Base of protocols with the rounds "deal", "agree" and "open"."""

    _own: Elements  # the piece that this member keeps of its own value
    _held: Elements  # the sum of all pieces that this member holds

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        """Return why this protocol cannot serve the setting, or None."""
        return rules.coalition_refusal(setting) or rules.quorum_refusal(setting, cls.agreeing(setting))

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[rules.RoundTraffic, ...]:
        """Return the size of one member's post in every round."""
        size = WORD * setting.length
        return (
            rules.RoundTraffic(0, size, setting.members - 1),
            rules.RoundTraffic(0),
            rules.RoundTraffic(size),
        )

    @abstractmethod
    def _deal(self) -> dict[int, Elements]:
        """Return the pieces of this member's value by recipient. This member is one of the recipients."""

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
                rules.read_elements(self.setting, post.private, length, sender=i)
                for i, post in posts.items()
                if i != self.me
            )
            self._held = self.field.add(self._own, self.field.total(others, length))


class AdditiveSharing(ShareDealing):
    """Protocol B. All members that are present in the first round must stay to the end."""

    name: ClassVar[str] = "additive shares"
    rounds: ClassVar[tuple[str, ...]] = ("present", "deal", "agree", "open")

    @classmethod
    def threshold(cls, setting: Setting) -> int:
        """Return the least number of members in a sum: all of them must stay to open it."""
        return setting.least

    @classmethod
    def agreeing(cls, setting: Setting) -> int:
        """Return how many members must agree: a quorum, and no fewer than must be in the sum."""
        return max(setting.quorum, setting.least)

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[rules.RoundTraffic, ...]:
        """Return the size of one member's post in every round."""
        return rules.RoundTraffic(0), *super().traffic(setting)

    @classmethod
    def _rule(cls, setting: Setting, rounds: Sequence[Publics]) -> rules.RoundRule:
        present, step = rounds[0], cls.rounds[len(rounds) - 1]
        if step == "present":
            return rules.RoundRule(setting.least, "too few members are present")
        lost = {"deal": "dealt its shares", "agree": "agreed", "open": "opened its part"}[step]
        why, elements = f"a member was lost before it had {lost}", setting.length if step == "open" else 0
        return rules.RoundRule(len(present), why, elements, expected=present)

    def _deal(self) -> dict[int, Elements]:
        present = sorted(self.heard[0])
        pieces = self.field.additive_pieces(self.value, len(present), self.coins)
        return dict(zip(present, pieces, strict=True))

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        """Return the sum that the public parts of all rounds open."""
        _, dealt, _, opened = rounds
        return rules.total_of(setting, opened, contributors=dealt)


class ShamirSharing(ShareDealing):
    """Protocol C. It survives the loss of members that have sent their pieces."""

    name: ClassVar[str] = "Shamir shares"
    rounds: ClassVar[tuple[str, ...]] = ("deal", "agree", "open")

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        """Return why this protocol cannot serve the setting, or None."""
        if 2 * setting.coalition >= setting.members:
            return "the coalition must be less than half of the members"
        if setting.members >= setting.modulus:
            return "there must be fewer members than the modulus"
        return super().refusal(setting)

    @classmethod
    def threshold(cls, setting: Setting) -> int:
        """Return how many points open the sum. This is never more than the quorum."""
        return setting.coalition + 1

    @classmethod
    def _rule(cls, setting: Setting, rounds: Sequence[Publics]) -> rules.RoundRule:
        return (
            rules.RoundRule(setting.least, "too few members dealt their shares"),
            rules.RoundRule(cls.agreeing(setting), rules.TOO_FEW_AGREED),
            rules.RoundRule(cls.threshold(setting), "too few members opened their part", setting.length),
        )[len(rounds) - 1]

    def _deal(self) -> dict[int, Elements]:
        threshold, members = self.threshold(self.setting), self.setting.members
        pieces = self.field.shamir_pieces(
            self.value, threshold=threshold, members=members, coins=self.coins
        )
        return dict(enumerate(pieces))

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        """Return the sum that the public parts of all rounds open. Raises `ProtocolStopped`."""
        (dealt, _, opened), field = rounds, setting.field
        points = {i: field.from_bytes(public, setting.length) for i, public in opened.items()}
        wrong = field.inconsistent_members(points, threshold=cls.threshold(setting))
        if wrong:
            raise rules.ProtocolStopped("opened points do not lie on one polynomial", wrong)
        total = field.reconstruct(points, threshold=cls.threshold(setting))
        return OpenedSum(field.to_signed(total), tuple(sorted(dealt)))
