"""The survey service: what it signs and stores, for many clients at once, and what it refuses."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.survey.credentials import blind_token, new_invitation, prepare_token
from lapwing.survey.report_store import IntakeResult, StoppingRule, read_all_reports
from lapwing.survey.service import CommitBatches, InvalidCredential
from support.collecting import DIGEST, SIZE, TODAY, Shelf, credential, invited, key, service_of, small, take

THREADS = 16
GOOD = b"\x01\x00\x01"


def together(work: Callable[[int], Any]) -> list[Any]:
    """What each of sixteen threads got that began at the same moment."""
    begin = threading.Barrier(THREADS)

    def one(k: int) -> Any:
        begin.wait(60)
        return work(k)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def test_a_respondent_gets_a_credential_and_hands_in_one_report(shelf: Shelf) -> None:
    at = service_of(shelf.open())
    invitation, blinding = invited(at.reports)
    reply = at.sign(invitation, blinding.blinded)
    assert isinstance(reply, bytes)
    signature = blinding.finish(reply)
    assert take(at, blinding.prepared, signature, GOOD) is IntakeResult.NEW
    assert take(at, blinding.prepared, signature, GOOD) is IntakeResult.AGAIN
    assert take(at, blinding.prepared, signature, b"\x02\x01\x01") is IntakeResult.OTHER
    assert [bytes(row) for row in read_all_reports(at.reports)] == [GOOD]
    at.close()


class TestSigning:
    def test_the_same_again_gives_the_same_and_another_is_refused(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        invitation, blinding = invited(at.reports)
        first = at.sign(invitation, blinding.blinded)
        assert at.sign(invitation, blinding.blinded) == first
        assert at.sign(invitation, blind_token(key().public, prepare_token()).blinded) is IntakeResult.OTHER
        assert at.sign(new_invitation(), blinding.blinded) is IntakeResult.UNKNOWN
        at.close()

    def test_the_same_invitation_from_many_threads_signs_one_value(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        invitation, _ = invited(at.reports)
        blindings = [blind_token(key().public, prepare_token()) for _ in range(THREADS)]
        replies = together(lambda k: at.sign(invitation, blindings[k].blinded))
        signed = [k for k, reply in enumerate(replies) if isinstance(reply, bytes)]
        assert len(signed) == 1
        assert Counter(map(type, replies)) == {bytes: 1, IntakeResult: THREADS - 1}
        assert blindings[signed[0]].finish(replies[signed[0]])
        at.close()

    def test_the_same_value_from_many_threads_gets_one_signature(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        invitation, blinding = invited(at.reports)
        replies = together(lambda _: at.sign(invitation, blinding.blinded))
        assert len(set(replies)) == 1
        assert blinding.finish(replies[0])
        at.close()

    def test_what_is_no_blinded_value_uses_nothing_up(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        invitation, blinding = invited(at.reports)
        for bad in (b"", bytes(256), b"\xff" * 256):
            with pytest.raises(BadValue, match="blinded value"):
                at.sign(invitation, bad)
        with pytest.raises(BadParameter, match="24 characters"):
            at.sign("short", blinding.blinded)
        assert isinstance(at.sign(invitation, blinding.blinded), bytes)
        at.close()

    def test_ends_with_the_survey_but_gives_again_what_it_gave(self, shelf: Shelf) -> None:
        at = service_of(shelf.open(), StoppingRule(stop_after=1))
        early, first = invited(at.reports)
        late, second = invited(at.reports)
        given = at.sign(early, first.blinded)
        take(at, *credential(), GOOD)
        assert at.sign(early, first.blinded) == given
        assert at.sign(late, second.blinded) is IntakeResult.CLOSED
        at.close()


class TestTaking:
    def test_the_same_token_from_many_threads_counts_once(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        prepared, signature = credential()
        verdicts = together(lambda _: take(at, prepared, signature, GOOD))
        assert Counter(verdicts) == {IntakeResult.NEW: 1, IntakeResult.AGAIN: THREADS - 1}
        assert at.reports.state().reports == 1
        at.close()

    def test_different_reports_with_one_token_leave_one(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        prepared, signature = credential()
        kinds = [b"\x00\x00\x00", b"\x01\x00\x01", b"\x01\x01\x00", b"\x02\x01\x01"]
        verdicts = together(lambda k: take(at, prepared, signature, kinds[k % 4]))
        assert Counter(verdicts) == {IntakeResult.NEW: 1, IntakeResult.AGAIN: 3, IntakeResult.OTHER: 12}
        [kept] = read_all_reports(at.reports)
        first = next(k for k, verdict in enumerate(verdicts) if verdict is IntakeResult.NEW)
        assert bytes(kept) == kinds[first % 4]
        at.close()

    def test_two_servers_on_one_store_count_each_token_once(self, shelf: Shelf) -> None:
        services = [service_of(shelf.open(), StoppingRule(stop_after=20)) for _ in range(2)]
        credentials = [credential() for _ in range(12)]
        shared = together(lambda k: [take(services[k % 2], *c, GOOD) for c in credentials])
        assert Counter(chain(*shared))[IntakeResult.NEW] == 12
        more = [[credential() for _ in range(3)] for _ in range(THREADS)]
        rest = together(lambda k: [take(services[k % 2], *c, GOOD) for c in more[k]])
        assert Counter(chain(*rest)) == {IntakeResult.NEW: 8, IntakeResult.CLOSED: 40}
        assert services[0].reports.state().reports == 20
        for at in services:
            at.close()

    def test_P2_crafted_reports_are_refused_and_use_nothing_up(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        prepared, signature = credential()
        for crafted in (b"", b"\x01", b"\x02\x00\x01", b"\x05\x05\x00", b"\xff" * SIZE, bytes(SIZE + 1)):
            with pytest.raises(BadValue):
                at.take(DIGEST, prepared, signature, crafted)
        with pytest.raises(BadValue, match="another survey"):
            at.take("0" * 64, prepared, signature, GOOD)
        with pytest.raises(BadValue, match="64 bytes"):
            at.take(DIGEST, prepared[1:], signature, GOOD)
        assert take(at, prepared, signature, GOOD) is IntakeResult.NEW
        at.close()

    def test_a_token_that_was_not_signed_is_refused(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        prepared, signature = credential()
        for other, signed in ((prepare_token(), signature), (prepared, bytes(256)), (prepared, b"")):
            with pytest.raises(InvalidCredential):
                at.take(DIGEST, other, signed, GOOD)
        assert at.reports.state().reports == 0
        at.close()

    def test_nobody_without_a_credential_has_a_report_looked_at(self, shelf: Shelf) -> None:
        looked: list[bytes] = []
        at = service_of(shelf.open(), check=looked.append)
        prepared, signature = credential()
        with pytest.raises(InvalidCredential):
            at.take(DIGEST, prepare_token(), signature, b"\xff" * SIZE)
        assert looked == []
        take(at, prepared, signature, GOOD)
        assert looked == [GOOD]
        at.close()

    def test_P1_the_same_report_every_day_counts_once(self, shelf: Shelf) -> None:
        at = service_of(shelf.open())
        prepared, signature = credential()
        for day in range(30):
            at.today = lambda day=day: TODAY + timedelta(days=day)  # type: ignore[misc]
            take(at, prepared, signature, GOOD)
        assert at.reports.state().reports == 1
        at.close()


class TestBatches:
    def test_whoever_comes_meanwhile_shares_the_next_commit(self) -> None:
        sizes: list[int] = []
        go = threading.Event()

        def commit(items: Any) -> list[int]:
            sizes.append(len(items))
            go.wait(60)
            return [2 * item for item in items]

        batches: CommitBatches[int, int] = CommitBatches(commit, "test")
        first = batches.submit(0)
        while not sizes:
            pass
        others = [batches.submit(k) for k in range(1, 40)]
        others[0].cancel()
        go.set()
        assert first.result(60) == 0
        assert [future.result(60) for future in others[1:]] == [2 * k for k in range(2, 40)]
        assert sizes == [1, 39]  # also what was cancelled is committed
        batches.close()
        with pytest.raises(Unavailable, match="stopping"):
            batches.submit(1)

    def test_an_error_is_everybodys_and_the_next_batch_goes_on(self) -> None:
        fails = [True, False]

        def commit(items: Any) -> list[int]:
            if fails.pop(0):
                raise Unavailable("no room")
            return list(items)

        batches: CommitBatches[int, int] = CommitBatches(commit, "test")
        with pytest.raises(Unavailable, match="no room"):
            batches.submit(1).result(60)
        assert batches.submit(2).result(60) == 2
        batches.close()

    def test_what_waits_is_committed_before_it_ends(self, file_shelf: Shelf) -> None:
        at = service_of(file_shelf.open(), check=small)
        waiting = [at.take(DIGEST, *credential(), GOOD) for _ in range(20)]
        at.close()
        assert {future.result(0) for future in waiting} == {IntakeResult.NEW}
        assert file_shelf.open().state().reports == 20
