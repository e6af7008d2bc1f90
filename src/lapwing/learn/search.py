"""A search for good parameters, in the manner of scikit-learn, that runs and pays.

Claim    what `fit` gives is private at the one loss that it charges, before a row is read.
Because  trainers inside it ask a `PrepaidPayer` purse; the winner alone is stored under the charge, and what is
         fitted afterwards is read from there.
Test     tests/learn/selection/test_search.py

Private selection: which candidate is best, told at a price that is known beforehand.

How good a model is, as a sum over test units of small whole numbers.

Claim    adding a unit raises every model's score by 0 to `most`, and changes nothing else. So choices that
         only look at differences of scores have sensitivity most / 2.
Because  a unit has one row, drawn from its own; each row is predicted by itself (floats of a batch may
         depend on who else is in it); what a row scores is clipped. Subtract most/2 for each unit from all
         scores: the differences are the same, and a unit now moves each by at most most / 2.
Test     tests/learn/selection/test_score.py

Two ways to find a good candidate: try all of them, or a random number of random ones.

Claim    what `find` gives is private at the loss that `price` gives.
Because  *all*: every training is paid, and so is the choice; trainings see training units, the choice sees
         models and test units, which are others. *Random runs*: a run's output (candidate, model, noisy
         score) is private at the base's loss, and `Repetition` prices the best of them. The order of
         outputs is total and public. docs/arguments/selection.md
Test     tests/learn/selection/test_ways.py

Which mechanism chooses: the one that errs less at equal cost, in the filter that binds the account.

Where pure ε is what runs out, permute-and-flip is never worse than the exponential mechanism. Where a
Rényi order is, the exponential mechanism may have about twice the ε for the same cost, because its
log-ratios span a range of only ε. Everything here is computed from public numbers, and looking is free.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.core.budget import DELTA, DELTA0, EPSILON, EPSILON_UNIT, FIRST_ORDER, Terms
from lapwing.core.exact import Number, positive, set_fields, whole
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import (
    LARGEST_EPSILON,
    BoundedRange,
    Loss,
    ParallelComposition,
    Pure,
    Relation,
    SequentialComposition,
    checked_delta,
    checked_epsilon,
)
from lapwing.core.noise import permutation, uniform_int
from lapwing.core.selection import Exponential, PermuteAndFlip
from lapwing.errors import BadParameter, BadValue, MissingExtra
from lapwing.learn.payer import NoPayer, Payer, PrepaidPayer, PublicData, StoredPayer
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns, Repetition, RunCountLaw
from lapwing.learn.table_input import checked_units, plain_array
from lapwing.learn.trainers.columns import checked_table, checked_target

_ScoredArray = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Score:
    """`of(truth, predicted)` gives a number for one row, 0 (bad) to `most` (good).

    It is rounded down to a whole number. What is not a number counts as 0, and so does a row for which it
    fails: try it on made-up rows first.
    """

    most: int
    of: Callable[[Any, Any], float]

    def __post_init__(self) -> None:
        set_fields(self, most=whole(self.most, "most", at_least=1))
        if not callable(self.of):
            raise BadParameter("of", "must be a function of a truth and a prediction")

    @property
    def sensitivity(self) -> Fraction:
        """How far one unit moves a score, for a choice that looks at differences only."""
        return Fraction(self.most, 2)

    def total(self, model: Any, rows: _ScoredArray, truth: _ScoredArray) -> int:
        """The sum over the rows, one of each unit."""
        return sum(self._of_row(model, rows[k : k + 1], truth[k]) for k in range(len(rows)))

    def _of_row(self, model: Any, row: _ScoredArray, truth: Any) -> int:
        try:
            with np.errstate(all="ignore"):
                worth = float(self.of(truth, model.predict(row)[0]))
        except Exception:  # an error would tell that such a row is there
            return 0
        return int(np.clip(np.nan_to_num(np.floor(worth), nan=0.0), 0, self.most))


def _is_right(truth: Any, predicted: Any) -> float:
    return float(bool(truth == predicted))


CORRECT = Score(1, _is_right)


SelectionMechanism = Exponential | PermuteAndFlip


def binding_filter(terms: Terms, loss: Loss, *, spent: tuple[int, ...] | None = None) -> int:
    """The place, in a charge, of the filter that would admit most releases of this loss.

    An account goes on while one filter holds, so the one that lasts longest decides.
    """
    charge = terms.price(loss)
    sums = terms.nothing_spent if spent is None else spent

    def fits(place: int) -> Fraction:
        left = terms.caps[place] - sums[place]
        return Fraction(left, max(charge.costs[place], 1)) if left >= 0 else Fraction(-1)

    if terms.caps[DELTA0] < sums[DELTA0] + charge.costs[DELTA0]:
        raise BadParameter("spent", "leaves no δ for such a loss")
    places: list[int] = [EPSILON, *range(FIRST_ORDER, len(terms.caps))]
    if charge.costs[DELTA] > terms.caps[DELTA] - sums[DELTA]:
        places.remove(EPSILON)
    best = max(places, key=fits)
    if fits(best) < 0:
        raise BadParameter("spent", "leaves nothing in any filter")
    return best


def selection_mechanism_for(
    epsilon: Number,
    *,
    sensitivity: Number,
    candidates: int,
    terms: Terms,
    spent: tuple[int, ...] | None = None,
) -> SelectionMechanism:
    """The mechanism that errs less, among those that cost what pure ε costs in the binding filter."""
    e, moved = checked_epsilon(epsilon), positive(sensitivity, "sensitivity")
    count = whole(candidates, "candidates", at_least=1)
    flip = PermuteAndFlip(e, moved)
    place = binding_filter(terms, flip.loss, spent=spent)
    choice = Exponential(_equal_epsilon(terms, e, place), moved)
    return choice if worst_error(choice, count) < worst_error(flip, count) else flip


def _equal_epsilon(terms: Terms, epsilon: Fraction, place: int) -> Fraction:
    """The greatest ε (in ledger units) at which the exponential mechanism costs no more in this filter."""
    most = terms.price(Pure(epsilon)).costs[place]

    def fits(units: int) -> bool:
        return terms.price(BoundedRange(Fraction(units, EPSILON_UNIT))).costs[place] <= most

    low = math.floor(epsilon * EPSILON_UNIT)  # a range is never dearer than any pure ε
    high = min(4 * low, int(LARGEST_EPSILON) * EPSILON_UNIT) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(Fraction(low, EPSILON_UNIT), epsilon if place == EPSILON else Fraction(0))


def worst_error(choice: SelectionMechanism, candidates: int) -> float:
    """The greatest mean distance below the best score, if all others are equally far below it.

    Floats: it decides which mechanism is used, never what it costs.
    """
    rate, others = float(choice.rate), candidates - 1
    if not others:
        return 0.0
    error: Callable[[float], float] = (
        exponential_error if isinstance(choice, Exponential) else flip_error
    )(others)
    # In units of 1/rate the worst gap lies below ln(candidates) + 3.
    points = (math.log(candidates) + 3) / 400
    return max(error(k * points) for k in range(1, 401)) / rate


def exponential_error(others: int) -> Callable[[float], float]:
    """The mean distance of the exponential mechanism's choice, at a gap in units of 1/rate."""

    def at(gap: float) -> float:
        weight = others * math.exp(-gap)
        return gap * weight / (1 + weight)

    return at


