"""Averaging: the same question many times, until the noise cancels out.

The unprotected release adds Laplace noise to each answer, but has no budget. Lapwing gives the stored
answer to a repeated question. If the attacker pays for new answers, the lifetime budget ends soon.

Claim    each guess against Lapwing is right with probability at most `membership_limit`, independently.
Because  all answers together cost at most the lifetime ε of every person. Offices have separate noise, and
         a guess is made from the answers about one office.
Test     tests/audit/attacks/test_averaging.py
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
from lapwing.audit.attacks.limits import membership_limit
from lapwing.audit.attacks.offices import BY_OFFICE, Offices, by_office, guess_from
from lapwing.audit.attacks.temporary_gate import opened, part_of, temporary_folder
from lapwing.core.exact import short
from lapwing.errors import OverBudget
from lapwing.mechanisms import Laplace

RUNS, AT_ONCE = 400, 50
PARTS = 10  # a question costs this part of the lifetime budget
PRICE_WITHOUT_BUDGET = Fraction(1, 10)  # the ε of each answer that is not charged
QUESTIONS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)
TRIES = PARTS + 3


def averaging(settings: AttackSettings) -> tuple[AttackResult, ...]:
    """Attack the heads of offices by asking one question again and again."""
    price = part_of(settings.epsilon, PARTS)
    answered: list[int] = []  # new answers in each batch
    shown: dict[int, list[SuccessCount]] = {asked: [] for asked in QUESTIONS}
    safe: dict[int, list[SuccessCount]] = {asked: [] for asked in QUESTIONS}
    with temporary_folder() as folder:
        for targets in settings.batches(RUNS, AT_ONCE):
            world = Offices.drawn(targets)
            for asked, mean in _without_budget(world).items():
                shown[asked].append(world.score(guess_from(mean - world.staff)))
            answers = _through_the_gate(world, folder, settings.epsilon, price)
            answered.append(len(answers))
            blind = (world.staff + 0.5).astype(np.float64)
            for asked in QUESTIONS:
                known = answers[min(asked, len(answers)) - 1] if answers else blind
                safe[asked].append(world.score(guess_from(known - world.staff)))
    over_time = tuple(SuccessAfter(asked, total(shown[asked]), total(safe[asked])) for asked in QUESTIONS)
    return (
        AttackResult(
            "averaging",
            "the same question, many times",
            knows="The attacker knows how many of the staff of the office are patients, all but the head.",
            guesses="Whether the head of the office is a patient of the counselling service.",
            without="noise in each answer, no budget",
            through="the budget ends after ten answers",
            unprotected=over_time[-1].unprotected,
            protected=over_time[-1].protected,
            epsilon=settings.epsilon,
            chance=Fraction(1, 2),
            limit=membership_limit(settings.epsilon),
            formula="e^ε / (1 + e^ε)",
            over_time=over_time,
            steps="questions",
            notes=(
                f"Without protection, each answer has noise for ε {short(float(PRICE_WITHOUT_BUDGET))}. "
                "The answers are not charged.",
                f"Lapwing gave {max(answered)} new answers, each for a tenth of ε. Every further one was "
                "refused, and a repeated question got the stored answer.",
            ),
            broken=_broken(answered),
        ),
    )


def _broken(answered: Sequence[int]) -> str:
    """Return the rule that did not hold, given the number of new answers in each batch; else nothing."""
    if max(answered) > PARTS:
        return f"{max(answered)} answers were given at a tenth of ε each"
    return "" if min(answered) else "the gate gave no answer, so nothing was attacked"


def _without_budget(world: Offices) -> dict[int, NDArray[np.float64]]:
    """Return the mean of the first answers, after each number of questions, if none is charged."""
    noise = Laplace.for_epsilon(PRICE_WITHOUT_BUDGET, l1=1)
    received = np.zeros(len(world.counts), dtype=np.int64)
    means, before = {}, 0
    for asked in QUESTIONS:
        times = asked - before
        answers = noise.sample(np.tile(world.counts, times)).reshape(times, -1)
        received, before = received + answers.sum(axis=0), asked
        means[asked] = received / asked
    return means


def _through_the_gate(
    world: Offices, folder: Path, epsilon: Fraction, price: Fraction
) -> list[NDArray[np.float64]]:
    """Return the attacker's estimate after each new answer: the mean of all answers so far.

    The attacker pays for new answers until the budget is used up, then tries a few times more. After each
    answer the same question is asked once more for nothing: the stored reply is the mean of all answers.
    """
    known: list[NDArray[np.float64]] = []
    with opened(world.write(folder, epsilon)) as patients:
        for _ in range(TRIES):
            with suppress(OverBudget):
                patients.ask(BY_OFFICE, epsilon=price, fresh=True)
                known.append(by_office(patients.ask(BY_OFFICE, epsilon=price)))
    return known
