"""R1, R2, R4: randomness that repeats, that can be seeded, or that is not there."""

from __future__ import annotations

import ctypes
import inspect
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import numpy as np
import pytest

import lapwing.core.noise
from lapwing.core import noise, random_stream
from lapwing.core.random_stream import SYSTEM, SystemStream
from lapwing.errors import NoEntropy

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")

BLOCK = 32


def in_child(action: Callable[[], bytes], fork: Callable[[], int] = os.fork) -> bytes:
    """What `action` returns in a forked child."""
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.write(writer, action())
        finally:
            os._exit(0)
    os.close(writer)
    answer = b""
    while part := os.read(reader, 1 << 16):
        answer += part
    os.close(reader)
    os.waitpid(child, 0)
    return answer


def draws() -> bytes:
    """32 blocks of 256 bits. That two blocks anywhere agree by chance has probability 2^-200."""
    return b"".join(SYSTEM.take(BLOCK) for _ in range(32))


def assert_no_block_twice(*parts: bytes) -> None:
    assert all(len(part) >= 32 * BLOCK for part in parts), "a child drew nothing"
    joined = b"".join(parts)
    blocks = [joined[i : i + BLOCK] for i in range(0, len(joined), BLOCK)]
    assert len(set(blocks)) == len(blocks)


def test_R1_many_children_and_their_parent_never_repeat_a_draw() -> None:
    parts = [draws()]
    for _ in range(50):
        parts.append(in_child(draws))
        parts.append(draws())
    assert_no_block_twice(*parts)


def test_R1_a_child_of_a_child_draws_afresh() -> None:
    def child() -> bytes:
        own = draws()
        grandchild = in_child(lambda: draws() + in_child(draws))
        return own + grandchild + draws()

    # The middle process may draw before it forks, or not.
    both = [in_child(child), in_child(lambda: in_child(draws) + draws())]
    assert_no_block_twice(draws(), *both, draws())


def test_R1_a_fork_in_a_thread_draws_afresh() -> None:
    parts: list[bytes] = [draws()]

    def work() -> None:
        parts.append(draws())
        parts.extend(in_child(draws) for _ in range(5))
        parts.append(draws())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(parts) == 29
    assert_no_block_twice(*parts, draws())


def test_R1_a_fork_that_python_does_not_see_draws_afresh() -> None:
    libc = ctypes.PyDLL(None)
    parts = [draws()]
    for _ in range(5):
        parts += [in_child(draws, libc.fork), draws()]
    assert_no_block_twice(*parts)


def test_R1_the_fork_hook_suffices_where_process_ids_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as after a wrap-round of process ids
    assert_no_block_twice(draws(), in_child(draws), in_child(draws), draws())


def test_R1_threads_started_in_a_child_draw_afresh() -> None:
    def child() -> bytes:
        parts = [draws()]
        thread = threading.Thread(target=lambda: parts.append(draws()))
        thread.start()
        thread.join()
        return b"".join(parts)

    assert_no_block_twice(draws(), in_child(child), draws())


def _worker(connection: Connection) -> None:
    connection.send_bytes(draws())
    connection.close()


def test_R1_workers_of_multiprocessing_draw_afresh() -> None:
    context = multiprocessing.get_context("fork")
    parts = [draws()]
    for _ in range(8):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_worker, args=(writer,))
        process.start()
        parts.append(reader.recv_bytes())
        process.join()
    assert_no_block_twice(*parts, draws())


def test_R1_public_samplers_differ_between_children() -> None:
    # 64 draws at scale 2^40: two children agree by chance with probability below 2^-2000.
    noise.discrete_laplace(2**40, 64)
    drawn = {in_child(lambda: noise.discrete_laplace(2**40, 64).tobytes()) for _ in range(20)}
    assert len(drawn) == 20


def test_R1_the_same_test_catches_a_generator_that_is_copied() -> None:
    """Positive control: numpy's generator repeats itself in every child."""
    generator = np.random.default_rng()
    drawn = {in_child(lambda: generator.bytes(BLOCK * 32)) for _ in range(3)}
    assert len(drawn) == 1
    with pytest.raises(AssertionError):
        assert_no_block_twice(*drawn, *drawn)


FORBIDDEN = {"seed", "rng", "stream", "random_state", "generator", "key", "entropy", "source"}


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    for name in lapwing.core.noise.__all__:
        value = getattr(lapwing.core.noise, name)
        if callable(value):
            yield name, value


def test_R2_no_public_function_takes_a_seed_or_a_stream() -> None:
    assert len(list(public_functions())) >= 9
    for name, function in public_functions():
        assert not FORBIDDEN & set(inspect.signature(function).parameters), name
    assert not FORBIDDEN & {name.lower() for name in lapwing.core.noise.__all__}


