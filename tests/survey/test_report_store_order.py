"""No order in the raw bytes of a file, at any time: neither in its pages nor beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from lapwing.core.noise import random_bytes, uniform_int
from lapwing.survey.credentials import new_invitation
from lapwing.survey.report_store import (
    ReportStore,
    SqliteReportStore,
    StoppingRule,
    blinded_hash,
    invitation_hash,
    read_all_reports,
    token_hash,
)
from lapwing.survey.service import open_report_store
from support import postgres
from support.collecting import DIGEST, TODAY, Shelf, credential, service_of
from support.ledgers import POSTGRES

NO_RULE = StoppingRule()
PEOPLE = 400
GOOD = b"\x01\x00\x01"
SMALL, LARGE = 8, 900  # a report of the second fills buckets of many pages


def shuffled(count: int) -> list[int]:
    """Places in an order that tells nothing."""
    return sorted(range(count), key=lambda _: random_bytes(16))


def open_file(path: Path, size: int) -> ReportStore:
    """Open a store that does not wait for the disk: what is written, and where, is the same."""
    store = open_report_store(str(path), digest=DIGEST, report_size=size)
    assert isinstance(store, SqliteReportStore)
    store._connection.execute("PRAGMA synchronous = OFF")
    return store


class Crowd:
    """People with an invitation and a report each, who come one after the other, or some at once."""

    def __init__(self, size: int, count: int = PEOPLE) -> None:
        self.invitations = [new_invitation() for _ in range(count)]
        self.hashes = [invitation_hash(invitation) for invitation in self.invitations]
        self.blinded = [blinded_hash(random_bytes(9)) for _ in range(count)]
        self.tokens = [token_hash(random_bytes(64)) for _ in range(count)]
        self.reports = [random_bytes(size) for _ in range(count)]

    def come(self, store: ReportStore, order: Sequence[int], together: Callable[[], int]) -> None:
        start = 0
        while start < len(order):
            some = order[start : start + together()]
            store.keep([(self.hashes[k], self.blinded[k]) for k in some], NO_RULE, TODAY)
            store.accept([(self.tokens[k], self.reports[k]) for k in some], NO_RULE, TODAY)
            start += len(some)


def one() -> int:
    return 1


def some() -> int:
    return int(uniform_int(1, 30, 1)[0])


def content(path: Path) -> bytes:
    """A database but for how often it was changed, which its first page counts in two places."""
    raw = bytearray(path.read_bytes())
    raw[24:28] = raw[92:96] = bytes(4)
    return bytes(raw)


@pytest.mark.parametrize("size", [SMALL, LARGE])
class TestAFile:
    def test_is_the_same_byte_for_byte_whatever_order_people_came_in(
        self, tmp_path: Path, size: int
    ) -> None:
        """While the server runs, after it was stopped, and however many came at once."""
        crowd, begun = Crowd(size), tmp_path / "begun.reports"
        store = open_file(begun, size)
        store.admit(crowd.invitations)
        store.close()
        found = []
        for number, together in enumerate((one, one, some)):
            path = tmp_path / f"{number}.reports"
            shutil.copy(begun, path)
            store = open_file(path, size)
            crowd.come(store, shuffled(PEOPLE), together)
            found.append(content(path))
            store.close()
            found.append(content(path))
        assert len(set(found)) == 1

    def test_shows_nobodys_place_in_its_raw_pages(self, tmp_path: Path, size: int) -> None:
        """As somebody reads it who has a copy: what lies behind what in the file."""
        crowd, path = Crowd(size), tmp_path / "survey.reports"
        store = open_file(path, size)
        store.admit(crowd.invitations)
        order = shuffled(PEOPLE)
        crowd.come(store, order, one)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "survey.reports",
            "survey.reports-journal",
        ]
        assert (
            tmp_path / "survey.reports-journal"
        ).read_bytes() == b""  # of the last commit nothing is left
        raw = path.read_bytes()
        for keys in (crowd.tokens, crowd.hashes):
            laid = sorted(range(PEOPLE), key=lambda k: raw.index(keys[order[k]]))
            rising = sum(a < b for a, b in pairwise(laid))
            assert 170 < rising < 229  # a random order has 199.5, with a standard deviation of 5.8
        store.close()

    def test_holds_each_report_once_and_none_in_a_page_that_is_free(
        self, tmp_path: Path, size: int
    ) -> None:
        crowd, path = Crowd(size), tmp_path / "survey.reports"
        store = open_file(path, size)
        store.admit(crowd.invitations)
        crowd.come(store, range(PEOPLE), some)
        raw = path.read_bytes()
        assert {raw.count(key) for key in (*crowd.tokens, *crowd.hashes)} == {1}
        expected = [report for _, report in sorted(zip(crowd.tokens, crowd.reports, strict=True))]
        assert [bytes(row) for row in read_all_reports(store)] == expected
        store.close()


class TestPostgres:
    def rows(self, shelf: Shelf) -> list[list[tuple[bytes, int]]]:
        order = "SELECT {}, xmin::text::bigint FROM {} ORDER BY ctid"
        tables = (("token", "reports"), ("invitation", "invitations"))
        return [
            [(bytes(key), xmin) for key, xmin in postgres.sql(shelf.where, order.format(*table))]
            for table in tables
        ]

    def require_no_order(self, shelf: Shelf) -> None:
        for rows in self.rows(shelf):
            assert rows == sorted(rows)
            assert len({xmin for _, xmin in rows}) == 1

    def come(self, store: ReportStore, rule: StoppingRule) -> list[bytes]:
        crowd = Crowd(len(GOOD), 40)
        store.admit(crowd.invitations)
        for k in shuffled(40):
            store.keep([(crowd.hashes[k], crowd.blinded[k])], rule, TODAY)
            store.accept([(crowd.tokens[k], GOOD)], rule, TODAY)
        return crowd.tokens

    def test_shows_no_order_once_the_rule_ended_the_survey(self, tmp_path: Path) -> None:
        shelf = Shelf.of(POSTGRES, tmp_path)
        store = shelf.open()
        self.come(store, StoppingRule(stop_after=40))
        self.require_no_order(shelf)
        shelf.close()

    def test_shows_no_order_once_the_last_day_is_over(self, tmp_path: Path) -> None:
        shelf = Shelf.of(POSTGRES, tmp_path)
        at = service_of(shelf.open(), StoppingRule(until=TODAY.replace(day=1)))
        self.come(at.reports, NO_RULE)
        assert len({xmin for _, xmin in self.rows(shelf)[0]}) == 40  # it shows
        at.take(DIGEST, *credential(), GOOD).result(60)  # too late
        self.require_no_order(shelf)
        at.close()

    def test_shows_no_order_once_the_server_stopped(self, tmp_path: Path) -> None:
        shelf = Shelf.of(POSTGRES, tmp_path)
        at = service_of(shelf.open())
        self.come(at.reports, NO_RULE)
        at.close()
        self.require_no_order(shelf)
