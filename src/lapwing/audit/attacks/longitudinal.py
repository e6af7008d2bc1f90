"""Longitudinal: the same question every day, to people whose answer does not change.

A device that randomizes the answer anew each day reveals it after some weeks: the noise cancels out. A
device of Lapwing randomizes it once, stores the report, and sends the same bytes again.

Claim    each guess against Lapwing is right with probability at most e^ε / (e^ε + k - 1), independently.
Because  a survey always gets the same bytes from a device, and they cost at most ε, for replacing the
         answer. Devices draw their random bits independently.
Test     tests/audit/attacks/test_longitudinal.py
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lapwing.audit.attacks.attack_result import (
    AttackResult,
    AttackSettings,
    SuccessAfter,
    SuccessCount,
    total,
)
from lapwing.audit.attacks.devices import OneQuestion, scored
from lapwing.audit.attacks.limits import value_limit
from lapwing.audit.attacks.temporary_gate import new_folder, temporary_folder
from lapwing.core.exact import short
from lapwing.core.losses import Relation
from lapwing.core.noise import uniform_int
from lapwing.survey.respondent import Respondent

RUNS, AT_ONCE = 300, 50
EACH_DAY = Fraction(1)  # the ε of each day's report of the unprotected device
DAYS = (1, 2, 3, 5, 7, 10, 14, 21, 30, 60, 90)
TEXT = "Which of these do you take regularly?"
LABELS = ("nothing", "tobacco", "sleeping pills", "opioids")


def longitudinal(settings: AttackSettings) -> tuple[AttackResult, ...]:
    """Attack devices that answer the same question every day."""
    shown: dict[int, list[SuccessCount]] = {day: [] for day in DAYS}
    safe: dict[int, list[SuccessCount]] = {day: [] for day in DAYS}
    different = 0
    with temporary_folder() as folder:
        anew = OneQuestion.written(folder, "new report", TEXT, LABELS, EACH_DAY)
        once = OneQuestion.written(folder, "stored report", TEXT, LABELS, settings.epsilon)
        offered = once.public
        for people in settings.batches(RUNS, AT_ONCE):
            truth, home = uniform_int(0, len(LABELS), people), new_folder(folder)
            devices = [
                Respondent(home / f"{person}", lifetime=settings.epsilon) for person in range(people)
            ]
            scores, known = np.zeros((2, people, len(LABELS)))
            received: list[set[bytes]] = [set() for _ in range(people)]
            for day in range(1, DAYS[-1] + 1):
                scores += anew.log_odds(anew.reports(truth))
                for person, device in enumerate(devices):
                    report = device.answer(offered, once.answer(int(truth[person])))
                    if report not in received[person]:  # the same bytes again have no new information
                        received[person].add(report)
                        known[person] += once.log_odds(np.frombuffer(report, dtype=np.uint8)[None, :])[0]
                if day in DAYS:
                    shown[day].append(scored(scores, truth))
                    safe[day].append(scored(known, truth))
            different = max(different, *map(len, received))
    over_time = tuple(SuccessAfter(day, total(shown[day]), total(safe[day])) for day in DAYS)
    return (
        AttackResult(
            "longitudinal",
            "the same question every day",
            knows="The attacker gets all reports of a device, and knows that they come from one person.",
            guesses=f"What the person takes, one of {len(LABELS)} answers that are equally likely.",
            without=f"a new report, ε {short(float(EACH_DAY))} a day",
            through="one stored report, every day",
            unprotected=over_time[-1].unprotected,
            protected=over_time[-1].protected,
            epsilon=settings.epsilon,
            chance=Fraction(1, len(LABELS)),
            limit=value_limit(settings.epsilon, len(LABELS), Relation.REPLACE),
            formula=f"e^ε / (e^ε + k - 1) for k = {len(LABELS)} answers: to replace one is one step",
            over_time=over_time,
            steps="days",
            notes=(f"In {DAYS[-1]} days a device of Lapwing sent {different} different report"
                   f"{'s' * (different != 1)}, and was charged once.",),
            broken="" if different == 1 else f"a device sent {different} different reports to one survey",
        ),
    )  # fmt: skip
