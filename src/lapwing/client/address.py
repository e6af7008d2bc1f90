"""Addresses of servers: https, or plain HTTP on this machine alone.

Claim    a token never leaves this machine in plain text.
Because  an address with http:// is refused unless its host is the loopback. No redirect is followed, and
         no proxy is used for the loopback (see `requests`).
Test     tests/client/test_address.py
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from lapwing.errors import BadParameter

_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_HOW = "Write https://privacy.example.org/visits: the server, and the name of a data set"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server, and the data set that it names.

    Args:
        origin: Scheme, host and port, such as "https://privacy.example.org:8443".
        data: The name of a data set; "" for none.
        is_loopback: Whether only this machine can be reached there.
    """

    origin: str
    data: str
    is_loopback: bool

    @classmethod
    def of(cls, url: str) -> ServerAddress:
        """Return the parts of an address.

        Raises:
            BadParameter: If it is no address of a server, or would send a token in plain text.
        """
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except (ValueError, AttributeError, TypeError):  # UnicodeError is a ValueError
            raise BadParameter("url", f"is not an address that can exist. {_HOW}") from None
        if parts.scheme not in ("https", "http") or not host:
            raise BadParameter("url", f"must begin with https://. {_HOW}")
        if not _HOST.fullmatch(host) or "@" in parts.netloc or parts.query or parts.fragment:
            raise BadParameter("url", f"has more than a server and a data set. {_HOW}")
        is_own = is_loopback(host)
        if parts.scheme == "http" and not is_own:
            raise BadParameter(
                "url",
                "would send the token in plain text: http:// is for this machine only. Write https://",
            )
        data = unquote(parts.path.strip("/"))
        if "/" in data:
            raise BadParameter("url", f"names more than a data set. {_HOW}")
        shown = f"[{host}]" if ":" in host else host
        return cls(f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}", data, is_own)


def is_address(text: object) -> bool:
    """Return whether a text is meant as an address of a server, not as a file."""
    return isinstance(text, str) and text.lower().startswith(("https://", "http://"))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
