"""One-time credentials that nobody can trace: RSA blind signatures after RFC 9474.

The variant is RSABSSA-SHA384-PSS-Randomized. A respondent draws a token, blinds it, and has the blinded
value signed for an invitation. The reply is unblinded: a signature of the token, valid for one report.

Claim    the signer's view at signing (blinded, blind signature) is independent of the (token, signature)
         that appears later, for any key that the signer uses, and any computing power it has.
Because  let m be the encoded token, b = m r^e the blinded value, z the signer's reply and s = z / r the
         signature; s is used only if s^e = m. The factor r is uniform among the units modulo n and
         independent of m. So b is uniform among the e-th powers, whatever m is; and given b, r is
         uniform in a coset of the e-th roots of 1, so that s is uniform among the e-th roots of m. Put
         differently: for every pair (b, z) that was issued and every pair (m, s) that was redeemed,
         exactly one factor links the two, r = z / s, and all factors are equally likely.
Test     tests/survey/test_credentials.py::TestUnlinkable

Not covered: a signer who uses another key for each respondent, or who notes when, and from which address,
tokens are signed and reports arrive. Against the first, respondents compare the fingerprint of survey and
key. Against the second, use a proxy in front of the server, and wait between the two requests.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from flint import fmpz

from lapwing.core.exact import set_fields
from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.storage.private_file import read_key_file, write_key_file

TOKEN_BYTES = 32
PREFIX_BYTES = 32
PREPARED_BYTES = PREFIX_BYTES + TOKEN_BYTES
INVITATION_FORM = re.compile(r"[A-Za-z0-9_-]{24}")
LEAST_KEY_BITS = 2048
MOST_KEY_BITS = 8192
EXPONENT = 65537
_SALT_BYTES = 48
_HASH_BYTES = 48
_PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=_SALT_BYTES)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The key that checks signatures. Every respondent of a survey must have the same one."""

    n: int
    e: int
    size: int = field(init=False)  # bytes of a signature, and of a blinded value
    _key: rsa.RSAPublicKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("n", "e"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadParameter("key", f"{name} must be a positive whole number")
        if not LEAST_KEY_BITS <= self.n.bit_length() <= MOST_KEY_BITS or not self.n % 2:
            raise BadParameter("key", f"n must be odd, with {LEAST_KEY_BITS} to {MOST_KEY_BITS} bits")
        if self.e != EXPONENT:  # one exponent for all: nothing about a key may tell respondents apart
            raise BadParameter("key", f"e must be {EXPONENT}")
        key = rsa.RSAPublicNumbers(self.e, self.n).public_key()
        set_fields(self, size=(self.n.bit_length() + 7) // 8, _key=key)

    @classmethod
    def from_json(cls, value: object) -> PublicKey:
        """Read the result of `to_json`."""
        if not isinstance(value, dict) or set(value) != {"n", "e"}:
            raise BadParameter("key", "must have n and e")
        try:
            return cls(int(value["n"], 16), int(value["e"], 16))
        except (TypeError, ValueError):
            raise BadParameter("key", "n and e must be hexadecimal, with good values") from None

    def to_json(self) -> dict[str, str]:
        """Return n and e in hexadecimal, n with all its leading digits."""
        return {"n": f"{self.n:0{2 * self.size}x}", "e": f"{self.e:06x}"}

    def verify(self, prepared: bytes, signature: bytes) -> bool:
        """Return whether this is a signature of the prepared token. A malformed one is not."""
        if len(signature) != self.size:
            return False
        try:
            self._key.verify(signature, prepared, _PSS, hashes.SHA384())
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Blinding:
    """A token on its way to the signer. Only `blinded` leaves the device."""

    key: PublicKey
    prepared: bytes = field(repr=False)  # random prefix and token
    blinded: bytes
    _inverse: int = field(repr=False)

    def finish(self, blind_signature: bytes) -> bytes:
        """Return the checked signature of the token. Raise `BadValue` if the signer's reply is wrong."""
        n, size = self.key.n, self.key.size
        if len(blind_signature) != size:
            raise BadValue(f"a blind signature has {size} bytes")
        signature = (int.from_bytes(blind_signature, "big") * self._inverse % n).to_bytes(size, "big")
        if not self.key.verify(self.prepared, signature):
            raise BadValue("this is not a signature of the blinded token")
        return signature

    def to_json(self) -> dict[str, str]:
        """Return the state for the device's own storage, to continue after a crash. It is secret."""
        prepared, blinded = self.prepared.hex(), self.blinded.hex()
        return {"prepared": prepared, "blinded": blinded, "inverse": f"{self._inverse:x}"}

    @classmethod
    def from_json(cls, key: PublicKey, value: dict[str, str]) -> Blinding:
        """Read the result of `to_json`."""
        prepared, blinded = bytes.fromhex(value["prepared"]), bytes.fromhex(value["blinded"])
        return cls(key, prepared, blinded, int(value["inverse"], 16))


def new_invitation() -> str:
    """Draw a secret of 144 random bits, as text for a link. It lets one blinded token be signed."""
    return base64.urlsafe_b64encode(random_bytes(18)).decode()


def prepare_token(token: bytes | None = None) -> bytes:
    """Return a random prefix and the token (PrepareRandomize). Without a token it draws one."""
    token = random_bytes(TOKEN_BYTES) if token is None else token
    if len(token) != TOKEN_BYTES:
        raise BadParameter("token", f"must be {TOKEN_BYTES} bytes")
    return random_bytes(PREFIX_BYTES) + token


def blind_token(key: PublicKey, prepared: bytes) -> Blinding:
    """Blind a prepared token with a fresh uniform factor."""
    if len(prepared) != PREPARED_BYTES:
        raise BadParameter("prepared", f"must be {PREPARED_BYTES} bytes")
    encoded = encode_pss(prepared, random_bytes(_SALT_BYTES), key.n.bit_length() - 1)
    return blind_with_factor(key, prepared, encoded, _random_unit(key.n))


def blind_with_factor(key: PublicKey, prepared: bytes, encoded: bytes, factor: int) -> Blinding:
    """Blind a token with this factor, which must be a secret uniform unit modulo n, used once."""
    message = int.from_bytes(encoded, "big")
    if math.gcd(message, key.n) != 1:
        raise BadValue("the encoded token is not coprime with the key")
    blinded = message * _power(factor, key.e, key.n) % key.n
    return Blinding(key, prepared, blinded.to_bytes(key.size, "big"), _power(factor, -1, key.n))


def encode_pss(message: bytes, salt: bytes, bits: int) -> bytes:
    """Encode a message by EMSA-PSS of RFC 8017, section 9.1.1, with SHA-384 and its MGF1."""
    size = (bits + 7) // 8
    if size < _HASH_BYTES + len(salt) + 2:
        raise BadParameter("bits", "are too few for this hash and salt")
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    space = size - _HASH_BYTES - 1
    block = bytes(space - len(salt) - 1) + b"\x01" + salt
    masked = bytearray(a ^ b for a, b in zip(block, _mgf1(digest, space), strict=True))
    masked[0] &= 0xFF >> (8 * size - bits)
    return bytes(masked) + digest + b"\xbc"


def _mgf1(seed: bytes, size: int) -> bytes:
    pieces = [hashlib.sha384(seed + k.to_bytes(4, "big")).digest() for k in range(-(-size // _HASH_BYTES))]
    return b"".join(pieces)[:size]


def _random_unit(n: int) -> int:
    """Draw a uniform number below n that is coprime with n."""
    bits = n.bit_length()
    while True:
        number = int.from_bytes(random_bytes((bits + 7) // 8), "big") >> (-bits % 8)
        if 0 < number < n and math.gcd(number, n) == 1:
            return number


def _power(base: int, exponent: int, modulus: int) -> int:
    """Compute `pow`, many times faster."""
    return int(pow(fmpz(base), fmpz(exponent), fmpz(modulus)))


class BlindSigningKey:
    """The survey's secret key. It signs blinded values, so it never knows what it signs."""

    __slots__ = ("_numbers", "public")

    def __init__(self, private: rsa.RSAPrivateKey) -> None:
        self._numbers = private.private_numbers()
        public = self._numbers.public_numbers
        self.public = PublicKey(public.n, public.e)

    def __repr__(self) -> str:
        return f"BlindSigningKey({self.public.size * 8} bits)"

    @classmethod
    def create(cls, path: str | Path, bits: int = LEAST_KEY_BITS) -> BlindSigningKey:
        """Make a fresh key in a new file that only its owner can read. It never replaces a file."""
        # OpenSSL draws the primes: the one use of randomness that does not come from lapwing.core.noise.
        private = rsa.generate_private_key(EXPONENT, bits)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        write_key_file(path, private.private_bytes(encoding, form, serialization.NoEncryption()), "key")
        return cls(private)

    @classmethod
    def load(cls, path: str | Path) -> BlindSigningKey:
        """Load the key of a file. Raise `BadParameter` if others can read it."""
        content = read_key_file(path, "key")
        try:
            private = serialization.load_pem_private_key(content, password=None)
        except (ValueError, TypeError):
            raise BadParameter("key", f"{path} does not hold a signing key") from None
        if not isinstance(private, rsa.RSAPrivateKey):
            raise BadParameter("key", f"{path} does not hold an RSA key")
        return cls(private)

    def sign(self, blinded: bytes) -> bytes:
        """Return the e-th root of the blinded value (BlindSign).

        The value is multiplied by a random e-th power first, so the time of the secret computation says
        nothing about the value or the key. The root is checked, so a computing error cannot leak the key's
        factors. Raises `BadValue` unless the value is a unit modulo n.
        """
        n, size = self.public.n, self.public.size
        if len(blinded) != size:
            raise BadValue(f"a blinded value has {size} bytes")
        value = int.from_bytes(blinded, "big")
        if not 0 < value < n or math.gcd(value, n) != 1:
            raise BadValue("a blinded value must be below the key's n and coprime with it")
        cover = _random_unit(n)
        root = self._root(value * _power(cover, self.public.e, n) % n) * _power(cover, -1, n) % n
        if _power(root, self.public.e, n) != value:
            raise Unavailable("the signature could not be computed")
        return root.to_bytes(size, "big")

    def _root(self, value: int) -> int:
        """Return value^d mod n by the Chinese remainder theorem."""
        key = self._numbers
        by_p, by_q = _power(value % key.p, key.dmp1, key.p), _power(value % key.q, key.dmq1, key.q)
        return by_q + (by_p - by_q) * key.iqmp % key.p * key.q
