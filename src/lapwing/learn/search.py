"""A private search for good parameters of a trainer, with the interface of scikit-learn.

Claim    the result of `fit` is private at the one loss that it charges, before a row is read.
Because  trainers inside the search have a `PrepaidPayer`. Only the winner is stored under the charge, and
         the fitted attributes are read from there.
Test     tests/learn/test_search.py

A search tries all candidates, or a random number of random ones, and chooses one privately:

Claim    adding a unit raises every model's score by 0 to `most`, and changes nothing else. So a choice that
         only looks at differences of scores has sensitivity most / 2.
Because  a unit has one row, drawn from its own rows; each row is predicted by itself (floats of a batch may
         depend on the other rows); the score of a row is clamped. Subtract most/2 for each unit from all
         scores: the differences stay the same, and a unit now moves each score by at most most / 2.
Test     tests/learn/test_search_score.py

Claim    the result of `find` is private at the loss that `price` returns.
Because  *all candidates*: every training is paid, and so is the choice; trainings read training units, the
         choice reads models and test units, which are other units. *Random runs*: the output of a run
         (candidate, model, noisy score) is private at the base loss, and `Repetition` prices the best of
         them. The order of outputs is total and public. docs/arguments/selection.md
Test     tests/learn/test_search_strategies.py

The mechanism that chooses is the one with the smaller error at equal cost, in the filter that binds the
account. Where pure ε runs out first, permute-and-flip is never worse than the exponential mechanism. Where
a Rényi order does, the exponential mechanism may have about twice the ε for the same cost, because its
log-ratios span a range of only ε. All of this is computed from public numbers, and looking is free.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np

from lapwing.canonical_json import canonical_json
from lapwing.core.budget import DELTA, DELTA0, EPSILON, EPSILON_UNIT, FIRST_ORDER, Terms
from lapwing.core.exact import Number, least_where, positive, set_fields, whole
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import (
    LARGEST_EPSILON,
    BoundedRange,
    Loss,
    ParallelComposition,
    Pure,
    SequentialComposition,
    checked_delta,
    checked_epsilon,
)
from lapwing.core.noise import uniform_int
from lapwing.core.selection import Exponential, PermuteAndFlip
from lapwing.errors import BadParameter, BadValue, MissingExtra
from lapwing.learn.payer import (
    Payer,
    PickledWithoutPayer,
    PrepaidPayer,
    PublicData,
    StoredPayer,
    require_add_remove,
)
from lapwing.learn.repetition import Repetition, RunCountLaw
from lapwing.learn.table_input import Cells, checked_units, one_row_each, plain_array
from lapwing.learn.trainers.columns import checked_table, checked_target

try:
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover (an extra)
    raise MissingExtra("learn", "Searching for parameters") from None

_PAYER = "payer"


@dataclass(frozen=True, slots=True)
class Score:
    """A score of one row: `of(truth, predicted)` returns 0 (bad) to `most` (good).

    It is rounded down to a whole number. A value that is no number counts as 0, and so does a row for
    which `of` fails: try it on made-up rows first.
    """

    most: int
    of: Callable[[Any, Any], float]

    def __post_init__(self) -> None:
        set_fields(self, most=whole(self.most, "most", at_least=1))
        if not callable(self.of):
            raise BadParameter("of", "must be a function of a truth and a prediction")

    @property
    def sensitivity(self) -> Fraction:
        """The distance by which one unit moves a score, for a choice that looks at differences only."""
        return Fraction(self.most, 2)

    def total(self, model: Any, rows: Cells, truth: Cells) -> int:
        """Return the sum of the scores of the rows, which are one per unit."""
        return sum(self._of_row(model, rows[k : k + 1], truth[k]) for k in range(len(rows)))

    def _of_row(self, model: Any, row: Cells, truth: Any) -> int:
        try:
            with np.errstate(all="ignore"):
                worth = float(self.of(truth, model.predict(row)[0]))
        except Exception:  # an error would reveal that such a row exists
            return 0
        return int(np.clip(np.nan_to_num(np.floor(worth), nan=0.0), 0, self.most))


def _is_right(truth: Any, predicted: Any) -> float:
    return float(bool(truth == predicted))


CORRECT = Score(1, _is_right)


SelectionMechanism = Exponential | PermuteAndFlip


def binding_filter(terms: Terms, loss: Loss, *, spent: tuple[int, ...] | None = None) -> int:
    """Return the place, in a charge, of the filter that would admit most releases of this loss.

    An account goes on while one filter holds, so the filter that lasts longest decides.
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
    """Return the mechanism with the smaller error, at the cost of pure ε in the binding filter."""
    e, moved = checked_epsilon(epsilon), positive(sensitivity, "sensitivity")
    count = whole(candidates, "candidates", at_least=1)
    flip = PermuteAndFlip(e, moved)
    place = binding_filter(terms, flip.loss, spent=spent)
    choice = Exponential(_equal_epsilon(terms, e, place), moved)
    return choice if worst_error(choice, count) < worst_error(flip, count) else flip


