"""Two data with a common person are seen to overlap, and nothing tells who or how many."""

from __future__ import annotations

import hashlib
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.errors import BadParameter, BadValue, Tampered
from lapwing.ledger import unit_ids as module
from lapwing.ledger.unit_ids import LARGEST_SKETCH, Id, Ids, Sketch, normal_id
from support.cases import each
from support.raised import named

KEY = bytes(range(32))
# Every third one is small; the others are a range with a few more, often more than the 50 that are held.
CROWDS = st.builds(
    lambda start, size, more: set(range(start, start + size)) | more,
    st.integers(0, 200), st.sampled_from([0, 60, 150]), st.sets(st.integers(0, 400), max_size=20),
)  # fmt: skip


def sketch(ids: Ids) -> Sketch:
    return Sketch.of(ids, KEY)


@each(
    ("one", "other"),
    [
        ("a", "A "), (7, "7"), (7, " 7\n"), (7, 7.0), ("7", np.int64(7)), (7, np.float64(7)),
        (7, np.uint8(7)), (b"anna", "Anna"), ("Straße", "STRASSE"), ("７", 7), ("é", "e\u0301"),
        ("ﬁ", "FI"), ("\ufeffann", "ann"),
        ("a\u200bb", "ab"), ("\u00a0x\u3000", "x"), (np.str_("X"), "x"), (-3, "-3"), (10**30, str(10**30)),
        (0, "0"), (-0.0, 0), ("Σίσυφος", "ΣΊΣΥΦΟΣ"), (2**63 - 1, str(2**63 - 1)), (2**63, str(2**63)),
        (-(2**63), str(-(2**63))), (-(2**63) - 1, str(-(2**63) - 1)), (np.uint64(2**63), 2**63),
    ],
)  # fmt: skip
def test_one_person_however_the_id_was_typed(one: Id, other: Id) -> None:
    assert normal_id(one) == normal_id(other)
    assert sketch([one]).overlaps(sketch([other]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "b"),
        (7, "07"),
        (7, "7.0"),
        (1, -1),
        (2**63, -(2**63)),
        (0, "-0"),
        ("a b", "ab"),
        ("ä", "a"),
        (b"\xff", "ÿ"),
        ("", "a"),
    ],
    ids=ascii,
)
def test_different_people(one: Id, other: Id) -> None:
    assert not sketch([one]).overlaps(sketch([other]))


@given(st.one_of(st.text(), st.binary()))
def test_the_normal_form_of_an_id_is_its_own_normal_form(given_id: str | bytes) -> None:
    form = normal_id(given_id)
    assert normal_id(form) == form


@given(st.text(st.characters(max_codepoint=0x2FF)))
def test_neither_case_nor_white_space_matters(text: str) -> None:
    assert normal_id(f"\t{text.casefold()}  ") == normal_id(text)


@pytest.mark.parametrize(
    "missing", [None, "", " \n", b"", b"  ", float("nan"), np.float32("nan"), "\u200b"], ids=repr
)
def test_missing_ids_are_nobody(missing: Id) -> None:
    assert not sketch([missing]).overlaps(sketch([missing]))
    assert sketch([missing, "a"]).to_bytes() == sketch(["a"]).to_bytes()


@pytest.mark.parametrize(
    "bad",
    [7.5, True, np.True_, float("inf"), 2.0**60, ("a",), 1j, ..., np.datetime64("2020-01-01")],
    ids=repr,
)
def test_ids_of_another_kind_are_refused_without_showing_them(bad: Any) -> None:
    with pytest.raises(BadValue) as caught:
        sketch(["a", bad])
    assert str(caught.value) == "unit ids must be text, whole numbers or bytes"


@pytest.mark.parametrize("text", ["anna", b"anna"], ids=repr)
def test_one_text_is_not_taken_for_its_letters(text: Any) -> None:
    with pytest.raises(BadValue):
        sketch(text)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_overlap_and_merge_are_those_of_sets(a: set[int], b: set[int], c: set[int]) -> None:
    assert sketch(a).overlaps(sketch(b)) == sketch(b).overlaps(sketch(a)) == bool(a & b)
    merged = sketch(a).merged(sketch(b))
    assert merged.to_bytes() == sketch(b).merged(sketch(a)).to_bytes() == sketch(a | b).to_bytes()
    assert merged.overlaps(sketch(c)) == bool((a | b) & c)


