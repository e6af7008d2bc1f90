"""A member's identity: keys for signatures, TLS and sealed boxes, and a card with the public keys.

Claim    a peer that shows a card's certificate in TLS, signs with its key, or opens a box sealed for it,
         holds the private keys that were made together with the card. There is no certificate authority.
Because  the certificate is signed by its own key, and peers accept exactly the certificates on the cards of
         their consortium; the same key signs the box key and the name. Certificates have one form, as
         `MemberKeys.create` writes it: none expires, and none can be taken for that of another name.
Test     tests/parties/test_identity.py
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import ssl
import stat
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.x509.oid import NameOID

from lapwing.core.noise import random_bytes
from lapwing.errors import BadFile, BadParameter, Unavailable
from lapwing.storage.private_file import PRIVATE, new_private_file

NAME = re.compile(r"[a-z0-9-]{1,40}")
SIGNATURE_BYTES = 64
_SIGNING = "signing.key"
_BOX = "box.key"
_CERTIFICATE = "certificate.pem"  # the same as on the card: OpenSSL reads it from a file
_PUBLIC = 0o644
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LARGEST_FILE = 1 << 14
# A consortium names the cards that it trusts, and for what: dates of expiry would only cause outages.
_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_UNTIL = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
# An exchange with a key of low order fails for every peer: nobody could seal a box for such a key.
_TRIAL = X25519PrivateKey.from_private_bytes(bytes(32))


@dataclass(frozen=True, slots=True)
class Card:
    """A member's public keys and name, signed by the member itself."""

    name: str
    certificate: str  # PEM
    box: bytes  # public X25519 key
    signature: bytes = field(repr=False)
    der: bytes = field(init=False, repr=False, compare=False)
    signing_key: Ed25519PublicKey = field(init=False, repr=False, compare=False)
    box_key: X25519PublicKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_member_name(self.name)
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate.encode())
            key = certificate.public_key()
            if not isinstance(key, Ed25519PublicKey):
                raise BadParameter("card", "the certificate's key must be Ed25519")
            key.verify(certificate.signature, certificate.tbs_certificate_bytes)
            der = certificate.public_bytes(serialization.Encoding.DER)
            key.verify(self.signature, _bound(self.name, der, self.box))
            box_key = X25519PublicKey.from_public_bytes(self.box)
            is_usual = _is_usual(certificate, self.name)
        except BadParameter:
            raise
        except _NOT_A_CARD as error:
            raise BadParameter("card", f"{self.name}'s card is not signed by its own key") from error
        try:
            _TRIAL.exchange(box_key)
        except ValueError as error:
            raise BadParameter("card", f"nothing can be sealed for {self.name}'s box key") from error
        if (
            not is_usual
            or self.certificate != certificate.public_bytes(serialization.Encoding.PEM).decode()
        ):
            raise BadParameter("card", f"{self.name}'s certificate is not written in the usual form")
        object.__setattr__(self, "der", der)
        object.__setattr__(self, "signing_key", key)
        object.__setattr__(self, "box_key", box_key)

    @property
    def fingerprint(self) -> str:
        """A digest of the card that people compare over another channel."""
        return hashlib.sha256(_bound(self.name, self.der, self.box)).digest().hex(" ", 4)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether the holder of this card has signed these bytes."""
        try:
            self.signing_key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def to_json(self) -> dict[str, str]:
        """Return plain values, as in a .card file and in a consortium."""
        return {
            "name": self.name,
            "certificate": self.certificate,
            "box": base64.b64encode(self.box).decode(),
            "signature": base64.b64encode(self.signature).decode(),
        }

    @classmethod
    def from_json(cls, value: object) -> Card:
        """Read a card as `to_json` writes it. Raises `BadParameter`."""
        keys = {"name", "certificate", "box", "signature"}
        if not isinstance(value, dict) or set(value) != keys:
            raise BadParameter("card", "must have name, certificate, box and signature, and nothing else")
        if not all(isinstance(part, str) for part in value.values()):
            raise BadParameter("card", "all its parts must be text")
        try:
            box = base64.b64decode(value["box"], validate=True)
            signature = base64.b64decode(value["signature"], validate=True)
        except ValueError as error:
            raise BadParameter("card", "box and signature must be base64") from error
        return cls(value["name"], value["certificate"], box, signature)

    @classmethod
    def read(cls, path: Path) -> Card:
        """Read a .card file. Raises `BadParameter` or `BadFile`."""
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            raise BadParameter("card", f"{path} cannot be read: {error.strerror}") from error
        try:
            if len(raw) > _LARGEST_FILE:
                raise BadParameter("card", "is too long")
            return cls.from_json(json.loads(raw))
        except BadParameter as error:
            raise BadFile([f"{path}: {error}"]) from error
        except (ValueError, RecursionError) as error:
            raise BadFile([f"{path}: a card is JSON, as lapwing party init writes it"]) from error


@dataclass(frozen=True, slots=True)
class MemberKeys:
    """A member's private keys, in its own folder. They are never shown, and never overwritten."""

    card: Card
    folder: Path
    signing: Ed25519PrivateKey = field(repr=False)
    box: X25519PrivateKey = field(repr=False)

    @property
    def name(self) -> str:
        """The member's name."""
        return self.card.name

    @classmethod
    def create(cls, name: str, folder: Path) -> MemberKeys:
        """Make keys and a card, and write them to a folder. Raises `BadParameter` if it has keys."""
        checked_member_name(name)
        folder = Path(folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (folder / _SIGNING).exists() or (folder / _BOX).exists():
                raise BadParameter(
                    "folder",
                    f"{folder} has keys already: they are never overwritten. Use them as they are, or "
                    "make others in another folder",
                )
            signing = Ed25519PrivateKey.from_private_bytes(random_bytes(32))
            box = X25519PrivateKey.from_private_bytes(random_bytes(32))
            card = _card(name, signing, box)
            text = json.dumps(card.to_json(), indent=2) + "\n"
            for file, mode, content in (
                (_SIGNING, PRIVATE, _pem(signing)),
                (_BOX, PRIVATE, _pem(box)),
                (_CERTIFICATE, _PUBLIC, card.certificate.encode()),
                (f"{name}.card", _PUBLIC, text.encode()),
            ):
                with new_private_file(folder / file, mode=mode) as writing:
                    writing.write(content)
        except OSError as error:
            raise Unavailable(f"keys cannot be written to {folder}: {error.strerror}") from error
        return cls(card, folder, signing, box)

    @classmethod
    def open(cls, folder: Path) -> MemberKeys:
        """Read the keys that `create` wrote to a folder. Raises `BadFile` or `BadParameter`."""
        folder = Path(folder)
        cards = sorted(folder.glob("*.card"))
        if not cards:
            raise BadFile([f"{folder}: has no card. Make a member's folder with: lapwing party init NAME"])
        signing = _private(folder / _SIGNING)
        box = _private(folder / _BOX)
        if not isinstance(signing, Ed25519PrivateKey) or not isinstance(box, X25519PrivateKey):
            raise BadFile([f"{folder}: the keys are not of the kinds that lapwing party init makes"])
        public = signing.public_key().public_bytes_raw(), box.public_key().public_bytes_raw()
        for card in _readable(cards):  # the folder may also hold other members' cards
            if (card.signing_key.public_bytes_raw(), card.box) == public:
                return cls(card, folder, signing, box)
        names = ", ".join(path.name for path in cards)
        raise BadFile([f"{folder}: these keys and {names} do not belong together"])

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message: 64 bytes, for `Card.verifies`."""
        return self.signing.sign(message)

    def tls(self, *, trusting: tuple[Card, ...], server: bool) -> ssl.SSLContext:
        """Return a context for mutual TLS 1.3 with exactly the holders of these cards."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate itself is pinned
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata="".join(sorted({card.certificate for card in trusting})))
        try:
            context.load_cert_chain(self.folder / _CERTIFICATE, self.folder / _SIGNING)
        except OSError as error:
            raise Unavailable(f"the keys in {self.folder} cannot be used: {error.strerror}") from error
        if server:
            context.num_tickets = 0  # no resumption: each connection shows its certificate
        return context


