"""The shape of Sage's evaluation, on generated data: who keeps bad models out, what it costs, who waits.

    python -m benchmarks.learn_sage [--quick] [--pictures FOLDER]

Rides: how long a ride takes, by distance, hour and weekday; the noise is normal, so that no model has a
mean absolute error below the floor. 2 million rows in 200 blocks (--quick: 40,000 in 20). Clicks: whether
somebody clicks, by ten numbers and a category; no model is right more often than the ceiling. Every row is
a unit. A tenth tests. What a model really loses is computed on rows that no model has seen.

Four ways to decide, on the same attempts and released numbers: none (the first model leaves), estimate (the
noisy mean meets the target), uncorrected (a bound for sampling, as if there were no noise), ours. Models
are drawn from a few that were trained for each size and ε, with fresh noise each. Seeds fix the data.
What is proven is about runs: a run releases a bad model with at most η. Sage's table is about accepted
models, of which a larger share may be bad where nearly all of them are; both are printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.learn_sage_load import WAYS, Need, release_times
from benchmarks.learn_sage_pictures import needed_picture, release_picture, violations_picture
from benchmarks.query_data import Figures, heading, say
from lapwing.learn.confidence_bounds import mean_ceiling, share_floor
from lapwing.learn.payer import PublicData
from lapwing.learn.trainers import Category, Column, LinearRegression, LogisticRegression, Real
from lapwing.learn.validation import ValidationRows, ValidationVerdict, eta_share
from lapwing.learn.validators import AccuracyValidator, LossValidator
from lapwing.plots.style import save

ETA, DELTA, SHARE = Fraction(1, 20), Fraction(1, 10**8), 10
EPSILONS = (Fraction(1, 100), Fraction(1, 20), Fraction(1, 4), Fraction(1))
DECIDERS = ("none", "estimate", "uncorrected", "ours")
BOUND, NOISE = 30, 6.0
POOL = 200_000
FEW = 10  # accepted models say nothing about their kind
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Data:
    """Generated data in blocks, and more of it to know the truth. `best`: what no model beats."""

    name: str
    table: Floats
    target: NDArray[Any]
    pool: Floats
    truth: NDArray[Any]
    best: float
    block: int
    gaps: tuple[float, ...]  # how far targets are from the best, as shares of it
    fit: Callable[[Floats, NDArray[Any], Fraction], Any]
    values: Callable[[Any, Floats, NDArray[Any]], NDArray[Any]]  # of rows: losses, or whether right
    is_accuracy: bool

    @property
    def blocks(self) -> int:
        """How many there are."""
        return len(self.table) // self.block

    def goal(self, gap: float) -> Fraction:
        """The target at a gap."""
        return Fraction(round((self.best * (1 - gap if self.is_accuracy else 1 + gap)) * 10_000), 10_000)


def rides(rows: int, block: int) -> Data:
    """Durations in minutes: a line in the distance, a rush hour, a weekend."""
    columns = (Real(0, 20), Category(tuple(range(24))), Category(tuple(range(7))))

    def made(count: int, seed: int) -> tuple[Floats, Floats]:
        draw = np.random.default_rng(seed)
        far = np.minimum(draw.exponential(5, count), 20)
        hour, day = draw.integers(0, 24, count), draw.integers(0, 7, count)
        rush = np.where((hour % 12 > 6) & (day < 5), 4.0, 0.0)
        took = 10 + 1.5 * far + rush + draw.normal(0, NOISE, count)
        return np.column_stack([far, hour, day]), took

    def fit(table: Floats, target: NDArray[Any], epsilon: Fraction) -> Any:
        trainer = LinearRegression(
            epsilon=epsilon, delta=DELTA, columns=columns, target=Real(0, 60), payer=PublicData()
        )
        return trainer.fit(table, target)

    def values(model: Any, table: Floats, target: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.abs(model.predict(table) - target))

    floor = NOISE * float(np.sqrt(2 / np.pi))  # of rides within 0 … 60, which nearly all are
    seen, unseen = made(rows, 1), made(POOL, 2)
    gaps = (0.01, 0.03, 0.1, 0.2, 0.4)
    return Data("rides", *seen, *unseen, floor, block, gaps, fit, values, is_accuracy=False)


def clicks(rows: int, block: int) -> Data:
    """Whether somebody clicks."""
    columns: tuple[Column, ...] = (*(Real(-3, 3) for _ in range(10)), Category(tuple(range(5))))
    weights, kinds = np.linspace(-1, 1, 10), np.array([-1.0, -0.5, 0.0, 0.5, 1.0])

    def made(count: int, seed: int) -> tuple[Floats, NDArray[Any], Floats]:
        draw = np.random.default_rng(seed)
        numbers = np.clip(draw.normal(0, 1, (count, 10)), -3, 3)
        kind = draw.integers(0, 5, count)
        chance = 1 / (1 + np.exp(-1.5 * (numbers @ weights + kinds[kind])))
        return np.column_stack([numbers, kind]), (draw.random(count) < chance).astype(np.int64), chance

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
    return Data("clicks", table, target, pool, truth, ceiling, block, gaps, fit, values, is_accuracy=True)


@dataclass(slots=True)
class Models:
    """A few models for each size and ε, trained when first needed; what is kept is what they lose."""

    data: Data
    variants: int
    known: dict[tuple[int, Fraction, int], NDArray[Any]] = field(default_factory=dict)

    def drawn(self, draw: np.random.Generator, blocks: int, epsilon: Fraction) -> NDArray[Any]:
        """Of one of them: its loss on each row of the pool, or whether it is right."""
        data, variant = self.data, int(draw.integers(self.variants))
        key = blocks, epsilon, variant
        if key not in self.known:
            first = int(draw.integers(data.blocks - blocks + 1)) * data.block
            rows = slice(first, first + blocks * data.block)
            table, target = data.table[rows], data.target[rows]
            trains = np.arange(len(table)) % SHARE != 0
            model = data.fit(table[trains], target[trains], epsilon)
            self.known[key] = data.values(model, data.pool, data.truth)
        return self.known[key]


@dataclass(slots=True)
class Tally:
    """What came of the runs of one way to decide."""

    runs: int = 0
    accepted: int = 0
    bad: int = 0
    rows: list[int] = field(default_factory=list)


def decisions(
    data: Data, goal: Fraction, epsilon: Fraction, tested: NDArray[Any], i: int
) -> dict[str, bool]:
    """What each way says of the same released numbers at attempt i."""
    eta = eta_share(ETA, i)
    if data.is_accuracy:
        judge = AccuracyValidator(target=goal, eta=ETA, epsilon=epsilon)
        released = judge.release(ValidationRows(tested, units=None))
        right, wrong = released.numbers
        estimate = right / (right + wrong) >= goal if right + wrong > 0 else False
        uncorrected = share_floor(right, wrong, eta) >= goal
    else:
        loss = LossValidator(
            target=goal, bound=Fraction(BOUND), step=Fraction(1, 10), eta=ETA, epsilon=epsilon
        )
        released = loss.release(ValidationRows(tested, units=None))
        most = BOUND * 10
        lost, spared = released.numbers
        estimate = BOUND * lost <= goal * (lost + spared) if lost + spared > 0 else False
        uncorrected = BOUND * mean_ceiling(Fraction(lost, most), Fraction(spared, most), eta) <= goal
        judge = loss  # type: ignore[assignment]
    ours = judge.judge(released, attempt=i).verdict is ValidationVerdict.ACCEPT
    return {"none": True, "estimate": bool(estimate), "uncorrected": bool(uncorrected), "ours": ours}


def run(
    data: Data, models: Models, goal: Fraction, epsilon: Fraction, draw: np.random.Generator
) -> dict[str, tuple[bool, int]]:
    """One run with doubling data: for each way that accepts, whether the model is bad, and the rows."""
    found: dict[str, tuple[bool, int]] = {}
    blocks, i = 1, 1
    while blocks <= data.blocks and len(found) < len(DECIDERS):
        values = models.drawn(draw, blocks, epsilon)
        truth = float(values.mean())
        places = draw.integers(0, POOL, blocks * data.block // SHARE)  # fresh draws from the same law
        tested = values[places]
        is_bad = truth < goal if data.is_accuracy else truth > goal
        for name, accepts in decisions(data, goal, epsilon, tested, i).items():
            if accepts and name not in found:
                found[name] = is_bad, blocks * data.block
        blocks, i = 2 * blocks, i + 1
    return found


def evaluate(
    data: Data, runs: int, variants: int
) -> tuple[dict[tuple[str, Fraction], Tally], dict[tuple[float, Fraction], list[int]]]:
    """Tallies by way and ε, over all targets; and rows until ours accepts, by gap and ε."""
    draw, models = np.random.default_rng(5), Models(data, variants)
    tallies = {(name, epsilon): Tally() for name in DECIDERS for epsilon in EPSILONS}
    needed: dict[tuple[float, Fraction], list[int]] = {}
    for epsilon in EPSILONS:
        for gap in data.gaps:
            say(f"{data.name}: ε {float(epsilon):g}, target {float(data.goal(gap)):.4g}")
            for _ in range(runs):
                found = run(data, models, data.goal(gap), epsilon, draw)
                for name in DECIDERS:
                    tally = tallies[name, epsilon]
                    tally.runs += 1
                    if name in found:
                        tally.accepted += 1
                        tally.bad += found[name][0]
                if "ours" in found:
                    needed.setdefault((gap, epsilon), []).append(found["ours"][1])
    return tallies, needed


def show(
    figures: Figures, data: Data, tallies: dict[tuple[str, Fraction], Tally]
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


def measured_need(data: Data, needed: dict[tuple[float, Fraction], list[int]]) -> Need:
    """a + b / ε blocks, fitted to the rows that a middling target needed."""
    points = [
        (1 / float(epsilon), float(np.mean(rows)) / data.block)
        for (gap, epsilon), rows in needed.items()
        if gap == data.gaps[-2] and rows
    ]
    if len(points) < 2:
        return Need(2.0, 0.5)
    slope, start = np.polyfit([x for x, _ in points], [y for _, y in points], 1)
    return Need(max(float(start), 0.5), max(float(slope), 0.01))


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
    need = Need(2.0, 0.5)
    for data in (rides(rows, block), clicks(rows // 4, block // 4)):
        tallies, needed = evaluate(data, runs, variants)
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
    times = release_times(need, load, hours=150 if chosen.quick else 400, runs=2 if chosen.quick else 5)
    for name in WAYS:
        figures.note(f"hours to release, {name}", "  ".join(f"{one:7.1f}" for one in times[name]))
    for before, after in pairwise(WAYS):
        figures.ratio(
            f"{before} over {after}, mean over loads", sum(times[before]) / sum(times[after]), 1.0, ""
        )
    if chosen.pictures is not None:
        chosen.pictures.mkdir(parents=True, exist_ok=True)
        shown = {
            name.removeprefix("rides, "): one for name, one in rates.items() if name.startswith("rides")
        }
        save(violations_picture(shown, eta=float(ETA)), chosen.pictures / "sage-violations.svg")
        save(needed_picture(lines), chosen.pictures / "sage-needed.svg")
        paired = {name: list(zip(load, times[name], strict=True)) for name in WAYS}
        save(release_picture(paired), chosen.pictures / "sage-release.svg")
    print(f"\nmissed: {', '.join(figures.missed) or 'none'}")
    return 1 if figures.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
