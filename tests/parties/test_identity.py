"""Keys and cards: made once, bound together, and never shown."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from lapwing.errors import BadFile, BadParameter, Unavailable
from lapwing.parties.identity import Card, MemberKeys, _bound


def test_what_was_created_can_be_opened(tmp_path: Path) -> None:
    made = MemberKeys.create("north", tmp_path / "north")
    opened = MemberKeys.open(tmp_path / "north")
    assert opened.card == made.card == Card.read(tmp_path / "north" / "north.card")
    assert made.card.verifies(opened.sign(b"words"), b"words")
    assert not made.card.verifies(opened.sign(b"words"), b"other words")


def test_private_keys_are_their_owners_alone(tmp_path: Path) -> None:
    MemberKeys.create("north", tmp_path / "north")
    for name in ("signing.key", "box.key"):
        assert (tmp_path / "north" / name).stat().st_mode & 0o777 == 0o600
    (tmp_path / "north" / "box.key").chmod(0o644)
    with pytest.raises(BadFile, match="chmod 600"):
        MemberKeys.open(tmp_path / "north")


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    before = MemberKeys.create("north", tmp_path)
    with pytest.raises(BadParameter, match="never overwritten"):
        MemberKeys.create("south", tmp_path)
    assert MemberKeys.open(tmp_path).card == before.card


def test_no_key_shows_in_words(tmp_path: Path) -> None:
    keys = MemberKeys.create("north", tmp_path)
    secret = (tmp_path / "signing.key").read_text().splitlines()[1]
    assert secret not in repr(keys)
    assert keys.signing.private_bytes_raw().hex() not in repr(keys)


@pytest.mark.parametrize("name", ["", "North", "a" * 41, "a/b", "a b", "..", "ä"])
def test_names_are_short_and_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadParameter, match="1 to 40"):
        MemberKeys.create(name, tmp_path)


class TestACard:
    @pytest.fixture
    def cards(self, tmp_path: Path) -> tuple[Card, Card]:
        return tuple(MemberKeys.create(name, tmp_path / name).card for name in ("north", "south"))  # type: ignore[return-value]

    @pytest.mark.parametrize("part", ["name", "certificate", "box", "signature"])
    def test_has_no_part_of_another(self, cards: tuple[Card, Card], part: str) -> None:
        north, south = cards
        with pytest.raises(BadParameter, match="not signed by its own key"):
            replace(north, **{part: getattr(south, part)})

    def test_has_a_fingerprint_of_its_own(self, cards: tuple[Card, Card]) -> None:
        north, south = cards
        assert north.fingerprint != south.fingerprint
        assert len(north.fingerprint.replace(" ", "")) == 64

    @pytest.mark.parametrize("wrong", ["{", "[]", "{}", '{"name": 1}', "\x00"])
    def test_is_read_strictly(self, tmp_path: Path, wrong: str) -> None:
        (tmp_path / "x.card").write_text(wrong)
        with pytest.raises(BadFile):
            Card.read(tmp_path / "x.card")

    def test_of_a_key_that_nothing_can_be_sealed_for_is_refused(self, tmp_path: Path) -> None:
        keys = MemberKeys.create("north", tmp_path)
        for low in (bytes(32), bytes([1]) + bytes(31)):
            signature = keys.sign(_bound("north", keys.card.der, low))
            with pytest.raises(BadParameter, match="nothing can be sealed"):
                Card("north", keys.card.certificate, low, signature)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"subject": "south"},
            {"issuer": "south"},
            {"until": datetime(2021, 1, 1, tzinfo=UTC)},
            {"begin": datetime(2998, 1, 1, tzinfo=UTC)},
            {"extension": x509.BasicConstraints(ca=True, path_length=None)},
        ],
    )
    def test_has_a_certificate_as_init_writes_it(self, tmp_path: Path, wrong: dict[str, Any]) -> None:
        """Else a member could show an outage to TLS, or pass for another name in it."""
        keys = MemberKeys.create("north", tmp_path)
        assert _card_with(keys) is not None
        with pytest.raises(BadParameter, match="not written in the usual form"):
            _card_with(keys, **wrong)

    @pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
    def test_changed_anywhere_is_refused_in_the_same_way(self, cards: tuple[Card, Card]) -> None:
        """Unknown kinds of keys and versions, too: a card comes from another."""
        north, _ = cards
        for at in range(len(north.der)):
            for bit in (0x01, 0x80, 0xFF):
                changed = north.der[:at] + bytes([north.der[at] ^ bit]) + north.der[at + 1 :]
                text = base64.b64encode(changed).decode()
                lines = "\n".join(text[i : i + 64] for i in range(0, len(text), 64))
                pem = f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
                with pytest.raises(BadParameter):
                    replace(north, certificate=pem)

    def test_nested_without_end_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x.card").write_text("[" * 16_000)
        with pytest.raises(BadFile, match="a card is JSON"):
            Card.read(tmp_path / "x.card")

    def test_that_is_not_there_has_no_mistakes(self, tmp_path: Path) -> None:
        with pytest.raises(BadParameter, match="cannot be read: No such file") as refused:
            Card.read(tmp_path / "x.card")
        assert not isinstance(refused.value, BadFile)

    def test_has_nothing_else_in_its_file(self, cards: tuple[Card, Card]) -> None:
        with pytest.raises(BadParameter, match="nothing else"):
            Card.from_json(cards[0].to_json() | {"more": "x"})


def test_keys_of_another_card_are_refused(tmp_path: Path) -> None:
    MemberKeys.create("north", tmp_path / "north")
    other = MemberKeys.create("south", tmp_path / "south")
    (tmp_path / "north" / "north.card").write_text(json.dumps(other.card.to_json()))
    with pytest.raises(BadFile, match="do not belong together"):
        MemberKeys.open(tmp_path / "north")


def test_others_cards_may_lie_in_a_folder(tmp_path: Path) -> None:
    made = MemberKeys.create("north", tmp_path / "north")
    for name in ("a", "south"):
        other = MemberKeys.create(name, tmp_path / name)
        (tmp_path / "north" / f"{name}.card").write_text(json.dumps(other.card.to_json()))
    (tmp_path / "north" / "broken.card").write_text("{")
    assert MemberKeys.open(tmp_path / "north").card == made.card
    (tmp_path / "north" / "north.card").unlink()
    with pytest.raises(BadFile, match="do not belong together"):
        MemberKeys.open(tmp_path / "north")


def test_keys_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    keys = MemberKeys.create("north", tmp_path)
    (tmp_path / "certificate.pem").unlink()
    with pytest.raises(Unavailable, match="cannot be used"):
        keys.tls(trusting=(keys.card,), server=False)


def _card_with(
    keys: MemberKeys,
    *,
    subject: str = "north",
    issuer: str = "north",
    begin: datetime = datetime(2020, 1, 1, tzinfo=UTC),
    until: datetime = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    extension: x509.BasicConstraints | None = None,
) -> Card:
    """North's card, properly signed, with another certificate."""
    of, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (subject, issuer))
    builder = x509.CertificateBuilder(by, of, keys.signing.public_key(), 7, begin, until)
    if extension is not None:
        builder = builder.add_extension(extension, critical=True)
    certificate = builder.sign(keys.signing, None)
    der = certificate.public_bytes(serialization.Encoding.DER)
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return Card("north", pem, keys.card.box, keys.sign(_bound("north", der, keys.card.box)))


def test_a_folder_without_keys_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="lapwing party init"):
        MemberKeys.open(tmp_path)