def _equal_epsilon(terms: Terms, epsilon: Fraction, place: int) -> Fraction:
    """Return the greatest ε at which the exponential mechanism costs no more in this filter."""
    most = terms.price(Pure(epsilon)).costs[place]

    def costs_more(units: int) -> bool:
        return terms.price(BoundedRange(Fraction(units, EPSILON_UNIT))).costs[place] > most

    low = math.floor(epsilon * EPSILON_UNIT)  # a bounded range never costs more than pure ε
    high = min(4 * low, int(LARGEST_EPSILON) * EPSILON_UNIT) + 1
    equal_epsilon = Fraction(least_where(costs_more, low, high) - 1, EPSILON_UNIT)
    return max(equal_epsilon, epsilon if place == EPSILON else Fraction(0))


def worst_error(choice: SelectionMechanism, candidates: int) -> float:
    """Return the greatest mean distance below the best score, if all others are equally far below it.

    It uses floats: it decides which mechanism is used, never what it costs.
    """
    rate, others = float(choice.rate), candidates - 1
    if not others:
        return 0.0
    error = exponential_error if isinstance(choice, Exponential) else flip_error
    # In units of 1/rate the worst gap lies below ln(candidates) + 3.
    points = (math.log(candidates) + 3) / 400
    return max(error(k * points, others) for k in range(1, 401)) / rate


def exponential_error(gap: float, others: int) -> float:
    """Return the mean error of the exponential mechanism, where `gap` is the distance times the rate."""
    weight = others * math.exp(-gap)
    return gap * weight / (1 + weight)


def flip_error(gap: float, others: int) -> float:
    """Return the same for permute-and-flip.

    The best of k candidates is taken with probability (1 - (1-p)^k) / kp, where p = e^-gap.
    """
    p, k = math.exp(-gap), others + 1
    return gap * (1 + math.expm1(k * math.log1p(-p)) / (k * p))


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate's model and its true score. It is private until it is chosen."""

    candidate: int
    model: bytes
    score: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The candidate that won, and its model, which may be released.

    The score is included only if it is noisy.
    """

    candidate: int
    model: bytes
    noisy_score: int | None = None


TryCandidate = Callable[[int], CandidateResult]


class SearchStrategy(ABC):
    """A strategy by which a search finds a good candidate."""

    @abstractmethod
    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        """Return the loss of the search, from the loss of each candidate's training. It is public."""

    @abstractmethod
    def find(self, candidates: Sequence[Loss], score: Score, attempt: TryCandidate) -> SearchResult | None:
        """Return the winner. Charge the price first."""


@dataclass(frozen=True, slots=True)
class EveryCandidate(SearchStrategy):
    """The strategy that trains every candidate, then chooses one privately."""

    choice: SelectionMechanism

    def __post_init__(self) -> None:
        if not isinstance(self.choice, Exponential | PermuteAndFlip):
            raise BadParameter(
                "choice", "must be Exponential or PermuteAndFlip: see selection_mechanism_for"
            )

    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        """Return the worse of two losses: that of all trainings, and that of the choice."""
        if self.choice.sensitivity < (needed := score.sensitivity):
            raise BadParameter("choice", f"must have a sensitivity of {needed}, as the score has")
        return ParallelComposition((sequential_loss(candidates), self.choice.loss))

    def find(self, candidates: Sequence[Loss], score: Score, attempt: TryCandidate) -> SearchResult:
        """Train every candidate, and choose one of them privately."""
        tried = [attempt(number) for number in range(len(candidates))]
        best = tried[self.choice.sample([result.score for result in tried])]
        return SearchResult(best.candidate, best.model)


