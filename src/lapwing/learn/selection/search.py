"""A search for good parameters, in the manner of scikit-learn, that runs and pays.

Claim    what `fit` gives is private at the one loss that it charges, before a row is read.
Because  trainers inside it ask a `Prepaid` purse; the winner alone is stored under the charge, and what is
         fitted afterwards is read from there.
Test     tests/learn/selection/test_search.py
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, BadValue, MissingExtra
from lapwing.learn.cells import array_of, units_of
from lapwing.learn.purse import NoPurse, PublicData, Purse, Stored
from lapwing.learn.selection.prepaid import Prepaid
from lapwing.learn.selection.score import Score
from lapwing.learn.selection.ways import Found, RandomRuns, Tried, Way
from lapwing.learn.trainers.columns import table_of, target_of
from lapwing.noise import permutation
from lapwing.privacy import Loss, Relation

try:
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover (an extra)
    raise MissingExtra("learn", "Searching for parameters") from None

Table = NDArray[Any]
_PURSE = "purse"


class Search(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """The best of `candidates` (parameters of `estimator`), found by `way` and paid from `purse`.

    The estimator is a trainer with a `purse`, `price(n_features)` and `predict`. Its own purse is not used.
    After `fit`: `best_params_`, `best_estimator_`, `receipt_`, and `noisy_score_` where there is one. With
    Poisson runs there may have been none: then `best_estimator_` is None.
    """

    best_estimator_: Any
    best_params_: Any

    def __init__(
        self,
        estimator: Any,
        candidates: Sequence[Mapping[str, Any]],
        *,
        way: Way,
        score_by: Score,
        purse: Purse,
    ) -> None:
        self.estimator, self.candidates = estimator, candidates
        self.way, self.score_by, self.purse = way, score_by, purse

    def price(self, n_features: int) -> Loss:
        """What `fit` would cost for a table of so many columns. Looking is free."""
        self._check()
        return self.way.price(self._losses(n_features), self.score_by)

    def fit(self, X: Any, y: Any, units: Any = None, *, tests: Any) -> Self:  # noqa: N803
        """Charge, search, and keep the winner.

        `tests` says for each row whether its unit tests, by a rule that is fixed for ever (`split_of`). A
        unit with rows on both sides counts as a testing one, and its other rows are left out.
        """
        self._check()
        table = table_of(X)
        target = target_of(y, len(table))
        whose, testing = _sides(self.purse.whose(units), tests, len(table))
        losses = self._losses(table.shape[1])
        paid = self.purse.pay(
            self.way.price(losses, self.score_by),
            lambda: _stored(self._find(losses, table, target, whose, testing)),
            mechanism="private selection",
            parameters=self._settings(table.shape[1]),
        )
        self._load(paid.result, table, target)
        self.receipt_ = paid.receipt
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """By the best model."""
        if getattr(self, "best_estimator_", None) is None:
            raise BadParameter("search", "has found no model: it was not fitted, or there was no run")
        return self.best_estimator_.predict(X)

    def _find(
        self, losses: Sequence[Loss], table: Table, target: Table, whose: Table, testing: Table
    ) -> Found | None:
        # A unit's side is its own matter; so is which of its rows tests.
        tests = np.isin(whose, whose[testing])
        order = permutation(len(whose))
        order = order[tests[order]]
        order = order[np.unique(whose[order], return_index=True)[1]]
        rows, truth = table[order], target[order]
        trains = ~tests

        def attempt(candidate: int) -> Tried:
            purse = Prepaid(losses[candidate])
            model = self._made(candidate, purse)
            model.fit(table[trains], target[trains], units=whose[trains])
            return Tried(candidate, purse.result, self.score_by.total(model, rows, truth))

        return self.way.find(losses, self.score_by, attempt)

    def _made(self, candidate: int, purse: Purse) -> Any:
        return clone(self.estimator).set_params(**dict(self.candidates[candidate]), purse=purse)

    def _losses(self, n_features: int) -> list[Loss]:
        found: list[Loss] = [
            self._made(k, self.purse).price(n_features) for k in range(len(self.candidates))
        ]
        return found

    def _load(self, stored: bytes, table: Table, target: Table) -> None:
        record = json.loads(stored)
        self.best_index_ = record["candidate"]
        self.best_params_, self.best_estimator_ = None, None
        self.noisy_score_ = record["noisy score"]
        if self.best_index_ is None:
            return
        self.best_params_ = dict(self.candidates[self.best_index_])
        model = self._made(self.best_index_, Stored(base64.b64decode(record["model"])))
        # Nothing is trained: the purse gives the stored model, and the table only its form.
        model.fit(table[:0], target[:0], units=np.zeros(0, dtype=np.int64))
        self.best_estimator_ = model.set_params(purse=self.estimator.get_params(deep=False)[_PURSE])

    def _settings(self, n_features: int) -> dict[str, str | int]:
        """Public parameters, for the receipt."""
        own = self.estimator.get_params(deep=False)
        text = repr(
            [
                type(self.estimator).__qualname__,
                sorted((name, repr(value)) for name, value in own.items() if name != _PURSE),
                [sorted((name, repr(value)) for name, value in one.items()) for one in self.candidates],
                repr(self.way),
                self.score_by.most,
            ]
        )
        return {
            "way": type(self.way).__name__,
            "candidates": len(self.candidates),
            "columns": n_features,
            "settings": hashlib.sha256(text.encode()).hexdigest(),
        }

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if not isinstance(state.get(_PURSE), PublicData):
            state[_PURSE] = NoPurse()
        return state

    def _check(self) -> None:
        if not isinstance(self.purse, Purse) or self.purse.relation is not Relation.ADD_REMOVE:
            raise BadParameter("purse", "must be a Purse of accounts where neighbours add or remove a unit")
        if not isinstance(self.way, Way) or not isinstance(self.score_by, Score):
            raise BadParameter("way", "must be EveryCandidate or RandomRuns, and score_by a Score")
        told = isinstance(self.way, RandomRuns) and not self.way.padded
        if told and not isinstance(self.purse, PublicData):
            raise BadParameter("way", "must be padded: a ledger keeps when a search began and ended")
        if not self.candidates or any(_PURSE in one for one in self.candidates):
            raise BadParameter("candidates", "must be one or more sets of parameters, none with a purse")


def _sides(units: Any, tests: Any, rows: int) -> tuple[Table, Table]:
    """Whose row each is, and whether it tests. Only forms are looked at."""
    whose, testing = units_of(units, rows), array_of(tests)
    if testing is None or testing.shape != (rows,) or testing.dtype != np.bool_:
        raise BadValue("tests must be an array that says True or False for each row")
    return np.arange(rows) if whose is None else whose, testing


def _stored(found: Found | None) -> bytes:
    record: dict[str, Any] = {"candidate": None, "model": None, "noisy score": None}
    if found is not None:
        model = base64.b64encode(found.model).decode()
        record = {"candidate": found.candidate, "model": model, "noisy score": found.noisy_score}
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
