"""Hostile answers of a provider, of a browser, and of somebody between: nobody signs in by them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from lapwing.errors import Unavailable
from lapwing.server.people import open_id
from lapwing.server.people.open_id import OpenIdClient
from lapwing.server.people.people import People
from lapwing.server.people.person import NotSignedIn
from lapwing.server.settings import OpenIdSettings
from support.open_id_provider import (
    BACK,
    CLIENT,
    SECRET,
    Claims,
    LoopbackProvider,
    answer_of,
    sign_in,
    signed_by_another,
    signed_by_own_key,
    signed_with_public_key,
    unsigned,
)


def refused(client: OpenIdClient, provider: LoopbackProvider) -> None:
    with pytest.raises(NotSignedIn):
        sign_in(client, provider)


def with_claim(name: str, value: object) -> Callable[[Claims], Claims]:
    return lambda claims: {**claims, name: value}


def without_claim(name: str) -> Callable[[Claims], Claims]:
    return lambda claims: {key: value for key, value in claims.items() if key != name}


NOW = int(time.time())
WRONG_CLAIMS: dict[str, Callable[[Claims], Claims]] = {
    "another nonce": with_claim("nonce", "other"),
    "no nonce": without_claim("nonce"),
    "a nonce that is no text": with_claim("nonce", 1),
    "another audience": with_claim("aud", "other"),
    "no audience": without_claim("aud"),
    "an empty list of audiences": with_claim("aud", []),
    "audiences without us": with_claim("aud", ["other", "others"]),
    "several audiences without an authorized party": with_claim("aud", [CLIENT, "other"]),
    "another authorized party": with_claim("azp", "other"),
    "another issuer": with_claim("iss", "https://id.example"),
    "no issuer": without_claim("iss"),
    "an issuer with a slash": lambda claims: {**claims, "iss": claims["iss"] + "/"},
    "expired": with_claim("exp", NOW - 3600),
    "no expiry": without_claim("exp"),
    "an expiry that is no number": with_claim("exp", "never"),
    "of the future": with_claim("iat", NOW + 3600),
    "old": with_claim("iat", NOW - 3600),
    "no time": without_claim("iat"),
    "not valid yet": with_claim("nbf", NOW + 3600),
    "no subject": without_claim("sub"),
    "an empty subject": with_claim("sub", ""),
    "a subject that is no text": with_claim("sub", 1),
    "a long subject": with_claim("sub", "x" * 256),
    "a subject with other letters": with_claim("sub", "ö"),
}


def test_a_token_with_a_wrong_claim_signs_nobody_in(
    client: OpenIdClient, provider: LoopbackProvider
) -> None:
    assert sign_in(client, provider) == "ann"
    for what, change in WRONG_CLAIMS.items():
        provider.change = change
        try:
            refused(client, provider)
        except BaseException as error:
            error.add_note(what)
            raise
    provider.change = lambda claims: claims
    assert sign_in(client, provider) == "ann"


@pytest.mark.parametrize("write", [unsigned, signed_with_public_key, signed_by_another, signed_by_own_key])
def test_a_token_that_the_provider_did_not_sign_signs_nobody_in(
    client: OpenIdClient, provider: LoopbackProvider, write: Callable[[LoopbackProvider, Claims], str]
) -> None:
    provider.write = write
    refused(client, provider)


def test_a_token_that_is_none_signs_nobody_in(client: OpenIdClient, provider: LoopbackProvider) -> None:
    for text in ("", "a", "a.b", "a.b.c", "a.b.c.d.e", "...", "ö.ö.ö", "e30.e30.", "W10.W10.AA"):
        provider.write = lambda _, __, text=text: text
        refused(client, provider)


def test_a_changed_signature_or_payload_signs_nobody_in(
    client: OpenIdClient, provider: LoopbackProvider
) -> None:
    def changed(provider: LoopbackProvider, claims: Claims, which: int) -> str:
        parts = jwt.encode({"alg": "RS256", "kid": "one"}, claims, provider.key).split(".")
        letter = "A" if parts[which][5] != "A" else "B"
        parts[which] = parts[which][:5] + letter + parts[which][6:]
        return ".".join(parts)

    for which in (0, 1, 2):
        provider.write = lambda given, claims, which=which: changed(given, claims, which)
        refused(client, provider)


def test_symmetric_keys_of_a_provider_are_not_used(
    client: OpenIdClient, provider: LoopbackProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_id, "FAILED_FOR", 0.0)
    secret = OctKey.generate_key(256, {"kid": "one"})
    provider.public_keys = [secret.as_dict(private=True)]
    provider.key, provider.algorithm = secret, "HS256"
    with pytest.raises(Unavailable, match="no key"):
        sign_in(client, provider)
    other = RSAKey.generate_key(2048, {"kid": "two"}, private=True)
    provider.public_keys = [secret.as_dict(private=True), other]
    refused(client, provider)


class TestAnswers:
    """What a browser brings back, and what somebody planted in it."""

    def test_one_counts_once(self, client: OpenIdClient, provider: LoopbackProvider) -> None:
        secret, answer = answer_of(client, provider)
        code = dict(provider.codes)
        assert client.finish(secret, BACK, answer) == "ann"
        provider.codes.update(code)  # a provider that forgets that the code was used
        with pytest.raises(NotSignedIn):
            client.finish(secret, BACK, answer)

    def test_a_code_that_was_used_is_refused_by_the_provider(
        self, client: OpenIdClient, provider: LoopbackProvider
    ) -> None:
        _, used = answer_of(client, provider)
        provider.codes.clear()
        secret, answer = answer_of(client, provider)
        provider.codes.clear()
        with pytest.raises(NotSignedIn):
            client.finish(secret, BACK, {**answer, "code": used["code"]})

    def test_the_state_is_of_this_browser(self, client: OpenIdClient, provider: LoopbackProvider) -> None:
        """A stranger's answer, planted in a browser that began a sign-in, or that did not."""
        _, stranger = answer_of(client, provider)
        own, _ = answer_of(client, provider)
        for secret in (own, "", "other"):
            with pytest.raises(NotSignedIn):
                client.finish(secret, BACK, stranger)
        assert provider.asked.count("/token") == 0

    def test_a_strangers_code_does_not_fit_ones_own_state(
        self, client: OpenIdClient, provider: LoopbackProvider
    ) -> None:
        _, stranger = answer_of(client, provider)
        secret, own = answer_of(client, provider)
        with pytest.raises(NotSignedIn):
            client.finish(secret, BACK, {**own, "code": stranger["code"]})

    def test_one_without_state_or_code_is_refused(
        self, client: OpenIdClient, provider: LoopbackProvider
    ) -> None:
        secret, answer = answer_of(client, provider)
        for missing in ({}, {"state": answer["state"]}, {"code": answer["code"]}, {**answer, "state": "ö"}):
            with pytest.raises(NotSignedIn):
                client.finish(secret, BACK, missing)
        refusal = {"state": answer["state"], "error": "access_denied"}
        with pytest.raises(NotSignedIn):
            client.finish(secret, BACK, refusal)

    def test_one_of_another_issuer_is_refused(
        self, client: OpenIdClient, provider: LoopbackProvider
    ) -> None:
        secret, answer = answer_of(client, provider)
        with pytest.raises(NotSignedIn):
            client.finish(secret, BACK, {**answer, "iss": "https://id.example"})
        assert provider.asked.count("/token") == 0

    def test_one_that_does_not_name_its_issuer_is_refused_if_the_provider_names_itself(
        self, client: OpenIdClient, provider: LoopbackProvider
    ) -> None:
        provider.names_issuer = True
        assert sign_in(client, provider) == "ann"
        secret, answer = answer_of(client, provider)
        del answer["iss"]
        with pytest.raises(NotSignedIn):
            client.finish(secret, BACK, answer)

    def test_one_for_another_address_is_refused(
        self, client: OpenIdClient, provider: LoopbackProvider
    ) -> None:
        secret, answer = answer_of(client, provider)
        with pytest.raises(NotSignedIn):
            client.finish(secret, "http://other/oidc/back", answer)


