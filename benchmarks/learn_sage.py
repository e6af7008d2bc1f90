"""The shape of Sage's evaluation, on generated data: who keeps bad models out, what it costs, who waits.

    python -m benchmarks.learn_sage [--quick] [--pictures FOLDER]

Rides: how long a ride takes, by distance, hour and weekday; the noise is normal, so that no model has a
mean absolute error below the floor. 2 million rows in 200 blocks (--quick: 40,000 in 20). Clicks: whether
somebody clicks, by ten numbers and a category; no model is right more often than the ceiling. Every row is
a unit. A tenth tests. What a model really loses is computed on rows that no model has seen.

Four ways to decide, on the same attempts and released numbers: none (the first model leaves), estimate (the
noisy mean meets the target), uncorrected (a bound for sampling, as if there were no noise), ours. Models
are drawn from a few that were trained for each size and ε, with fresh noise each. Data follows from a hash.
What is proven is about runs: a run releases a bad model with at most η. Sage's table is about accepted
models, of which a larger share may be bad where nearly all of them are; both are printed.
"""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.query_data import Figures, heading, say
from lapwing.learn import PublicData
from lapwing.learn.trainers import Category, Column, LogisticRegression, Real
from lapwing.plots.style import save
from lapwing.show.hashed_numbers import HashedNumbers
from lapwing.show.learning_pictures import needed_picture, release_picture, violations_picture
from lapwing.show.model_decisions import (
    DECIDERS,
    DELTA,
    EPSILONS,
    ETA,
    POOL,
    DecisionTally,
    Floats,
    LearningTask,
    compare_decisions,
    measured_need,
    rides,
)
from lapwing.show.release_load import WAYS, BlocksNeeded, release_times

FEW = 10  # accepted models say nothing about their kind


