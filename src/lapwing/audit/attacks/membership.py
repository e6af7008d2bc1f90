"""Membership: was this person in the data of a model or of a synthetic table?

The attacker knows all other rows, and the row of the person. Without protection that is enough: a model, or
a synthetic table with exact counts, fits only one of the two possible data sets.

Claim    each guess against Lapwing is right with probability at most `membership_limit`, independently.
Because  each person has data, an account and a release of their own, and the release fits the account's
         (ε, δ).
Test     tests/audit/attacks/test_membership.py
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lapwing.audit.attacks.attack_result import AttackResult, AttackSettings, SuccessCount
from lapwing.audit.attacks.limits import membership_limit
from lapwing.audit.attacks.temporary_gate import ATTACKER, new_folder, temporary_folder, write_world
from lapwing.core.exact import short
from lapwing.core.losses import Relation
from lapwing.core.noise import bernoulli, permutation, uniform_int
from lapwing.ledger import Gate, Ledger, Target, Unit

MODEL_RUNS, TABLE_RUNS = 200, 100
DELTA = Fraction(1, 10**6)
HALF = Fraction(1, 2)
STEPS = 100  # numbers are multiples of 1 / STEPS


def membership(settings: AttackSettings) -> tuple[AttackResult, ...]:
    """Attack a regression model, then a synthetic table."""
    models, tables = settings.runs or MODEL_RUNS, settings.runs or TABLE_RUNS
    weight = 8  # a table takes about as long as this many models
    work = models + weight * tables
    with temporary_folder() as folder:
        model = _attack_models(
            AttackSettings(settings.epsilon, models, lambda done, _: settings.progress(done, work)), folder
        )
    with temporary_folder() as folder:
        table = _attack_tables(
            AttackSettings(
                settings.epsilon, tables, lambda done, _: settings.progress(models + weight * done, work)
            ),
            folder,
        )
    return model, table


def _result(
    settings: AttackSettings, title: str, shown: int, safe: int, trials: int, **words: Any
) -> AttackResult:
    return AttackResult(
        "membership",
        title,
        unprotected=SuccessCount(shown, trials),
        protected=SuccessCount(safe, trials),
        epsilon=settings.epsilon,
        delta=DELTA,
        chance=HALF,
        limit=membership_limit(settings.epsilon, DELTA),
        formula=f"(e^ε + δ) / (1 + e^ε) with δ {short(float(DELTA))}",
        **words,
    )


# A model

OTHERS = 20
ROW = (1.0, -1.0)  # the person's row: an unusual one


def _attack_models(settings: AttackSettings, folder: Path) -> AttackResult:
    shown, safe, trials = 0, 0, 0
    with Ledger.create(folder / "models.ledger") as ledger:
        for people in settings.batches(MODEL_RUNS, 1):
            others = _line(OTHERS)
            is_in = bool(bernoulli(HALF, 1)[0])
            rows = np.vstack([others, ROW]) if is_in else others
            worlds = (_least_squares(others), _least_squares(np.vstack([others, ROW])))
            shown += _closer(_least_squares(rows), worlds) == is_in
            trained = _trained(ledger, f"data {trials}", settings.epsilon, rows)
            safe += _closer(trained, worlds) == is_in
            trials += people
    return _result(
        settings, "a regression model", shown, safe, trials,
        knows=f"The attacker knows the rows of the {OTHERS} other people and of the person, and sees the "
        "model.",
        guesses="Whether the model was trained with the person.",
        without="ordinary least squares",
        through="private regression, for all of ε",
    )  # fmt: skip


def _line(count: int) -> NDArray[np.float64]:
    """Draw rows (x, y) near the line y = x / 2, with both numbers within -1 to 1."""
    xs = uniform_int(-STEPS, STEPS + 1, count) / STEPS
    return np.column_stack([xs, xs / 2 + uniform_int(-STEPS, STEPS + 1, count) / (4 * STEPS)])


def _least_squares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return slope and intercept of the exact fit."""
    left = np.column_stack([rows[:, 0], np.ones(len(rows))])
    return np.asarray(np.linalg.lstsq(left, rows[:, 1], rcond=None)[0])


