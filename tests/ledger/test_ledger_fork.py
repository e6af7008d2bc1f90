"""A forked child neither goes on with its parent's ledger nor believes to hold its locks."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import pytest

from lapwing.errors import SessionOver, Unavailable
from support.ledgers import Home, open_account, release


def in_a_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_cannot_spend_from_what_its_parent_opened(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)

    def spend() -> None:
        with pytest.raises(SessionOver):
            release(ledger, "0.1")

    assert in_a_child(spend) == 0
    assert ledger.blocks("visits")[0].spent[1] == 0
    release(ledger, "0.1")


def test_a_child_cannot_open_a_file_that_its_parent_has_open(file_home: Home) -> None:
    ledger = file_home.create()

    def open_again() -> None:
        with pytest.raises(Unavailable, match="forked"):
            file_home.open()

    assert in_a_child(open_again) == 0
    ledger.close()
    assert in_a_child(lambda: file_home.open().close()) == 0