def flip_error(others: int) -> Callable[[float], float]:
    """The same of permute-and-flip: the best is taken with (1 - (1-p)^k) / kp, p = e^-gap, k in all."""

    def at(gap: float) -> float:
        p, k = math.exp(-gap), others + 1
        return gap * (1 + math.expm1(k * math.log1p(-p)) / (k * p))

    return at


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate's model and its true score. Private until it is chosen."""

    candidate: int
    model: bytes
    score: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What may be told: which candidate won, and its model. The score is not among it, unless noisy."""

    candidate: int
    model: bytes
    noisy_score: int | None = None


TryCandidate = Callable[[int], CandidateResult]


class SearchStrategy(ABC):
    """How a search goes about it."""

    @abstractmethod
    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        """What the search costs, from what each candidate's training costs. Public."""

    @abstractmethod
    def find(self, candidates: Sequence[Loss], score: Score, attempt: TryCandidate) -> SearchResult | None:
        """The winner. Charge the price first."""


@dataclass(frozen=True, slots=True)
class EveryCandidate(SearchStrategy):
    """Train every candidate, then choose privately."""

    choice: SelectionMechanism

    def __post_init__(self) -> None:
        if not isinstance(self.choice, Exponential | PermuteAndFlip):
            raise BadParameter("choice", "must be Exponential or PermuteAndFlip: see choice_for")

    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        if self.choice.sensitivity < score.sensitivity:
            raise BadParameter(
                "choice", f"must have a sensitivity of {score.sensitivity}, as the score has"
            )
        return ParallelComposition((sequential_loss(candidates), self.choice.loss))

    def find(self, candidates: Sequence[Loss], score: Score, attempt: TryCandidate) -> SearchResult:
        tried = [attempt(number) for number in range(len(candidates))]
        best = tried[self.choice.sample([one.score for one in tried])]
        return SearchResult(best.candidate, best.model)


