"""Exact noise beside OpenDP (exact) and NumPy (not private), in one run on one core.

    .venv/bin/python benchmarks/noise.py

Prints million draws per second as medians of interleaved repeats, the ratio to OpenDP beside the ratio
that we promise, the memory that 100 million draws need beyond their output, and how long a single
draw takes. NumPy is there as the physical neighbour: floating-point noise without a guarantee.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import opendp.prelude as dp

from lapwing.core.noise import discrete_gaussian, discrete_laplace

SCALES = (1, 10, 1_000, 1_000_000, 1_000_000_000, 1_000_000_000_000)
REPEATS = 5
OUR_DRAWS = 4_000_000
THEIR_DRAWS = 50_000
MEMORY_DRAWS = 100_000_000
MEMORY_PROMISE_MB = 256


@dataclass(frozen=True)
class Law:
    """One law on the three sides, and the ratio to OpenDP that we promise at a scale."""

    name: str
    ours: Callable[[int, int], object]
    opendp: Callable[[int], Callable[[list[int]], object]]
    numpy: Callable[[int, int], object]
    promise: int


def _opendp_laplace(scale: int) -> Callable[[list[int]], object]:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    made: Callable[[list[int]], object] = dp.m.make_laplace(*space, scale=float(scale))
    return made


def _opendp_gaussian(scale: int) -> Callable[[list[int]], object]:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    made: Callable[[list[int]], object] = dp.m.make_gaussian(*space, scale=float(scale))
    return made


def _rate(draw: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    draw()
    return count / (time.perf_counter() - start) / 1e6


def compare(law: Law, scale: int) -> tuple[float, float, float]:
    """Medians of (ours, OpenDP, NumPy) in million draws per second; the repeats are interleaved."""
    theirs, zeros = law.opendp(scale), [0] * THEIR_DRAWS
    law.ours(scale, OUR_DRAWS)  # builds and caches the tables, which is reported apart
    rates: list[tuple[float, float, float]] = [
        (
            _rate(lambda: law.ours(scale, OUR_DRAWS), OUR_DRAWS),
            _rate(lambda: theirs(zeros), THEIR_DRAWS),
            _rate(lambda: law.numpy(scale, OUR_DRAWS), OUR_DRAWS),
        )
        for _ in range(REPEATS)
    ]
    ours, opendp, numpy = (statistics.median(side) for side in zip(*rates, strict=True))
    return ours, opendp, numpy


def memory_beyond_output(sampler: str) -> float:
    """MB at the peak beyond the output, of MEMORY_DRAWS draws in a fresh process."""
    code = (
        "def status(key):\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024\n"
        f"from lapwing.core.noise import {sampler} as draw\n"
        "draw(1000, 100_000)\n"
        "before = status('VmRSS')\n"
        f"result = draw(1000, {MEMORY_DRAWS})\n"
        "print(status('VmHWM') - before - result.nbytes / 2**20)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def microseconds(draw: Callable[[], object], repeats: int = 200) -> float:
    """Median time of one call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        draw()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> None:
    """Print all figures."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    dp.enable_features("contrib")
    float_noise = np.random.default_rng()
    laws = (
        Law("Laplace", discrete_laplace, _opendp_laplace, lambda s, n: float_noise.laplace(0, s, n), 50),
        Law("Gaussian", discrete_gaussian, _opendp_gaussian, lambda s, n: float_noise.normal(0, s, n), 40),
    )
    print(f"million draws/s, one core, median of {REPEATS} interleaved repeats")
    print(f"{'law':<9}{'scale':>8}{'lapwing':>10}{'OpenDP':>10}{'NumPy*':>10}{'ratio':>9}{'promised':>10}")
    for law in laws:
        for scale in SCALES:
            ours, opendp, numpy = compare(law, scale)
            promise = law.promise if scale <= 1000 else 25
            print(
                f"{law.name:<9}{scale:>8.0e}{ours:>10.1f}{opendp:>10.3f}{numpy:>10.1f}"
                f"{ours / opendp:>8.0f}x{promise:>9}x"
            )
    print("* floating-point noise, which leaks; NumPy is here only as a measure of speed\n")

    for name in ("discrete_laplace", "discrete_gaussian"):
        beyond = memory_beyond_output(name)
        print(
            f"{name}: {MEMORY_DRAWS:,} draws need {beyond:.0f} MB beyond their output"
            f" (promised: under {MEMORY_PROMISE_MB})"
        )

    fresh = iter(range(1001, 100_000))
    print("\nmicroseconds for one answer (median)")
    for name, draw in (("Laplace", discrete_laplace), ("Gaussian", discrete_gaussian)):
        again = microseconds(lambda draw=draw: draw(1000, 1))  # type: ignore[misc]
        first = microseconds(lambda draw=draw: draw(next(fresh), 1), 30)  # type: ignore[misc]
        print(f"{name:<9} known scale {again:7.0f}   new scale {first:7.0f}")
    single = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=1000.0)
    print(f"{'OpenDP':<9} Laplace     {microseconds(lambda: single(0)):7.0f}")


if __name__ == "__main__":
    main()
