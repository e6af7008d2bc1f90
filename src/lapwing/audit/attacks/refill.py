"""Refill: a budget that is full again every day, as Apple's was (Tang and others 2017).

Every day another survey asks for the same fact: whether the person smokes. A device whose budget refills
answers each day. A device of Lapwing has one account for life, and refuses when it is used up.

Claim    each guess against Lapwing is right with probability at most e^ε / (e^ε + 1), independently.
Because  all reports of a device together cost at most its lifetime ε, for replacing all answers. Devices
         draw their random bits independently.
Test     tests/audit/attacks/test_refill.py
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.attacks.attack_result import (
    AttackResult,
    AttackSettings,
    SuccessAfter,
    SuccessCount,
    total,
)
from lapwing.audit.attacks.devices import OneQuestion, fair_codes, scored
from lapwing.audit.attacks.limits import value_limit
from lapwing.audit.attacks.temporary_gate import new_folder, temporary_folder
from lapwing.core.exact import short
from lapwing.core.losses import Relation
from lapwing.errors import OverBudget
from lapwing.survey.respondent import Respondent

RUNS, AT_ONCE = 300, 50
EACH_DAY = Fraction(1)  # the ε that the unprotected device gets anew each day
DAYS = (1, 2, 3, 5, 7, 10, 14, 21, 30)
TEXT, LABELS = "Do you smoke?", ("yes", "no")


def refill(settings: AttackSettings) -> tuple[AttackResult, ...]:
    """Attack devices with a survey each day."""
    shown: dict[int, list[SuccessCount]] = {day: [] for day in DAYS}
    safe: dict[int, list[SuccessCount]] = {day: [] for day in DAYS}
    sent: list[int] = []  # reports of each device
    with temporary_folder() as folder:
        daily = OneQuestion.written(folder, "every day", TEXT, LABELS, EACH_DAY)
        surveys = [
            OneQuestion.written(folder, f"day {day}", TEXT, LABELS, settings.epsilon)
            for day in range(1, DAYS[-1] + 1)
        ]
        for people in settings.batches(RUNS, AT_ONCE):
            truth = fair_codes(people)
            received = np.zeros((DAYS[-1], people, len(LABELS)))
            for day in range(DAYS[-1]):
                received[day] = daily.log_odds(daily.reports(truth))
            known, reports = _through_accounts(surveys, truth, new_folder(folder), settings.epsilon)
            sent += reports
            for day in DAYS:
                shown[day].append(scored(received[:day].sum(axis=0), truth))
                safe[day].append(scored(known[:day].sum(axis=0), truth))
    over_time = tuple(SuccessAfter(day, total(shown[day]), total(safe[day])) for day in DAYS)
    return (
        AttackResult(
            "refill",
            "a budget that refills every day",
            knows="The attacker gets all reports of a device, and knows that they come from one person.",
            guesses="Whether the person smokes, yes or no, both equally likely.",
            without=f"a new ε {short(float(EACH_DAY))} every day",
            through=f"ε {short(float(settings.epsilon))} for life",
            unprotected=over_time[-1].unprotected,
            protected=over_time[-1].protected,
            epsilon=settings.epsilon,
            chance=Fraction(1, 2),
            limit=value_limit(settings.epsilon, 2, Relation.REPLACE),
            formula="e^ε / (e^ε + 1): to replace an answer is one step",
            over_time=over_time,
            steps="days",
            notes=(
                f"In {DAYS[-1]} days a device of Lapwing sent {max(sent)} report{'s' * (max(sent) != 1)}, "
                "which cost all of ε, and refused all other surveys.",
            ),
            broken=_broken(sent),
        ),
    )


def _broken(sent: Sequence[int]) -> str:
    """Return the rule that did not hold, given the number of reports of each device; else nothing."""
    if max(sent) > 1:
        return f"a device sent {max(sent)} reports that cost all of ε each"
    return "" if min(sent) else "a device sent no report, so nothing was attacked"


def _through_accounts(
    surveys: list[OneQuestion], truth: NDArray[np.int64], folder: Path, lifetime: Fraction
) -> tuple[NDArray[np.float64], list[int]]:
    """Return the log-odds of the reports by day, person and answer, and each device's number of reports."""
    odds = np.zeros((len(surveys), len(truth), len(LABELS)))
    offered = [survey.public for survey in surveys]
    sent = []
    for person, code in enumerate(truth):
        device = Respondent(folder / f"device-{person}", lifetime=lifetime)
        reports = 0
        for day, survey in enumerate(surveys):
            with suppress(OverBudget):
                report = device.answer(offered[day], survey.answer(int(code)))
                odds[day, person] = survey.log_odds(np.frombuffer(report, dtype=np.uint8)[None, :])[0]
                reports += 1
        sent.append(reports)
    return odds, sent