def clicks(rows: int, block: int) -> LearningTask:
    """Return whether somebody clicks."""
    columns: tuple[Column, ...] = (*(Real(-3, 3) for _ in range(10)), Category(tuple(range(5))))
    weights, kinds = np.linspace(-1, 1, 10), np.array([-1.0, -0.5, 0.0, 0.5, 1.0])

    def made(count: int, seed: int) -> tuple[Floats, NDArray[Any], Floats]:
        draw = HashedNumbers(seed)
        numbers = np.clip(draw.normal(1, 10 * count).reshape(count, 10), -3, 3)
        kind = draw.integers(0, 5, count)
        chance = 1 / (1 + np.exp(-1.5 * (numbers @ weights + kinds[kind])))
        return np.column_stack([numbers, kind]), (draw.uniform(count) < chance).astype(np.int64), chance

    def fit(table: Floats, target: NDArray[Any], epsilon: Fraction) -> Any:
        trainer = LogisticRegression(
            epsilon=epsilon, delta=DELTA, columns=columns, classes=(0, 1), size=len(table),
            payer=PublicData(),
        )  # fmt: skip
        return trainer.fit(table, target)

    def values(model: Any, table: Floats, target: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(model.predict(table) == target)

    table, target, _ = made(rows, 3)
    pool, truth, chance = made(POOL, 4)
    ceiling = float(np.maximum(chance, 1 - chance).mean())
    gaps = (0.003, 0.01, 0.03, 0.06, 0.12)
    return LearningTask(
        "clicks", table, target, pool, truth, ceiling, block, gaps, fit, values, is_accuracy=True
    )


def show(
    figures: Figures, data: LearningTask, tallies: dict[tuple[str, Fraction], DecisionTally]
) -> dict[str, list[tuple[float, float]]]:
    """Print violations. Gives (ε, share of accepted models that are bad) by way."""
    kind = "accuracy at most" if data.is_accuracy else "mean absolute error at least"
    heading(f"{data.name}: {len(data.table):,} rows in {data.blocks} blocks; {kind} {data.best:.4g}")
    rates: dict[str, list[tuple[float, float]]] = {}
    for name in DECIDERS:
        for epsilon in EPSILONS:
            tally = tallies[name, epsilon]
            share = tally.bad / tally.accepted if tally.accepted else 0.0
            rates.setdefault(name, []).append((float(epsilon), share))
            detail = f"{share:.3f} of those accepted: {tally.bad} of {tally.accepted}, in {tally.runs} runs"
            what = f"{data.name}: bad models released, {name}, ε {float(epsilon):g}"
            if name == "ours":
                figures.ratio(what, tally.bad / tally.runs, float(ETA), detail)
            else:
                figures.note(what, f"{tally.bad / tally.runs:.3f} of runs, {detail}")
        several = [tallies[name, epsilon] for epsilon in EPSILONS]
        if name == "ours":
            accepted = sum(one.accepted for one in several)
            share = sum(one.bad for one in several) / max(accepted, 1)
            figures.ratio(f"{data.name}: bad among {accepted} accepted, ours", share, float(ETA), "all ε")
        else:
            share = max((one.bad / one.accepted for one in several if one.accepted >= FEW), default=0.0)
            what = f"{data.name}: bad among accepted, {name}"
            figures.within(what, share, float(ETA), 1.0, "above η, at the ε where it is worst")
    return rates


def main(arguments: list[str]) -> int:
    """Everything, in one go."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn_sage")
    parser.add_argument("--quick", action="store_true", help="fewer rows, blocks and runs")
    parser.add_argument("--pictures", type=Path, help="draw the three pictures into this folder")
    chosen = parser.parse_args(arguments)
    rows, block, runs, variants = (40_000, 2_000, 20, 2) if chosen.quick else (2_000_000, 10_000, 100, 2)
    figures = Figures(1)
    rates: dict[str, list[tuple[float, float]]] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    need = BlocksNeeded(2.0, 0.5)
    for data in (rides(rows, block), clicks(rows // 4, block // 4)):
        say(data.name)
        found = compare_decisions(data, runs=runs, variants=variants)
        tallies, needed = found.tallies, found.needed
        rates |= {f"{data.name}, {name}": one for name, one in show(figures, data, tallies).items()}
        for (gap, epsilon), counts in sorted(needed.items()):
            share = f"{len(counts)} of {runs} accepted"
            figures.note(
                f"{data.name}: rows needed, {gap:.1%} off the best, ε {float(epsilon):g}",
                f"{np.mean(counts):12,.0f}  {share}",
            )
            if data.name == "rides":
                lines.setdefault(f"{gap:.0%} above the floor", []).append(
                    (float(epsilon), float(np.mean(counts)))
                )
        if data.name == "rides":
            need = measured_need(data, needed)
    heading(
        f"Hours to release under load (simulated); a pipeline needs {need.a:.2f} + {need.b:.3f} / ε blocks"
    )
    load = (0.1, 0.2, 0.3) if chosen.quick else (0.1, 0.2, 0.3, 0.4, 0.5)
    hours = 150 if chosen.quick else 400
    times = release_times(need, load, hours=hours, runs=2 if chosen.quick else 5)
    left = {name: [one.not_released for one in times[name]] for name in WAYS}
    for name in WAYS:
        told = "  ".join(f"{one:6.2f}" for one in left[name])
        figures.note(f"not released within {hours // 2} hours, {name}", told)
        figures.note(f"median hours, {name}", "  ".join(f"{one.median:6.0f}" for one in times[name]))
    for before, after in pairwise(WAYS):
        ratio = sum(left[before]) / max(sum(left[after]), 1e-9)
        figures.ratio(f"{before} over {after}, not released, mean over loads", ratio, 1.0, "")
    if chosen.pictures is not None:
        chosen.pictures.mkdir(parents=True, exist_ok=True)
        shown = {
            name.removeprefix("rides, "): one for name, one in rates.items() if name.startswith("rides")
        }
        save(violations_picture(shown, eta=float(ETA)), chosen.pictures / "sage-violations.svg")
        save(needed_picture(lines), chosen.pictures / "sage-needed.svg")
        paired = {name: list(zip(load, left[name], strict=True)) for name in WAYS}
        save(release_picture(paired, within=hours // 2), chosen.pictures / "sage-release.svg")
    print(f"\nmissed: {', '.join(figures.missed) or 'none'}")
    return 1 if figures.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
