"""The system stream: fresh keys, no repeats, one keystream per thread."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

from lapwing.core import random_stream
from lapwing.core.random_stream import SYSTEM, SystemStream


def test_it_gives_as_many_bytes_as_asked_for() -> None:
    for size in (0, 1, 15, 16, 17, 1000, (1 << 19) + 1):
        assert len(SYSTEM.take(size)) == size


def test_words_and_halves_have_their_types_and_counts() -> None:
    assert SYSTEM.words(5).dtype == np.uint64
    assert len(SYSTEM.words(5)) == 5
    assert SYSTEM.halves(7).dtype == np.uint16
    assert len(SYSTEM.halves(7)) == 7
    assert len(SYSTEM.words(0)) == 0
    assert 0 <= SYSTEM.word() < 1 << 64


def test_no_block_comes_twice() -> None:
    # 200,000 blocks of 128 bits: two agree by chance with probability below 2^-92.
    blocks = [SYSTEM.take(16) for _ in range(100_000)]
    large = SYSTEM.take(16 * 100_000)
    blocks += [large[i : i + 16] for i in range(0, len(large), 16)]
    assert len(set(blocks)) == len(blocks)


def test_every_bit_is_set_half_of_the_time() -> None:
    # 64 bits at 6.8 deviations each: false alarm below 64 * 1.1e-11 < 1e-9.
    words = SYSTEM.words(1 << 18)
    for bit in range(64):
        share = float(np.mean((words >> np.uint64(bit)) & np.uint64(1)))
        assert abs(share - 0.5) < 6.8 * 0.5 / 2**9


def test_a_new_key_comes_after_the_stated_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    real_key = random_stream._key_from_system

    def noted() -> bytes:
        keys.append(real_key())
        return keys[-1]

    monkeypatch.setattr(random_stream, "REKEY_AFTER", 1000)
    monkeypatch.setattr(random_stream, "_key_from_system", noted)
    own = SystemStream()
    own.take(600)
    own.take(400)
    assert len(keys) == 1
    own.take(1)
    assert len(keys) == 2
    own.take(5000)
    own.take(5000)
    assert len(keys) == len(set(keys)) == 4


def test_the_bytes_after_a_new_key_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_stream, "REKEY_AFTER", 64)
    own = SystemStream()
    blocks = [own.take(16) for _ in range(1000)]
    assert len(set(blocks)) == 1000


def test_threads_never_share_a_key() -> None:
    # 16 threads, 2,000 blocks of 128 bits each: a chance repeat has probability below 2^-98.
    blocks: list[bytes] = []
    start = threading.Barrier(16)

    def draw() -> None:
        start.wait()
        own = [SYSTEM.take(16) for _ in range(2000)]
        blocks.extend(own)

    threads = [threading.Thread(target=draw) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(blocks) == 32_000
    assert len(set(blocks)) == 32_000


def test_the_stream_cannot_be_saved_or_revived() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(SYSTEM)
    with pytest.raises(TypeError):
        copy.deepcopy(SYSTEM)


def test_the_memory_of_keys_is_bounded() -> None:
    assert random_stream._recent_keys.maxlen == random_stream.KEYS_REMEMBERED
