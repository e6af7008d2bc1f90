"""The chapter "Nobody is trusted": respondents who randomize their own answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from lapwing.audit.laws import dec, log_ratio, randomized_response
from lapwing.core.chances import percent, percent_up, posterior
from lapwing.core.exact import short, short_down
from lapwing.core.losses import Repeated
from lapwing.mechanisms import Laplace, RandomizedResponse
from lapwing.plots import style as plot
from lapwing.plots.accuracy import curator_error, local_error, measured
from lapwing.show.guessing import best_guess
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COINS = 2_000_000  # the most coins that one measurement draws
_SIZES = tuple(10**k for k in range(1, 7))
_SHARES = (Fraction(1, 100), Fraction(1, 5), Fraction(1, 2), Fraction(9, 10))


# Two coins


def two_coins(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `two-coins`."""
    n, share = int(values["n"]), values["share"]
    mechanism = RandomizedResponse.two_coins()
    assert mechanism.truth is not None
    coins = [(first, second) for first in (True, False) for second in (True, False)]
    says_yes = {
        answer: Fraction(sum(answer if first else second for first, second in coins), len(coins))
        for answer in (True, False)
    }
    epsilon = float(log_ratio(*(randomized_response(code, 2, dec(mechanism.truth)) for code in (0, 1))))

    yes = round(share * n)
    truths = (np.arange(n) < yes).astype(np.int64)
    runs = max(min(400, _COINS // n), 20)
    reports = mechanism.sample(np.tile(truths, runs)).reshape(runs, n)
    estimates = [float(mechanism.estimate(report)[1]) for report in reports]
    raw = [float(mean) for mean in reports.mean(axis=1)]
    true_share, error = yes / n, local_spread(mechanism.truth, n)
    progress(1, 1)
    return Shown(
        f"Two coins blur every answer: a true yes is reported as yes with probability {says_yes[True]}, a "
        f"true no with probability {says_yes[False]}",
        (
            "Each person throws a coin in secret. Heads: the person reports the truth. Tails: a second "
            "coin decides the report.",
            "A report of yes is three times as likely from a true yes as from a true no, so ε is ln 3 = "
            f"{epsilon:.4f} for one report. ε is a limit on this ratio of probabilities. It is not the "
            "share of false reports, which is 25 %.",
            "Nobody can undo the coins of one person. But the share of yes among all is about 2 × (share "
            f"of yes reports) − ½: in the first run, {percent(Fraction(raw[0]))} of {n:,} reports are "
            f"yes, so the estimate is {100 * estimates[0]:.1f} %. The truth is "
            f"{percent(Fraction(yes, n))}.",
            f"The estimate is right on average, and its standard deviation is {100 * error:.2g} "
            "percentage points. It can be below 0 % or above 100 %, above all if few people are asked.",
        ),
        (
            NumberTable(
                "What two coins report",
                ("truth", "reports yes", "reports no"),
                tuple(
                    (name, float(says_yes[answer]), float(1 - says_yes[answer]))
                    for name, answer in (("yes", True), ("no", False))
                ),
            ),
            NumberTable(
                f"A survey of {n:,} people, {runs} times",
                ("quantity", "value"),
                (
                    ("ε of one report", epsilon),
                    ("true share of yes", true_share),
                    ("share of yes reports, first run", raw[0]),
                    ("estimate, first run", estimates[0]),
                    ("mean of all estimates", float(np.mean(estimates))),
                    ("standard deviation of the estimate, exact", error),
                    ("standard deviation of all estimates", float(np.std(estimates))),
                ),
            ),
        ),
        lambda: _draw_two_coins(n, true_share, raw, estimates),
    )


def local_spread(truth: Fraction, n: int) -> float:
    """Return the standard deviation of the share that n randomized answers estimate, whatever they are."""
    return math.sqrt(float(truth * (1 - truth)) / n) / float(2 * truth - 1)


@plot.style()
def _draw_two_coins(n: int, share: float, raw: list[float], estimates: list[float]) -> Figure:
    figure, panels = plot.new_figure(
        "Each report may be false, yet the estimate is right on average",
        f"{len(raw)} surveys of the same {n:,} people. Every time, all of them throw their two coins "
        "anew. Dashed: the true share of yes.",
        panels=2,
    )
    for axes, title, colour, percents in (
        (panels[0], "Share of yes reports", plot.ORANGE, raw),
        (panels[1], "Estimate: 2 × that share − ½", plot.BLUE, estimates),
    ):
        axes.hist([100 * value for value in percents], bins=20, color=colour, alpha=0.85)
        axes.axvline(100 * share, color=plot.INK, linewidth=1.6, linestyle="--")
        axes.set_title(title, color=colour)
        axes.set_xlabel("per cent of the people asked")
    panels[0].set_ylabel("surveys")
    top = panels[0].get_ylim()[1]
    panels[0].set_ylim(0, 1.12 * top)
    side = "left" if share < 0.5 else "right"
    shift = (5.0 if share < 0.5 else -5.0, 0.0)
    for axes in panels:
        plot.note_beside(
            axes, f"truth {100 * share:.3g} %", (100 * share, 1.06 * top), shift, ha=side, va="center",
            bbox=plot.WHITE_BOX,
        )  # fmt: skip
    return figure


# Many questions


def many_questions(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `many-questions`."""
    m, n = int(values["m"]), int(values["n"])
    coins = RandomizedResponse.two_coins()
    assert coins.truth is not None
    ratio = coins.truth / (1 - coins.truth)
    rows = []
    for asked in range(1, m + 1):
        total = Repeated(coins.loss, asked).pure
        assert total is not None
        rows.append(
            (
                asked,
                float(total),
                int(ratio**asked),
                float(posterior(Fraction(1, 2), ratio**asked)),
                float(best_guess(dec(coins.truth), asked)),
                local_spread(coins.truth, n),
                local_error(coins.loss.epsilon / asked, n),
            )
        )
    progress(1, 1)
    last = rows[-1]
    return Shown(
        f"{m} questions with two coins each cost {m} · ln 3 = {last[1]:.4g}",
        (
            "Every answer that is randomized anew costs ln 3. The ε of all questions adds up, because the "
            "ratios of the probabilities multiply. ε is no allowance for each question.",
            f"The worst case is one fact behind all answers, such as an illness behind {m} symptoms. Then "
            f"{m} reports can be {last[2]:,} times as likely from one person as from another, and a "
            f"belief of 50 % can rise to at most {percent_up(last[3])}.",
            f"Somebody who then guesses by the majority of the reports is right in {100 * last[4]:.3g} % "
            "of the cases, on average over the coins. No rule for guessing does better.",
            f"To keep ln 3 for all answers together, each question gets ln 3 / {m}. With {n:,} people, "
            f"the error of each share then rises from {short(100 * last[5])} to {short(100 * last[6])} "
            "percentage points.",
        ),
        (
            NumberTable(
                f"Questions to each of {n:,} people",
                (
                    "questions", "total ε", "odds change by at most", "belief from 50 %, at most",
                    "best guess right", "error of a share", "error of a share, total ε of ln 3",
                ),
                tuple(rows),
            ),
        ),
        lambda: _draw_many_questions(rows),
    )  # fmt: skip


@plot.style()
def _draw_many_questions(rows: list[tuple[int, float, int, float, float, float, float]]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    asked = [row[0] for row in rows]
    figure, (axes,) = plot.new_figure(
        f"Two coins protect one answer, not {asked[-1]} answers about one fact",
        "All answers depend on one fact, yes or no, both equally likely beforehand. What somebody who "
        "sees all reports of one person can know.",
        right=0.74,
    )
    axes.plot(asked, [100 * row[3] for row in rows], color=plot.ORANGE, marker="o", markersize=4)
    axes.plot(asked, [100 * row[4] for row in rows], color=plot.BLUE, marker="o", markersize=4)
    axes.axhline(50, color=plot.GREY, linewidth=1.3, linestyle=":")
    axes.set(ylim=(45, 103), xlim=(0.8, asked[-1] + 0.2))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_yticks([50, 60, 70, 80, 90, 100], [f"{tick} %" for tick in range(50, 101, 10)])
    axes.set(xlabel="questions, each with fresh coins", ylabel="belief, or right guesses")
    ends = [
        plot.EndLabel(100 * rows[-1][3], "greatest belief after\nthe worst reports", plot.ORANGE),
        plot.EndLabel(100 * rows[-1][4], "best guess is right,\non average", plot.BLUE),
        plot.EndLabel(50, "blind guess", plot.GREY),
    ]
    plot.label_ends(axes, ends)
    return figure


# Curator and local


def local_lower_bound(epsilon: Fraction, n: int) -> float:
    """Return an error that no ε-private local protocol is below, if the true answers are fair coins.

    Claim    the root mean square error of every estimate of the share of n people is at least
             √(p (1 - p) / n), with p = e^ε / (e^ε + 1).
    Because  people share no secrets, so after all messages the truths are still independent, and each
             is believed with a probability in [1 - p, p]: its variance is at least p (1 - p).
    Test     tests/show/chapters/test_nobody_trusted.py::test_the_lower_bound_is_the_doubt_that_is_left
    """
    p = 1 / (1 + math.exp(-float(epsilon)))
    return math.sqrt(p * (1 - p) / n)


def _measured(epsilon: Fraction, n: int, share: Fraction, runs: int) -> tuple[float, float]:
    """Return root mean square errors of a share: by a curator, and by randomized response."""
    truths = (np.arange(n) < round(share * n)).astype(np.int64)
    count = int(truths.sum())
    curated = Laplace.for_epsilon(epsilon, l1=1).sample(np.full(10 * runs, count)) / n
    coins = RandomizedResponse.for_epsilon(epsilon)
    reports = coins.sample(np.tile(truths, runs)).reshape(runs, n)
    local = np.array([coins.estimate(report)[1] for report in reports])
    return (
        float(np.sqrt(np.mean((curated - count / n) ** 2))),
        float(np.sqrt(np.mean((local - count / n) ** 2))),
    )


def curator_and_local(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `curator-and-local`."""
    epsilon, n = values["epsilon"], int(values["n"])
    runs = max(min(200, _COINS // n), 20)
    queries = []
    for done, share in enumerate(_SHARES):
        progress(done, len(_SHARES))
        errors = _measured(epsilon, n, share, runs)
        queries.append((float(share), *errors, curator_error(epsilon, n), local_error(epsilon, n)))
    progress(len(_SHARES), len(_SHARES))
    sizes = sorted({*_SIZES, n})
    lines = [
        (size, curator_error(epsilon, size), local_error(epsilon, size), local_lower_bound(epsilon, size))
        for size in sizes
    ]
    curator, local, bound = (
        curator_error(epsilon, n),
        local_error(epsilon, n),
        local_lower_bound(epsilon, n),
    )
    points = [(size, *measured(epsilon, size, 100)) for size in _SIZES if size < n]
    points.append((n, queries[2][1], queries[2][2]))
    return Shown(
        f"With {n:,} people and ε {short(float(epsilon))}, to trust nobody costs {short(local / curator)} "
        "times the error",
        (
            "A counting query asks which share of n people has some property, such as: smokes. Here n is "
            "public. The errors are the same for any property.",
            "A curator who sees all answers adds noise once. The error of the share is "
            f"{short(100 * curator)} percentage points, and falls like 1/n.",
            "If nobody is trusted, everybody randomizes. With the same ε, the error is "
            f"{short(100 * local)} percentage points, and falls like 1/√n: everybody adds noise of their "
            "own. (The curator's ε is about adding or removing a person, the local ε about replacing an "
            "answer.)",
            "This is no weakness of one method. If the true answers are fair coins, no ε-private local "
            f"protocol has a root mean square error below {short_down(100 * Fraction(bound), 3)} "
            "percentage points: after all messages, everybody's answer is still in doubt.",
            "To halve the error, a curator needs 2 times as many people, a local survey 4 times.",
        ),
        (
            NumberTable(
                f"Root mean square error of counting queries, {n:,} people, measured in {runs} runs",
                ("true share", "curator", "local", "curator, exact", "local, exact"),
                tuple(queries),
            ),
            NumberTable(
                "Root mean square error of a share, exact",
                ("people", "curator", "local", "no local protocol is below"),
                tuple(lines),
            ),
        ),
        lambda: _draw_curator_and_local(epsilon, lines, points),
    )


@plot.style()
def _draw_curator_and_local(
    epsilon: Fraction, lines: list[tuple[int, float, float, float]], points: list[tuple[int, float, float]]
) -> Figure:
    sizes = [line[0] for line in lines]
    figure, (axes,) = plot.new_figure(
        f"At ε = {short(float(epsilon))} a curator's error falls like 1/n, and that of every local "
        "protocol at best like 1/√n",
        "Root mean square error of a share. Lines: exact. Points: measured with fresh noise. Dashed: "
        "no local protocol is below it, if the true answers are fair coins.",
        right=0.72,
    )
    plot.error_axes(axes)
    axes.set_xticks(_SIZES[:-1])  # names of all would overlap
    axes.set(xlim=(0.8 * sizes[0], sizes[-1]), ylim=(30 * lines[-1][1], 250 * lines[0][2]))
    axes.plot(sizes, [100 * line[1] for line in lines], color=plot.BLUE, gid="curator")
    axes.plot(sizes, [100 * line[2] for line in lines], color=plot.ORANGE, gid="local")
    axes.plot(
        sizes, [100 * line[3] for line in lines], color=plot.INK, linewidth=1.4, linestyle="--", gid="bound"
    )
    at = [point[0] for point in points]
    axes.plot(
        at, [100 * point[1] for point in points], color=plot.BLUE, gid="curator-measured", **plot.DOTS
    )
    axes.plot(
        at, [100 * point[2] for point in points], color=plot.ORANGE, gid="local-measured", **plot.DOTS
    )
    axes.set(xlabel="people asked, n", ylabel="error of the share, in percentage points")
    last = lines[-1]
    ends = [
        plot.EndLabel(100 * last[2], "everybody randomizes,\nnobody is trusted", plot.ORANGE),
        plot.EndLabel(100 * last[3], "no local protocol\nis below this", plot.INK),
        plot.EndLabel(100 * last[1], "a curator sees all,\nadds noise once", plot.BLUE),
    ]
    plot.label_ends(axes, ends)
    return figure
