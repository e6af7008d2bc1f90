"""Protocol D: a masked sum through the relay. Members post their values under masks that cancel in the sum.

Claim    a computationally bounded coalition (t members, and the relay) learns from its view nothing about
         honest values except their sum over the agreed set, with at least members - t - losses honest ones.
Because  a posted value is hidden by a self mask, and by one mask with every other member. The secrets of
         both kinds are shared with a threshold T > t, so the coalition alone has none of them. For each
         honest member only one secret is given back: the self seed of a member in the set, whose masks with
         other honest members in the set stay secret; the mask key of a member outside of the set, whose
         self mask stays secret. No honest member answers for two sets, since more than half must have
         agreed on one.
Test     parties/protocols/test_protocols_views.py::test_no_view_tells_more_than_epsilon, with ideal masks;
         the proof, and the
         attack of an unbounded adversary, are in docs/arguments/parties.md

Claim    the mask of a pair looks uniform to everybody without a secret key of the pair; the mask of a seed
         looks uniform to everybody without the seed. Both for computationally bounded adversaries only.
Because  X25519 (hashed Diffie-Hellman), HKDF-SHA256 over the shared secret and the context, and AES-256-CTR
         are assumed to be secure. A keystream word is cut to the modulus' number of bits, and drawn again
         if it is not below the modulus: uniform words give uniform elements.
Test     parties/protocols/test_masked_sum.py; views are tested with ideal masks in
         parties/protocols/test_protocols_views.py

After Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (2017).
"""

from __future__ import annotations

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
from lapwing.parties.protocols import protocol as rules
from lapwing.parties.protocols.protocol import Heard, OpenedSum, Post, Protocol, Publics, Setting
from lapwing.parties.protocols.secret_sharing import FIELD, WORD, Elements

SECRET = 32  # bytes of a key or a seed
_CHUNK = 7  # bytes of a secret in one element of FIELD


