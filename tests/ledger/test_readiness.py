"""Whether a ledger can be charged now, and its newest entry."""

from __future__ import annotations

import pytest

from lapwing.errors import Unavailable
from lapwing.ledger.readiness import newest_position, require_ready
from support.ledgers import Home


def test_an_open_ledger_is_ready_and_looking_writes_nothing(home: Home) -> None:
    with home.create() as ledger:
        before = newest_position(ledger)
        require_ready(ledger)
        assert newest_position(ledger) == before == 1


def test_what_a_charge_would_meet_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> object:
        raise Unavailable("no")

    with home.create() as ledger:
        for thing, name in ((ledger.store, "write"), (ledger.store.anchors[0], "read")):
            with monkeypatch.context() as patch:
                patch.setattr(type(thing), name, fail)
                with pytest.raises(Unavailable):
                    require_ready(ledger)
        require_ready(ledger)
