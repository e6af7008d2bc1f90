"""Settings of a server: the file `server.toml` in its folder, all of it optional, and the command line.

Claim    a server that is told nothing serves this machine alone.
Because  the allowed hosts are then the names of this machine, and `lapwing.web.serving` refuses plain HTTP
         elsewhere.
Test     tests/server/test_settings.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, PlainValidator

from lapwing.config.file_table import FileTable, Number, Text, fits, needed, read_table
from lapwing.config.toml_text import read_toml
from lapwing.config.values import kind_of
from lapwing.errors import BadParameter, Unavailable
from lapwing.storage.private_file import read_key_file
from lapwing.web.connections import is_loopback

SETTINGS_FILE = "server.toml"
STATE_FOLDER = ".lapwing-server"
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104  to bind to, never a name in a request
BODY_BYTES = 256 * 1024  # of one request
REQUESTS_PER_MINUTE = 3000  # of one person
UNKNOWN_PER_MINUTE = 600  # of one address, without a person
REPLY_SLOT = Fraction(1, 2)  # seconds
SIGN_IN_SECONDS = 600  # from the start of a sign-in at a provider to its answer
_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")


@dataclass(frozen=True, slots=True)
class OpenIdSettings:
    """The provider whose accounts may sign in.

    Args:
        issuer: The provider's issuer, an https address (plain HTTP only for this machine).
        client_id: The id that the provider gave this server.
        client_secret: The secret that it gave, from a private file; "" for a public client.
        name: The words on the button of the sign-in page.
    """

    issuer: str
    client_id: str
    client_secret: str
    name: str

    def __repr__(self) -> str:
        return f"OpenIdSettings(issuer={self.issuer!r})"  # never the secret


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All settings of one server.

    Args:
        folder: The folder that is served, with the policies.
        title: The name of the service on its pages.
        address: The public address, such as "https://privacy.example.org"; "" if it is not known.
        hosts: The names in the header Host that are answered, in small letters, without ports.
        host: The address that the server listens on.
        has_tls: Whether the server itself encrypts.
        behind_tls_proxy: Whether a proxy in front encrypts.
        client_address_header: The header in which that proxy tells the client's address; "" for none.
        reply_slot: The seconds of the public grid on which replies of releases leave.
        body_bytes: The most bytes of one request's body.
        requests_per_minute: The most requests of one person.
        unknown_per_minute: The most requests of one address, of people who have not signed in.
        open_id: The provider for sign-in; None for passwords alone.
        webhook: The address that is told when 50, 80 and 95 % of a budget are used; "" for none.
        command: The command that gets the same on its standard input; empty for none.
    """

    folder: Path
    title: str = "Lapwing"
    address: str = ""
    hosts: frozenset[str] = LOOPBACK_HOSTS
    host: str = "127.0.0.1"
    has_tls: bool = False
    behind_tls_proxy: bool = False
    client_address_header: str = ""
    reply_slot: Fraction = REPLY_SLOT
    body_bytes: int = BODY_BYTES
    requests_per_minute: int = REQUESTS_PER_MINUTE
    unknown_per_minute: int = UNKNOWN_PER_MINUTE
    open_id: OpenIdSettings | None = None
    webhook: str = ""
    command: tuple[str, ...] = ()

    @property
    def is_encrypted(self) -> bool:
        """True if browsers reach the server by https."""
        return self.has_tls or self.behind_tls_proxy

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return is_loopback(self.host) and not self.behind_tls_proxy

    @property
    def scheme(self) -> str:
        """The scheme of the server's address."""
        return "https" if self.is_encrypted else "http"

    @property
    def state_folder(self) -> Path:
        """The folder with the server's own state."""
        return self.folder / STATE_FOLDER


def read_settings(
    folder: str | Path, *, host: str = "127.0.0.1", has_tls: bool = False, behind_tls_proxy: bool = False
) -> ServerSettings:
    """Return the settings of a folder: of its `server.toml`, if there is one, and of the command line.

    Args:
        folder: The folder that is served.
        host: The address that the server listens on.
        has_tls: Whether the server itself encrypts.
        behind_tls_proxy: Whether a proxy in front encrypts.

    Returns:
        The settings, checked.

    Raises:
        BadParameter: If there is no such folder.
        BadFile: If the file has mistakes. All of them are listed.

    Example:
        >>> from lapwing.server.settings import read_settings
        >>> read_settings(".").is_loopback
        True
    """
    folder = Path(folder).absolute()
    if not folder.is_dir():
        raise BadParameter("folder", "there is no such folder. Name the folder that has the policies")
    path = folder / SETTINGS_FILE
    given: dict[str, Any] = {}
    if path.exists():
        values, mistakes = read_toml(
            path, what="settings of a server", example=SETTINGS_FILE, draft="lapwing serve --example"
        )
        file = read_table(ServerFile, values, mistakes)
        given = file.fields(folder)
        mistakes.complain()
    own = set() if host in ANY_ADDRESS else {f"[{host}]" if ":" in host else host.lower()}
    hosts = LOOPBACK_HOSTS | own | given.pop("hosts", frozenset())
    return ServerSettings(
        folder=folder,
        hosts=hosts,
        host=host,
        has_tls=has_tls,
        behind_tls_proxy=behind_tls_proxy,
        **given,
    )


