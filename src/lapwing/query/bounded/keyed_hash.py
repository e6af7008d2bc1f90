"""A keyed hash in plain whole-number SQL, alike on every engine to the last bit.

Claim    for values that differ (as seen modulo p), sums modulo p are equal with probability 1/p over keys.
Because  p = 2^31 - 1 is prime and each value has a key of its own in 1 .. p - 1, so that a difference
         times its key hits any one number for at most one key.
Test     tests/query/test_coded.py::test_the_hash_is_what_python_computes
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

PRIME = (1 << 31) - 1
MOST = 1 << 62  # sums stay below it before they are reduced


@dataclass(frozen=True, slots=True)
class Term:
    """A value in 0 .. most, as SQL of an 8-byte whole number that is never NULL. The label is its name."""

    label: str
    sql: str
    most: int


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one purpose (the ranks of a table, the cohorts of a policy), from the secret."""

    secret: bytes
    purpose: str

    def of(self, label: str) -> int:
        """In 1 .. p - 1, for each name another one."""
        words = f"{len(self.purpose)}:{self.purpose}:{label}".encode()
        digest = hashlib.blake2b(words, key=self.secret, person=b"lapwing ranks", digest_size=32).digest()
        return int.from_bytes(digest) % (PRIME - 1) + 1

    def summed(self, terms: Iterable[Term]) -> str:
        """(k_0 + Σ k_i v_i) mod p, reduced only as often as 8 bytes ask for."""
        sql, reach = str(self.of("")), self.of("")
        for term in terms:
            key = self.of(term.label)
            value, most = term.sql, term.most
            if most >= PRIME:
                value, most = f"({value} % {PRIME})", PRIME - 1
            if reach + key * most >= MOST:
                sql, reach = f"({sql}) % {PRIME}", PRIME - 1
            sql, reach = f"{sql} + {key} * {value}", reach + key * most
        return f"({sql}) % {PRIME}"


def square(name: str) -> str:
    """x^2 mod p of a column with x in 0 .. p - 1."""
    return f"({name} * {name}) % {PRIME}"


def fifth_power(name: str, squared: str) -> str:
    """x^5 mod p, from columns with x and its square: one number for each x, as 5 does not divide p - 1."""
    return f"((({squared} * {squared}) % {PRIME}) * {name}) % {PRIME}"
