"""Coupled runs draw the same numbers for the units that both have, and nobody else notices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np

from lapwing.audit.stages.coupling import coupled
from lapwing.core import noise
from lapwing.core.laplace import Laplace
from lapwing.core.observed import observing
from lapwing.core.random_stream import SYSTEM


def drawn(units: int, *, asks_first: bool = False) -> list[list[int]]:
    """A run in two steps. It may ask for numbers that the other run does not need."""
    found = []
    for _ in range(2):
        if asks_first:
            noise.uniform_int(0, 1 << 62, units)
        found.append(noise.bernoulli("0.3", units).tolist())
        found.append(noise.uniform_int(0, 100, units).tolist())
        found.append(noise.permutation(units).tolist())
        Laplace.for_epsilon(1, l1=1).sample([units])
    return found


def test_the_last_unit_changes_no_other_units_draws() -> None:
    with coupled(7):
        few = drawn(20)
    with coupled(7):
        more = drawn(21, asks_first=True)
    for place, (one, other) in enumerate(zip(few, more, strict=True)):
        is_order = place % 3 == 2
        assert [unit for unit in other if unit != 20 or not is_order][:20] == one


def test_steps_and_seeds_draw_different_numbers() -> None:
    with coupled(7):
        one = drawn(40)
    with coupled(8):
        other = drawn(40)
    assert one[:3] != one[3:]
    assert one != other


def test_a_loop_draws_new_numbers_each_time() -> None:
    with coupled(1):
        rounds = [tuple(noise.uniform_int(0, 1 << 62, 4)) for _ in range(10)]
    assert len(set(rounds)) == 10


def test_mechanisms_draw_fresh_noise_and_are_seen_by_the_observer_outside() -> None:
    seen: list[Any] = []

    def observer(mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any]) -> Any:
        seen.append((type(mechanism), inputs["values"]))
        return draw()

    mechanism = Laplace.for_epsilon("0.001", l1=1000)
    outputs = set()
    with observing(observer):
        for _ in range(2):
            with coupled(3):
                outputs.add(tuple(mechanism.sample([5] * 8)))
    assert len(outputs) == 2
    assert seen == [(Laplace, [5] * 8)] * 2


def test_an_observer_outside_decides_the_output() -> None:
    with observing(lambda *_: np.array([42])), coupled(3):
        assert Laplace.for_epsilon(1, l1=1).sample([0]).tolist() == [42]


def test_other_threads_stay_random() -> None:
    found: list[bytes] = []
    with coupled(5):
        for _ in range(2):
            thread = threading.Thread(target=lambda: found.append(noise.random_bytes(16)))
            thread.start()
            thread.join()
    assert found[0] != found[1]


def test_the_system_stream_is_back_afterwards_also_after_an_error() -> None:
    assert vars(noise)["SYSTEM"] is SYSTEM
    try:
        with coupled(5), coupled(6):
            raise InterruptedError
    except InterruptedError:
        pass
    assert vars(noise)["SYSTEM"] is SYSTEM
    assert noise.random_bytes(16) != noise.random_bytes(16)


def test_a_context_that_outlives_its_block_draws_random_numbers_again() -> None:
    """Also while another block is open, so that the coupled stream is still in place."""

    def numbers() -> list[int]:
        found: list[int] = noise.uniform_int(0, 1 << 62, 4).tolist()
        return found

    left_over = []
    for _ in range(2):
        with coupled(5):
            inside = copy_context()
        with coupled(6):
            left_over.append(inside.run(numbers))
    assert left_over[0] != left_over[1]