# The file


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(part, str) and part for part in value):
        raise BadParameter("list", f'must be a list of texts, such as ["a", "b"], not {kind_of(value)}')
    return value


def _slot(value: Fraction) -> bool:
    return Fraction(1, 20) <= value <= 10


Texts = Annotated[list[str], PlainValidator(_texts)]
Slot = Annotated[Number, fits(_slot, "must lie between 0.05 and 10 seconds")]


class ServerTable(FileTable):
    """The table [server]."""

    title: Text | None = None
    address: Text | None = None
    hosts: Texts | None = None
    client_address_header: Text | None = None
    reply_slot: Slot | None = None

    def fields(self) -> dict[str, Any]:
        """Return the settings that the table gives."""
        names = {name.lower() for name in self.hosts or ()}
        if not all(_HOST.fullmatch(name) for name in names):
            self.wrong("hosts", 'must be names without scheme and port, such as "privacy.example.org"')
        if self.address is not None:
            names.add(self._host_of(self.address))
        plain = {
            "title": self.title,
            "address": None if self.address is None else self.address.rstrip("/"),
            "client_address_header": self.client_address_header,
            "reply_slot": self.reply_slot,
        }
        return {"hosts": frozenset(names), **_given(plain)}

    def _host_of(self, address: str) -> str:
        parts = urlsplit(address)
        host = parts.hostname or ""
        if parts.scheme not in ("https", "http") or not host or parts.path.strip("/") or parts.query:
            self.wrong("address", 'must be like "https://privacy.example.org"')
        elif parts.scheme == "http" and not is_loopback(host):
            self.wrong("address", "must begin with https://: plain HTTP is for this machine only")
        return f"[{host}]" if ":" in host else host


class LimitsTable(FileTable):
    """The table [limits]."""

    body_bytes: int | None = Field(None, ge=4096, le=64 * 1024 * 1024)
    requests_per_minute: int | None = Field(None, ge=10, le=1_000_000)
    unknown_per_minute: int | None = Field(None, ge=10, le=1_000_000)

    def fields(self) -> dict[str, Any]:
        """Return the settings that the table gives."""
        return _given(
            {
                "body_bytes": self.body_bytes,
                "requests_per_minute": self.requests_per_minute,
                "unknown_per_minute": self.unknown_per_minute,
            }
        )


class OpenIdTable(FileTable):
    """The table [open_id]."""

    issuer: Text | None = needed('issuer = "https://accounts.example.org"')
    client_id: Text | None = needed('client_id = "lapwing"')
    client_secret_file: Text | None = None
    name: Text | None = None

    def settings(self, folder: Path) -> OpenIdSettings | None:
        """Return the provider, or None if the table has mistakes."""
        if not self.issuer or not self.client_id:
            return None
        parts = urlsplit(self.issuer)
        local = parts.scheme == "http" and is_loopback(parts.hostname or "")
        if not (parts.scheme == "https" or local) or not parts.hostname or parts.query or parts.fragment:
            self.wrong("issuer", "must be an address that begins with https://")
            return None
        secret = ""
        if self.client_secret_file is not None:
            secret = self._secret(folder / self.client_secret_file)
        name = self.name or "Sign in with your organisation"
        return OpenIdSettings(self.issuer, self.client_id, secret, name)

    def _secret(self, path: Path) -> str:
        try:
            return read_key_file(path, "client_secret_file").decode("utf-8", "replace").strip()
        except (BadParameter, Unavailable) as error:
            self.wrong("client_secret_file", str(error).removeprefix("client_secret_file: "))
            return ""


class NoticesTable(FileTable):
    """The table [notices]: who is told when 50, 80 and 95 % of a budget are used."""

    webhook: Text | None = None
    command: Texts | None = None

    def fields(self) -> dict[str, Any]:
        """Return the settings that the table gives."""
        if self.webhook is not None and self.command is not None:
            self.wrong("command", "and webhook: give one of them")
        parts = urlsplit(self.webhook or "https://none")
        local = parts.scheme == "http" and is_loopback(parts.hostname or "")
        if not (parts.scheme == "https" or local) or not parts.hostname:
            self.wrong("webhook", "must be an address that begins with https://")
        command = None if self.command is None else tuple(self.command)
        return _given({"webhook": self.webhook, "command": command})


class ServerFile(FileTable):
    """The whole file."""

    server: ServerTable | None = None
    limits: LimitsTable | None = None
    open_id: OpenIdTable | None = None
    notices: NoticesTable | None = None

    def fields(self, folder: Path) -> dict[str, Any]:
        """Return the settings that the file gives."""
        given: dict[str, Any] = {}
        for table in (self.server, self.limits, self.notices):
            if table is not None:
                given |= table.fields()
        if self.open_id is not None:
            given["open_id"] = self.open_id.settings(folder)
        return given


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