class SignedStatement(ABC):
    """Base of frozen dataclasses that one member signs with the key on its card."""

    __slots__ = ()
    signature: bytes

    @abstractmethod
    def _signed_part(self) -> bytes: ...

    def signed(self, keys: MemberKeys) -> Self:
        """Return the same statement with a signature."""
        made: Self = replace(cast("Any", self), signature=keys.sign(self._signed_part()))
        return made

    def is_signed_by(self, card: Card) -> bool:
        """Return whether the holder of the card has signed this."""
        return card.verifies(self.signature, self._signed_part())


def checked_member_name(name: str) -> str:
    """Return a member's name: 1 to 40 of a-z, 0-9 and -. Raises `BadParameter` for others."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadParameter("name", "a member's name has 1 to 40 of a-z, 0-9 and -")
    return name


def _card(name: str, signing: Ed25519PrivateKey, box: X25519PrivateKey) -> Card:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(_subject(name))
        .public_key(signing.public_key())
        .serial_number(int.from_bytes(b"\x01" + random_bytes(15)))
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .sign(signing, None)
    )
    public = box.public_key().public_bytes_raw()
    der = certificate.public_bytes(serialization.Encoding.DER)
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return Card(name, pem, public, signing.sign(_bound(name, der, public)))


_NOT_A_CARD = (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion)


def _is_usual(certificate: x509.Certificate, name: str) -> bool:
    """Return whether all but key and serial number is as `_card` writes it."""
    return (
        certificate.subject == certificate.issuer == _subject(name)
        and (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == (_FROM, _UNTIL)
        and certificate.serial_number > 0
        and not len(certificate.extensions)
    )


def _readable(cards: list[Path]) -> list[Card]:
    """Read the cards of a folder. A single file must be a card; of several, other files are skipped."""
    if len(cards) == 1:
        return [Card.read(cards[0])]
    readable = []
    for path in cards:
        with suppress(BadParameter):
            readable.append(Card.read(path))
    return readable


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _bound(name: str, der: bytes, box: bytes) -> bytes:
    """Return the bytes that bind name, certificate and box key together."""
    return b"lapwing card\n" + json.dumps([name, der.hex(), box.hex()]).encode()


def _pem(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _private(path: Path) -> Any:
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise BadParameter("me", f"{path} cannot be read: {error.strerror}") from error
    if mode & _OTHERS:
        raise BadFile([f"{path}: others may use this key. Make it yours alone: chmod 600 {path}"])
    try:
        return serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError) as error:
        raise BadFile([f"{path}: is not a key as lapwing party init makes it"]) from error
