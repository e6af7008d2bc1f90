"""Masks that two members know, and masks that one member knows: the secrets of the masked star.

Claim    to everybody who has neither secret key of a pair, the mask of that pair looks uniform; so does the
         mask of a seed to everybody who has not the seed. For computationally bounded adversaries only.
Because  X25519 (hashed Diffie-Hellman), HKDF-SHA256 over the shared secret and the context, AES-256-CTR,
         all taken as secure. A keystream word is cut to as many bits as the modulus has, and drawn again if
         it is not below it: uniform words give uniform elements.
Test     parties/protocols/test_masks.py; views are tested with ideal masks in parties/test_views.py

Protocol D: a masked sum through a star. Everybody posts its value under masks that cancel in the sum.

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

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from struct import pack
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lapwing.errors import BadValue
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
    require_elements,
    require_empty,
    require_posts,
)
from lapwing.parties.protocols.secret_sharing import (
    FIELD,
    WORD,
    Elements,
    Field,
    inconsistent_members,
    reconstruct,
    shamir_pieces,
)

SECRET = 32  # bytes of a key or a seed
_CHUNK = 7  # bytes of a secret in one element of FIELD


class Masks(ABC):
    """Key agreement and expansion. A secret can be cut into elements, to be shared among members."""

    public_bytes: int  # of a public key

    @abstractmethod
    def public_key(self, secret: bytes) -> bytes:
        """What others may know of this secret."""

    @abstractmethod
    def seed(self, secret: bytes, public: bytes, context: bytes) -> bytes:
        """The same for both sides of a pair, for nobody else. Raises `BadValue` if `public` is no key."""

    @abstractmethod
    def expand(self, seed: bytes, modulus: int, count: int) -> Elements:
        """As many elements as wanted, always the same ones."""

    @abstractmethod
    def pieces(self, modulus: int, length: int) -> int:
        """How many elements a secret is cut into."""

    @abstractmethod
    def cut(self, secret: bytes, modulus: int) -> Elements:
        """A secret as elements."""

    @abstractmethod
    def join(self, elements: Elements, modulus: int) -> bytes:
        """The secret again. Raises `BadValue` if no secret was cut so."""


class KeyedMasks(Masks):
    """X25519, HKDF-SHA256 and AES-256-CTR."""

    public_bytes = 32

    def public_key(self, secret: bytes) -> bytes:
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()

    def seed(self, secret: bytes, public: bytes, context: bytes) -> bytes:
        try:
            shared = X25519PrivateKey.from_private_bytes(secret).exchange(
                X25519PublicKey.from_public_bytes(public)
            )
        except ValueError:  # a point of low order: the shared secret would be known to all
            raise BadValue("must be a public key of X25519") from None
        return HKDF(SHA256(), SECRET, salt=None, info=b"lapwing mask" + context).derive(shared)

    def expand(self, seed: bytes, modulus: int, count: int) -> Elements:
        stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
        bits = np.uint64((1 << modulus.bit_length()) - 1)
        found = np.empty(0, dtype=np.uint64)
        while len(found) < count:
            words = np.frombuffer(stream.update(bytes(WORD * (count - len(found)))), dtype="<u8")
            words = words.astype(np.uint64) & bits
            kept = words[words < np.uint64(modulus)]
            found = kept if not len(found) else np.concatenate((found, kept))
        return found

    def pieces(self, modulus: int, length: int) -> int:
        return -(-SECRET // self._chunk(modulus))

    @staticmethod
    def _chunk(modulus: int) -> int:
        if modulus.bit_length() <= 8:
            raise BadValue("must be a modulus above 255: an element holds a whole byte")
        return _CHUNK if modulus == FIELD else 1

    def cut(self, secret: bytes, modulus: int) -> Elements:
        size = self._chunk(modulus)
        chunks = [secret[at : at + size] for at in range(0, SECRET, size)]
        return np.array([int.from_bytes(chunk, "little") for chunk in chunks], dtype=np.uint64)

    def join(self, elements: Elements, modulus: int) -> bytes:
        size = self._chunk(modulus)
        try:
            return b"".join(
                int(element).to_bytes(min(size, SECRET - at), "little")
                for at, element in zip(range(0, SECRET, size), elements, strict=True)
            )
        except OverflowError:
            raise BadValue("must be the pieces of a secret of 32 bytes") from None


KEYS, SEEDS, MASKED, AGREE, UNMASK = range(5)


class MaskedSum(Protocol):
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
            return quorum_refusal(setting, cls.agreeing(setting))
        return coalition_refusal(setting)

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[RoundTraffic, ...]:
        secret = WORD * cls._size(setting)
        return (
            RoundTraffic(cls.masks.public_bytes),
            RoundTraffic(0, 2 * secret, setting.members - 1),
            RoundTraffic(WORD * setting.length),
            RoundTraffic(0),
            RoundTraffic(secret * setting.members),
        )

    @classmethod
    def _size(cls, setting: Setting) -> int:
        return cls.masks.pieces(setting.modulus, setting.length)

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        last, threshold = rounds[-1], cls.threshold(setting)
        match len(rounds) - 1:
            case 0:  # KEYS
                require_posts(setting, last, least=setting.least, why="too few members posted a key")
                wrong = tuple(i for i, public in last.items() if len(public) != cls.masks.public_bytes)
                if wrong:
                    raise ProtocolStopped(f"a key must have {cls.masks.public_bytes} bytes", wrong)
            case 1:  # SEEDS
                require_empty(last)
                require_posts(setting, last, least=setting.least, why="too few members shared their seeds")
            case 2:  # MASKED
                require_posts(setting, last, least=setting.least, why="too few members posted their value")
                require_elements(setting, last, setting.length)
            case 3:  # AGREE
                require_empty(last)
                least = cls.agreeing(setting)
                require_posts(setting, last, least=least, why="too few members agreed on who is in the sum")
            case _:  # UNMASK
                require_posts(setting, last, least=threshold, why="too few members gave the seeds back")
                require_elements(setting, last, cls._size(setting) * len(rounds[SEEDS]))

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
            raise ProtocolStopped("a member posted what is no public key", (other,)) from None

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
                i: self._own if i == self.me else read_elements(self.setting, post.private, size, sender=i)
                for i, post in posts.items()
            }
            keys = self.heard[KEYS]
            self._pairs = {
                i: self._pair_seed(self.setting, self._key, self.me, i, keys[i])
                for i in posts
                if i != self.me
            }

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        keys, shared, values = rounds[KEYS], sorted(rounds[SEEDS]), rounds[MASKED]
        field = Field(setting.modulus)
        secrets = cls._secrets(setting, shared, rounds[UNMASK])
        total = field.total((field.from_bytes(v, setting.length) for v in values.values()), setting.length)
        for i in shared:
            if i in values:
                total = field.subtract(total, cls.masks.expand(secrets[i], setting.modulus, setting.length))
                continue
            if cls.masks.public_key(secrets[i]) != keys[i]:
                raise ProtocolStopped("a lost member's key is not the one that it had shared", (i,))
            for other in values:  # what the lost member would have posted cancels what is left of its masks
                seed = cls._pair_seed(setting, secrets[i], i, other, keys[other])
                total = field.add(total, cls._pair_mask(setting, seed, i, other))
        return OpenedSum(field.to_signed(total), tuple(sorted(values)))

    @classmethod
    def _secrets(cls, setting: Setting, shared: Sequence[int], given: Publics) -> dict[int, bytes]:
        """Of each member who has shared, the one secret that was given back."""
        field, size, threshold = Field(setting.modulus), cls._size(setting), cls.threshold(setting)
        parts = {i: field.from_bytes(part, size * len(shared)) for i, part in given.items()}
        wrong = inconsistent_members(field, parts, threshold=threshold)
        if wrong:
            raise ProtocolStopped("given back pieces do not lie on one polynomial", wrong)
        joined = reconstruct(field, parts, threshold=threshold).reshape(len(shared), size)
        secrets = {}
        for member, elements in zip(shared, joined, strict=True):
            try:
                secrets[member] = cls.masks.join(elements, setting.modulus)
            except BadValue:
                raise ProtocolStopped("a member had shared what is no seed", (member,)) from None
        return secrets
