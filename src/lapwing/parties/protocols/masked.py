"""Protocol D: a masked sum through a star. Everybody posts its value under masks that cancel in the sum.

Claim    to a computationally bounded coalition (t members, and the relay) the view tells nothing of honest
         values but their sum over the agreed set, with at least members - t - losses honest ones in it.
Because  a posted value hides under a self mask, and under one mask with every other member. Secrets of both
         kinds are shared with a threshold T > t, so the coalition alone has none. For each honest member
         only one secret is given back: the self seed of one in the set, whose masks with other honest
         members in the set stay; the mask key of one who is not, whose self mask stays. Nobody honest
         answers for two sets, since more than half must have agreed on one.
Test     parties/test_views.py::test_no_view_tells_more_than_epsilon, with ideal masks; the proof, and what
         an unbounded adversary would do, are in docs/arguments/parties.md

After Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack
from typing import ClassVar

import numpy as np

from lapwing.errors import BadValue
from lapwing.parties.protocols.coins import Elements
from lapwing.parties.protocols.field import WORD, Field
from lapwing.parties.protocols.masks import KeyedMasks, Masks
from lapwing.parties.protocols.protocol import (
    Heard,
    Opened,
    Post,
    Protocol,
    Publics,
    Setting,
    Stop,
    Traffic,
    agreed_by,
    need,
    need_elements,
    need_empty,
    not_from_one_another,
    read,
)
from lapwing.parties.protocols.sharing import off_the_polynomial, recombine, shamir_pieces

KEYS, SEEDS, MASKED, AGREE, UNMASK = range(5)


class Masked(Protocol):
    """Survives losses in every round, as long as T members stay and enough of them are in the sum."""

    name: ClassVar[str] = "masked star"
    rounds: ClassVar[tuple[str, ...]] = ("keys", "seeds", "masked", "agree", "unmask")
    masks: ClassVar[Masks] = KeyedMasks()
    _key: bytes  # of masks with others
    _seed: bytes  # of the self mask
    _own: Elements  # this member's piece of its own two secrets
    _pairs: Mapping[int, bytes]  # seeds of the masks with others
    _held: Mapping[int, Elements]  # its pieces of the two secrets of each member, seeds first

    @classmethod
    def threshold(cls, setting: Setting) -> int:
        """T: so many pieces give a secret back. More than a coalition has, and more than half."""
        return max(setting.coalition + 1, setting.majority)

    @classmethod
    def agreeing(cls, setting: Setting) -> int:
        """So many must agree on who is in the sum."""
        return max(cls.threshold(setting), setting.quorum)

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        if setting.members >= setting.modulus:
            return "there must be fewer members than the modulus"
        if setting.least < cls.threshold(setting):
            return (
                "seeds are given back by more members than the coalition has and by more than half, "
                f"so losses must be at most {setting.members - cls.threshold(setting)}"
            )
        if setting.least < cls.agreeing(setting):
            return agreed_by(setting, cls.agreeing(setting))
        return not_from_one_another(setting)

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[Traffic, ...]:
        secret = WORD * cls._size(setting)
        return (
            Traffic(cls.masks.public_bytes),
            Traffic(0, 2 * secret, setting.members - 1),
            Traffic(WORD * setting.length),
            Traffic(0),
            Traffic(secret * setting.members),
        )

    @classmethod
    def _size(cls, setting: Setting) -> int:
        return cls.masks.pieces(setting.modulus, setting.length)

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        last, threshold = rounds[-1], cls.threshold(setting)
        match len(rounds) - 1:
            case 0:  # KEYS
                need(setting, last, least=setting.least, why="too few members posted a key")
                wrong = tuple(i for i, public in last.items() if len(public) != cls.masks.public_bytes)
                if wrong:
                    raise Stop(f"a key must have {cls.masks.public_bytes} bytes", wrong)
            case 1:  # SEEDS
                need_empty(last)
                need(setting, last, least=setting.least, why="too few members shared their seeds")
            case 2:  # MASKED
                need(setting, last, least=setting.least, why="too few members posted their value")
                need_elements(setting, last, setting.length)
            case 3:  # AGREE
                need_empty(last)
                least = cls.agreeing(setting)
                need(setting, last, least=least, why="too few members agreed on who is in the sum")
            case _:  # UNMASK
                need(setting, last, least=threshold, why="too few members gave the seeds back")
                need_elements(setting, last, cls._size(setting) * len(rounds[SEEDS]))

    def _post(self, number: int) -> Post:
        match number:
            case 0:  # KEYS
                self._key = self.coins.secret()
                return Post(self.masks.public_key(self._key))
            case 1:  # SEEDS
                return self._share()
            case 2:  # MASKED
                return Post(self.field.to_bytes(self._masked()))
            case 4:  # UNMASK
                return Post(b"".join(self._given_back(i) for i in sorted(self.heard[SEEDS])))
            case _:
                return Post()

    def _share(self) -> Post:
        self._seed = self.coins.secret()
        modulus = self.setting.modulus
        pieces = shamir_pieces(
            self.field,
            np.concatenate((self.masks.cut(self._seed, modulus), self.masks.cut(self._key, modulus))),
            threshold=self.threshold(self.setting),
            members=self.setting.members,
            coins=self.coins,
        )
        self._own = pieces[self.me]
        there = (i for i in self.heard[KEYS] if i != self.me)
        return Post(private={i: self.field.to_bytes(pieces[i]) for i in there})

    def _masked(self) -> Elements:
        """This member's value, with its self mask and its masks with all who have shared their seeds."""
        setting = self.setting
        hidden = self.field.add(self.value, self.masks.expand(self._seed, setting.modulus, setting.length))
        for other, seed in self._pairs.items():
            hidden = self.field.add(hidden, self._pair_mask(setting, seed, self.me, other))
        return hidden

    @classmethod
    def _pair_seed(cls, setting: Setting, secret: bytes, member: int, other: int, key: bytes) -> bytes:
        """Of the mask of two members, from the secret of one and the posted key of the other."""
        try:
            return cls.masks.seed(secret, key, setting.run + pack("<II", *sorted((member, other))))
        except BadValue:
            raise Stop("a member posted what is no public key", (other,)) from None

    @classmethod
    def _pair_mask(cls, setting: Setting, seed: bytes, member: int, other: int) -> Elements:
        """What `member` adds for its pair with `other`, who adds the opposite."""
        mask = cls.masks.expand(seed, setting.modulus, setting.length)
        return mask if member < other else Field(setting.modulus).negate(mask)

    def _given_back(self, of: int) -> bytes:
        """A piece of one secret of a member, never of both: its seed if it is in the sum, else its key."""
        size = self._size(self.setting)
        held = self._held[of]
        return self.field.to_bytes(held[:size] if of in self.heard[MASKED] else held[size:])

    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        if number == SEEDS:
            size = 2 * self._size(self.setting)
            self._held = {
                i: self._own if i == self.me else read(self.setting, post.private, size, sender=i)
                for i, post in posts.items()
            }
            keys = self.heard[KEYS]
            self._pairs = {
                i: self._pair_seed(self.setting, self._key, self.me, i, keys[i])
                for i in posts
                if i != self.me
            }

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> Opened:
        keys, shared, values = rounds[KEYS], sorted(rounds[SEEDS]), rounds[MASKED]
        field = Field(setting.modulus)
        secrets = cls._secrets(setting, shared, rounds[UNMASK])
        total = field.total((field.from_bytes(v, setting.length) for v in values.values()), setting.length)
        for i in shared:
            if i in values:
                total = field.subtract(total, cls.masks.expand(secrets[i], setting.modulus, setting.length))
                continue
            if cls.masks.public_key(secrets[i]) != keys[i]:
                raise Stop("a lost member's key is not the one that it had shared", (i,))
            for other in values:  # what the lost member would have posted cancels what is left of its masks
                seed = cls._pair_seed(setting, secrets[i], i, other, keys[other])
                total = field.add(total, cls._pair_mask(setting, seed, i, other))
        return Opened(field.to_signed(total), tuple(sorted(values)))

    @classmethod
    def _secrets(cls, setting: Setting, shared: Sequence[int], given: Publics) -> dict[int, bytes]:
        """Of each member who has shared, the one secret that was given back."""
        field, size, threshold = Field(setting.modulus), cls._size(setting), cls.threshold(setting)
        parts = {i: field.from_bytes(part, size * len(shared)) for i, part in given.items()}
        wrong = off_the_polynomial(field, parts, threshold=threshold)
        if wrong:
            raise Stop("given back pieces do not lie on one polynomial", wrong)
        joined = recombine(field, parts, threshold=threshold).reshape(len(shared), size)
        secrets = {}
        for member, elements in zip(shared, joined, strict=True):
            try:
                secrets[member] = cls.masks.join(elements, setting.modulus)
            except BadValue:
                raise Stop("a member had shared what is no seed", (member,)) from None
        return secrets