class Masks:
    """Key agreement and expansion of seeds, by X25519, HKDF-SHA256 and AES-256-CTR.

    A secret can be cut into field elements, to be shared. Tests override this class with ideal masks.
    """

    public_bytes = 32  # of a public key

    def public_key(self, secret: bytes) -> bytes:
        """Return the X25519 public key of a secret."""
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()

    def seed(self, secret: bytes, public: bytes, context: bytes) -> bytes:
        """Return the seed that only the two members of a pair know. Raises `BadValue` for a bad key."""
        try:
            shared = X25519PrivateKey.from_private_bytes(secret).exchange(
                X25519PublicKey.from_public_bytes(public)
            )
        except ValueError:  # a point of low order: everybody would know the shared secret
            raise BadValue("must be a public key of X25519") from None
        return HKDF(SHA256(), SECRET, salt=None, info=b"lapwing mask" + context).derive(shared)

    def expand(self, seed: bytes, modulus: int, count: int) -> Elements:
        """Return `count` elements from the seed's keystream."""
        stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
        bits = np.uint64((1 << modulus.bit_length()) - 1)
        mask = np.empty(0, dtype=np.uint64)
        while len(mask) < count:
            words = np.frombuffer(stream.update(bytes(WORD * (count - len(mask)))), dtype="<u8")
            words = words.astype(np.uint64) & bits
            kept = words[words < np.uint64(modulus)]
            mask = kept if not len(mask) else np.concatenate((mask, kept))
        return mask

    def pieces(self, modulus: int, length: int) -> int:
        """Return how many elements a secret is cut into."""
        return -(-SECRET // self._chunk(modulus))

    @staticmethod
    def _chunk(modulus: int) -> int:
        if modulus.bit_length() <= 8:
            raise BadValue("must be a modulus above 255: an element holds a whole byte")
        return _CHUNK if modulus == FIELD else 1

    def cut(self, secret: bytes, modulus: int) -> Elements:
        """Return a secret as field elements."""
        size = self._chunk(modulus)
        chunks = [secret[at : at + size] for at in range(0, SECRET, size)]
        return np.array([int.from_bytes(chunk, "little") for chunk in chunks], dtype=np.uint64)

    def join(self, elements: Elements, modulus: int) -> bytes:
        """Return the secret that was cut into these elements. Raises `BadValue` if there is none."""
        size = self._chunk(modulus)
        try:
            return b"".join(
                int(element).to_bytes(min(size, SECRET - at), "little")
                for at, element in zip(range(0, SECRET, size), elements, strict=True)
            )
        except OverflowError:
            raise BadValue("must be the pieces of a secret of 32 bytes") from None


KEYS, SEEDS, MASKED, AGREE, UNMASK = range(5)  # the rounds


class MaskedSum(Protocol):
    """Protocol D. It survives losses in every round, if T members stay and enough are in the sum."""

    name: ClassVar[str] = "masked star"
    rounds: ClassVar[tuple[str, ...]] = ("keys", "seeds", "masked", "agree", "unmask")
    masks: ClassVar[Masks] = Masks()
    _key: bytes  # of masks with others
    _seed: bytes  # of the self mask
    _own: Elements  # this member's piece of its own two secrets
    _pairs: Mapping[int, bytes]  # seeds of the masks with others
    _held: Mapping[int, Elements]  # its pieces of the two secrets of each member, seeds first

    @classmethod
    def threshold(cls, setting: Setting) -> int:
        """Return T, the number of pieces that give a secret back: more than a coalition, more than half."""
        return max(setting.coalition + 1, setting.majority)

    @classmethod
    def agreeing(cls, setting: Setting) -> int:
        """Return how many members must agree on who is in the sum."""
        return max(cls.threshold(setting), setting.quorum)

    @classmethod
    def refusal(cls, setting: Setting) -> str | None:
        """Return why this protocol cannot serve the setting, or None."""
        if setting.members >= setting.modulus:
            return "there must be fewer members than the modulus"
        if setting.least < cls.threshold(setting):
            return (
                "seeds are given back by more members than the coalition has and by more than half, "
                f"so losses must be at most {setting.members - cls.threshold(setting)}"
            )
        if setting.least < cls.agreeing(setting):
            return rules.quorum_refusal(setting, cls.agreeing(setting))
        return rules.coalition_refusal(setting)

    @classmethod
    def traffic(cls, setting: Setting) -> tuple[rules.RoundTraffic, ...]:
        """Return the size of one member's post in every round."""
        secret = WORD * cls._size(setting)
        return (
            rules.RoundTraffic(cls.masks.public_bytes),
            rules.RoundTraffic(0, 2 * secret, setting.members - 1),
            rules.RoundTraffic(WORD * setting.length),
            rules.RoundTraffic(0),
            rules.RoundTraffic(secret * setting.members),
        )

    @classmethod
    def _size(cls, setting: Setting) -> int:
        return cls.masks.pieces(setting.modulus, setting.length)

    @classmethod
    def _rule(cls, setting: Setting, rounds: Sequence[Publics]) -> rules.RoundRule:
        given_back = cls._size(setting) * len(rounds[SEEDS]) if len(rounds) > UNMASK else 0
        return (
            rules.RoundRule(setting.least, "too few members posted a key", None),
            rules.RoundRule(setting.least, "too few members shared their seeds"),
            rules.RoundRule(setting.least, "too few members posted their value", setting.length),
            rules.RoundRule(cls.agreeing(setting), rules.TOO_FEW_AGREED),
            rules.RoundRule(cls.threshold(setting), "too few members gave the seeds back", given_back),
        )[len(rounds) - 1]

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        super()._follow(setting, rounds)
        wrong = tuple(i for i, key in rounds[KEYS].items() if len(key) != cls.masks.public_bytes)
        if wrong:
            raise rules.ProtocolStopped(f"a key must have {cls.masks.public_bytes} bytes", wrong)

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
        pieces = self.field.shamir_pieces(
            np.concatenate((self.masks.cut(self._seed, modulus), self.masks.cut(self._key, modulus))),
            threshold=self.threshold(self.setting),
            members=self.setting.members,
            coins=self.coins,
        )
        self._own = pieces[self.me]
        there = (i for i in self.heard[KEYS] if i != self.me)
        return Post(private={i: self.field.to_bytes(pieces[i]) for i in there})

    def _masked(self) -> Elements:
        """Return this member's value under its self mask and its masks with all who shared their seeds."""
        setting = self.setting
        hidden = self.field.add(self.value, self.masks.expand(self._seed, setting.modulus, setting.length))
        for other, seed in self._pairs.items():
            hidden = self.field.add(hidden, self._pair_mask(setting, seed, self.me, other))
        return hidden

    @classmethod
    def _pair_seed(cls, setting: Setting, secret: bytes, member: int, other: int, key: bytes) -> bytes:
        """Return the seed of two members' mask, from the secret of one and the posted key of the other."""
        try:
            return cls.masks.seed(secret, key, setting.run + pack("<II", *sorted((member, other))))
        except BadValue:
            raise rules.ProtocolStopped("a member posted an invalid public key", (other,)) from None

    @classmethod
    def _pair_mask(cls, setting: Setting, seed: bytes, member: int, other: int) -> Elements:
        """Return the mask that `member` adds for its pair with `other`, which adds the opposite."""
        mask = cls.masks.expand(seed, setting.modulus, setting.length)
        return mask if member < other else setting.field.negate(mask)

    def _given_back(self, of: int) -> bytes:
        """Return a piece of one secret of a member: of its seed if it is in the sum, else of its key."""
        size = self._size(self.setting)
        held = self._held[of]
        return self.field.to_bytes(held[:size] if of in self.heard[MASKED] else held[size:])

    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        if number == SEEDS:
            size = 2 * self._size(self.setting)
            self._held = {
                i: self._own
                if i == self.me
                else rules.read_elements(self.setting, post.private, size, sender=i)
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
        """Return the sum that the public parts of all rounds open. Raises `ProtocolStopped`."""
        keys, shared, values = rounds[KEYS], sorted(rounds[SEEDS]), rounds[MASKED]
        field = setting.field
        secrets = cls._secrets(setting, shared, rounds[UNMASK])
        total = field.total((field.from_bytes(v, setting.length) for v in values.values()), setting.length)
        for i in shared:
            if i in values:
                total = field.subtract(total, cls.masks.expand(secrets[i], setting.modulus, setting.length))
                continue
            if cls.masks.public_key(secrets[i]) != keys[i]:
                raise rules.ProtocolStopped("a lost member's key is not the one that it had shared", (i,))
            for other in values:  # cancel the lost member's masks in the other members' values
                seed = cls._pair_seed(setting, secrets[i], i, other, keys[other])
                total = field.add(total, cls._pair_mask(setting, seed, i, other))
        return OpenedSum(field.to_signed(total), tuple(sorted(values)))

    @classmethod
    def _secrets(cls, setting: Setting, shared: Sequence[int], given: Publics) -> dict[int, bytes]:
        """Return, for each member that shared secrets, the one secret that was given back."""
        field, size, threshold = setting.field, cls._size(setting), cls.threshold(setting)
        parts = {i: field.from_bytes(part, size * len(shared)) for i, part in given.items()}
        wrong = field.inconsistent_members(parts, threshold=threshold)
        if wrong:
            raise rules.ProtocolStopped("given back pieces do not lie on one polynomial", wrong)
        joined = field.reconstruct(parts, threshold=threshold).reshape(len(shared), size)
        secrets = {}
        for member, elements in zip(shared, joined, strict=True):
            try:
                secrets[member] = cls.masks.join(elements, setting.modulus)
            except BadValue:
                raise rules.ProtocolStopped("a member had shared an invalid seed", (member,)) from None
        return secrets
