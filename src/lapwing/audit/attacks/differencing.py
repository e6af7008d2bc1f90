"""Differencing: two questions about many people, which differ by one person.

"How many patients has the office?" and "how many of them are not its head?": the difference shows whether
the head is a patient.

Claim    each guess against Lapwing is right with probability at most `membership_limit`, independently.
Because  both answers together cost the lifetime ε of every person, and a third is refused. Offices have
         separate noise, and a guess is made from the answers about one office.
Test     tests/audit/attacks/test_differencing.py
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lapwing.audit.attacks.attack_result import AttackResult, AttackSettings, SuccessCount, total
from lapwing.audit.attacks.limits import membership_limit
from lapwing.audit.attacks.offices import BY_OFFICE, BY_OFFICE_WITHOUT_HEADS, Offices, by_office, guess_from
from lapwing.audit.attacks.temporary_gate import opened, part_of, temporary_folder
from lapwing.errors import OverBudget
from lapwing.sql.dataset import Dataset

RUNS, AT_ONCE = 400, 50


def differencing(settings: AttackSettings) -> tuple[AttackResult, ...]:
    """Attack the heads of offices with two questions."""
    shown: list[SuccessCount] = []
    safe: list[SuccessCount] = []
    thirds: list[OverBudget | None] = []  # the refusal of the third question, in each batch
    price = part_of(settings.epsilon, 2)
    with temporary_folder() as folder:
        for targets in settings.batches(RUNS, AT_ONCE):
            world = Offices.drawn(targets)
            shown.append(world.score((world.counts - world.staff).astype(np.bool_)))
            with opened(world.write(folder, settings.epsilon)) as patients:
                with_heads, without = (
                    by_office(patients.ask(question, epsilon=price))
                    for question in (BY_OFFICE, BY_OFFICE_WITHOUT_HEADS)
                )
                thirds.append(_third(patients, price))
            safe.append(world.score(guess_from(with_heads - without)))
    return (
        AttackResult(
            "differencing",
            "two counts that differ by one person",
            knows="The attacker may ask for counts, and knows that an office has one head.",
            guesses="Whether the head of the office is a patient of the counselling service.",
            without="two exact counts",
            through="two answers, each for half of ε",
            unprotected=total(shown),
            protected=total(safe),
            epsilon=settings.epsilon,
            chance=Fraction(1, 2),
            limit=membership_limit(settings.epsilon),
            formula="e^ε / (1 + e^ε)",
            notes=(f"A third question was refused: {thirds[0]}",) if all(thirds) else (),
            broken="" if all(thirds) else "a third question was answered although the budget was spent",
        ),
    )


def _third(patients: Dataset, price: Fraction) -> OverBudget | None:
    """Ask a third question, and return its refusal. None if it was answered."""
    try:
        patients.ask("SELECT COUNT(*) AS n FROM patients WHERE head", epsilon=price)
    except OverBudget as error:
        return error
    return None
