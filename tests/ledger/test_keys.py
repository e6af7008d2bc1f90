"""Keys are made once, kept secret, and what is malformed is not signed."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger import keys as module
from lapwing.ledger.keys import CuratorKey, LedgerKeys, SigningKey, good_signature

Kind = type[LedgerKeys] | type[CuratorKey]
BOTH = pytest.mark.parametrize("kind", [LedgerKeys, CuratorKey])


def test_a_signature_is_that_of_the_first_published_example() -> None:
    # RFC 8032, 7.1, test 1.
    key = SigningKey(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    assert key.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b"
    )
    assert key.sign(b"").hex() == signature
    assert good_signature(key.public, b"", bytes.fromhex(signature))


@given(st.binary(max_size=40), st.integers(0, 63), st.integers(1, 255))
def test_a_changed_message_signature_or_key_is_not_signed(message: bytes, at: int, change: int) -> None:
    key = SigningKey(bytes(range(32)))
    signature = bytearray(key.sign(message))
    assert good_signature(key.public, message, bytes(signature))
    assert not good_signature(key.public, message + b"x", bytes(signature))
    assert not good_signature(SigningKey(bytes(32)).public, message, bytes(signature))
    signature[at] ^= change
    assert not good_signature(key.public, message, bytes(signature))


@given(st.binary(max_size=70), st.binary(max_size=70))
def test_malformed_keys_and_signatures_raise_nothing(public: bytes, signature: bytes) -> None:
    assert not good_signature(public, b"message", signature)


@pytest.mark.parametrize("bad", [None, "", "ab" * 32, 7, bytearray(32)], ids=repr)
def test_what_is_not_bytes_is_not_signed(bad: bytes) -> None:
    key = SigningKey(bytes(32))
    good = [key.public, b"message", key.sign(b"message")]
    for place in range(3):
        parts = [*good[:place], bad, *good[place + 1 :]]
        assert not good_signature(*parts)


def test_a_secret_of_another_length_is_refused() -> None:
    for secret in (b"", bytes(31), bytes(64)):
        with pytest.raises(BadParameter, match="32 bytes"):
            SigningKey(secret)
        with pytest.raises(BadParameter, match="32 bytes"):
            LedgerKeys(SigningKey(bytes(32)), secret)


def test_what_was_created_is_loaded_again(tmp_path: Path) -> None:
    made = LedgerKeys.create(tmp_path / "visits.ledger.keys")
    loaded = LedgerKeys.load(tmp_path / "visits.ledger.keys")
    assert (loaded.signing.public, loaded.people) == (made.signing.public, made.people)
    assert good_signature(made.signing.public, b"x", loaded.signing.sign(b"x"))
    curator = CuratorKey.create(tmp_path / "visits.ledger.curator")
    assert CuratorKey.load(str(tmp_path / "visits.ledger.curator")).public == curator.public
    assert good_signature(curator.public, b"raise", curator.sign(b"raise"))


def test_every_key_is_another_one(tmp_path: Path) -> None:
    made = [LedgerKeys.create(tmp_path / str(number)) for number in range(4)]
    secrets = {keys.people for keys in made} | {keys.signing.public for keys in made}
    assert len(secrets) == 8


@BOTH
def test_only_the_owner_can_read_the_file_and_it_says_what_it_is(kind: Kind, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kind.create(tmp_path / "keys")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600
    first = (tmp_path / "keys").read_text().splitlines()[0]
    assert "Lapwing" in first
    assert "Keep secret" in first


@BOTH
def test_a_file_that_exists_is_never_overwritten_not_even_through_a_link(
    kind: Kind, tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        with pytest.raises(BadParameter, match="never overwritten"):
            kind.create(tmp_path / name)
    assert (tmp_path / "there").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


@BOTH
@pytest.mark.parametrize("mode", [0o640, 0o620, 0o604, 0o602, 0o644, 0o660], ids=oct)
def test_a_file_that_others_can_use_is_refused_with_what_to_do(
    kind: Kind, mode: int, tmp_path: Path
) -> None:
    kind.create(tmp_path / "keys")
    (tmp_path / "keys").chmod(mode)
    with pytest.raises(BadParameter, match="chmod 600 "):
        kind.load(tmp_path / "keys")
    (tmp_path / "keys").chmod(0o400)
    kind.load(tmp_path / "keys")


def _cut(content: bytes) -> bytes:
    return content[:-1]


def _emptied(content: bytes) -> bytes:
    return content[:0]


def _doubled(content: bytes) -> bytes:
    return content * 2


def _one_digit_changed(content: bytes) -> bytes:
    at = content.index(b"signing ") + 9
    return content[:at] + (b"0" if content[at : at + 1] != b"0" else b"1") + content[at + 1 :]


def _in_capitals(content: bytes) -> bytes:
    return content.upper()


def _not_text(content: bytes) -> bytes:
    return b"\xff" + content


def _very_long(content: bytes) -> bytes:
    return content + b"x" * 10_000


@BOTH
@pytest.mark.parametrize(
    "damage", [_cut, _emptied, _doubled, _one_digit_changed, _in_capitals, _not_text, _very_long]
)
def test_a_damaged_file_is_refused_without_showing_it(
    kind: Kind, damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    kind.create(tmp_path / "keys")
    content = (tmp_path / "keys").read_bytes()
    (tmp_path / "keys").write_bytes(damage(content))
    with pytest.raises(BadParameter) as caught:
        kind.load(tmp_path / "keys")
    for line in content.decode().splitlines()[1:]:
        assert line.split()[1][:16] not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_changed_people_key_is_noticed(tmp_path: Path) -> None:
    """It would be a good key, but nobody would be found again under it."""
    LedgerKeys.create(tmp_path / "keys")
    content = (tmp_path / "keys").read_bytes()
    at = content.index(b"people ") + 7
    (tmp_path / "keys").write_bytes(content[:at] + b"00000000" + content[at + 8 :])
    with pytest.raises(BadParameter):
        LedgerKeys.load(tmp_path / "keys")


def test_one_kind_of_file_does_not_pass_for_the_other(tmp_path: Path) -> None:
    LedgerKeys.create(tmp_path / "ledger")
    CuratorKey.create(tmp_path / "curator")
    with pytest.raises(BadParameter):
        CuratorKey.load(tmp_path / "ledger")
    with pytest.raises(BadParameter):
        LedgerKeys.load(tmp_path / "curator")


@BOTH
def test_a_file_that_cannot_be_made_or_read_says_why(kind: Kind, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        kind.create(tmp_path / "missing" / "keys")
    with pytest.raises(Unavailable, match="No such file"):
        kind.load(tmp_path / "missing")
    with pytest.raises(BadParameter, match="not a plain file"):
        kind.load(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(BadParameter, match="not a plain file"):
        kind.load(tmp_path / "pipe")  # and does not wait for a writer


@BOTH
def test_a_full_disk_leaves_no_half_of_a_file(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match="No space left"):
        kind.create(tmp_path / "keys")
    monkeypatch.undo()
    kind.create(tmp_path / "keys")


def test_nothing_that_is_printed_or_saved_shows_a_secret(tmp_path: Path) -> None:
    keys = LedgerKeys.create(tmp_path / "keys")
    curator = CuratorKey.create(tmp_path / "curator")
    lines = [
        *(tmp_path / "keys").read_text().splitlines(),
        *(tmp_path / "curator").read_text().splitlines(),
    ]
    secrets = [line.split()[1] for line in lines if line.split()[0] in ("signing", "people")]
    assert len(secrets) == 3
    shown = f"{keys!r} {keys} {keys.signing!r} {curator!r} {curator.signing}"
    assert not any(secret in shown or repr(bytes.fromhex(secret)) in shown for secret in secrets)
    for key in (keys, keys.signing, curator):
        with pytest.raises(TypeError):
            pickle.dumps(key)


def test_the_keys_come_from_the_one_door_to_randomness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter([bytes([1]) * 32, bytes([2]) * 32])
    monkeypatch.setattr(module, "random_bytes", lambda size: next(drawn))
    keys = LedgerKeys.create(tmp_path / "keys")
    first = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32).public_key().public_bytes_raw()
    assert (keys.signing.public, keys.people) == (first, bytes([2]) * 32)