def _closer(model: NDArray[np.float64], worlds: tuple[NDArray[np.float64], NDArray[np.float64]]) -> bool:
    """Return whether a model is closer to the fit with the person than to the one without."""
    without, with_person = (float(np.linalg.norm(model - world)) for world in worlds)
    return with_person < without


def _trained(
    ledger: Ledger, account: str, epsilon: Fraction, rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Open an account for a data set, train with all of its budget, and return slope and intercept."""
    from lapwing.learn.payer import EACH_ROW, LedgerPayer  # noqa: PLC0415 (an extra, and slow to load)
    from lapwing.learn.trainers import LinearRegression, Real  # noqa: PLC0415

    unit, relation = Unit.PERSON, Relation.ADD_REMOVE
    ledger.open_account(account, epsilon=epsilon, delta=DELTA, unit=unit, relation=relation)
    payer = LedgerPayer(
        Gate(ledger, principal=ATTACKER), targets=(Target(account),), unit=unit, relation=relation,
        request=account.encode(),
    )  # fmt: skip
    trainer = LinearRegression(
        epsilon=epsilon, delta=DELTA / 100, columns=[Real(-1, 1)], target=Real(-1, 1), payer=payer
    )
    trainer.fit(rows[:, :1], rows[:, 1], units=EACH_ROW)
    return np.array([trainer.weights_[0], trainer.intercept_])


# A table

RESIDENTS, VILLAGES = 40, 6
THEIRS = 0  # the village in which the person would live alone
RELEASE = """
[release]
name = "residents"
policy = "residents.toml"
rows = "SELECT village, sex FROM residents"
method = "independent"
check = 0
epsilon = {epsilon}
delta = {delta}
"""


def _attack_tables(settings: AttackSettings, folder: Path) -> AttackResult:
    shown, safe, trials = 0, 0, 0
    for people in settings.batches(TABLE_RUNS, 1):
        is_in = bool(bernoulli(HALF, 1)[0])
        villages = [*uniform_int(1, VILLAGES, RESIDENTS).tolist(), *([THEIRS] if is_in else [])]
        sexes = uniform_int(0, 2, len(villages)).tolist()
        shuffled = [villages[place] for place in permutation(len(villages))]
        shown += (THEIRS in shuffled) == is_in
        rows = _published(folder, settings.epsilon, villages, sexes)
        safe += (rows.count(THEIRS) > 0) == is_in
        trials += people
    return _result(
        settings, "a synthetic table", shown, safe, trials,
        knows="The attacker knows that nobody else would have the person's village, and sees the "
        "synthetic table.",
        guesses="Whether the person was in the original table.",
        without="columns shuffled one by one",
        through="lapwing publish, for all of ε",
    )  # fmt: skip


def _published(folder: Path, epsilon: Fraction, villages: list[int], sexes: list[int]) -> list[int]:
    """Publish a synthetic table through the ledger, and return its villages."""
    from lapwing.publish import Publication  # noqa: PLC0415 (slow to load)

    table = {"person": list(range(len(villages))), "village": villages, "sex": sexes}
    columns = {"village": f"values = {list(range(VILLAGES))}", "sex": "values = [0, 1]"}
    policy = write_world(folder, "residents", table, columns, epsilon=epsilon, delta=DELTA)
    release = policy.with_name("release.toml")
    release.write_text(RELEASE.format(epsilon=float(epsilon), delta=float(DELTA)))
    bundle = new_folder(folder) / "bundle"
    with Publication.open(release, analyst=ATTACKER) as publication:
        publication.dataset.curator.notify = lambda _: None
        publication.run(bundle, everything=True)
    published: list[int] = pq.read_table(bundle / "rows.parquet")["village"].to_pylist()
    return published
