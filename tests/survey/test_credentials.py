"""Blind signatures: the RFC's numbers, another library's verification, and nothing that links."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.survey.credentials import (
    PREPARED_BYTES,
    Blinding,
    BlindSigningKey,
    PublicKey,
    blind_token,
    blind_with_factor,
    encode_pss,
    prepare_token,
)
from support.raised import named

VECTOR = {
    name: bytes.fromhex(value)
    for name, value in json.loads((Path(__file__).parent / "rfc9474.json").read_text()).items()
}
PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=48)


def number(name: str) -> int:
    return int.from_bytes(VECTOR[name], "big")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> BlindSigningKey:
    return BlindSigningKey.create(tmp_path_factory.mktemp("key") / "survey.signing")


@pytest.fixture(scope="module")
def rfc_key() -> BlindSigningKey:
    p, q, d = number("p"), number("q"), number("d")
    public = rsa.RSAPublicNumbers(number("e"), number("n"))
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q), public
    )
    return BlindSigningKey(numbers.private_key())


class TestVectorsOfTheRfc:
    """RFC 9474, appendix A.1."""

    def test_encoding(self) -> None:
        bits = number("n").bit_length() - 1
        assert VECTOR["prepared_msg"] == VECTOR["msg_prefix"] + VECTOR["msg"]
        assert encode_pss(VECTOR["prepared_msg"], VECTOR["salt"], bits) == VECTOR["encoded_msg"]

    def test_blinding_signing_and_finishing(self, rfc_key: BlindSigningKey) -> None:
        factor = pow(number("inv"), -1, number("n"))
        made = blind_with_factor(rfc_key.public, VECTOR["prepared_msg"], VECTOR["encoded_msg"], factor)
        assert made.blinded == VECTOR["blinded_msg"]
        assert rfc_key.sign(made.blinded) == VECTOR["blind_sig"]
        assert made.finish(VECTOR["blind_sig"]) == VECTOR["sig"]


class TestSignatures:
    def test_another_library_accepts_them(self, key: BlindSigningKey) -> None:
        other = rsa.RSAPublicNumbers(key.public.e, key.public.n).public_key()
        for _ in range(5):
            made = blind_token(key.public, prepare_token())
            signature = made.finish(key.sign(made.blinded))
            other.verify(signature, made.prepared, PSS, hashes.SHA384())
            assert key.public.verify(made.prepared, signature)

    def test_are_for_one_token_only(self, key: BlindSigningKey) -> None:
        made = blind_token(key.public, prepare_token())
        signature = made.finish(key.sign(made.blinded))
        assert not key.public.verify(prepare_token(), signature)
        assert not key.public.verify(made.prepared, signature[:-1])
        assert not key.public.verify(made.prepared, bytes(len(signature)))
        changed = bytes([signature[0] ^ 1]) + signature[1:]
        assert not key.public.verify(made.prepared, changed)

    def test_the_same_value_has_the_same_signature(self, key: BlindSigningKey) -> None:
        made = blind_token(key.public, prepare_token())
        assert key.sign(made.blinded) == key.sign(made.blinded)

    def test_what_a_dishonest_signer_gives_is_refused(self, key: BlindSigningKey) -> None:
        made = blind_token(key.public, prepare_token())
        wrong = key.sign(blind_token(key.public, prepare_token()).blinded)
        with pytest.raises(BadValue, match="not a signature"):
            made.finish(wrong)
        with pytest.raises(BadValue, match="256 bytes"):
            made.finish(wrong + b"\x00")

    def test_only_units_below_n_are_signed(self, key: BlindSigningKey) -> None:
        n, size = key.public.n, key.public.size
        factor = key._numbers.p
        for value in (0, n, n + 5, factor, 2 * factor, (1 << 8 * size) - 1):
            with pytest.raises(BadValue, match="coprime"):
                key.sign(value.to_bytes(size, "big"))
        with pytest.raises(BadValue, match="256 bytes"):
            key.sign(b"short")

    def test_a_computing_error_gives_no_signature(
        self, key: BlindSigningKey, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A wrong root modulo one prime would give away the key."""
        root = BlindSigningKey._root
        monkeypatch.setattr(BlindSigningKey, "_root", lambda self, value: root(self, value) + 1)
        blinded = blind_token(key.public, prepare_token()).blinded
        with pytest.raises(Unavailable):
            key.sign(blinded)

    def test_a_secret_computation_never_sees_the_value(
        self, key: BlindSigningKey, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[int] = []
        root = BlindSigningKey._root

        def watched(self: BlindSigningKey, value: int) -> int:
            seen.append(value)
            return root(self, value)

        monkeypatch.setattr(BlindSigningKey, "_root", watched)
        blinded = blind_token(key.public, prepare_token()).blinded
        for _ in range(4):
            key.sign(blinded)
        assert len(set(seen)) == 4
        assert int.from_bytes(blinded, "big") not in seen

    def test_tokens_and_blindings_are_fresh(self, key: BlindSigningKey) -> None:
        prepared = prepare_token(b"t" * 32)
        assert prepared[32:] == b"t" * 32
        assert len(prepared) == PREPARED_BYTES
        assert len({prepare_token(b"t" * 32) for _ in range(10)}) == 10
        assert len({blind_token(key.public, prepared).blinded for _ in range(10)}) == 10

    def test_a_blinding_survives_in_storage(self, key: BlindSigningKey) -> None:
        made = blind_token(key.public, prepare_token())
        again = Blinding.from_json(key.public, json.loads(json.dumps(made.to_json())))
        assert again == made
        assert key.public.verify(again.prepared, again.finish(key.sign(again.blinded)))

    def test_nothing_secret_is_printed(self, key: BlindSigningKey) -> None:
        made = blind_token(key.public, prepare_token())
        assert made.prepared.hex()[:16] not in repr(made)
        assert str(key._numbers.d)[:20] not in repr(key)


class TestUnlinkable:
    def test_every_issued_value_is_linked_to_every_redeemed_token_by_one_factor(
        self, key: BlindSigningKey
    ) -> None:
        """So what was issued says nothing about which token it was: all factors are equally likely."""
        n, e = key.public.n, key.public.e
        issued, redeemed = [], []
        for _ in range(6):
            made = blind_token(key.public, prepare_token())
            reply = key.sign(made.blinded)
            issued.append((made.blinded, int.from_bytes(reply, "big")))
            redeemed.append((made.prepared, int.from_bytes(made.finish(reply), "big")))
        for blinded, reply_number in issued:
            for prepared, signature in redeemed:
                factor = reply_number * pow(signature, -1, n) % n
                assert math.gcd(factor, n) == 1
                encoded = pow(signature, e, n).to_bytes(key.public.size, "big")
                linked = blind_with_factor(key.public, prepared, encoded, factor)
                assert linked.blinded == blinded
                assert linked.finish(key.sign(blinded)) == signature.to_bytes(key.public.size, "big")

    def test_in_a_small_group_the_view_is_exactly_independent_whatever_the_key(self) -> None:
        """All messages, all factors, also for exponents that are not coprime with the group's order."""
        for n, e in ((35, 5), (35, 3), (77, 3), (91, 3)):
            units = [x for x in range(1, n) if math.gcd(x, n) == 1]
            roots: dict[int, list[int]] = {}
            for z in units:
                roots.setdefault(pow(z, e, n), []).append(z)
            views: dict[int, list[tuple[int, int]]] = {}
            for m in roots:  # only what has a signature is ever redeemed
                for r in units:
                    b = m * pow(r, e, n) % n
                    z = roots[b][0]  # the signer may choose any root, by any rule
                    s = z * pow(r, -1, n) % n
                    assert pow(s, e, n) == m
                    views.setdefault(m, []).append((b, s))
            for m, seen in views.items():
                joint = {view: seen.count(view) for view in set(seen)}
                assert len(set(joint.values())) == 1, "all pairs are equally frequent"
                assert set(joint) == {(b, s) for b in roots for s in roots[m]}


class TestKeys:
    def test_are_stored_for_their_owner_alone_and_never_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "survey.signing"
        made = BlindSigningKey.create(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert BlindSigningKey.load(path).public == made.public
        with pytest.raises(BadParameter, match="never overwritten"):
            BlindSigningKey.create(path)

    def test_that_others_can_read_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "survey.signing"
        BlindSigningKey.create(path)
        path.chmod(0o640)
        with pytest.raises(BadParameter, match="chmod 600"):
            BlindSigningKey.load(path)

    @pytest.mark.parametrize("content", [b"", b"nothing", b"-----BEGIN PRIVATE KEY-----\n"])
    def test_files_of_another_form_are_refused(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "survey.signing"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(BadParameter, match="signing key"):
            BlindSigningKey.load(path)

    def test_of_another_kind_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "survey.signing"
        path.write_bytes(
            ec.generate_private_key(ec.SECP256R1()).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        path.chmod(0o600)
        with pytest.raises(BadParameter, match="RSA"):
            BlindSigningKey.load(path)
        with pytest.raises(Unavailable):
            BlindSigningKey.load(tmp_path / "missing")
        os.mkfifo(tmp_path / "pipe", 0o600)
        with pytest.raises(BadParameter, match="plain file"):
            BlindSigningKey.load(tmp_path / "pipe")

    def test_travel_as_json(self, key: BlindSigningKey) -> None:
        public = PublicKey.from_json(json.loads(json.dumps(key.public.to_json())))
        assert public == key.public
        assert public.to_json()["e"] == "010001"
        assert len(public.to_json()["n"]) == 512
        assert repr(key) == "BlindSigningKey(2048 bits)"

    def test_weak_ones_are_refused(self, key: BlindSigningKey) -> None:
        for n, e in ((key.public.n, 3), (3233, 65537), (key.public.n + 1, 65537), (-1, 65537)):
            with pytest.raises(BadParameter, check=named("key")):
                PublicKey(n, e)
        for bad in (None, {}, {"n": "1"}, {"n": 5, "e": 3}, {"n": "zz", "e": "010001"}):
            with pytest.raises(BadParameter, check=named("key")):
                PublicKey.from_json(bad)

    def test_signatures_of_another_key_are_not_accepted(self, key: BlindSigningKey, tmp_path: Path) -> None:
        other = BlindSigningKey.create(tmp_path / "other")
        made = blind_token(other.public, prepare_token())
        signature = made.finish(other.sign(made.blinded))
        assert not key.public.verify(made.prepared, signature)
        with pytest.raises(InvalidSignature):
            key.public._key.verify(signature, made.prepared, PSS, hashes.SHA384())
