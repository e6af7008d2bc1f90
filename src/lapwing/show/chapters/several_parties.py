"""The chapter "Several parties"."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import exp
from typing import TYPE_CHECKING, Any

from lapwing.core.exact import short
from lapwing.errors import BadParameter
from lapwing.parties.joint_plan import plan_jointly
from lapwing.parties.protocols.registry import NAMES
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.simulation import MEMBERS, SIZES, compare_trust_models
from lapwing.parties.statistics import CellBlock
from lapwing.plots.accuracy import MeasuredErrors, curator_error, local_error, parties, shared_error
from lapwing.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, new_figure, note_beside, style
from lapwing.show.printed_views import ViewOfRun, exact_epsilon, small_setting, view_of_run
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LETTERS = "ABCD"
_MASKS = " The masks of D count as random: this holds only against bounded computing power."


# What a coalition sees


def coalition_view(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `coalition-view`."""
    members, epsilon = int(values["members"]), values["epsilon"]
    letter = _LETTERS[int(values["protocol"]) - 1]
    digits = str(int(values["coalition"])).replace("0", "")
    coalition = sorted({int(digit) for digit in digits})
    if len(coalition) != len(digits) or any(i > members for i in coalition) or len(coalition) >= members:
        raise BadParameter(
            "coalition",
            f"is {int(values['coalition'])}: write each colluding member's number once, such as 13 for the "
            f"members 1 and 3; numbers go from 1 to {members}, and one member must be honest",
        )
    first = view_of_run(letter, members, coalition, epsilon, first=True)
    progress(1, 1)
    return _shown_view(first, epsilon)


def _shown_view(run_view: ViewOfRun, epsilon: Fraction) -> Shown:
    who, p = _who(run_view), run_view.setting.modulus
    worst, bound = max(outcome.ratio for outcome in run_view.outcomes), exp(epsilon)
    first, second = run_view.view
    told = " and the noised ".join(run_view.combinations)
    seen_by = f"{who[0].lower()}{who[1:]} and the relay" if run_view.coalition else "the relay"
    given = (
        "Given the coalition's own inputs and coins," if run_view.coalition else "Over all noise and coins,"
    )
    rest = ": all else in it is uniform with both inputs" if run_view.uniform else ""
    return Shown(
        headline=f"{who}: no view is more than {worst:.5g} times as likely with one input as with the "
        f"other, and e^ε is {bound:.5g}",
        sentences=(
            f"{run_view.setting.members} members run protocol {run_view.letter} "
            f"({NAMES[run_view.letter]}) once, with fresh noise and coins. With the first "
            "input member 1 counts 1 person, member 2 counts 2, and so "
            f"on. The second input differs in one thing: member {run_view.changed} counts one more.",
            f"The first table has all that {seen_by} see{'' if run_view.coalition else 's'}: inputs, "
            "coins, received messages and broadcasts.",
            f"This tells the noised {told}, and nothing else of honest members{rest}.",
            f"{given} exactly this view has probability {first:.3g} with the first input, and {second:.3g} "
            "with the second one.",
            f"Over all views, one probability is at most {worst:.5g} times the other: the exact ε of the "
            f"view is {run_view.loss:.4g}, and {float(epsilon):g} was promised.",
            f"Numbers are taken modulo {p}, so that all views can be counted. This tells no more than "
            "whole numbers do, and those keep the promised ε, too."
            + (_MASKS if run_view.letter == "D" else ""),
        ),
        tables=(
            NumberTable(
                "The view in this run",
                ("kind", "of or from", "round", f"number (modulo {p})"),
                tuple((n.kind, n.source, n.round, n.number) for n in run_view.numbers),
            ),
            NumberTable(
                f"What it tells of member {run_view.changed}, and how likely that is",
                (
                    "noised value",
                    f"member {run_view.changed} counts {run_view.changed}",
                    f"member {run_view.changed} counts {run_view.changed + 1}",
                    "ratio",
                    "in this run",
                ),
                tuple(
                    (
                        " ".join(map(str, outcome.told)),
                        outcome.first,
                        outcome.second,
                        outcome.ratio,
                        "yes" if place == run_view.happened else "",
                    )
                    for place, outcome in enumerate(run_view.outcomes)
                ),
            ),
        ),
        picture=lambda: _view_picture(run_view, epsilon),
    )


def _who(run_view: ViewOfRun) -> str:
    names = [str(i + 1) for i in sorted(run_view.coalition)]
    if not names:
        return "The relay alone"
    if len(names) == 1:
        return f"Member {names[0]}"
    return f"Members {', '.join(names[:-1])} and {names[-1]}"