def test_R2_the_system_stream_takes_no_seed() -> None:
    assert not inspect.signature(SystemStream).parameters
    assert not [name for name in vars(random_stream) if "seed" in name.lower()]
    assert not [name for name in dir(SYSTEM) if "seed" in name.lower()]


def test_R2_seeding_other_generators_changes_nothing() -> None:
    drawn = set()
    for _ in range(10):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        drawn.add(noise.uniform_int(0, 1 << 62, 8).tobytes())
        drawn.add(noise.permutation(100).tobytes())
    assert len(drawn) == 20


@pytest.mark.parametrize(
    "setting",
    [
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "1", "SEED": "1", "RANDOM_SEED": "1", "NUMPY_SEED": "1"},
        {"LAPWING_SEED": "1", "LAPWING_TEST": "1", "LAPWING_INSECURE": "1", "PYTHONOPTIMIZE": "1"},
    ],
)
def test_R2_no_environment_makes_a_process_repeat_another(setting: dict[str, str]) -> None:
    code = "from lapwing import noise; print(noise.uniform_int(0, 1 << 62, 8).tolist())"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **setting},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for _ in range(2)
    ]
    assert outputs[0] != outputs[1]
    assert outputs[0].count(",") == 7


def raising(error: BaseException) -> Callable[[int], bytes]:
    def urandom(size: int) -> bytes:
        raise error

    return urandom


BROKEN: dict[str, Callable[[int], bytes]] = {
    "OSError": raising(OSError("no device")),
    "FileNotFoundError": raising(FileNotFoundError("/dev/urandom")),
    "NotImplementedError": raising(NotImplementedError()),
    "empty": lambda size: b"",
    "short": lambda size: bytes(range(size - 1)),
    "long": lambda size: bytes(range(size + 1)),
    "zero": bytes,
    "constant": lambda size: b"\xa5" * size,
}

SAMPLERS: list[Callable[[], object]] = [
    lambda: noise.discrete_laplace(3, 5),
    lambda: noise.geometric(3, 50_000),
    lambda: noise.discrete_gaussian(3, 5),
    lambda: noise.discrete_gaussian(300, 5),
    lambda: noise.polya_share(3, 5, parties=2),
    lambda: noise.bernoulli("0.3", 5),
    lambda: noise.bernoulli_exp([1, 2]),
    lambda: noise.exponential_choice([1, 2], 1),
    lambda: noise.uniform_int(0, 9, 5),
    lambda: noise.permutation(9),
]


@pytest.mark.parametrize("fault", BROKEN)
def test_R4_without_entropy_every_sampler_fails_and_nothing_is_drawn(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = SystemStream()
    monkeypatch.setattr(noise, "SYSTEM", own)
    monkeypatch.setattr(os, "urandom", BROKEN[fault])
    for sampler in SAMPLERS:
        with pytest.raises(NoEntropy):
            sampler()
    with pytest.raises(NoEntropy):
        own.take(0)
    assert not hasattr(own._of_thread, "keystream")


def stuck() -> Callable[[int], bytes]:
    """A source that looks random but gives the same block for ever."""
    block = os.urandom(64)
    return lambda size: block[:size]


def test_R4_a_stuck_source_fails_at_the_second_key_of_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = SystemStream()
    monkeypatch.setattr(os, "urandom", stuck())
    monkeypatch.setattr(random_stream, "REKEY_AFTER", 100)
    assert len(own.take(100)) == 100
    for _ in range(3):
        with pytest.raises(NoEntropy):
            own.take(1)


def test_R4_a_stuck_source_fails_in_the_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SystemStream()
    monkeypatch.setattr(os, "urandom", stuck())
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def draw() -> None:
        start.wait()
        try:
            own.take(16)
            outcomes.append("drew")
        except NoEntropy:
            outcomes.append("failed")

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 4
    assert outcomes.count("drew") <= 1


def test_R4_a_stuck_source_fails_in_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SystemStream()
    monkeypatch.setattr(os, "urandom", stuck())
    parent = own.take(16)

    def child() -> bytes:
        try:
            return own.take(16)
        except NoEntropy:
            return b"failed"

    assert in_child(child) == b"failed"
    assert own.take(16) != parent


def test_R4_the_next_draw_works_once_entropy_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SystemStream()
    with monkeypatch.context() as broken:
        broken.setattr(os, "urandom", raising(OSError()))
        with pytest.raises(NoEntropy):
            own.take(8)
    assert len(own.take(8)) == 8
