"""An observer sees every mechanism's input, may decide its output, and is gone afterwards."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from lapwing.core.laplace import Laplace
from lapwing.core.losses import Relation
from lapwing.core.observed import is_observed, observing
from lapwing.core.order_statistics import Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.errors import BadParameter
from lapwing.ledger import ChargedRelease, Gate
from support.ledgers import Home, open_account, spending
from support.mechanisms import TRIED
from support.streams import SeededStream

LAPLACE = Laplace.for_epsilon(1, l1=1)
MEDIAN = Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=Relation.ADD_REMOVE, rows=1)
KEYS = PartitionSelection.for_budget(1, "0.01", keys=1)


@pytest.mark.parametrize(("mechanism", "call", "inputs"), [tried[:3] for tried in TRIED])
def test_an_observer_sees_every_input_and_decides_the_output(
    mechanism: Any, call: Any, inputs: dict[str, Any]
) -> None:
    seen: list[tuple[Any, dict[str, Any]]] = []

    def observer(observed: Any, given: dict[str, Any], _draw: Any) -> Any:
        seen.append((observed, given))
        return True

    with observing(observer):
        assert call(mechanism) is True
    assert seen == [(mechanism, inputs)]


def test_an_observer_that_draws_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for is_seen in (False, True):
        monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(1))
        if is_seen:
            with observing(lambda _mechanism, _inputs, draw: draw()):
                drawn.append(LAPLACE.sample(np.zeros(100, np.int64)))
        else:
            drawn.append(LAPLACE.sample(np.zeros(100, np.int64)))
    assert np.array_equal(drawn[0], drawn[1])


def test_an_observer_is_for_one_thread_and_one_block() -> None:
    elsewhere: list[bool] = []

    def fail() -> None:
        with observing(lambda *_: 7):
            assert is_observed()
            other = threading.Thread(target=lambda: elsewhere.append(is_observed()))
            other.start()
            other.join()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert elsewhere == [False]
    assert not is_observed()


def test_a_task_that_was_started_inside_keeps_no_observer() -> None:
    async def later(go: asyncio.Event) -> bool:
        await go.wait()
        return is_observed()

    async def run() -> bool:
        go = asyncio.Event()
        with observing(lambda *_: 7):
            task = asyncio.create_task(later(go))
            await asyncio.sleep(0)
        go.set()
        return await task

    assert not asyncio.run(run())


def test_a_charged_release_is_never_observed_by_mistake(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=1)
    gate = Gate(ledger, principal="ann")
    price = spending("0.1")
    with observing(lambda *_: 7):
        for charged in (
            lambda: gate.release(ChargedRelease(price, lambda: b"7")),
            lambda: gate.reserve(price),
        ):
            with pytest.raises(BadParameter, match="never observed"):
                charged()
    with observing(lambda *_: 7, during_charges=True):
        assert gate.release(ChargedRelease(price, lambda: b"7")).answer == b"7"