@style()
def _view_picture(run_view: ViewOfRun, epsilon: Fraction) -> Figure:
    worst = max(outcome.ratio for outcome in run_view.outcomes)
    who = _who(run_view)
    figure, (axes,) = new_figure(
        f"What {who[0].lower()}{who[1:]} see{'s' * (len(run_view.coalition) < 2)} is at most {worst:.5g} "
        f"times as likely with one input as with the other; ε = {short(float(epsilon))} allows "
        f"{exp(epsilon):.5g} times",
        f"Exact probability of all that the view tells of member {run_view.changed}, with both inputs. "
        f"Protocol {run_view.letter}, {run_view.setting.members} members.",
    )
    for place, outcome in enumerate(run_view.outcomes):
        axes.bar(place - 0.2, outcome.first, 0.38, color=BLUE, gid=f"first-{place}")
        axes.bar(place + 0.2, outcome.second, 0.38, color=ORANGE, gid=f"second-{place}")
        at = (place, max(outcome.first, outcome.second))
        note_beside(axes, f"ratio {outcome.ratio:.2f}", at, (0, 5), ha="center", color=INK, size=10)
    names = [" ".join(map(str, outcome.told)) for outcome in run_view.outcomes]
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel(f"the noised value that the view tells, modulo {run_view.setting.modulus}")
    axes.set_ylabel("probability")
    top = max(max(outcome.first, outcome.second) for outcome in run_view.outcomes)
    axes.set_ylim(0, 1.35 * top)
    for line, (colour, count) in enumerate(((BLUE, run_view.changed), (ORANGE, run_view.changed + 1))):
        axes.text(
            0.99, 0.96 - 0.07 * line, f"■ member {run_view.changed} counts {count}", color=colour,
            transform=axes.transAxes, ha="right", va="top",
        )  # fmt: skip
    axes.tick_params(axis="x", colors=GREY)
    return figure


# What each protocol withstands