def sequential_loss(losses: Sequence[Loss]) -> Loss:
    """Return the loss of trainings one after the other. Fixed runs at one δ become one fixed run."""
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
    """The strategy that trains random candidates a random number of times, and chooses by a noisy score.

    The number of runs, the losers and the times are never released or stored. `noise` is the standard
    deviation of a score, `delta` that of the whole search, and `padded` as in `Repetition`.
    """

    runs: RunCountLaw
    noise: Fraction
    delta: Fraction
    padded: bool

    def __init__(self, runs: RunCountLaw, *, noise: Number, delta: Number, padded: bool) -> None:
        spread, spare = positive(noise, "noise"), checked_delta(delta)
        set_fields(self, runs=runs, padded=padded, noise=spread, delta=spare)
        if not isinstance(runs, RunCountLaw):
            raise BadParameter("runs", "must be NegativeBinomialRuns or PoissonRuns")

    def repetition(self, candidates: Sequence[Loss], score: Score) -> Repetition:
        """Return the repetition.

        One run is as private as its worst candidate: training and test units differ.
        """
        base = ParallelComposition((*dict.fromkeys(candidates), self._mechanism(score).loss))
        return Repetition(base, self.runs, self.delta, self.padded)

    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        """Return the loss of the best of a random number of runs."""
        return self.repetition(candidates, score).loss

    def find(self, candidates: Sequence[Loss], score: Score, attempt: TryCandidate) -> SearchResult | None:
        """Do a random number of runs, and return the best by noisy score; None if there was no run."""
        repetition, mechanism = self.repetition(candidates, score), self._mechanism(score)
        wanted = repetition.draw()
        best: SearchResult | None = None
        for run in range(wanted if repetition.most is None else repetition.most):
            tried = attempt(int(uniform_int(0, len(candidates), 1)[0]))
            result = SearchResult(tried.candidate, tried.model, int(mechanism.sample([tried.score])[0]))
            if run < wanted and (best is None or _place(result) > _place(best)):
                best = result
        return best

    def _mechanism(self, score: Score) -> Gaussian:
        return Gaussian(self.noise, Fraction(score.most**2), 1)


def _place(result: SearchResult) -> tuple[int, int, bytes]:
    """Return the place of an output in a total order: outputs that are equal in it are equal."""
    assert result.noisy_score is not None
    return result.noisy_score, -result.candidate, result.model


