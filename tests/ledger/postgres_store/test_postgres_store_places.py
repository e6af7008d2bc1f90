"""A ledger in PostgreSQL lies where its address says, and no password is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger.postgres_store import PostgresStore
from lapwing.storage.postgres import PostgresAddress
from support.postgres import Server, fresh_url, schema_of
from support.stores import (
    opened,
    posting,
    spent,
)

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://u:{SECRET}@/db#Big",
        f"postgresql://u:{SECRET}@/db#",
        f"postgresql://u:{SECRET}@/db#" + "a" * 41,
        f"postgresql://u:{SECRET}@/db#x; DROP TABLE entries",
        f"postgresql://u:x@{SECRET}@host/db",
        f"postgresql://u:x/{SECRET}@host/db",
        f"postgresql://u:x#{SECRET}@host/db",
        f"postgresql://u:%zz{SECRET}@host/db",
        f"postgresql://u@host:x{SECRET}/db",
    ],
    ids=range(9),
)
def test_a_wrong_url_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(BadParameter) as caught:
        PostgresStore(address, create=True)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_password_is_in_an_error_nor_in_where(tmp_path: Path) -> None:
    for address in (
        f"postgresql://u:{SECRET}@/db?host={tmp_path}",
        f"postgresql://u@127.0.0.1:1/db?password={SECRET}&sslmode=disable",
        f"postgresql://u:p@{SECRET}.invalid/db?password={SECRET}.invalid",
    ):
        with pytest.raises(Unavailable) as caught:
            PostgresStore(address, create=True)
        text = f"{caught.value} {caught.value.__cause__} {PostgresAddress.of(address)!r}"
        assert SECRET not in text.replace(f"//{SECRET}.invalid/", "")
        assert "reached" in text


def test_a_ledger_is_made_once_and_found_again(url: str) -> None:
    with pytest.raises(Unavailable, match="no ledger"):
        PostgresStore(url, create=False)
    with opened(url, create=True):
        pass
    with pytest.raises(BadParameter, match="never replaced"):
        PostgresStore(url, create=True)
    with opened(url) as again:
        assert again.read(lambda tx: tx.rows("SELECT count(*) FROM blocks")) == [(18,)]
        assert again.where.endswith(f"#{url.partition('#')[2]}")


def test_a_ledger_sees_its_schema_only_and_commits_for_good_whatever_the_default(url: str) -> None:
    careless = url.replace(
        "#", "&options=-csynchronous_commit%3Doff%20-cdefault_transaction_isolation%3Dserializable#"
    )
    with opened(careless, create=True) as store:
        for work in (store.read, store.write):
            assert work(lambda tx: tx.rows("SHOW synchronous_commit")) == [("on",)]
            assert work(lambda tx: tx.rows("SHOW search_path")) == [(f"{schema_of(url)}, pg_temp",)]
        assert store.write(lambda tx: tx.rows("SHOW transaction_isolation")) == [("read committed",)]


def test_two_ledgers_in_one_database_do_not_meet(url: str, store: PostgresStore) -> None:
    other = fresh_url()
    with opened(other, create=True) as second:
        second.charge(posting("a", 1))
        assert (spent(url, 1), spent(other, 1)) == (0, 1)
        store.charge(posting("a", 1))
        assert store.seal() is not None


def test_servers_that_could_forget_are_refused() -> None:
    own = Server().start(fsync="off")
    try:
        with pytest.raises(Unavailable, match="fsync is off"):
            PostgresStore(fresh_url(own.url), create=True)
        own.restart(fsync="on", full_page_writes="off")
        with pytest.raises(Unavailable, match="full_page_writes is off"):
            PostgresStore(fresh_url(own.url), create=True)
        own.stop()
        (own.data / "standby.signal").touch(mode=0o644)
        own.start(full_page_writes="on")
        with pytest.raises(Unavailable, match="standby"):
            PostgresStore(fresh_url(own.url), create=True)
    finally:
        own.remove()


def test_without_the_driver_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from lapwing.errors import MissingExtra\n"
        "try:\n    import lapwing.ledger.postgres_store\n"
        "except MissingExtra as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "PostgreSQL needs an extra: pip install 'lapwing[postgres]'\n"
