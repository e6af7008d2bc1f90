"""Secrets: 256 random bits, stored as hashes alone."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lapwing.server.people.credentials import hash_of, new_id, new_secret
from lapwing.server.people.people import People
from lapwing.server.people.person import EVERYWHERE, Role


def test_a_secret_has_256_bits_and_no_two_are_the_same() -> None:
    secrets = {new_secret() for _ in range(1000)}
    assert len(secrets) == 1000
    assert {len(secret) for secret in secrets} == {43}  # 256 bits in base 64
    assert new_secret("lapwing_").startswith("lapwing_")
    assert len({new_id() for _ in range(1000)}) == 1000


def test_a_hash_is_of_the_whole_secret_and_any_text_has_one() -> None:
    secret = new_secret("lapwing_")
    assert hash_of(secret) != hash_of(secret[:-1])
    assert len(hash_of("\ud800" + "x" * 10**6)) == 32


def test_no_secret_is_in_the_state_file(people: People, tmp_path: Path) -> None:
    people.accounts.make("ann", password="a long canary word")
    people.accounts.set_roles("ann", EVERYWHERE, frozenset({Role.ANALYST}))
    session = people.sessions.begin("ann")
    found = people.sessions.find(session)
    assert found is not None
    expires = datetime.now(UTC) + timedelta(days=1)
    _, token = people.tokens.make(found.person, name="a", data=None, most_epsilon=None, expires=expires)
    link = people.links.make_password("ann")
    content = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    assert b"ann" in content
    for secret in (session, token, token.removeprefix("lapwing_"), link, "a long canary word"):
        assert secret.encode() not in content
    with sqlite3.connect(tmp_path / "state" / "server.sqlite") as file:
        assert file.execute("SELECT hash FROM sessions").fetchone() == (hash_of(session),)
    file.close()