def sequential_loss(losses: Sequence[Loss]) -> Loss:
    """Trainings one after the other. Runs that are all fixed beforehand, at one δ, are one fixed run."""
    runs = [loss for loss in losses if isinstance(loss, FixedRun)]
    if len(runs) < len(losses) or len({run.delta for run in runs}) > 1:
        return SequentialComposition(tuple(losses))
    merged: dict[Loss, int] = {}
    for run in runs:
        for loss, times in run.steps:
            merged[loss] = merged.get(loss, 0) + times
    return FixedRun(tuple(merged.items()), runs[0].delta)


@dataclass(frozen=True, slots=True)
class RandomRuns(SearchStrategy):
    """Train random candidates a random number of times, and tell the best by a noisy score.

    How many runs there were, the losers and when they were done is never told or kept. `noise` is the
    standard deviation of a score, `delta` the whole search's, `padded` as in `Repetition`.
    """

    runs: RunCountLaw
    noise: Fraction
    delta: Fraction
    padded: bool

    def __init__(self, runs: RunCountLaw, *, noise: Number, delta: Number, padded: bool) -> None:
        object.__setattr__(self, "runs", runs)
        object.__setattr__(self, "padded", padded)
        set_fields(self, noise=positive(noise, "noise"), delta=checked_delta(delta))
        if not isinstance(runs, RunCountLaw):
            raise BadParameter("runs", "must be NegativeBinomialRuns or PoissonRuns")

    def repetition(self, candidates: Sequence[Loss], score: Score) -> Repetition:
        """One run is as private as its worst candidate; training and test units are others."""
        base = ParallelComposition((*dict.fromkeys(candidates), self._mechanism(score).loss))
        return Repetition(base, self.runs, self.delta, self.padded)

    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        return self.repetition(candidates, score).loss

    def find(self, candidates: Sequence[Loss], score: Score, attempt: TryCandidate) -> SearchResult | None:
        repetition, mechanism = self.repetition(candidates, score), self._mechanism(score)
        wanted = repetition.draw()
        best: SearchResult | None = None
        for run in count() if repetition.most is None else range(repetition.most):
            if repetition.most is None and run >= wanted:
                break
            tried = attempt(int(uniform_int(0, len(candidates), 1)[0]))
            found = SearchResult(tried.candidate, tried.model, int(mechanism.sample([tried.score])[0]))
            if run < wanted and (best is None or _place(found) > _place(best)):
                best = found
        return best

    def _mechanism(self, score: Score) -> Gaussian:
        return Gaussian(self.noise, Fraction(score.most**2), 1)


def _place(found: SearchResult) -> tuple[int, int, bytes]:
    """A total order of outputs: outputs that are equal in it are equal."""
    assert found.noisy_score is not None
    return found.noisy_score, -found.candidate, found.model


try:
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover (an extra)
    raise MissingExtra("learn", "Searching for parameters") from None

