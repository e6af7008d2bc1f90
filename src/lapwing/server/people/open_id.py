"""Sign-in with OpenID Connect: authorization code, PKCE, nonce. Issuer and subject name the account.

Claim    only whoever signs in at the provider, in this browser, now, and for this server, gets the session
         of the account that was bound to that identity before. No claim of the provider gives a role.
Because  state, nonce and PKCE verifier are hashes of a secret that only this browser has. An answer counts
         once. The ID token comes from the provider itself, and its signature (of a listed algorithm, by a
         key of the provider), issuer, audience, times and nonce are checked. Nothing else of it is used.
Test     tests/server/people/test_open_id.py, tests/server/people/test_open_id_hostile.py
"""

from __future__ import annotations

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from lapwing.errors import MissingExtra, TooManyRequests, Unavailable
from lapwing.server.people.accounts import Accounts
from lapwing.server.people.credentials import new_secret
from lapwing.server.people.links import Links
from lapwing.server.people.person import IdentityNotBound, NotSignedIn
from lapwing.server.settings import SIGN_IN_SECONDS, OpenIdSettings
from lapwing.web.connections import is_loopback

try:
    import httpx
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, KeySet, RSAKey
except ImportError:
    raise MissingExtra("server", "Serving data") from None

ALGORITHMS = ("RS256", "PS256", "ES256")  # all with a public key: nobody can sign who only verifies
CLOCK_SKEW = 60  # seconds that the provider's clock may be off
KNOWN_FOR = 3600.0  # seconds for which the provider's description is kept
KEYS_AGAIN = 60.0  # seconds after which unknown keys are asked for again
PATIENCE = 10.0  # seconds for one answer of the provider
_LARGEST = 1 << 20  # bytes of one answer
AT_ONCE = (
    8  # sign-ins that wait for the provider; others are refused, so that threads are left for all else
)
FAILED_FOR = 10.0  # seconds for which a provider that failed is not asked again
_FIELDS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True)
class Provider:
    """What a provider says about itself, and its public keys."""

    authorization_endpoint: str
    token_endpoint: str
    keys: Mapping[str, RSAKey | ECKey]
    only_posts_secret: bool
    names_issuer: bool
    since: float


