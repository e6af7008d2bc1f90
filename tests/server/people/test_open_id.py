"""OpenID Connect with a provider on loopback: whoever is bound signs in; claims give no roles."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest
from joserfc.jwk import ECKey, RSAKey

from lapwing.errors import TooManyRequests, Unavailable
from lapwing.server.people import open_id
from lapwing.server.people.open_id import OpenIdClient
from lapwing.server.people.people import People
from lapwing.server.people.person import IdentityNotBound, NotSignedIn
from support.open_id_provider import BACK, CLIENT, SECRET, LoopbackProvider, answer_of, sign_in


def test_whoever_is_bound_signs_in_without_roles_from_claims(
    client: OpenIdClient, provider: LoopbackProvider, people: People
) -> None:
    assert sign_in(client, provider) == "ann"
    assert people.accounts.known("ann").roles == {}


def test_an_identity_that_is_not_bound_is_told_to_its_owner(
    client: OpenIdClient, provider: LoopbackProvider
) -> None:
    provider.subject = "subject-2"
    with pytest.raises(IdentityNotBound) as caught:
        sign_in(client, provider)
    assert (caught.value.issuer, caught.value.subject) == (provider.address, "subject-2")
    assert "subject-2" not in str(caught.value)


def test_a_disabled_account_does_not_sign_in(
    client: OpenIdClient, provider: LoopbackProvider, people: People
) -> None:
    people.accounts.disable("ann")
    with pytest.raises(IdentityNotBound):
        sign_in(client, provider)


def test_no_secret_of_a_sign_in_is_in_its_address(client: OpenIdClient) -> None:
    secret, address = client.begin(BACK)
    assert secret not in address
    assert SECRET not in address
    assert open_id._derived(secret, "verifier") not in address
    other = dict(parse_qsl(urlsplit(client.begin(BACK)[1]).query))
    asked = dict(parse_qsl(urlsplit(address).query))
    for name in ("state", "nonce", "code_challenge"):
        assert asked[name] != other[name]


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
def test_each_listed_algorithm_is_understood(
    client: OpenIdClient, provider: LoopbackProvider, algorithm: str
) -> None:
    provider.algorithm = algorithm
    if algorithm == "ES256":
        provider.key = ECKey.generate_key("P-256", {"kid": "two"}, private=True)
    assert sign_in(client, provider) == "ann"


def test_a_key_without_a_name_is_used_if_it_is_the_only_one(
    client: OpenIdClient, provider: LoopbackProvider
) -> None:
    provider.key = RSAKey.generate_key(2048, private=True)
    assert sign_in(client, provider) == "ann"


def test_the_provider_is_asked_once_an_hour_and_for_new_keys_at_most_once_a_minute(
    client: OpenIdClient, provider: LoopbackProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert sign_in(client, provider) == "ann"
    assert provider.asked.count("/keys") == 1
    provider.key = RSAKey.generate_key(2048, {"kid": "new"}, private=True)
    with pytest.raises(NotSignedIn):
        sign_in(client, provider)
    assert provider.asked.count("/keys") == 1
    monkeypatch.setattr(open_id, "KEYS_AGAIN", 1e-9)
    assert sign_in(client, provider) == "ann"
    assert provider.asked.count("/keys") == 2


def test_a_provider_that_fails_is_told_as_such(
    client: OpenIdClient, provider: LoopbackProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.is_broken = True
    with pytest.raises(Unavailable, match="gave no answer"):
        client.begin(BACK)
    asked = len(provider.asked)
    with pytest.raises(Unavailable, match="a moment ago"):
        client.begin(BACK)
    assert len(provider.asked) == asked  # nobody waits for it again so soon
    monkeypatch.setattr(open_id, "FAILED_FOR", 0.0)
    provider.is_broken = False
    secret, answer = answer_of(client, provider)
    provider.is_broken = True
    with pytest.raises(Unavailable, match="no ID token"):
        client.finish(secret, BACK, answer)


def test_few_wait_for_the_provider_at_once(client: OpenIdClient, provider: LoopbackProvider) -> None:
    secret, answer = answer_of(client, provider)
    for _ in range(open_id.AT_ONCE):
        client._places.acquire()
    with pytest.raises(TooManyRequests):
        client.finish(secret, BACK, answer)
    client._places.release()
    assert client.finish(secret, BACK, answer) == "ann"


def test_clocks_may_differ_a_little(client: OpenIdClient, provider: LoopbackProvider) -> None:
    provider.change = lambda claims: {**claims, "iat": claims["iat"] + 30, "exp": claims["iat"] - 30}
    assert sign_in(client, provider) == "ann"


def test_several_audiences_need_the_authorized_party(
    client: OpenIdClient, provider: LoopbackProvider
) -> None:
    provider.change = lambda claims: {**claims, "aud": [CLIENT, "other"], "azp": CLIENT}
    assert sign_in(client, provider) == "ann"
    provider.change = lambda claims: {**claims, "aud": [CLIENT]}
    assert sign_in(client, provider) == "ann"
