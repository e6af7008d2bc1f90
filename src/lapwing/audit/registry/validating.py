"""The cases of validators: what reaches each noise moves within the declared L1 distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.audit.case import AuditCase, Family, Stage
from lapwing.audit.stages.replay import replay_stage
from lapwing.audit.training_runs import AddedUnit, Fit, LabelledRows, composed_as, neighbour_pairs
from lapwing.canonical_json import canonical_json
from lapwing.learn.payer import Payer
from lapwing.learn.validators import (
    AccuracyValidator,
    BestInClass,
    ClassLosses,
    HistogramValidator,
    LossValidator,
    MeanValidator,
    ValidationRows,
    Validator,
)

EPSILON = Fraction(1)
ETA = Fraction(1, 20)
_VALIDATORS = "lapwing.learn.validators"


def validating_fit(validator: Validator) -> Fit:
    """Return how a validator reads made-up rows: the first cell, and the others as losses of a class."""

    def fit(rows: LabelledRows, payer: Payer) -> None:
        units = np.array(rows.units, dtype=np.int64)
        models = 0
        if isinstance(validator, LossValidator) and validator.best is not None:
            models = validator.best.models
        losses = [[row[k + 1] for row in rows.rows] for k in range(models)]
        of_class = ClassLosses(losses, units=units) if models else None

        def work() -> bytes:
            released = validator.release(
                ValidationRows([row[0] for row in rows.rows], units=units, of_class=of_class)
            )
            judged = asdict(validator.judge(released, attempt=1))
            judged["verdict"] = judged["verdict"].value
            return released.to_bytes() + canonical_json(judged, spaces=True).encode()

        payer.pay(validator.loss, work, mechanism=validator.mechanism, parameters=validator.parameters)

    return fit


def validator_case(
    name: str, validator: Validator, covers: Sequence[str], values: Sequence[Any], odd: Sequence[Any]
) -> AuditCase:
    """Return the case of a validator.

    Args:
        name: The name of the case.
        validator: The validator.
        covers: The names of what it is about.
        values: Ordinary values of rows.
        odd: Values at the ends, beyond them, missing and of other types.
    """
    base = LabelledRows([_cells(values[k % len(values)]) for k in range(9)], [None] * 9)
    both = [*values, *odd]
    added: list[AddedUnit] = [
        (f"a unit of {len(both)} rows", [_cells(value) for value in both], [None] * len(both)),
        *(
            (f"a unit of 40 rows of {value!r}", [_cells(value)] * 40, [None] * 40)
            for value in (values[0], odd[0])
        ),
        *((f"a unit of one row, {value!r}", [_cells(value)], [None]) for value in both),
    ]
    fit = validating_fit(validator)
    pairs = neighbour_pairs(fit, base, added)
    stage = replay_stage(pairs, validator.loss, epsilon=EPSILON, compose=composed_as(validator.loss))
    return AuditCase(name, Family.VALIDATOR, tuple(covers), EPSILON, Fraction(0), {Stage.REPLAY: stage})


def _cells(value: Any) -> list[Any]:
    """Return a row: the value, and the losses of three models of a class."""
    others: list[Callable[[Any], Any]] = [
        lambda number: number,
        lambda number: number * 0.5,
        lambda number: 1 - number,
    ]
    is_number = isinstance(value, int | float)
    return [value, *(other(value) if is_number else value for other in others)]


def validator_cases() -> tuple[AuditCase, ...]:
    """Return a case for each validator."""
    common: dict[str, Any] = {"eta": ETA, "epsilon": EPSILON}
    tenth, most = Fraction(1, 10), Fraction(1, 2)
    losses: dict[str, Any] = {"target": most, "bound": Fraction(1), "step": Fraction(1, 100)}
    half = Fraction(1, 2)
    best = BestInClass(models=3, epsilon=half)
    reals, odd_reals = (
        (0.25, 0.5, 0.77),
        (1.0, 0.0, -1.0, 1e30, math.inf, -math.inf, math.nan, None, "?", [1]),
    )
    return (
        validator_case(
            "accuracy", AccuracyValidator(target=most, **common), (f"{_VALIDATORS}.AccuracyValidator",),
            (True, False), (None, math.nan, 1.0, 2, "True", [True]),
        ),
        validator_case(
            "loss", LossValidator(**losses, **common), (f"{_VALIDATORS}.LossValidator",), reals, odd_reals
        ),
        validator_case(
            "loss, and the best of a class",
            LossValidator(**losses, eta=ETA, epsilon=half, best=best),
            (f"{_VALIDATORS}.LossValidator", f"{_VALIDATORS}.BestInClass"), reals, odd_reals,
        ),
        validator_case(
            "mean",
            MeanValidator(target=tenth, low=Fraction(-1), high=Fraction(1), step=Fraction(1, 50), **common),
            (f"{_VALIDATORS}.MeanValidator",), reals, odd_reals,
        ),
        validator_case(
            "histogram", HistogramValidator(target=tenth, bins=4, **common),
            (f"{_VALIDATORS}.HistogramValidator",), (0, 1, 3), (4, -1, 10**30, None, 1.5, math.nan, [0]),
        ),
    )  # fmt: skip
