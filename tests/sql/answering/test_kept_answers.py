"""Small answers that were read and checked are kept; requests without an answer are looked up again."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.sql.answering.kept_answers import LARGEST_KEPT, MOST_KEPT, KeptAnswers
from lapwing.sql.answering.truncation import TruncationAnswer

RECEIPT: Any = None
ROWS: Any = None


def status(state: RequestState, answer: bytes = b"") -> RequestStatus:
    return RequestStatus(state, RECEIPT, answer)


@pytest.mark.parametrize(
    ("found", "looks"),
    [
        (None, 2),
        (status(RequestState.OPEN), 2),
        (status(RequestState.ENDED), 2),
        (status(RequestState.ANSWERED, b"x" * LARGEST_KEPT), 1),
        (status(RequestState.ANSWERED, b"x" * (LARGEST_KEPT + 1)), 2),
    ],
)
def test_only_small_answers_are_kept(found: RequestStatus | None, looks: int) -> None:
    """What is under way or failed may change, and a key may come into use."""
    looked: list[RequestStatus | None] = []

    def look_up() -> RequestStatus | None:
        looked.append(found)
        return found

    kept = KeptAnswers()
    assert kept.status("place", look_up) is found
    assert kept.status("place", look_up) is found
    assert len(looked) == looks
    assert kept.status("other place", look_up) is found
    assert len(looked) == looks + 1


def test_an_estimate_is_kept_under_all_that_it_is_made_of() -> None:
    kept = KeptAnswers()
    first, second = (TruncationAnswer(ROWS, None, position) for position in (1, 2))
    assert kept.truncation(("key", 1), lambda: first) is first
    assert kept.truncation(("key", 1), lambda: second) is first
    assert kept.truncation(("key", 2), lambda: second) is second
    assert kept.truncation(("key", 3), lambda: None) is None
    assert kept.truncation(("key", 3), lambda: second) is second


def test_little_is_kept() -> None:
    kept, found = KeptAnswers(), [status(RequestState.ANSWERED, b"x") for _ in range(3 * MOST_KEPT)]
    for place, one in enumerate(found):
        assert kept.status(place, partial(found.__getitem__, place)) is one
    assert len(kept._statuses) <= MOST_KEPT
