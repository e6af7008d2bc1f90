"""The cases of learning: every trainer, validator and selection, on neighbours that add one unit.

Nothing here imports scikit-learn or torch until a stage runs. Without the extra `learn`, a stage says that
it could not run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, RunStage, Stage
from lapwing.audit.registry.pipelines import pipeline_cases
from lapwing.audit.registry.preliminary import column_search_cases
from lapwing.audit.registry.searching import selection_cases
from lapwing.audit.registry.step_laws import regression_samples, step_stage
from lapwing.audit.registry.validating import validator_cases
from lapwing.audit.stages.canaries import Included, Train, canary_stage
from lapwing.audit.stages.replay import replay_stage
from lapwing.audit.training_runs import (
    Fit,
    LabelledRows,
    charged_loss,
    composed_as,
    neighbour_pairs,
    odd_units,
    participation_stage,
    with_extra,
)
from lapwing.learn.payer import Payer, PublicData
from lapwing.sql.policy.kinds import Choice, Kind, Numeric
from lapwing.sql.row_questions import CodedColumn, PrivateRows

if TYPE_CHECKING:
    from torch import Tensor

    from lapwing.learn.trainers import Column

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
CANARIES, GUESSES, CANARY_DELTA = 1000, 300, Fraction(1, 10**10)
_PLAIN = Fraction(20)  # noise through which rows without a class show
_WIDTH = 4
_TRAINERS = "lapwing.learn.trainers"
_ODD_CELLS = [["?", None, [1], object()]]
BASE = LabelledRows(
    [[((7 * k + 3 * column) % 11) / 5 - 1 for column in range(_WIDTH)] for k in range(12)],
    [k % 3 for k in range(12)],
)
ADDED = [
    *odd_units(_WIDTH, -1, 1, classes=(0, 1), rare=2),
    ("a unit of cells that are no numbers, and no class", _ODD_CELLS, ["?"]),
]


def trainer_case(
    name: str,
    covers: Sequence[str],
    fit: Callable[[], Fit],
    *,
    base: LabelledRows = BASE,
    added: Sequence[Any] = ADDED,
    epsilon: Fraction = EPSILON,
    delta: Fraction = DELTA,
    quick: int | None = None,
    canaries: Callable[[], RunStage] | None = None,
    sampled: Callable[[], RunStage] | None = None,
) -> AuditCase:
    """Return the case of a trainer: replay on neighbours, and laws of steps and canaries if there are any.

    Args:
        name: The name of the case.
        covers: The names of what it is about.
        fit: Imports what is needed, and returns a function that trains on rows and pays with a payer.
        base: The rows of the units that both neighbours have.
        added: The units of which one neighbour has one more.
        epsilon: The claimed ε.
        delta: The claimed δ.
        quick: The number of units that a quick replay tries; None for all.
        canaries: Makes the stage of canaries; None for none.
        sampled: Makes the stage that compares the laws of steps; None for none.
    """

    def replay() -> RunStage:
        trained = fit()
        charged = charged_loss(trained, base)
        pairs = neighbour_pairs(trained, base, added, quick=quick)
        compose = composed_as(charged)
        stage = replay_stage(pairs, charged, epsilon=epsilon, delta=delta, compose=compose)
        return participation_stage(stage, trained, base, added[0], charged)

    stages = {Stage.REPLAY: with_extra(Stage.REPLAY, float(epsilon), replay)}
    if sampled is not None:
        stages[Stage.SAMPLED] = with_extra(Stage.SAMPLED, float(epsilon), sampled)
    if canaries is not None:
        stages[Stage.CANARIES] = with_extra(Stage.CANARIES, float(epsilon), canaries)
    return AuditCase(name, Family.TRAINER, tuple(covers), epsilon, delta, stages)


def sklearn_fit(make: Callable[[Payer], Any]) -> Fit:
    """Return how a trainer in the manner of scikit-learn trains on made-up rows, cell by cell."""

    def fit(rows: LabelledRows, payer: Payer) -> Any:
        table: Any = rows.rows or np.zeros((0, _WIDTH))
        model = make(payer)
        model.fit(table, rows.target, units=np.array(rows.units, dtype=np.int64))
        return vars(model)

    return fit


def _real_columns() -> tuple[Column, ...]:
    from lapwing.learn.trainers import Binned, Category, Real  # noqa: PLC0415 (an extra)

    return Real(-1, 1), Real(-1, 1), Category([-1, 0, 1]), Binned([-0.5, 0.5])


def _coded_columns() -> tuple[Column, ...]:
    from lapwing.learn.trainers import Binned, Category  # noqa: PLC0415 (an extra)

    return Binned([-0.5, 0, 0.5]), Binned([-0.2, 0.5]), Category([-1, 0, 1]), Binned([0.5])


def _trainer(name: str, columns: Callable[[], tuple[Column, ...]], **settings: Any) -> Callable[[], Fit]:
    """Return the maker of a trainer's fit, from the name of the trainer and its settings."""

    def make() -> Fit:
        from lapwing.learn import trainers  # noqa: PLC0415 (an extra)

        known = {"epsilon": EPSILON, "delta": DELTA, "columns": columns(), **settings}
        if "target" in known:
            known["target"] = trainers.Real(*known["target"])
        return sklearn_fit(lambda payer: getattr(trainers, name)(**known, payer=payer))

    return make