CellArray = NDArray[Any]
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
        way: SearchStrategy,
        score_by: Score,
        purse: Payer,
    ) -> None:
        self.estimator, self.candidates = estimator, candidates
        self.way, self.score_by, self.payer = way, score_by, purse

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
        table = checked_table(X)
        target = checked_target(y, len(table))
        whose, testing = _sides(self.payer.whose(units), tests, len(table))
        losses = self._losses(table.shape[1])
        paid = self.payer.pay(
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
        self,
        losses: Sequence[Loss],
        table: CellArray,
        target: CellArray,
        whose: CellArray,
        testing: CellArray,
    ) -> SearchResult | None:
        # A unit's side is its own matter; so is which of its rows tests.
        tests = np.isin(whose, whose[testing])
        order = permutation(len(whose))
        order = order[tests[order]]
        order = order[np.unique(whose[order], return_index=True)[1]]
        rows, truth = table[order], target[order]
        trains = ~tests

        def attempt(candidate: int) -> CandidateResult:
            purse = PrepaidPayer(losses[candidate])
            model = self._made(candidate, purse)
            model.fit(table[trains], target[trains], units=whose[trains])
            return CandidateResult(candidate, purse.result, self.score_by.total(model, rows, truth))

        return self.way.find(losses, self.score_by, attempt)

    def _made(self, candidate: int, purse: Payer) -> Any:
        return clone(self.estimator).set_params(**dict(self.candidates[candidate]), payer=purse)

    def _losses(self, n_features: int) -> list[Loss]:
        found: list[Loss] = [
            self._made(k, self.payer).price(n_features) for k in range(len(self.candidates))
        ]
        return found

    def _load(self, stored: bytes, table: CellArray, target: CellArray) -> None:
        record = json.loads(stored)
        self.best_index_ = record["candidate"]
        self.best_params_, self.best_estimator_ = None, None
        self.noisy_score_ = record["noisy score"]
        if self.best_index_ is None:
            return
        self.best_params_ = dict(self.candidates[self.best_index_])
        model = self._made(self.best_index_, StoredPayer(base64.b64decode(record["model"])))
        # Nothing is trained: the purse gives the stored model, and the table only its form.
        model.fit(table[:0], target[:0], units=np.zeros(0, dtype=np.int64))
        self.best_estimator_ = model.set_params(payer=self.estimator.get_params(deep=False)[_PURSE])

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
            state[_PURSE] = NoPayer()
        return state

    def _check(self) -> None:
        if not isinstance(self.payer, Payer) or self.payer.relation is not Relation.ADD_REMOVE:
            raise BadParameter("purse", "must be a Purse of accounts where neighbours add or remove a unit")
        if not isinstance(self.way, SearchStrategy) or not isinstance(self.score_by, Score):
            raise BadParameter("way", "must be EveryCandidate or RandomRuns, and score_by a Score")
        told = isinstance(self.way, RandomRuns) and not self.way.padded
        if told and not isinstance(self.payer, PublicData):
            raise BadParameter("way", "must be padded: a ledger keeps when a search began and ended")
        if not self.candidates or any(_PURSE in one for one in self.candidates):
            raise BadParameter("candidates", "must be one or more sets of parameters, none with a purse")


def _sides(units: Any, tests: Any, rows: int) -> tuple[CellArray, CellArray]:
    """Whose row each is, and whether it tests. Only forms are looked at."""
    whose, testing = checked_units(units, rows), plain_array(tests)
    if testing is None or testing.shape != (rows,) or testing.dtype != np.bool_:
        raise BadValue("tests must be an array that says True or False for each row")
    return np.arange(rows) if whose is None else whose, testing


def _stored(found: SearchResult | None) -> bytes:
    record: dict[str, Any] = {"candidate": None, "model": None, "noisy score": None}
    if found is not None:
        model = base64.b64encode(found.model).decode()
        record = {"candidate": found.candidate, "model": model, "noisy score": found.noisy_score}
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


__all__ = [
    "CORRECT",
    "EveryCandidate",
    "NegativeBinomialRuns",
    "PoissonRuns",
    "RandomRuns",
    "Repetition",
    "RunCountLaw",
    "Score",
    "Search",
    "binding_filter",
    "selection_mechanism_for",
]