class TestDescriptions:
    def client_of(self, provider: LoopbackProvider, people: People) -> OpenIdClient:
        own = OpenIdSettings(provider.address, CLIENT, SECRET, "Sign in")
        return OpenIdClient(own, people.accounts, people.links)

    @pytest.fixture
    def changed(self, provider: LoopbackProvider, people: People) -> Iterator[Callable[..., None]]:
        opened = []

        def check(**described: Any) -> None:
            provider.described = described
            opened.append(self.client_of(provider, people))
            with pytest.raises(Unavailable):
                opened[-1].begin(BACK)

        yield check
        for one in opened:
            one.close()

    def test_one_of_another_issuer_is_refused(self, changed: Callable[..., None]) -> None:
        changed(issuer="https://id.example")

    def test_addresses_are_encrypted_or_on_this_machine(self, changed: Callable[..., None]) -> None:
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            for address in ("http://id.example/x", "ftp://127.0.0.1/x", "javascript:1", "", None, 5, "/x"):
                changed(**{name: address})

    def test_one_without_keys_is_refused(
        self, changed: Callable[..., None], provider: LoopbackProvider
    ) -> None:
        broken: list[list[Any]] = [
            [],
            [{}],
            [{"kty": "RSA"}],
            [{"kty": "EC", "crv": "P-256", "x": "a", "y": "b"}],
        ]
        for listed in broken:
            provider.public_keys = listed
            changed()

    def test_a_redirection_is_not_followed(
        self, changed: Callable[..., None], provider: LoopbackProvider
    ) -> None:
        provider.moved = True
        changed()
        assert "/elsewhere" not in provider.asked

    def test_a_long_answer_is_cut_off(
        self, changed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(open_id, "_LARGEST", 100)
        changed()