def coalition_size(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `coalition-size`."""
    members, planned, epsilon = int(values["members"]), int(values["planned"]), values["epsilon"]
    if planned >= members:
        raise BadParameter(
            "planned",
            f"is {planned}, and must be below {members}, the number of members: one must be honest",
        )
    serving, refused = [], []
    for letter in _LETTERS:
        try:
            small_setting(letter, members, planned)
            serving.append(letter)
        except BadParameter:
            refused.append(letter)
    sizes = range(1, members)
    losses: dict[str, list[float]] = {}
    for number, letter in enumerate(serving):
        progress(number, len(serving))
        losses[letter] = [float(exact_epsilon(letter, members, planned, t, epsilon)) for t in sizes]
    progress(len(serving), len(serving))
    plans = _plans(members, epsilon)
    broken = [letter for letter in serving if losses[letter][-1] > float(epsilon)]
    beyond = "; if more collude, only A does" if broken else ""
    return Shown(
        headline=f"If at most {planned} of {members} members collude{'s' * (planned == 1)}, as planned, "
        f"each of {', '.join(serving)} keeps ε {float(epsilon):g}{beyond}",
        sentences=(
            f"An adversary with unlimited computing power controls t of the {members} members, and reads "
            f"all that the relay carries. t is at most m − 1 = {members - 1}: somebody honest must be "
            "left.",
            f"Noise is planned for t = {planned} here. The first table has the exact ε of the view if "
            "fewer or more members collude.",
            "With own noise (A) each member hides alone. In the other protocols the noise shares of all "
            "honest members hide their sum together.",
            _beyond(broken, losses, epsilon, planned),
            "A larger t needs larger noise shares: the second table has the error that the same ε costs.",
            "D holds only against bounded computing power: its numbers take its masks as unbreakable.",
        )
        + ((f"Not possible with this t: {', '.join(refused)}.",) if refused else ()),
        tables=(
            NumberTable(
                f"Exact ε of a coalition's view, where noise was planned for t = {planned}",
                ("protocol", *(f"{t} collude{'s' * (t == 1)}" for t in sizes)),
                tuple((f"{letter} {NAMES[letter]}", *losses[letter]) for letter in serving),
            ),
            NumberTable(
                f"The planner's choice for {members} members, at ε {float(epsilon):g}",
                ("t", "protocol", "honest noise shares", "standard deviation of a count"),
                plans,
            ),
        ),
        picture=lambda: _size_picture(losses, members, planned, epsilon),
    )


def _beyond(broken: list[str], losses: Mapping[str, list[float]], epsilon: Fraction, planned: int) -> str:
    if not broken:
        return "No larger coalition breaks the promise here."
    worst = max(broken, key=lambda letter: losses[letter][planned])
    return (
        f"If one more member colludes than planned, the view in protocol {worst} has ε "
        f"{losses[worst][planned]:.3g} instead of {float(epsilon):g}. No protocol can notice this."
    )


def _plans(members: int, epsilon: Fraction) -> tuple[tuple[int | str | float, ...], ...]:
    plans: list[tuple[int | str | float, ...]] = []
    for t in range(1, members):
        needs = JointRequirements(
            members=members, coalition=t, losses=0, adversary="unbounded", protocol="auto",
            epsilon=epsilon, delta=Fraction(0), people_at=1, noise="laplace",
        )  # fmt: skip
        plan = plan_jointly(needs, [CellBlock("count", 1, 1, 1)])
        plans.append((t, f"{plan.protocol} {plan.fit.name}", plan.honest, plan.deviations[0]))
    return tuple(plans)


@style()
def _size_picture(
    losses: Mapping[str, list[float]], members: int, planned: int, epsilon: Fraction
) -> Figure:
    colours = dict(zip(_LETTERS, (BLUE, ORANGE, GREEN, PURPLE), strict=True))
    is_broken = any(by_size[-1] > float(epsilon) for by_size in losses.values())
    beyond = "; if more do, only own noise keeps it" if is_broken else ""
    figure, (axes,) = new_figure(
        f"Noise for {planned} colluding member{'s' * (planned > 1)} of {members} keeps the promise if "
        f"at most {planned} collude{'s' * (planned == 1)}{beyond}",
        f"Exact ε of all that a coalition sees. The promise is ε = {short(float(epsilon))} (dashed).",
        right=0.97,
    )
    width = 0.8 / len(losses)
    for number, (letter, by_size) in enumerate(losses.items()):
        places = [t + (number - (len(losses) - 1) / 2) * width for t in range(1, members)]
        axes.bar(places, by_size, 0.92 * width, color=colours[letter], gid=letter)
        for place, loss in zip(places, by_size, strict=True):
            note_beside(
                axes, f"{loss:.3g}", (place, loss), (0, 3), ha="center", size=9 if members < 5 else 7
            )
    axes.axhline(float(epsilon), color=GREY, linestyle="--", linewidth=1.4, gid="promise")
    names = [f"{t} collude{'s' * (t == 1)}\n({_compared(t, planned)})" for t in range(1, members)]
    axes.set_xticks(range(1, members), names)
    axes.set_ylabel("exact ε of the view")
    top = max(max(by_size) for by_size in losses.values())
    axes.set_ylim(0, 1.15 * top + 0.1 * len(losses) * top)
    for line, letter in enumerate(losses):
        axes.text(
            0.01, 0.98 - 0.07 * line, f"■ {letter}: {NAMES[letter]}", color=colours[letter],
            transform=axes.transAxes, va="top",
        )  # fmt: skip
    return figure


def _compared(colluding: int, planned: int) -> str:
    if colluding == planned:
        return "as planned"
    return "fewer" if colluding < planned else "too many"


# Error against the number of members


def parties_error(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `parties-error`."""
    epsilon, people, runs = values["epsilon"], int(values["people"]), int(values["repetitions"])
    members = [m for m in (MEMBERS if full else (2, 3, 10, 30)) if m <= people]
    measured = compare_trust_models(
        epsilon,
        repetitions=runs,
        sizes=SIZES if full else (10, 100, 1000),
        people=people,
        members=members,
        tell=progress,
    )
    curator, local = curator_error(epsilon, people), local_error(epsilon, people)
    most = members[-1]
    shared, alone = (shared_error(epsilon, people, most, t) for t in ((most - 1) // 2, most - 1))
    return Shown(
        headline=f"{most} members who share their noise are off by {shared / curator:.3g} times a "
        f"curator's error; if each hides alone, by {alone / curator:.3g} times",
        sentences=(
            f"A share of {people:,} people is counted at ε {float(epsilon):g}, by one curator, by m "
            "members with n / m people each, or by people who randomize their own answers.",
            f"One curator is off by {_points(curator)} percentage points (root mean square error). Its "
            "error falls like 1/n.",
            "If fewer than half of the members may collude, honest members make one noise together. The "
            "error is √(m / (m − t)) times a curator's, so less than √2 times, however many members there "
            "are.",
            f"If all but one may collude, each member adds a whole noise, and the error grows like √m: "
            f"with {most} members {_points(alone)} points.",
            "With one member for each person, that is the local model's order of error, 1/√n. Randomized "
            f"response, where every person hides alone, is off by {_points(local)} points.",
        ),
        tables=(_by_members(measured), _by_size(measured)),
        picture=lambda: parties(measured),
    )


def _points(error: float) -> str:
    return f"{100 * error:.3g}"


def _by_members(measured: MeasuredErrors) -> NumberTable:
    e, n = measured.epsilon, measured.people
    minority, alone = dict(measured.by_members.get("shared", ())), dict(measured.by_members["alone"])
    rows: list[tuple[Any, ...]] = []
    for m in sorted(alone):
        t = (m - 1) // 2
        exact = 100 * shared_error(e, n, m, t) if m in minority else None
        error = 100 * minority[m] if m in minority else None
        rows.append((m, exact, error, 100 * shared_error(e, n, m, m - 1), 100 * alone[m]))
    heads = (
        "members", "fewer than half collude: exact", "fewer than half: measured",
        "all but one: exact", "all but one: measured",
    )  # fmt: skip
    return NumberTable(f"Error of a share of {n:,} people, in percentage points", heads, tuple(rows))


def _by_size(measured: MeasuredErrors) -> NumberTable:
    e = measured.epsilon
    curator, local = dict(measured.by_size["curator"]), dict(measured.by_size.get("local", ()))
    rows: list[tuple[Any, ...]] = []
    for n in sorted(curator):
        error = 100 * local[n] if n in local else None
        rows.append((n, 100 * curator_error(e, n), 100 * curator[n], 100 * local_error(e, n), error))
    heads = (
        "people", "one curator: exact", "one curator: measured",
        "local model: exact", "local model: measured",
    )  # fmt: skip
    return NumberTable("Error as more people are counted, in percentage points", heads, tuple(rows))
