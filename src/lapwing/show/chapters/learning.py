"""The chapter "Learning": small versions of the figures of Sage (Lécuyer et al., SOSP 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from lapwing.show import learning_pictures as pictures
from lapwing.show.release_load import WAYS, BlocksNeeded, ReleaseWaits, release_times
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lapwing.show.model_decisions import DecisionCount, LearningTask

_NAMES = {
    "none": "no validation",
    "estimate": "noisy mean\nmeets the target",
    "uncorrected": "bound that\nignores the noise",
    "ours": "bound that allows\nfor the noise",
}
_FULL_ROWS, _FULL_BLOCK, _FULL_RUNS = 2_000_000, 10_000, 100
_POOL, _VARIANTS = 50_000, 3


def _spaced(least: Fraction) -> tuple[Fraction, ...]:
    """Return four ε from the least to 1, in equal steps of the logarithm."""
    return (least, *(Fraction(f"{float(least) ** (1 - k / 3):.2g}") for k in range(1, 4)))


def _compared(
    values: Mapping[str, Fraction], gaps: tuple[float, ...], blocks: int, full: bool, progress: Progress
) -> tuple[LearningTask, DecisionCount]:
    from lapwing.show.model_decisions import compare_decisions, rides

    if full:
        data, runs = rides(_FULL_ROWS, _FULL_BLOCK), _FULL_RUNS
    else:
        rows = int(values["rows"])
        data, runs = rides(rows, rows // blocks, pool=_POOL, by_hour=False), int(values["runs"])
    count = compare_decisions(
        data,
        runs=runs,
        variants=_VARIANTS,
        epsilons=_spaced(values["epsilon"]),
        gaps=data.gaps if full else gaps,
        eta=values["eta"],
        tell=progress,
    )
    return data, count


# Bad models that leave


def bad_models(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `bad-models`."""
    data, count = _compared(values, (0.05, 0.1, 0.2, 0.4), 32, full, progress)
    eta, least = float(values["eta"]), _spaced(values["epsilon"])[0]
    tallies = count.tallies
    runs = sum(tallies["ours", e].runs for e in _spaced(values["epsilon"]))
    bad = {name: sum(tallies[name, e].bad for e in _spaced(values["epsilon"])) for name in _NAMES}
    at_least = {name: tallies[name, least].bad / tallies[name, least].runs for name in _NAMES}
    return Shown(
        headline=f"At ε {float(least):g}, {_percent(at_least['uncorrected'])} of runs release a bad model "
        f"if validation ignores its noise, and {_percent(at_least['ours'])} if it allows for it (η = "
        f"{_percent(eta)})",
        sentences=(
            f"A pipeline predicts the duration of rides with a private linear model, on "
            f"{len(data.table):,} generated rows. It tries with few rows, then with twice as many, until a "
            "model is accepted.",
            f"No model can have a mean absolute error below {data.best:.2f} minutes. Targets lie above "
            "that; a model is bad if it misses its target on rows that it has not seen.",
            "The noisy numbers of an attempt are judged in four ways. Only the last one allows for "
            "sampling, for its own noise, and for all attempts of the run.",
            f"In {runs:,} runs it released {bad['ours']} bad models; a bound that ignores the noise "
            "released "
            f"{bad['uncorrected']}, the noisy mean {bad['estimate']}, no validation {bad['none']}.",
            f"It is proven that a run releases a bad model with probability at most η = {eta:g}. The price "
            "is that fewer models are accepted: see the table. η is about bad models. ε is about people, "
            "and a row pays it for each attempt that uses it.",
        ),
        tables=(
            NumberTable(
                "Runs, models that were accepted, and bad ones among them",
                ("judged by", "ε of an attempt", "runs", "accepted", "bad", "bad, as a share of runs"),
                tuple(
                    (_flat(name), float(e), tally.runs, tally.accepted, tally.bad, tally.bad / tally.runs)
                    for (name, e), tally in tallies.items()
                ),
            ),
        ),
        picture=lambda: _bad_picture(count, eta),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g}\u00a0%"