@given(CROWDS, CROWDS, CROWDS)
def test_beyond_the_largest_the_smallest_hashes_are_held(a: set[int], b: set[int], c: set[int]) -> None:
    largest, batch = module.LARGEST_SKETCH, module._AT_ONCE
    module.LARGEST_SKETCH, module._AT_ONCE = 50, 32
    try:
        hashes = {number: _hash(number) for number in range(401)}

        def limit(ids: set[int]) -> float:
            return sorted(hashes[number] for number in ids)[49] if len(ids) > 50 else np.inf

        below = min(limit(a), limit(b))
        seen = any(hashes[number] <= below for number in a & b)
        assert sketch(a).overlaps(sketch(b)) == seen
        merged = sketch(a).merged(sketch(b))
        assert merged.to_bytes() == sketch(a | b).to_bytes()
        assert (
            merged.merged(sketch(c)).to_bytes() == sketch(a).merged(sketch(b).merged(sketch(c))).to_bytes()
        )
        assert Sketch.from_bytes(merged.to_bytes()).to_bytes() == merged.to_bytes()
        assert merged._hashes.size <= 50
    finally:
        module.LARGEST_SKETCH, module._AT_ONCE = largest, batch


def _hash(number: int) -> int:
    return int(sketch([number])._hashes[0])


def test_an_overlap_is_missed_as_rarely_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 of 10 is held: an overlap of 20 is missed with probability 0.9^20 = 0.12."""
    monkeypatch.setattr(module, "LARGEST_SKETCH", 100)
    missed = 0
    rounds = 200
    for number in range(rounds):
        key = number.to_bytes(32, "big")
        one = Sketch.of(range(1000), key)
        missed += not one.overlaps(Sketch.of(range(980, 1980), key))
    # Six standard deviations on each side: a false alarm once in 10^9 runs, if the keys were random.
    assert abs(missed - rounds * 0.9**20) < 6 * (rounds * 0.12 * 0.88) ** 0.5


def test_a_hundred_thousand_strangers_do_not_overlap_and_one_acquaintance_does() -> None:
    one, other = sketch(range(100_000)), sketch(f"p{number}" for number in range(100_000))
    assert not one.overlaps(other)
    assert one.overlaps(sketch(chain((f"q{number}" for number in range(1000)), ["99999"])))


def test_it_comes_back_from_its_bytes() -> None:
    for ids in ([], ["a"], range(1000)):
        before = sketch(ids)
        after = Sketch.from_bytes(before.to_bytes())
        assert after.to_bytes() == before.to_bytes()
        assert after.overlaps(before) == bool(len(ids))


def _with_hashes(*hashes: int) -> bytes:
    start = sketch([]).to_bytes()
    return start + np.array(hashes, "<u8").tobytes()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"x", sketch([]).to_bytes()[:-1], sketch(["a"]).to_bytes()[:-1],
        b"\x00" + sketch(["a"]).to_bytes(), _with_hashes(5, 4), _with_hashes(5, 5),
        _with_hashes(*range(LARGEST_SKETCH + 1)),
    ],
    ids=[
        "empty", "short", "cut head", "cut", "shifted", "falling", "twice", "too many",
    ],
)  # fmt: skip
def test_changed_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(Tampered, match="sketch"):
        Sketch.from_bytes(content)


def test_sketches_under_different_keys_are_not_compared() -> None:
    """They would never overlap, and a lost key would look like new people."""
    other = Sketch.of(["a"], bytes(32))
    for attempt in (sketch(["a"]).overlaps, sketch(["a"]).merged):
        with pytest.raises(BadParameter, check=named("other")):
            attempt(other)


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(33), "x" * 32], ids=repr)
def test_a_key_of_another_form_is_refused(key: Any) -> None:
    with pytest.raises(BadParameter, match="32 bytes"):
        Sketch.of(["a"], key)


def test_nothing_that_is_printed_tells_who_or_how_many() -> None:
    assert repr(sketch(range(10))) == repr(sketch([])) == str(sketch(["a"])) == "Sketch()"


def test_the_hash_is_the_documented_one() -> None:
    """It is stored: another one would not find anybody again."""
    expected = hashlib.blake2b(b"anna", key=KEY, digest_size=8, person=b"lapwing unit").digest()
    assert sketch(["Anna "]).to_bytes().endswith(expected)


def test_arrays_of_numbers_are_the_same_people() -> None:
    arrays = [np.arange(-5, 100, dtype=np.int32), np.array([2**63 - 1, -(2**63), 7])]
    one_by_one = [int(number) for array in arrays for number in array]
    assert sketch(iter(arrays)).to_bytes() == sketch(one_by_one).to_bytes()
    assert sketch(iter([np.empty(0, np.int64)])).to_bytes() == sketch([]).to_bytes()
    with pytest.raises(BadValue):
        sketch(iter([np.array([1.5])]))
