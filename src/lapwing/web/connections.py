"""One guard against floods of connections, for every server: surveys, and the relay of several parties.

Claim    nobody keeps clients from other addresses out by holding connections open without a request.
Because  an address has a limited share of the places. Where none is left, a connection without a complete
         request is closed: the oldest one of the address that has most of them.
Test     tests/web/test_serving_connections.py, tests/faults/test_parties_flood.py

Addresses are counted while their connections are open, in memory, and nowhere else.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

from lapwing.client.address import is_loopback as is_loopback  # noqa: PLC0414 (servers ask it here)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a server's connections."""

    connections: int = 4096
    per_address: int = 512  # many people may share an address: a school, an office
    seconds: float = 10.0  # from the opening of a connection, or the last reply, to a complete request head


@dataclass(eq=False, slots=True)
class OpenConnection:
    """An open connection. `end` closes it; `has_ended` says whether it was closed elsewhere."""

    key: Hashable
    address: str
    end: Callable[[], object]
    has_ended: Callable[[], bool]
    has_asked: bool = False  # a complete request came, and the reply is under way


class ConnectionGuard:
    """All open connections, oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[Hashable, OpenConnection] = {}
        self._per_address: Counter[str] = Counter()

    def admit(
        self, key: Hashable, address: str, *, end: Callable[[], object], has_ended: Callable[[], bool]
    ) -> None:
        """Add a connection. If there is no room, close one that only waits, or else the new one."""
        entry = OpenConnection(key, address_group(address), end, has_ended)
        self.remove(self.of(key))  # a key is reused only after its connection was closed
        if not self._has_room(entry.address):
            for other in [each for each in self._open.values() if each.has_ended()]:
                self.remove(other)
        while not self._has_room(entry.address):
            if not self._end_oldest(entry.address):
                end()
                return
        self._open[key] = entry
        self._per_address[entry.address] += 1

    def of(self, key: Hashable) -> OpenConnection | None:
        """Return the connection with this key, or None."""
        return self._open.get(key)

    def remove(self, entry: OpenConnection | None) -> None:
        """Remove a connection that has ended, or that needs no guard any more."""
        if entry is not None and self.of(entry.key) is entry:
            del self._open[entry.key]
            self._per_address[entry.address] -= 1
            if not self._per_address[entry.address]:
                del self._per_address[entry.address]  # forget the address with its last connection

    def _has_room(self, address: str) -> bool:
        return len(self._open) < self.limits.connections and self._has_share(address)

    def _has_share(self, address: str) -> bool:
        return self._per_address[address] < self.limits.per_address

    def _end_oldest(self, address: str) -> bool:
        """Close the oldest connection that waits: of this address, if it has its share, or of the crowd."""
        waiting = [entry for entry in self._open.values() if not entry.has_asked]
        crowded = address
        if waiting and self._has_share(address):
            [(crowded, _)] = Counter(entry.address for entry in waiting).most_common(1)
        oldest = next((entry for entry in waiting if entry.address == crowded), None)
        if oldest is None:
            return False
        oldest.end()
        self.remove(oldest)
        return True


def address_group(address: str) -> str:
    """Return an IPv4 address, or the IPv6 network of 2^64 addresses that one household gets."""
    with suppress(ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        if parsed.version == 6 and parsed.ipv4_mapped is None:
            return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address
