"""An address that would send a token in plain text is none."""

from __future__ import annotations

import pytest

from lapwing.client.address import ServerAddress, is_address
from lapwing.errors import BadParameter
from support.cases import each
from support.raised import named

GOOD = {
    "https://privacy.example.org": ("https://privacy.example.org", ""),
    "https://privacy.example.org/": ("https://privacy.example.org", ""),
    "https://privacy.example.org:8443/visits/": ("https://privacy.example.org:8443", "visits"),
    "HTTPS://Privacy.Example.Org/my%20data": ("https://privacy.example.org", "my data"),
    "http://127.0.0.1:8400/visits": ("http://127.0.0.1:8400", "visits"),
    "http://localhost/visits": ("http://localhost", "visits"),
    "http://[::1]:8400": ("http://[::1]:8400", ""),
    "https://bücher.example/visits": ("https://xn--bcher-kva.example", "visits"),
}
BAD = (
    "http://privacy.example.org/visits",  # plain text
    "http://localhost.example.org/visits",
    "http://127.0.0.1.example.org/visits",
    "http://0x7f.1/visits",
    "http://192.168.0.1/visits",
    "ftp://privacy.example.org/visits",
    "privacy.example.org/visits",
    "https:///visits",
    "https://ann:secret@privacy.example.org/visits",
    "https://privacy.example.org@evil.example/visits",
    "https://privacy.example.org/visits?token=1",
    "https://privacy.example.org/visits#a",
    "https://privacy.example.org/a/b",
    "https://privacy.example.org/a%2Fb",
    "https://privacy example.org/visits",
    "https://privacy.example.org:99999/visits",
    "https://[::1/visits",
    "",
)


@each("url", list(GOOD))
def test_an_address_names_a_server_and_a_data_set(url: str) -> None:
    found = ServerAddress.of(url)
    assert (found.origin, found.data) == GOOD[url]
    assert is_address(url)


@each("url", BAD)
def test_what_is_no_address_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(BadParameter, check=named("url")) as caught:
        ServerAddress.of(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, b"https://a"])
def test_other_values_are_no_address(value: object) -> None:
    with pytest.raises(BadParameter, check=named("url")):
        ServerAddress.of(value)  # type: ignore[arg-type]
    assert not is_address(value)
