"""How surveys look: their plans, invented people, estimates."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lapwing.cli import console
from lapwing.core.exact import short
from lapwing.survey.designing import epsilon_text
from lapwing.survey.questionnaire import NO_ANSWER
from lapwing.survey.shuffled import ASSUMES, shuffled_epsilon

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lapwing.plots.answers import Bar
    from lapwing.survey.designing import Design
    from lapwing.survey.estimating.results import (
        CrossTable,
        EstimatedValue,
        EstimateTable,
        Interval,
        QuestionEstimates,
        SurveyEstimates,
    )
    from lapwing.survey.planning import QuestionPlan, SimulatedAnswers, SurveyPlan

DELTA = Fraction(1, 10**6)
MOST_ROWS = 60


def show_plan(plan: SurveyPlan) -> None:
    """Show each question's protocol, ε, error and odds, and the notes."""
    survey = plan.design.survey
    with console.page() as out:
        cost = epsilon_text(plan.design.epsilon)
        out.title(f"{survey.title}: a respondent loses at most ε {cost}")
        out.indented(plan.asks)
        sure = f"{float(plan.confidence):g}"
        out.heading(f"Expected error with {plan.n:,} respondents, at most, with {sure} confidence each")
        columns = ["question", "protocol", "ε", "of", "population", "these respondents"]
        if plan.margin is not None:
            columns.append(f"respondents for ± {float(plan.margin):g}")
        rows = [_cells(line, with_needed=plan.margin is not None) for line in plan.lines]
        out.table(*columns, right=(2, 4, 5, 6), rows=rows)
        if plan.margin is not None:
            out.indented(
                f"± {float(plan.margin):g} is a part of the range: for shares, percentage points / 100."
            )
        out.heading("Why, and what respondents are told before the coins are thrown")
        out.points(
            *(f"{line.part.question.name}: {line.part.why}. {line.part.odds}" for line in plan.lines)
        )
        out.heading("Good to know")
        out.points(*plan.notes, f"Every report has {plan.design.report_size:,} bytes, whatever it says.")


def _cells(line: QuestionPlan, *, with_needed: bool) -> list[str]:
    cells = [
        line.part.question.name,
        line.part.protocol,
        f"{float(line.part.epsilon):.4g}",
        line.what,
        _error(line.population, line.unit),
        _error(line.respondents, line.unit),
    ]
    return [*cells, "" if line.needed is None else f"{line.needed:,}"] if with_needed else cells


def _error(error: float, unit: str) -> str:
    if unit == "percentage points":
        return f"± {100 * error:.3g} %" if error < 1 else "useless"
    return f"± {error:.3g} {unit}".rstrip()


def show_invented(people: Collection[SimulatedAnswers], n: int, where: str) -> None:
    """Show where the reports are, and the truth that estimates should come near to."""
    with console.page() as out:
        out.title(f"{n:,} invented respondents. Their reports are in {where}.")
        out.indented("The truth below is known only because it is invented.")
        shown = console.table("question", "answer", "truth", right=(2,))
        for simulated in people:
            for place, (label, value) in enumerate(simulated.truth()):
                shown.add_row(simulated.question.name if not place else "", label, f"{value:.4f}")
        out.print(shown)
        out.heading("Drawn from")
        out.points(*(f"{simulated.question.name}: {simulated.law}" for simulated in people))