@dataclass(eq=False, repr=False)
class Search(PickledWithoutPayer, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A private search for the best of several sets of parameters of a trainer.

    After `fit`: `best_params_`, `best_estimator_`, `receipt_`, and `noisy_score_` if there is one. With
    Poisson runs there may have been no run: then `best_estimator_` is None.

    Args:
        estimator: A trainer with a `payer`, `price(n_features)` and `predict`. Its own payer is not used.
        candidates: The sets of parameters of the estimator.
        strategy: `EveryCandidate` or `RandomRuns`.
        score_by: The score of a prediction, such as `CORRECT`.
        payer: The payer that is charged once, for the whole search.

    Raises:
        BadParameter: From `price` and `fit`, if a parameter is wrong.

    Example:
        ```python
        from lapwing.learn import PublicData, Search
        from lapwing.learn.search import CORRECT, EveryCandidate
        from lapwing.learn.trainers import Category, NaiveBayes
        from lapwing.mechanisms import PermuteAndFlip

        public, columns = PublicData(), Category(("a", "b"))
        trainer = NaiveBayes(epsilon=1, delta="1e-6", columns=columns, classes=(0, 1), payer=public)
        search = Search(
            trainer,
            [{"epsilon": 1}, {"epsilon": 2}],
            strategy=EveryCandidate(PermuteAndFlip(1, CORRECT.sensitivity)),
            score_by=CORRECT,
            payer=public,
        )
        print(search.price(1)) ```
    """

    estimator: Any
    candidates: Sequence[Mapping[str, Any]]
    _: KW_ONLY
    strategy: SearchStrategy
    score_by: Score
    payer: Payer
    best_estimator_: Any = field(init=False)
    best_params_: Any = field(init=False)

    def price(self, n_features: int) -> Loss:
        """Return the loss of `fit` for a table with this number of columns. Looking is free.

        Args:
            n_features: The number of columns.

        Returns:
            The loss of one unit.

        Raises:
            BadParameter: If a parameter is wrong.
        """
        self._check()
        return self.strategy.price(self._losses(n_features), self.score_by)

    def fit(self, X: Any, y: Any, units: Any = None, *, tests: Any) -> Self:  # noqa: N803
        """Charge, search, and keep the winner.

        Args:
            X: The table.
            y: The target, one value for each row.
            units: The unit of each row, in whole numbers; None if the account protects rows.
            tests: For each row, whether its unit tests, by a rule that is fixed for ever (`in_test_half`).
                A unit with rows on both sides counts as a testing one, and its other rows are left out.

        Returns:
            This search.

        Raises:
            BadParameter: If a parameter is wrong.
            BadValue: If the input has another form.
            OverBudget: If the accounts cannot pay.
        """
        self._check()
        table = checked_table(X)
        target = checked_target(y, len(table))
        unit_of_row, testing = _sides(self.payer.checked_units(units), tests, len(table))
        losses = self._losses(table.shape[1])
        paid = self.payer.pay(
            self.strategy.price(losses, self.score_by),
            lambda: _stored(self._find(losses, table, target, unit_of_row, testing)),
            mechanism="private selection",
            parameters=self._settings(table.shape[1]),
        )
        self._load(paid.result, table, target)
        self.receipt_ = paid.receipt
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Predict with the best model.

        Args:
            X: The table.

        Returns:
            The predictions of the best model.

        Raises:
            BadParameter: If there is no model.
        """
        if getattr(self, "best_estimator_", None) is None:
            raise BadParameter("search", "has found no model: it was not fitted, or there was no run")
        return self.best_estimator_.predict(X)

    def _find(
        self,
        losses: Sequence[Loss],
        table: Cells,
        target: Cells,
        unit_of_row: Cells,
        testing: Cells,
    ) -> SearchResult | None:
        # A unit's half depends on the unit alone, and so does the row with which it tests.
        trains = ~np.isin(unit_of_row, unit_of_row[testing])
        tests = np.flatnonzero(~trains)
        drawn = tests[one_row_each(unit_of_row[tests], len(tests))]
        rows, truth = table[drawn], target[drawn]

        def attempt(candidate: int) -> CandidateResult:
            payer = PrepaidPayer(losses[candidate])
            model = self._made(candidate, payer)
            model.fit(table[trains], target[trains], units=unit_of_row[trains])
            return CandidateResult(candidate, payer.result, self.score_by.total(model, rows, truth))

        return self.strategy.find(losses, self.score_by, attempt)

    def _made(self, candidate: int, payer: Payer) -> Any:
        return clone(self.estimator).set_params(**dict(self.candidates[candidate]), payer=payer)

    def _losses(self, n_features: int) -> list[Loss]:
        return [self._made(k, self.payer).price(n_features) for k in range(len(self.candidates))]

    def _load(self, stored: bytes, table: Cells, target: Cells) -> None:
        record = json.loads(stored)
        self.best_index_ = record["candidate"]
        self.best_params_, self.best_estimator_ = None, None
        self.noisy_score_ = record["noisy score"]
        if self.best_index_ is None:
            return
        self.best_params_ = dict(self.candidates[self.best_index_])
        model = self._made(self.best_index_, StoredPayer(base64.b64decode(record["model"])))
        # Nothing is trained: the payer returns the stored model, and only the form of the table is used.
        model.fit(table[:0], target[:0], units=np.zeros(0, dtype=np.int64))
        self.best_estimator_ = model.set_params(payer=self.estimator.get_params(deep=False)[_PAYER])

    def _settings(self, n_features: int) -> dict[str, str | int]:
        """Return the public parameters, for the receipt."""
        own = self.estimator.get_params(deep=False)
        fixed, *varied = (
            sorted((name, repr(value)) for name, value in settings.items() if name != _PAYER)
            for settings in (own, *self.candidates)
        )
        kind, strategy = type(self.estimator).__qualname__, repr(self.strategy)
        text = repr([kind, fixed, varied, strategy, self.score_by.most])
        return {
            "way": type(self.strategy).__name__,
            "candidates": len(self.candidates),
            "columns": n_features,
            "settings": hashlib.sha256(text.encode()).hexdigest(),
        }

    def _check(self) -> None:
        require_add_remove(self.payer)
        if not isinstance(self.strategy, SearchStrategy) or not isinstance(self.score_by, Score):
            raise BadParameter("strategy", "must be EveryCandidate or RandomRuns, and score_by a Score")
        shows_time = isinstance(self.strategy, RandomRuns) and not self.strategy.padded
        if shows_time and not isinstance(self.payer, PublicData):
            raise BadParameter("strategy", "must be padded: a ledger keeps when a search began and ended")
        if not self.candidates or any(_PAYER in settings for settings in self.candidates):
            raise BadParameter("candidates", "must be one or more sets of parameters, none with a payer")


def _sides(units: Any, tests: Any, rows: int) -> tuple[Cells, Cells]:
    """Return the unit of each row, and whether it tests. Only the forms are checked."""
    unit_of_row, testing = checked_units(units, rows), plain_array(tests)
    if testing is None or testing.shape != (rows,) or testing.dtype != np.bool_:
        raise BadValue("tests must be an array that says True or False for each row")
    return np.arange(rows) if unit_of_row is None else unit_of_row, testing


def _stored(result: SearchResult | None) -> bytes:
    record: dict[str, Any] = {"candidate": None, "model": None, "noisy score": None}
    if result is not None:
        model = base64.b64encode(result.model).decode()
        record = {"candidate": result.candidate, "model": model, "noisy score": result.noisy_score}
    return canonical_json(record).encode()