def data_set_fit() -> Fit:
    """Return how a trainer learns from the rows of a question, which a data set reads after the charge."""
    from lapwing.learn.trainers import LogisticRegression  # noqa: PLC0415 (an extra)

    number = Numeric(Fraction(1, 5), -5, 5)
    kinds: dict[str, Kind] = {**{f"x{at}": number for at in range(_WIDTH)}, "label": Choice((0, 1))}

    def fit(rows: LabelledRows, payer: Payer) -> Any:
        model = LogisticRegression(size=9, steps=4)
        planned = model.plan_fit(kinds, label="label", epsilon=EPSILON, delta=DELTA)
        private = _coded_rows(rows, kinds)
        paid = payer.pay(
            planned.loss, lambda: planned.train(private), mechanism=planned.mechanism,
            parameters=planned.parameters,
        )  # fmt: skip
        planned.finish(paid.result, paid.receipt)
        return vars(model)

    return fit


def _coded_rows(rows: LabelledRows, kinds: Mapping[str, Kind]) -> PrivateRows:
    """Return made-up rows as a question reads them. Cells that no engine would give count as NULL."""
    cells = [[*row, truth] for row, truth in zip(rows.rows, rows.target, strict=True)]
    columns = {
        name: CodedColumn(*_codes([row[at] for row in cells], kind))
        for at, (name, kind) in enumerate(kinds.items())
    }
    units = np.array(rows.units, dtype=np.int64)
    return PrivateRows(units, 0 * units, columns)


def _codes(cells: Sequence[Any], kind: Kind) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    steps = 5 if isinstance(kind, Numeric) else 1
    numbers = np.array([float(cell) if isinstance(cell, int | float) else math.nan for cell in cells])
    known = ~np.isnan(numbers)
    codes = np.clip(np.rint(np.where(known, numbers, 0) * steps), -(1 << 40), 1 << 40).astype(np.int64)
    return codes, known


def _canary_stage(train: Callable[[], Train]) -> Callable[[], RunStage]:
    """Return the maker of a stage in which each canary is a unit of its own."""

    def make() -> RunStage:
        return canary_stage(
            train(), canaries=CANARIES, guesses=GUESSES, claimed=EPSILON, delta=CANARY_DELTA
        )

    return make


def _bayes_canaries() -> Train:
    """Return a training of naive Bayes in which each canary has a value of its own."""
    from lapwing.learn.trainers import Category, NaiveBayes  # noqa: PLC0415 (an extra)

    def train(included: Included) -> NDArray[np.float64]:
        model = NaiveBayes(
            epsilon=EPSILON,
            delta=CANARY_DELTA,
            columns=Category(range(len(included))),
            classes=(0, 1),
            payer=PublicData(),
        )
        rows = np.arange(len(included))
        model.fit(rows[included, None], np.ones(int(included.sum()), dtype=np.int64))
        return np.asarray(model.predict_proba(rows[:, None])[:, 1], dtype=np.float64)

    return train


# DP-SGD


def private_trainer_fit(trainer: type[Any] | None = None, **settings: Any) -> Fit:
    """Return how a private trainer of a small network trains on made-up rows.

    Args:
        trainer: The class of the trainer; None for `PrivateTrainer`.
        **settings: Settings of the trainer that replace the usual ones.
    """
    from lapwing.learn import PrivateTrainer  # noqa: I001, PLC0415 (it says if torch is missing)
    import torch  # noqa: PLC0415 (an extra)
    from torch import nn  # noqa: PLC0415 (an extra)

    made = PrivateTrainer if trainer is None else trainer
    usual: dict[str, Any] = {
        "epsilon": EPSILON, "delta": DELTA, "clip": 1, "rate": "1/2", "expected_batch": 6, "steps": 4,
        "learning_rate": 0.5, "page": 16,
    }  # fmt: skip

    def module() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            return nn.Sequential(nn.Linear(_WIDTH, 3), nn.Tanh(), nn.Linear(3, 1))

    def fit(rows: LabelledRows, payer: Payer) -> Any:
        x = np.array(rows.rows, dtype=np.float32).reshape(len(rows.rows), _WIDTH)
        y = np.array(rows.target, dtype=np.float32)
        units = np.array(rows.units, dtype=np.int64)
        trained = made(module(), _scaled_loss, **{**usual, **settings}, payer=payer)
        trained.fit(x, y, units)
        return vars(trained)

    return fit


