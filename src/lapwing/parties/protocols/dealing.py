"""What protocols have in common whose members deal pieces of their values, and open the sums of pieces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from lapwing.parties.protocols.coins import Elements
from lapwing.parties.protocols.field import WORD
from lapwing.parties.protocols.protocol import (
    Heard,
    Post,
    Protocol,
    Setting,
    Traffic,
    agreed_by,
    not_from_one_another,
    read,
)


class Dealing(Protocol):
    """Has the rounds "deal", "agree" and "open". Who opens posts the sum of all pieces that it holds."""

    _own: Elements  # the piece that this member keeps of its own value
    _held: Elements  # the sum of all pieces that it holds

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        return not_from_one_another(setting) or agreed_by(setting, setting.quorum)

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[Traffic, ...]:
        size = WORD * setting.length
        return Traffic(0, size, setting.members - 1), Traffic(0), Traffic(size)

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
                read(self.setting, post.private, length, sender=i)
                for i, post in posts.items()
                if i != self.me
            )
            self._held = self.field.add(self._own, self.field.total(others, length))
