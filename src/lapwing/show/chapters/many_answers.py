"""The chapter "Many answers": what several releases about the same people cost together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from lapwing.audit.attacks import AttackResult, AttackSettings
from lapwing.audit.attacks.attack_result import SuccessCount
from lapwing.audit.attacks.averaging import PARTS, PRICE_WITHOUT_BUDGET, averaging
from lapwing.audit.attacks.averaging import RUNS as PEOPLE
from lapwing.audit.attacks.refill import EACH_DAY, refill
from lapwing.audit.attacks.refill import RUNS as DEVICES
from lapwing.audit.laws import exp, laplace, log_ratio, precise
from lapwing.core.beliefs import Belief, belief_bounds
from lapwing.core.chances import odds_up, percent, percent_up
from lapwing.core.exact import exp_up, short
from lapwing.core.losses import Repeated
from lapwing.mechanisms import Laplace
from lapwing.plots.attacks import attack_over_time
from lapwing.plots.style import BLUE, DOTS, GREY, ORANGE, EndLabel, label_ends, new_figure, style
from lapwing.show.guessing import best_guess, counts_up_to, guessed_right
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HALF = Fraction(1, 2)
_POINTS = 30  # of a drawn line
_GUESSES = 2_000


# Adding up


def adding_up(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `adding-up`."""
    epsilon, k = values["epsilon"], int(values["k"])
    mechanism = Laplace.for_epsilon(epsilon, l1=1)
    # All outcomes on one side of the two counts have the same ratio, so two outcomes say everything.
    without, with_you = (laplace(mechanism.scale, count, 0, 1) for count in (0, 1))
    each, truth = float(log_ratio(without, with_you)), with_you[1]

    def row(answers: int) -> tuple[int, float, float, float, float]:
        total = Repeated(mechanism.loss, answers).pure
        assert total is not None
        bounds = belief_bounds(total, 0, belief=Belief.TOOK_PART)
        limit = float(bounds.after(HALF)[1])
        return answers, float(total), float(bounds.factor), limit, float(best_guess(truth, answers))

    drawn = [row(answers) for answers in counts_up_to(k, _POINTS)]
    last = drawn[-1]
    measured = SuccessCount(round(_GUESSES * guessed_right(epsilon, k, _GUESSES)), _GUESSES)
    total, alone = k * epsilon, row(1)[3]
    progress(1, 1)
    return Shown(
        f"{k} answers at ε {short(float(epsilon))} cost ε {short(float(total))} together",
        (
            f"Each answer is a noisy count of the same people, with ε {short(float(epsilon))}. The noises "
            "are independent, so the probabilities of the answers multiply, and their ε adds up.",
            f"The sum is reached, it is not only a limit: there are {k} answers that together are "
            f"{odds_up(exp_up(total))} times as likely with you as without you.",
            f"From even odds, a guess from all {k} answers whether you are in the data can be right in "
            f"{_at_most(last[3])}. With one answer the limit is {percent_up(alone)}.",
            f"The best guess from these counts is right in {percent(Fraction(best_guess(truth, k)))} of "
            f"the cases. In {_GUESSES:,} runs now, it was right in {_measured(measured)}.",
            "So ε is no allowance for each question, each analyst or each study. What counts is the sum "
            "of everything that was ever asked about you.",
        ),
        (
            NumberTable(
                "Answers about the same people",
                ("answers", "total ε", "factor e^ε", "best guess right, at most", "best guess right, here"),
                tuple(row(answers) for answers in counts_up_to(k, 10)),
            ),
            NumberTable("One answer", ("quantity", "value"), (("ε, from its exact law", each),)),
        ),
        lambda: _draw_adding_up(epsilon, drawn, alone),
    )


def _at_most(share: float) -> str:
    """Return a limit in words. A share below 1 is not called 100 %."""
    return f"at most {percent_up(share)} of the cases" if share < 1 - 1e-9 else "almost all cases"