@dataclass(frozen=True, slots=True)
class RespondentLoss:
    """The privacy loss of a respondent: to the owner, and to others who see only shuffled reports."""

    local: Fraction
    shuffled: Fraction | None = None
    honest: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the shuffled ε with its assumptions."""
        values: dict[str, Any] = {"local_epsilon": float(epsilon_text(self.local)), "shuffled": None}
        if self.shuffled is not None:
            values["shuffled"] = {
                "epsilon": float(epsilon_text(self.shuffled)),
                "delta": float(DELTA),
                "honest_reports": self.honest,
                "assumes": ASSUMES,
            }
        return values


def respondent_loss(made: Design, reports: int, *, with_credentials: bool) -> RespondentLoss:
    """Return the loss. The shuffled ε needs a declared shuffler and a credential for every report."""
    survey = made.survey
    if not survey.shuffled or survey.honest is None or not with_credentials:
        return RespondentLoss(made.epsilon)
    honest = min(survey.honest, reports)
    parts = [part.randomizer for part in made.parts]
    known = None if made.asks_all and len(parts) > 1 else parts
    return RespondentLoss(made.epsilon, shuffled_epsilon(made.epsilon, honest, DELTA, known), honest)


def show_estimates(made: Design, estimates: SurveyEstimates, privacy: RespondentLoss) -> None:
    """Show every number with its intervals, and the privacy loss of a respondent."""
    with console.page() as out:
        sure = f"{float(estimates.confidence):g}"
        head = f"{made.survey.title}: {estimates.reports:,} reports, intervals with {sure} confidence each"
        out.title(head)
        for answer in estimates.answers:
            _answer(out, answer, with_lies=bool(estimates.liars))
        for cross in estimates.crosses:
            _cross(out, cross)
        out.heading("What this cost a respondent")
        out.points(*_cost(privacy))
        if estimates.liars:
            share = f"{100 * float(estimates.liars):g} %"
            means = "with the truth instead, it would lie between the estimate less the + and plus the -"
            out.points(f"Lies: how far {share} of respondents may have pushed a number; {means}.")


def _cost(privacy: RespondentLoss) -> Iterator[str]:
    local = epsilon_text(privacy.local)
    yield f"At most ε {local}, whoever is dishonest: the coins fell on their own device."
    if privacy.shuffled is not None:
        shuffled = epsilon_text(privacy.shuffled)
        where = f"at δ {short(float(DELTA))} with {privacy.honest:,} honest reports"
        yield f"ε {shuffled} {where}, shuffled. {ASSUMES}"


def _answer(out: console.Page, answer: QuestionEstimates, *, with_lies: bool) -> None:
    group = f", {answer.group}" if answer.group else ""
    out.heading(f"{answer.question}{group} ({answer.reports:,} reports)")
    if not answer.group:
        out.indented(answer.text)
    if not answer.tables:
        out.indented("Nobody was asked this yet.")
    for table in answer.tables:
        _table(out, table, with_lies=with_lies)


def _table(out: console.Page, table: EstimateTable, *, with_lies: bool) -> None:
    columns = [table.title, "estimate", "these respondents", "population", "nearest possible"]
    shown = console.table(*columns, *(["lies"] if with_lies else []), right=range(1, 6))
    for estimate in table.estimates[:MOST_ROWS]:
        cells = [estimate.label, table.show(estimate.value), *_intervals(table, estimate)]
        cells.append("" if estimate.fitted is None else table.show(estimate.fitted))
        shown.add_row(*cells, *([_lies(table, estimate)] if with_lies else []))
    out.print(shown)
    if len(table.estimates) > MOST_ROWS:
        out.indented(f"… {len(table.estimates) - MOST_ROWS:,} more: use --json for all")
    if table.note:
        out.indented(table.note)


def _intervals(table: EstimateTable, estimate: EstimatedValue) -> list[str]:
    return [
        "" if bar is None else f"{table.show(bar.low)} … {table.show(bar.high)}"
        for bar in (estimate.respondents, estimate.population)
    ]


def _lies(table: EstimateTable, estimate: EstimatedValue) -> str:
    if estimate.adversarial_shift is None:
        return ""
    down, up = estimate.adversarial_shift
    if table.unit == "share":
        return f"-{100 * down:.1f} … +{100 * up:.1f} %"
    return f"-{down:.3g} … +{up:.3g}" + (" days" if table.unit == "date" else "")


def _cross(out: console.Page, cross: CrossTable) -> None:
    out.heading(f"{cross.rows_of} and {cross.columns_of} ({cross.reports:,} reports)")
    shown = console.table(
        cross.rows_of, cross.columns_of, "estimate", "these respondents", "population", right=(2, 3, 4)
    )
    for label, table in cross.lines:
        for estimate in table.estimates:
            shown.add_row(label, estimate.label, table.show(estimate.value), *_intervals(table, estimate))
    out.print(shown)


def draw_estimates(made: Design, result: SurveyEstimates) -> Figure:
    """Draw one table of each question, over all reports or within groups."""
    from lapwing.plots.answers import EstimatePanel, estimates_picture

    def bar(interval: Interval | None) -> Bar | None:
        return None if interval is None else (interval.low, interval.high)

    panels = []
    for answer in result.answers:
        if not answer.tables:
            continue
        first = max(answer.tables, key=_drawn)
        estimates = first.estimates
        panels.append(
            EstimatePanel(
                f"{answer.question}{f', {answer.group}' if answer.group else ''}: {first.title}",
                [estimate.label for estimate in estimates],
                [estimate.value for estimate in estimates],
                [bar(estimate.population) for estimate in estimates],
                [bar(estimate.respondents) for estimate in estimates],
                first.show,
                from_zero=first.unit == "share",
            )
        )
    title = f"{made.survey.title} ({result.reports:,} reports)"
    return estimates_picture(panels, title=title, confidence=float(result.confidence))


def _drawn(table: EstimateTable) -> tuple[bool, bool]:
    """Return a key that prefers a whole list of shares, else any table that is not only "no answer"."""
    labels = [estimate.label for estimate in table.estimates]
    return labels != [NO_ANSWER] and bool(labels), table.title in ("share", "words")