def _scaled_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return large losses, so that every gradient is longer than the clip."""
    return 100 * (outputs[:, 0] - targets).square()


def network_canaries(trainer: type[Any] | None = None, *, epsilon: Fraction = EPSILON) -> Train:
    """Return a training of one weight per canary: what is added to it tells whether that canary was there.

    Canaries are a hundred times longer than the clip, which a trainer must not let through.
    """
    from lapwing.learn import PrivateTrainer  # noqa: I001, PLC0415 (it says if torch is missing)
    from torch import nn  # noqa: PLC0415 (an extra)

    made = PrivateTrainer if trainer is None else trainer

    def train(included: Included) -> NDArray[np.float64]:
        count = len(included)
        module = nn.Linear(count, 1, bias=False)
        nn.init.zeros_(module.weight)
        rows = 100 * np.eye(count, dtype=np.float32)[included]
        made(
            module, _rewards, epsilon=epsilon, delta=CANARY_DELTA, clip=1, rate=1, steps=4, page=32,
            expected_batch=count // 2, payer=PublicData(), learning_rate=1.0,
        ).fit(rows, np.zeros(len(rows), dtype=np.float32))  # fmt: skip
        return module.weight.detach().numpy().reshape(-1).astype(np.float64)

    return train


def _rewards(outputs: Tensor, targets: Tensor) -> Tensor:
    return -outputs.reshape(-1) - targets


NETWORK_BASE = LabelledRows(BASE.rows, [k % 3 for k in range(12)])
NETWORK_ADDED = odd_units(_WIDTH, -1, 1, classes=(0, 1), rare=2)


def trainer_cases() -> tuple[AuditCase, ...]:
    """Return a case for each trainer."""
    real, coded = _real_columns, _coded_columns

    def of(name: str, words: str, columns: Any, **settings: Any) -> AuditCase:
        return trainer_case(words, (f"{_TRAINERS}.{name}",), _trainer(name, columns, **settings))

    network = "lapwing.learn.PrivateTrainer"
    return (
        of("LinearRegression", "linear regression", real, target=(0, 2)),
        of("LinearRegression", "linear regression, rows shortened", real, target=(0, 2), radius=0.7),
        of("PCA", "principal components", real, n_components=2),
        of("KMeans", "k-means", real, n_clusters=3, rounds=3),
        of("LogisticRegression", "logistic regression", real, classes=(0, 1), size=9, steps=4),
        of("LogisticRegression", "logistic regression, three classes", real, classes=(0, 1, 2), size=9,
           steps=3, pace=40.0),
        of("AdditiveTrees", "additive trees", coded, classes=(0, 1), passes=2),
        of("AdditiveTrees", "additive trees, three classes", coded, classes=(0, 1, 2), passes=1),
        trainer_case(
            "naive Bayes", (f"{_TRAINERS}.NaiveBayes",), _trainer("NaiveBayes", coded, classes=(0, 1, 2)),
            canaries=_canary_stage(_bayes_canaries),
        ),
        trainer_case(
            "naive Bayes, classes that rows do not have",
            (f"{_TRAINERS}.NaiveBayes", "lapwing.errors.ClassNotSeen"),
            _trainer("NaiveBayes", coded, classes=("a", 0), epsilon=_PLAIN, class_check="0.9"),
            epsilon=_PLAIN,
        ),
        trainer_case(
            "logistic regression on the rows of a question",
            (f"{_TRAINERS}.LogisticRegression", "lapwing.sql.dataset.Dataset.fit"), data_set_fit, quick=4,
        ),
        trainer_case(
            "DP-SGD", (network,), private_trainer_fit, base=NETWORK_BASE, added=NETWORK_ADDED, quick=4,
            canaries=_canary_stage(network_canaries), sampled=step_stage,
        ),
        trainer_case(
            "DP-SGD, two rows of a unit", (network,),
            lambda: private_trainer_fit(unit_rows=2, steps=2, rate=1), base=NETWORK_BASE,
            added=NETWORK_ADDED, quick=2,
        ),
        trainer_case(
            "logistic regression on samples", (f"{_TRAINERS}.LogisticRegression",),
            _trainer("LogisticRegression", real, classes=(0, 1), size=9, steps=4, rate="1/2"), quick=4,
            sampled=lambda: regression_samples,
        ),
    )  # fmt: skip


def learning_cases() -> tuple[AuditCase, ...]:
    """Return the cases of all trainers, validators and selections."""
    return (
        *trainer_cases(),
        *validator_cases(),
        *selection_cases(),
        *pipeline_cases(),
        *column_search_cases(),
    )
