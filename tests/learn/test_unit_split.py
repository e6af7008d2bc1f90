"""A unit trains or tests for ever, whatever else is in the data and however its id is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter, BadValue
from lapwing.learn.unit_split import in_test_half
from support.raised import named

KEY, OTHER = b"k" * 32, b"o" * 32
ids = st.lists(st.one_of(st.integers(), st.text(), st.binary(), st.none()), max_size=20)


@given(ids, ids)
@settings(max_examples=30, deadline=None)
def test_a_units_half_depends_on_nobody_else(some: list[str], more: list[str]) -> None:
    alone = [bool(in_test_half([one], key=KEY, share="0.3")[0]) for one in some]
    assert in_test_half([*some, *more], key=KEY, share="0.3").tolist()[: len(some)] == alone


def test_it_does_not_change_from_one_version_to_the_next() -> None:
    """Models are tested with units that never trained: a new hash would mix them. Never edit this."""
    numbers = in_test_half(np.arange(16), key=KEY, share="0.5")
    texts = in_test_half([f"person {i}" for i in range(16)], key=KEY, share="0.5")
    assert "".join("01"[int(tests)] for tests in numbers) == "0001111111011000"
    assert "".join("01"[int(tests)] for tests in texts) == "1111111000000100"


def test_ids_are_the_same_however_they_are_typed() -> None:
    numbers = np.arange(-200, 200)
    tests = in_test_half(numbers, key=KEY, share="0.5").tolist()
    forms: list[Any] = [
        numbers.astype(np.int16),
        numbers.tolist(),
        numbers.astype(np.float64),
        [f" {n}\n" for n in numbers],
        [b"%d" % n for n in numbers],
    ]
    assert all(in_test_half(form, key=KEY, share="0.5").tolist() == tests for form in forms)
    assert in_test_half(["ANN ", "ann"], key=KEY, share="0.5").tolist() in ([True] * 2, [False] * 2)
    huge = (1 << 64) - 1
    assert (
        in_test_half(np.array([huge], dtype=np.uint64), key=KEY, share="0.5").tolist()
        == in_test_half([str(huge)], key=KEY, share="0.5").tolist()
    )


@pytest.mark.parametrize("as_text", [False, True])
def test_the_share_that_tests_is_about_the_wanted_one(as_text: bool) -> None:
    """Fixed keys: once green, always green. Five standard deviations."""
    numbers = np.arange(20_000)
    units = [f"u{n}" for n in numbers] if as_text else numbers
    for share in (0.05, 0.5, 0.9):
        found = in_test_half(units, key=KEY, share=share).mean()
        assert abs(found - share) < 5 * (share * (1 - share) / 20_000) ** 0.5


def test_another_key_gives_other_halves() -> None:
    numbers = np.arange(20_000)
    same = in_test_half(numbers, key=KEY, share="0.5") == in_test_half(numbers, key=OTHER, share="0.5")
    assert 0.45 < same.mean() < 0.55


def test_nobody_is_in_no_half() -> None:
    assert in_test_half([], key=KEY, share="0.5").tolist() == []
    assert in_test_half(np.zeros(0, dtype=np.int64), key=KEY, share="0.5").tolist() == []


@pytest.mark.parametrize("share", [0, 1, -1, 2, "nan"])
def test_bad_shares_are_refused(share: float | str) -> None:
    with pytest.raises(BadParameter, check=named("share")):
        in_test_half([1], key=KEY, share=share)


@pytest.mark.parametrize("key", [b"short", b"", "text" * 8, b"l" * 65])
def test_bad_keys_are_refused(key: bytes) -> None:
    with pytest.raises(BadParameter, check=named("key")):
        in_test_half([1], key=key, share="0.5")


def test_bad_ids_are_refused() -> None:
    for bad in ([(1, 2)], np.zeros((2, 2), dtype=np.int64)):
        with pytest.raises(BadValue, match="unit ids"):
            in_test_half(bad, key=KEY, share="0.5")  # type: ignore[arg-type]
