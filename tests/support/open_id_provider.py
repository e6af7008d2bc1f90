"""An OpenID provider of ours on loopback, which can also lie.

It signs in whoever comes as `subject`, checks what a provider must check, and notes what was asked.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from lapwing.server.people.open_id import OpenIdClient

BACK = "http://localhost/oidc/back"
CLIENT, SECRET = "lapwing-test", "provider's canary"
Claims = dict[str, Any]


@dataclass
class LoopbackProvider:
    """A provider. Tests change its fields to let it lie."""

    subject: str = "subject-1"
    address: str = ""
    key: Any = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}, private=True))
    algorithm: str = "RS256"
    change: Callable[[Claims], Claims] = lambda claims: claims
    write: Callable[[LoopbackProvider, Claims], str] | None = None  # in place of a signature
    described: dict[str, Any] = field(default_factory=dict)  # replaces parts of the description
    public_keys: list[Any] | None = None
    names_issuer: bool = False
    is_broken: bool = False
    moved: bool = False
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "jwks_uri": f"{self.address}/keys",
            "authorization_response_iss_parameter_supported": self.names_issuer,
            **self.described,
        }

    def keys(self) -> dict[str, Any]:
        listed = [self.key] if self.public_keys is None else self.public_keys
        return {"keys": [one if isinstance(one, dict) else one.as_dict(private=False) for one in listed]}

    def authorized(self, address: str) -> str:
        """Return where the browser is sent from the authorization endpoint: a person has signed in."""
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.address}/authorize"
        asked = dict(parse_qsl(parts.query))
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["scope"] == "openid"
        assert asked["code_challenge_method"] == "S256"
        assert min(len(asked[name]) for name in ("state", "nonce", "code_challenge")) == 43
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        back = {"state": asked["state"], "code": code}
        if self.names_issuer:
            back["iss"] = self.address
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the reply of the token endpoint. A code is good once, with its verifier."""
        login = base64.b64encode(f"{CLIENT}:provider%27s+canary".encode()).decode()
        asked = self.codes.pop(form.get("code", ""), None)
        if authorization != f"Basic {login}" or asked is None:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if challenge != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.address, "sub": self.subject, "aud": CLIENT, "nonce": asked["nonce"],
            "iat": now, "exp": now + 300, "roles": ["steward"], "groups": ["steward"],
        }  # fmt: skip
        claims = self.change(claims)
        if self.write is not None:
            return 200, {"id_token": self.write(self, claims), "token_type": "Bearer", "access_token": "x"}
        head = {"alg": self.algorithm, "kid": self.key.kid} if self.key.kid else {"alg": self.algorithm}
        token = jwt.encode(head, claims, self.key, algorithms=[self.algorithm])
        return 200, {"id_token": token, "token_type": "Bearer", "access_token": "x"}


def part(content: object) -> str:
    """Return a part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def unsigned(provider: LoopbackProvider, claims: Claims) -> str:
    """A token of the algorithm "none"."""
    return f"{part({'alg': 'none', 'kid': provider.key.kid})}.{part(claims)}."


def signed_with_public_key(provider: LoopbackProvider, claims: Claims) -> str:
    """A token of HS256, whose secret is the provider's public key: what confused libraries accept."""
    signed = f"{part({'alg': 'HS256', 'kid': provider.key.kid})}.{part(claims)}"
    digest = hmac.digest(provider.key.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def signed_by_another(provider: LoopbackProvider, claims: Claims) -> str:
    """A token that another key has signed under the provider's name of its key."""
    other = RSAKey.generate_key(2048, {"kid": provider.key.kid}, private=True)
    return jwt.encode({"alg": "RS256", "kid": provider.key.kid}, claims, other)


def signed_by_own_key(provider: LoopbackProvider, claims: Claims) -> str:
    """A token that brings the key it is signed with."""
    other = ECKey.generate_key("P-256", private=True)
    head = {"alg": "ES256", "jwk": other.as_dict(private=False)}
    return jwt.encode(head, claims, other, algorithms=["ES256"])


@contextmanager
def running_provider() -> Iterator[LoopbackProvider]:
    """Run a provider on loopback."""
    provider = LoopbackProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            if provider.is_broken:
                return self.say(500, {})
            if provider.moved and self.path == "/keys":
                return self.say(302, {}, location="/elsewhere")
            known = {"/.well-known/openid-configuration": provider.description, "/keys": provider.keys}
            return self.say(200, known[self.path]())

        def do_POST(self) -> None:
            provider.asked.append(self.path)
            content = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(content).items()}
            if provider.is_broken:
                return self.say(500, {})
            return self.say(*provider.token(form, self.headers.get("authorization", "")))

        def say(self, status: int, content: object, **headers: str) -> None:
            raw = json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer_of(client: OpenIdClient, provider: LoopbackProvider) -> tuple[str, dict[str, str]]:
    """Begin a sign-in; return the browser's secret, and what it brings back from the provider."""
    secret, address = client.begin(BACK)
    return secret, dict(parse_qsl(urlsplit(provider.authorized(address)).query))


def sign_in(client: OpenIdClient, provider: LoopbackProvider) -> str:
    secret, answer = answer_of(client, provider)
    return client.finish(secret, BACK, answer)