@style()
def _draw_adding_up(
    epsilon: Fraction, rows: Sequence[tuple[int, float, float, float, float]], alone: float
) -> Figure:
    from matplotlib.ticker import MaxNLocator

    answers = [row[0] for row in rows]
    figure, (axes,) = new_figure(
        f"Every answer at ε {short(float(epsilon))} adds to what can be known: {answers[-1]} of them "
        f"are ε {short(rows[-1][1])}",
        "How often somebody guesses right whether you are in the data, from even odds, after many "
        "noisy counts of the same people.",
        right=0.72,
    )
    axes.plot(answers, [100 * row[3] for row in rows], color=ORANGE)
    axes.plot(answers, [100 * row[4] for row in rows], color=BLUE)
    axes.axhline(100 * alone, color=GREY, linewidth=1.3, linestyle=":")
    axes.set(ylim=(45, 103), xlim=(min(1, answers[-1] - 0.5), answers[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_yticks(range(50, 101, 10), [f"{tick} %" for tick in range(50, 101, 10)])
    axes.set(xlabel="answers about the same people", ylabel="right guesses")
    ends = [
        EndLabel(100 * rows[-1][3], "limit for every attacker:\nε adds up", ORANGE),
        EndLabel(100 * rows[-1][4], "best guess from\nthese counts", BLUE),
        EndLabel(100 * alone, "limit after one answer", GREY),
    ]
    label_ends(axes, ends)
    return figure


# Trials that together expose somebody


def trials(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `trials`."""
    people = PEOPLE if full else int(values["n"])
    [result] = averaging(AttackSettings.of(values["epsilon"], people, progress))
    shown, safe, last = result.unprotected, result.protected, result.over_time[-1].after
    first = result.over_time[0].unprotected
    return Shown(
        f"One noisy answer hides a person; {last:,} noisy answers to the same question do not",
        (
            f"{result.knows} The attacker guesses, from even odds, whether the head is a patient, too.",
            "Each trial releases the count of patients with fresh noise for ε "
            f"{short(float(PRICE_WITHOUT_BUDGET))}. After one trial, {first.right:,} of {first.trials:,} "
            f"guesses are right; a fair coin has {first.trials / 2:,g} on average. The mean of {last:,} "
            f"trials is almost free of noise: {shown.right:,} of {shown.trials:,} guesses are right.",
            "Noise in each answer alone is no protection. Together the trials cost ε "
            f"{float(PRICE_WITHOUT_BUDGET * last):,.0f}, and at such an ε the promise is empty.",
            f"Lapwing's ledger gives {PARTS} new answers, each for a tenth of ε "
            f"{short(float(result.epsilon))}, and refuses all others. Then {safe.right:,} of "
            f"{safe.trials:,} guesses are right: {_measured(safe)}. In the long run, no attacker is right "
            f"in more than {percent_up(result.limit_up)} of the cases.",
            *((f"The gate broke a rule: {result.broken}.",) if result.broken else ()),
        ),
        (_over_time("Right guesses after each number of trials", "trials", result),),
        lambda: attack_over_time(f"One noisy answer hides a person; {last:,} of them do not", result),
    )


def _measured(success: SuccessCount) -> str:
    """Return a measured share with its interval: chance alone may put a share above its limit."""
    return f"{100 * success.rate:.1f} % (95 % interval {_interval(success)})"


def _interval(success: SuccessCount) -> str:
    return f"{100 * success.low:.1f} to {100 * success.high:.1f} %"


def _over_time(title: str, steps: str, result: AttackResult) -> NumberTable:
    """Return the success of an attack over time, as a table."""
    return NumberTable(
        title,
        (
            steps, "people", "without a lifetime budget", "against Lapwing", "95 % interval",
            "against Lapwing, limit",
        ),
        tuple(
            (
                point.after,
                point.protected.trials,
                point.unprotected.rate,
                point.protected.rate,
                _interval(point.protected),
                result.limit_up,
            )
            for point in result.over_time
        ),
    )  # fmt: skip


# A budget that resets every day


def daily_reset(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `daily-reset`."""
    days, devices = int(values["days"]), DEVICES if full else int(values["n"])
    [result] = refill(AttackSettings.of(values["epsilon"], devices, progress))
    truth = precise(lambda: exp(EACH_DAY) / (1 + exp(EACH_DAY)))()
    life = precise(lambda: exp(result.epsilon) / (1 + exp(result.epsilon)))()

    def row(day: int) -> tuple[int, float, float, float, float]:
        return day, float(day * EACH_DAY), float(best_guess(truth, day)), float(result.epsilon), float(life)

    drawn = [row(day) for day in counts_up_to(days, _POINTS)]
    last, point = drawn[-1], result.over_time[-1]
    return Shown(
        f"A budget that is full again every day costs ε {last[1]:,.4g} in {days:,} days, not ε "
        f"{short(float(EACH_DAY))}",
        (
            "A device reports every day whether its owner smokes, randomized with a new ε of "
            f"{short(float(EACH_DAY))}. Apple's devices had a budget that was full again every day (Tang "
            "and others, 2017).",
            "Every single report keeps its ε. But they are about one person, so their ε adds up: after "
            f"{days:,} days, the best guess is right in {percent(Fraction(best_guess(truth, days)))} of "
            "the cases.",
            f"A device of Lapwing has one budget for life, here ε {short(float(result.epsilon))}. One "
            "report uses it up, and the device refuses all later surveys. In the long run, no attacker "
            f"is right in more than {percent_up(float(life))} of the cases.",
            f"Measured now with {point.protected.trials} devices and {point.after} surveys: "
            f"{point.unprotected.right} right guesses with the daily budget, {point.protected.right} with "
            f"the budget for life: {_measured(point.protected)}.",
            "So an ε without its period means little. ε for each day is not ε for a life.",
            *((f"A device broke a rule: {result.broken}.",) if result.broken else ()),
        ),
        (
            NumberTable(
                "Best guess from all reports of one device, exact",
                ("days", "ε with a daily budget", "right", "ε with a budget for life", "right, for life"),
                tuple(row(day) for day in counts_up_to(days, 10)),
            ),
            _over_time("Right guesses, measured", "days", result),
        ),
        lambda: _draw_daily_reset(drawn, result),
    )


@style()
def _draw_daily_reset(
    rows: Sequence[tuple[int, float, float, float, float]], result: AttackResult
) -> Figure:
    from matplotlib.ticker import NullLocator

    days = [row[0] for row in rows]
    measured = [point for point in result.over_time if point.after <= max(days[-1], 2)]
    figure, (axes,) = new_figure(
        "A budget that is full again every day exposes the person; a budget for life sets a limit",
        "How often the best guess about one person is right, from all reports of the device. Lines: "
        f"exact. Points: measured on {result.protected.trials} devices, with intervals of 95 %.",
        right=0.72,
    )
    axes.plot(days, [100 * row[2] for row in rows], color=ORANGE)
    axes.plot(days, [100 * row[4] for row in rows], color=BLUE)
    at = [point.after for point in measured]
    for colour, counts in (
        (ORANGE, [point.unprotected for point in measured]),
        (BLUE, [point.protected for point in measured]),
    ):
        axes.plot(at, [100 * count.rate for count in counts], color=colour, **DOTS)
        axes.vlines(
            at, [100 * count.low for count in counts], [100 * count.high for count in counts], color=colour
        )
    axes.axhline(50, color=GREY, linewidth=1.3, linestyle=":")
    axes.set(xscale="log", xlim=(0.9, 1.05 * max(days[-1], at[-1])), ylim=(0, 104))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xticks([day for day in (1, 2, 3, 10, 30, 100, 300, 1_000) if day <= max(days[-1], at[-1])])
    axes.set_yticks(range(0, 101, 25), [f"{tick} %" for tick in range(0, 101, 25)])
    axes.set(xlabel="days", ylabel="right guesses")
    ends = [
        EndLabel(
            100 * rows[-1][2],
            f"ε {short(rows[0][1])} anew every day:\nε {rows[-1][1]:,.4g} in {days[-1]:,} days",
            ORANGE,
        ),
        EndLabel(100 * rows[-1][4], f"ε {short(rows[-1][3])} for life", BLUE),
        EndLabel(50, "blind guess", GREY),
    ]
    label_ends(axes, ends)
    return figure