class OpenIdClient:
    """The client of one provider."""

    def __init__(self, settings: OpenIdSettings, accounts: Accounts, links: Links) -> None:
        self.settings = settings
        self._accounts = accounts
        self._links = links
        self._is_local = is_loopback(urlsplit(settings.issuer).hostname or "")
        self._client = httpx.Client(timeout=PATIENCE, trust_env=not self._is_local)
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._known: Provider | None = None
        self._failed_at = -FAILED_FOR

    def close(self) -> None:
        """Close the connections to the provider."""
        self._client.close()

    def begin(self, back: str) -> tuple[str, str]:
        """Begin a sign-in.

        Args:
            back: The address of this server to which the provider sends the browser back.

        Returns:
            The secret for a cookie of this browser, and the address at the provider.

        Raises:
            Unavailable: If the provider cannot be reached or understood.
            TooManyRequests: If too many sign-ins wait for it.
        """
        with self._place():
            provider, secret = self._provider(), new_secret()
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": back,
            "scope": "openid",
            "state": _derived(secret, "state"),
            "nonce": _derived(secret, "nonce"),
            "code_challenge": _hashed(_derived(secret, "verifier")),
            "code_challenge_method": "S256",
        }
        return secret, f"{provider.authorization_endpoint}{_joint(provider)}{urlencode(asked)}"

    def finish(self, secret: str, back: str, answer: Mapping[str, str]) -> str:
        """Finish a sign-in, and return the account's name.

        Args:
            secret: The secret of the browser's cookie; "" if it has none.
            back: The address that `begin` was called with.
            answer: What the browser brings back: `state`, `code` and perhaps `iss`.

        Raises:
            NotSignedIn: If anything about the answer is wrong, the same for all causes.
            IdentityNotBound: If no account is bound to the identity.
            Unavailable: If the provider cannot be reached or understood.
            TooManyRequests: If too many sign-ins wait for it.
        """
        state = answer.get("state", "")
        if not secret or not compare_digest(_derived(secret, "state").encode(), state.encode()):
            raise NotSignedIn
        with self._place():
            subject = self._subject(secret, back, answer)
        if (name := self._accounts.with_identity(self.settings.issuer, subject)) is None:
            raise IdentityNotBound(self.settings.issuer, subject)
        return name

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise TooManyRequests(1)
        try:
            yield
        finally:
            self._places.release()

    def _subject(self, secret: str, back: str, answer: Mapping[str, str]) -> str:
        """Return the subject that the provider vouches for, in exchange for the code of an answer."""
        state, code = answer["state"], answer.get("code", "")
        provider = self._provider()
        issuer = answer.get("iss")
        if (issuer is None and provider.names_issuer) or issuer not in (None, self.settings.issuer):
            raise NotSignedIn
        if not code or not self._links.note_answer(state):
            raise NotSignedIn
        return self._checked(self._exchanged(provider, code, back, secret), _derived(secret, "nonce"))

    def _exchanged(self, provider: Provider, code: str, back: str, secret: str) -> str:
        """Return the ID token for a code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self.settings.client_id,
            "code_verifier": _derived(secret, "verifier"),
        }
        own, login = self.settings, None
        if own.client_secret and provider.only_posts_secret:
            form["client_secret"] = own.client_secret
        elif own.client_secret:
            login = httpx.BasicAuth(quote_plus(own.client_id), quote_plus(own.client_secret))
        status, fields = self._asked("POST", provider.token_endpoint, data=form, auth=login)
        if status in (400, 401, 403):  # the code is wrong, or used, or another client's
            raise NotSignedIn
        token = fields.get("id_token") if status == 200 else None
        if not isinstance(token, str):
            raise Unavailable("the sign-in provider gave no ID token")
        return token

    def _checked(self, token: str, nonce: str) -> str:
        """Return the subject of an ID token that is right in all regards."""
        wanted = jwt.JWTClaimsRegistry(
            now=lambda: int(time.time()),
            leeway=CLOCK_SKEW,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": self.settings.client_id},
            nonce={"essential": True, "value": nonce},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
        )
        try:
            decoded = jwt.decode(token, self._key, algorithms=ALGORITHMS)
            wanted.validate(decoded.claims)
        except (JoseError, ValueError, TypeError, KeyError):
            raise NotSignedIn from None
        claims = decoded.claims
        audience, party = claims["aud"], claims.get("azp")
        is_shared = not isinstance(audience, str) and len(audience) != 1
        if (party is None and is_shared) or party not in (None, self.settings.client_id):
            raise NotSignedIn
        if claims["iat"] < time.time() - SIGN_IN_SECONDS - CLOCK_SKEW:
            raise NotSignedIn
        subject = claims["sub"]
        if not (isinstance(subject, str) and 0 < len(subject) <= 255 and subject.isascii()):
            raise NotSignedIn
        return subject

    def _key(self, token: Any) -> RSAKey | ECKey:
        """Return the provider's key that a token names. An unknown one is asked for again."""
        name = token.headers().get("kid", "")
        for least in (0.0, KEYS_AGAIN):
            keys = self._provider(newer_than=least).keys
            if name in keys:
                return keys[name]
            if not name and len(keys) == 1:
                return next(iter(keys.values()))
        raise NotSignedIn

    def _provider(self, *, newer_than: float = 0.0) -> Provider:
        """Return what is known of the provider: at most an hour old, or less if asked for."""
        now = time.monotonic()
        with self._turn:
            known, most = self._known, newer_than or KNOWN_FOR
            if known is None or now - known.since >= most:
                if now - self._failed_at < FAILED_FOR:
                    raise Unavailable(
                        "the sign-in provider failed a moment ago. Try again in a few seconds"
                    )
                self._failed_at = now
                known = self._known = self._discovered(now)
                self._failed_at = -FAILED_FOR
            return known

    def _discovered(self, now: float) -> Provider:
        issuer = self.settings.issuer
        fields = self._json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if fields.get("issuer") != issuer:
            raise Unavailable("the sign-in provider says that it is another one")
        if not all(self._is_safe(fields.get(name)) for name in _FIELDS):
            raise Unavailable("the sign-in provider names an address that is not encrypted")
        methods = fields.get("token_endpoint_auth_methods_supported")
        return Provider(
            fields["authorization_endpoint"],
            fields["token_endpoint"],
            _keys(self._json(fields["jwks_uri"])),
            isinstance(methods, list) and "client_secret_basic" not in methods,
            fields.get("authorization_response_iss_parameter_supported") is True,
            now,
        )

    def _is_safe(self, address: object) -> bool:
        if not isinstance(address, str):
            return False
        parts = urlsplit(address)
        local = self._is_local and parts.scheme == "http" and is_loopback(parts.hostname or "")
        return (parts.scheme == "https" or local) and bool(parts.hostname) and not parts.fragment

    def _json(self, address: str) -> dict[str, Any]:
        status, fields = self._asked("GET", address)
        if status != 200:
            raise Unavailable("the sign-in provider gave no answer that is understood")
        return fields

    def _asked(self, method: str, address: str, **more: Any) -> tuple[int, dict[str, Any]]:
        """Ask the provider, and return the status and the JSON object of its answer."""
        content = bytearray()
        try:
            with self._client.stream(method, address, **more) as answer:
                for piece in answer.iter_bytes():
                    content += piece
                    if len(content) > _LARGEST:
                        raise Unavailable("the answer of the sign-in provider is too long")
                status = answer.status_code
        except httpx.HTTPError:
            raise Unavailable("the sign-in provider cannot be reached") from None
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            if status == 200:
                raise Unavailable("the sign-in provider gave no answer that is understood")
            fields = {}
        return status, fields


def _keys(document: Mapping[str, Any]) -> dict[str, RSAKey | ECKey]:
    """Return the provider's keys for signatures by their names. Keys of other kinds are left out."""
    listed = document.get("keys")
    keys: dict[str, RSAKey | ECKey] = {}
    for key_fields in listed if isinstance(listed, list) else ():
        if not isinstance(key_fields, dict) or key_fields.get("use", "sig") != "sig":
            continue
        if key_fields.get("kty") not in ("RSA", "EC"):  # never a secret that both sides know
            continue
        public = {
            name: value for name, value in key_fields.items() if name not in ("d", "p", "q", "key_ops")
        }
        try:
            key = next(iter(KeySet.import_key_set({"keys": [public]}).keys))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, RSAKey | ECKey):
            keys[str(key_fields.get("kid", ""))] = key
    if not keys:
        raise Unavailable("the sign-in provider has no key for signatures that is understood")
    return keys


def _joint(provider: Provider) -> str:
    return "&" if urlsplit(provider.authorization_endpoint).query else "?"


def _derived(secret: str, use: str) -> str:
    return _hashed(f"lapwing open-id {use} {secret}")


def _hashed(text: str) -> str:
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")
