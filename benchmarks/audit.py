"""The auditor's sampled stage against correct and wrong noise: ours, NumPy's, OpenDP's, diffprivlib's.

    .venv/bin/python benchmarks/audit.py

Prints how often noise that is a bit too small is caught, what several families of events cost, the ε that
is shown against each library's Laplace noise at a claimed ε of 1, and the time. Beside our bound stands
that of an auditor who knows the best event beforehand and counts it on all draws. All at a probability of
a false alarm of at most 1e-6.
"""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lapwing.audit.stages.events import FAMILIES, Family
from lapwing.audit.stages.proportions import proportion_at_least, proportion_at_most
from lapwing.audit.stages.sampled import Draw, SampledPair, attack_pair
from lapwing.core.noise import discrete_laplace

ERROR = 1e-6
RUNS = 20
POWER_RUNS = 200
POWER_DRAWS = 5_000
WANTED = 19
PEER_DRAWS = 40_000
FLOAT_FAMILIES = ("likelihood order", "order of numbers", "lowest bit of floats", "last bits")


def laplace(scale: float, shift: int = 1, kind: type = np.int64) -> SampledPair:
    """Discrete Laplace noise on two counts."""
    return SampledPair(
        "0 and 1",
        lambda size: discrete_laplace(scale, size).astype(kind),
        lambda size: (discrete_laplace(scale, size) + shift).astype(kind),
    )


def known_event(pair: SampledPair, draws: int) -> float:
    """The ε that is shown by the best event of Laplace noise, at most 0, on all draws."""
    hits = [int((np.asarray(draw(draws)) <= 0).sum()) for draw in (pair.first, pair.second)]
    p = proportion_at_least(hits[0], draws, ERROR / 2)
    return math.log(p / proportion_at_most(hits[1], draws, ERROR / 2))


def too_small(true: float, draws: int) -> None:
    """Print how often Laplace noise with a larger true ε than the claimed 1 is caught."""
    pair = laplace(1 / true)
    start = time.process_time()
    shown = [attack_pair(pair, 1, draws=draws, error=ERROR).at_least for _ in range(RUNS)]
    seconds = (time.process_time() - start) / RUNS
    best = statistics.median(known_event(pair, draws) for _ in range(RUNS))
    caught = sum(epsilon > 1 for epsilon in shown)
    print(
        f"{true:>7}{draws:>10,}{f'{caught} of {RUNS}':>10}{f'{WANTED} of {RUNS}':>10}"
        f"{statistics.median(shown):>10.3f}{best:>14.3f}{seconds:>8.2f}"
    )


def share_caught(families: Mapping[str, Family], draws: int) -> float:
    """How often a true ε of 1.25 is caught."""
    pair = laplace(0.8, kind=np.float64)
    verdicts = (
        attack_pair(pair, 1, draws=draws, error=ERROR, families=families).holds for _ in range(POWER_RUNS)
    )
    return 1 - statistics.mean(verdicts)


def cost_of_families() -> None:
    """Print the power of one family, and of four with 1.3 times the draws."""
    one = {"likelihood order": FAMILIES["likelihood order"]}
    four = {name: FAMILIES[name] for name in FLOAT_FAMILIES}
    print(f"\nshare of {POWER_RUNS} runs in which a true ε of 1.25 is caught (claimed 1)")
    for words, families, factor in (("one family", one, 1.0), ("four", four, 1.0), ("four", four, 1.3)):
        draws = int(POWER_DRAWS * factor) // 2 * 2
        print(f"{words:<12}{draws:>8,} draws{share_caught(families, draws):>8.2f}")


def _opendp(kind: type, value: float) -> Draw:
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    domain = dp.atom_domain(T=int) if kind is int else dp.atom_domain(T=float, nan=False)
    space = dp.vector_domain(domain), dp.l1_distance(T=kind)
    made: Callable[[list[Any]], list[Any]] = dp.m.make_laplace(*space, scale=1.0)
    return lambda size: np.array(made([kind(value)] * size))


def _diffprivlib(name: str, value: float) -> Draw:
    made = getattr(importlib.import_module("diffprivlib.mechanisms"), name)(epsilon=1, sensitivity=1)
    number = int(value) if name == "Geometric" else value
    return lambda size: np.array([made.randomise(number) for _ in range(size)])


def peers() -> None:
    """Print the ε that is shown against each library at a claimed ε of 1."""
    generator = np.random.default_rng()
    libraries: list[tuple[str, Callable[[float], Draw]]] = [
        ("Lapwing, integers", lambda value: lambda size: int(value) + discrete_laplace(1, size)),
        ("NumPy, floats", lambda value: lambda size: value + generator.laplace(0, 1, size)),
        ("OpenDP, integers", lambda value: _opendp(int, value)),
        ("OpenDP, floats", lambda value: _opendp(float, value)),
        ("diffprivlib, integers", lambda value: _diffprivlib("Geometric", value)),
        ("diffprivlib, floats", lambda value: _diffprivlib("Laplace", value)),
    ]
    print(f"\nLaplace noise at a claimed ε of 1, {PEER_DRAWS:,} draws on each of 0 and 1")
    for name, noise in libraries:
        try:
            pair = SampledPair("0 and 1", noise(0.0), noise(1.0))
        except ImportError as error:
            print(f"{name:<24}is not installed ({error})")
            continue
        start = time.process_time()
        verdict = attack_pair(pair, 1, draws=PEER_DRAWS, error=ERROR)
        found = (
            "passes" if verdict.holds else f"violation, by {verdict.violation and verdict.violation.family}"
        )
        print(
            f"{name:<24}ε at least {verdict.at_least:6.3f}   {time.process_time() - start:5.1f} s   {found}"
        )


def main() -> None:
    """Print all figures."""
    print("Laplace noise whose true ε is above the claimed 1; medians of the shown ε")
    widths = {
        "true ε": 7,
        "draws": 10,
        "caught": 10,
        "wanted": 10,
        "shown": 10,
        "known event": 14,
        "CPU-s": 8,
    }
    print("".join(f"{name:>{width}}" for name, width in widths.items()))
    too_small(1.25, 20_000)
    too_small(1.1, 120_000)
    cost_of_families()
    peers()


if __name__ == "__main__":
    main()