def _flat(name: str) -> str:
    return _NAMES[name].replace("\n", " ")


def _bad_picture(count: DecisionCount, eta: float) -> Figure:
    rates: dict[str, list[tuple[float, float]]] = {}
    for (name, e), tally in count.tallies.items():
        rates.setdefault(name, []).append((float(e), tally.bad / tally.runs))
    worst = {name: max(rate for _, rate in points) for name, points in rates.items()}
    only_ours = worst.pop("ours") <= eta < min(worst.values())
    title = "Runs that release a bad model, by the way that a model is judged"
    if only_ours:
        title = pictures.ONLY_OURS
    named = {_NAMES[name]: points for name, points in rates.items()}
    return pictures.violations_picture(named, eta=eta, title=title, of="runs that release a bad model")


# Data that a model needs


def data_needed(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `data-needed`."""
    gaps = (0.1, 0.2, 0.4)
    data, count = _compared(values, gaps, 128, full, progress)
    runs = _FULL_RUNS if full else int(values["runs"])
    epsilons = _spaced(values["epsilon"])
    lines = {
        gap: [
            (float(e), sum(count.needed[gap, e]) / runs)
            for e in epsilons
            if len(count.needed.get((gap, e), ())) == runs
        ]
        for gap in (data.gaps if full else gaps)
    }
    drawn = {gap: points for gap, points in lines.items() if points}
    return Shown(
        headline=_needed_headline(drawn),
        sentences=(
            f"A pipeline predicts the duration of rides. It begins with {data.block:,} rows and doubles "
            f"them, up to {len(data.table):,}, until its validator accepts a model.",
            f"The best possible mean absolute error is {data.best:.2f} minutes. A target may lie 10 %, 20 "
            "% or 40 % above it: the closer, the more data it takes to prove that a model meets it.",
            "A smaller ε means larger noise on both training and validation, so more rows are needed "
            "before a model is accepted.",
            "With enough data the same quality costs each person less: rows can make up for a smaller ε.",
            f"A point is drawn if each of the {runs} runs was accepted. All rows of a run pay ε for each "
            "attempt that uses them.",
        ),
        tables=(
            NumberTable(
                "Rows of the first accepted attempt, mean over the runs that were accepted",
                ("target above the best", "ε of an attempt", "rows", "accepted runs", "runs"),
                tuple(
                    (
                        _percent(gap),
                        float(e),
                        sum(rows) / len(rows) if (rows := count.needed.get((gap, e), [])) else None,
                        len(rows),
                        runs,
                    )
                    for gap in lines
                    for e in epsilons
                ),
            ),
        ),
        picture=lambda: _needed_picture(drawn),
    )


def _needed_headline(drawn: Mapping[float, list[tuple[float, float]]]) -> str:
    if not drawn:
        return "With so few rows no target was reached in every run: take more rows or a larger ε"
    gap = max(drawn, key=lambda target: (len(drawn[target]), target))
    (small, most), (large, fewest) = drawn[gap][0], drawn[gap][-1]
    if small == large:
        return f"{most:,.0f} rows are needed at ε {small:g} for a target {_percent(gap)} above the best"
    return (
        f"For a target {_percent(gap)} above the best, ε {small:g} needs {most:,.0f} rows where ε "
        f"{large:g} needs {fewest:,.0f}"
    )


def _needed_picture(drawn: Mapping[float, list[tuple[float, float]]]) -> Figure:
    falls = all(a[1] >= b[1] for points in drawn.values() for a, b in pairwise(points))
    tighter = all(
        rows <= dict(drawn[tight]).get(e, rows)
        for tight, loose in pairwise(sorted(drawn))
        for e, rows in drawn[loose]
    )
    title = (
        pictures.NEEDS_MORE
        if len(drawn) > 1 and falls and tighter
        else "Rows that a model needs before it can be accepted"
    )
    return pictures.needed_picture(
        {f"target {_percent(gap)}\nabove the best": points for gap, points in drawn.items()}, title=title
    )


# Hours to release


def release_time(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `release-time`."""
    need = BlocksNeeded(float(values["blocks"]), float(values["noise"]))
    if full:
        need = _measured_need(progress)
    rates = [float(values["load"]) * k / 5 for k in range(1, 6)]
    hours, epsilon = int(values["hours"]), float(values["epsilon"])
    times = release_times(need, rates, hours=hours, runs=20 if full else 12, epsilon=epsilon, tell=progress)
    within, full_load = hours // 2, {way: times[way][-1] for way in WAYS}
    left = {way: sum(waits.not_released for waits in times[way]) / len(rates) for way in WAYS}
    first, last = min(left, key=left.__getitem__), max(left, key=left.__getitem__)
    return Shown(
        headline=f"{_WAYS[first][0].upper()}{_WAYS[first][1:]}: {_share(full_load[first].not_released)} of "
        f"the pipelines are not released within {within} hours; {_WAYS[last]}: "
        f"{_share(full_load[last].not_released)} (at {rates[-1]:.3g} pipelines an hour)",
        sentences=(
            f"One block of new rows comes in each hour, and each block may lose ε {epsilon:g} in its life. "
            "Pipelines arrive at random, and wait until an attempt of theirs is accepted. This is a "
            "simulation.",
            f"A pipeline of size 1 is accepted with {need.a:.3g} + {need.b:.3g} / ε blocks; sizes follow a "
            "power law with mean about 1. An attempt that was too small has spent its ε, and the next one "
            "uses twice as much.",
            "With one ε for all data, a budget that is spent is spent for ever, and later pipelines wait. "
            "If each row is used once, blocks are divided among those who wait.",
            "If loss is counted for each block, new blocks bring new budget, and a block can serve several "
            "pipelines. Spending as little ε of each block as will do leaves the most for others.",
            f"Every pipeline of the first {hours - within} hours is followed for {within} hours. One that "
            "is not released by then may never be: it is counted as such, and in no mean.",
            "No block ever loses more than its ε: this compares ways to share one promise, not different "
            "promises.",
        ),
        tables=(
            NumberTable(
                f"Share of pipelines not released within {within} hours",
                ("pipelines an hour", *(_WAYS[way] for way in WAYS)),
                tuple(
                    (rate, *(times[way][k].not_released for way in WAYS)) for k, rate in enumerate(rates)
                ),
            ),
            NumberTable(
                f"Hours in which half of the pipelines release (–: not within {within})",
                ("pipelines an hour", *(_WAYS[way] for way in WAYS)),
                tuple(
                    (rate, *(_finite(times[way][k].median) for way in WAYS)) for k, rate in enumerate(rates)
                ),
            ),
        ),
        picture=lambda: _release_picture(times, rates, within, is_first=first == WAYS[0]),
    )


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _finite(hours: float) -> float | None:
    return hours if math.isfinite(hours) else None


_WAYS = {
    "conserve": "per block, sparing ε",
    "aggressive": "per block, newest first",
    "streaming": "each row used once",
    "whole data": "one ε for all data",
}


def _measured_need(progress: Progress) -> BlocksNeeded:
    from lapwing.show.model_decisions import compare_decisions, measured_need, rides

    data = rides(_FULL_ROWS, _FULL_BLOCK)
    count = compare_decisions(data, runs=20, variants=2, gaps=data.gaps[-2:-1], tell=progress)
    return measured_need(data, count.needed)


def _release_picture(
    times: Mapping[str, list[ReleaseWaits]], rates: list[float], within: int, *, is_first: bool
) -> Figure:
    title = (
        pictures.SOONEST if is_first else "Models not released under load, by the way that loss is counted"
    )
    shares = {
        _WAYS[way].replace(", ", ",\n"): [
            (rate, wait.not_released) for rate, wait in zip(rates, waits, strict=True)
        ]
        for way, waits in times.items()
    }
    return pictures.release_picture(shares, within=within, title=title)
