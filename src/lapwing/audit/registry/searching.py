"""The cases of private selection: searches over candidates, and the best of a random number of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from lapwing.audit import laws
from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget
from lapwing.audit.stages.exact import ExactPair, exact_stage
from lapwing.audit.stages.input_distances import ScoreDifferences, by_differences
from lapwing.audit.stages.replay import Compose, MechanismCall, ReplayPair, replay_stage
from lapwing.audit.training_runs import (
    SEEDS,
    AddedUnit,
    Fit,
    LabelledRows,
    charged_loss,
    composed_apart,
    training_loss,
    training_pair,
    with_extra,
)
from lapwing.core.losses import Loss, ParallelComposition, Pure
from lapwing.learn.payer import Payer, PublicData
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns, Repetition, RunCountLaw
from lapwing.mechanisms import Exponential, Gaussian, PermuteAndFlip

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
# What the searches below claim, at DELTA: trainings at ε = 1 and 1/2, and a choice.
_OF_EVERY, _OF_BINOMIAL, _OF_POISSON = Fraction("1.14"), Fraction("1.47"), Fraction("1.27")
_SEARCH, _REPETITION = "lapwing.learn.search", "lapwing.learn.repetition"
_EVERY_THIRD = 3
_ROWS = [[k % 2, (k // 2) % 3] for k in range(12)]
# Units 0, 3, 6, ... test. The next unit tests if there are 12 units, and trains if there are 13.
_TESTED = LabelledRows(_ROWS, [k % 2 for k in range(12)])
_TRAINED = LabelledRows([*_ROWS, [0, 0]], [*_TESTED.target, 1])
_ADDED: list[AddedUnit] = [
    ("a unit of 40 equal rows", [[1, 1]] * 40, [1] * 40),
    ("a unit of one row", [[1, 2]], [0]),
    ("a unit of odd cells", [["?", None]], [None]),
    ("a unit of NaN", [[float("nan")] * 2], [float("nan")]),
    ("a unit of 40 rows", [[k % 2, k % 3] for k in range(40)], [k % 2 for k in range(40)]),
]


def _trainer(payer: Payer) -> Any:
    from lapwing.learn.trainers import Category, NaiveBayes  # noqa: PLC0415 (an extra)

    columns = Category([0, 1]), Category([0, 1, 2])
    return NaiveBayes(epsilon=EPSILON, delta=DELTA, columns=columns, classes=(0, 1), payer=payer)


def searching_fit(strategy: Any, candidates: Sequence[dict[str, Any]]) -> Fit:
    """Return how a search runs on made-up rows. Every third unit tests."""
    from lapwing.learn.search import CORRECT, Search  # noqa: PLC0415 (an extra)

    def fit(rows: LabelledRows, payer: Payer) -> Any:
        units = np.array(rows.units, dtype=np.int64)
        search = Search(
            _trainer(PublicData()), candidates, strategy=strategy, score_by=CORRECT, payer=payer
        )
        search.fit(rows.rows, rows.target, units=units, tests=units % _EVERY_THIRD == 0)
        return vars(search)

    return fit


def search_pairs(fit: Fit, tests: Callable[[Any], bool]) -> Callable[[StageBudget], Iterator[ReplayPair]]:
    """Return pairs that add a unit to one half. It must move no mechanism of the other half.

    Args:
        fit: Searches on rows, and pays with a payer.
        tests: Whether a mechanism reads the testing half.
    """

    def trains(mechanism: Any) -> bool:
        return not tests(mechanism)

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        seeds, added = (SEEDS, _ADDED) if budget.is_thorough else (SEEDS[:1], _ADDED[:2])
        for seed in seeds:
            for words, rows, target in added:
                for half, base, unmoved in (("tests", _TESTED, trains), ("trains", _TRAINED, tests)):
                    yield training_pair(
                        f"{len(base.rows)} units; the same and {words} that {half}",
                        fit, base, base.with_unit(rows, target), seed=seed, unmoved=unmoved,
                        seen_as=by_differences,
                    )  # fmt: skip

    return pairs


def search_case(
    name: str,
    covers: Sequence[str],
    strategy: Callable[[], Any],
    *,
    epsilon: Fraction,
    exact: RunStage | None = None,
) -> AuditCase:
    """Return the case of a search strategy: replay of a whole search, and an exact stage if given."""
    candidates = [{"epsilon": EPSILON}, {"epsilon": EPSILON / 2}]

    def replay() -> RunStage:
        chosen = strategy()
        fit = searching_fit(chosen, candidates)
        charged = charged_loss(fit, _TESTED)
        prices = [_trainer(PublicData()).set_params(**candidate).price(2) for candidate in candidates]
        compose = _composition(chosen, prices)
        pairs = search_pairs(fit, is_choice)
        return replay_stage(pairs, charged, epsilon=epsilon, delta=DELTA, compose=compose)

    stages = {Stage.REPLAY: with_extra(Stage.REPLAY, float(epsilon), replay)}
    if exact is not None:
        stages[Stage.EXACT] = exact
    return AuditCase(name, Family.SELECTION, tuple(covers), epsilon, DELTA, stages)


def is_choice(mechanism: Any) -> bool:
    """Tell whether a mechanism of a search reads testing units: a choice, or the noise of one score."""
    is_score = isinstance(mechanism, Gaussian) and mechanism.dimension == 1
    return is_score or isinstance(mechanism, Exponential | PermuteAndFlip | ScoreDifferences)


def _composition(strategy: Any, prices: Sequence[Loss]) -> Compose:
    """Return how the calls of a search compose: the worse half, or the best of a random number of runs."""
    from lapwing.learn.search import EveryCandidate, sequential_loss  # noqa: PLC0415 (an extra)

    if isinstance(strategy, EveryCandidate):
        return composed_apart(sequential_loss(prices), is_choice)

    def compose(calls: Sequence[MechanismCall]) -> Loss:
        runs: list[list[MechanismCall]] = [[]]
        for call in calls:
            runs[-1].append(call)
            if is_choice(call.mechanism):
                runs.append([])
        losses = dict.fromkeys(_run_loss(run, prices) for run in runs[:-1])
        base = ParallelComposition(tuple(losses))
        return Repetition(base, strategy.runs, strategy.delta, strategy.padded).loss

    return compose


def _run_loss(run: Sequence[MechanismCall], prices: Sequence[Loss]) -> Loss:
    """Return the loss of one run: of a training, or of the noise on its score, whichever is worse."""
    return ParallelComposition((training_loss(run[:-1], prices, DELTA), run[-1].mechanism.loss))


def _every(choice: type[Exponential] | type[PermuteAndFlip]) -> Callable[[], Any]:
    def make() -> Any:
        from lapwing.learn.search import CORRECT, EveryCandidate  # noqa: PLC0415 (an extra)

        return EveryCandidate(choice(EPSILON, CORRECT.sensitivity))

    return make


def _random(runs: Callable[[], RunCountLaw]) -> Callable[[], Any]:
    def make() -> Any:
        from lapwing.learn.search import RandomRuns  # noqa: PLC0415 (an extra)

        return RandomRuns(runs(), noise=5, delta=DELTA, padded=True)

    return make


# Exact laws of the best of a random number of runs, beside their price


@laws.precise
def _response(epsilon: Fraction, likely: int) -> laws.Law:
    """Return the law of a response with three values, one of which is e^ε times as likely as others."""
    weights = [laws.exp(epsilon) if k == likely else Decimal(1) for k in range(3)]
    return {k: weight / sum(weights) for k, weight in enumerate(weights)}


def _repeated_pairs(
    runs: Sequence[tuple[str, RunCountLaw, Callable[[laws.Law], laws.Law]]], *, is_pure: bool
) -> Callable[[StageBudget], Iterator[ExactPair]]:
    """Return exact pairs: each law of the number of runs, with responses (pure) and Gaussian noise."""

    def pairs(budget: StageBudget) -> Iterator[ExactPair]:
        for words, law, best in runs if budget.is_thorough else runs[:2]:
            if is_pure:
                for epsilon in (Fraction(1, 10), Fraction(1)):
                    first, second = (_response(epsilon, likely) for likely in (0, 2))
                    for delta in (Fraction(0), DELTA):  # with a δ, the Rényi curve may be the cheaper price
                        loss = Repetition(Pure(epsilon), law, delta, padded=False).loss
                        yield ExactPair(
                            f"the best of {words}: responses, ε = {float(epsilon):g}, δ = {float(delta):g}",
                            best(first), best(second), loss, loss.epsilon, loss.delta,
                        )  # fmt: skip
            for sigma in (Fraction(2), Fraction(5)) if budget.is_thorough else (Fraction(2),):
                noise, reach = Gaussian(sigma, Fraction(1), 1), math.ceil(14 * sigma)
                loss = Repetition(noise.loss, law, DELTA, padded=False).loss
                first, second = (laws.gaussian(sigma, centre, -reach, reach + 1) for centre in (0, 1))
                yield ExactPair(
                    f"the best of {words} of Gaussian noise at σ = {float(sigma):g}",
                    best(first), best(second), loss, loss.epsilon, loss.delta,
                )  # fmt: skip

    return pairs


def _binomial_exact() -> RunStage:
    runs = []
    for eta in (Fraction(0), Fraction(1), Fraction(-1, 2)):
        law = NegativeBinomialRuns.with_mean(5, eta=eta)
        best = partial(laws.best_of_negative_binomial, eta=law.eta, gamma=law.gamma)
        runs.append((f"about 5 runs (η = {float(eta):g})", law, best))
    return exact_stage(_repeated_pairs(runs, is_pure=True), epsilon=_OF_BINOMIAL, delta=DELTA)


def _poisson_exact() -> RunStage:
    runs = [
        (f"a Poisson number of runs, {mean} on average", PoissonRuns(Fraction(mean)),
         partial(laws.best_of_poisson, mean=mean))
        for mean in (2, 10)
    ]  # fmt: skip
    return exact_stage(_repeated_pairs(runs, is_pure=False), epsilon=_OF_POISSON, delta=DELTA)


def _choice_exact(choice: type[Exponential] | type[PermuteAndFlip]) -> RunStage:
    """Return exact pairs of the choice: a test unit adds 0 or 1 to each score of two or three models."""
    law_of = laws.exponential if choice is Exponential else laws.permute_and_flip

    def pairs(budget: StageBudget) -> Iterator[ExactPair]:
        mechanism = choice(EPSILON, Fraction(1, 2))  # half of what a unit adds: differences alone decide
        for scores in ((0, 0), (0, 1), (3, 0), (0, 0, 0), (2, 1, 0)):
            for added in product((0, 1), repeat=len(scores)):
                more = tuple(score + move for score, move in zip(scores, added, strict=True))
                yield ExactPair(
                    f"scores {scores}, and {more} with one unit more",
                    law_of(scores, mechanism.rate), law_of(more, mechanism.rate), mechanism.loss, EPSILON,
                )  # fmt: skip

    return exact_stage(pairs, epsilon=EPSILON)


def selection_cases() -> tuple[AuditCase, ...]:
    """Return a case for each way to select privately."""
    every = f"{_SEARCH}.EveryCandidate"
    return (
        search_case(
            "search over every candidate, exponential mechanism", (every, f"{_SEARCH}.Search"),
            _every(Exponential), epsilon=_OF_EVERY, exact=_choice_exact(Exponential),
        ),
        search_case(
            "search over every candidate, permute-and-flip", (every,), _every(PermuteAndFlip),
            epsilon=_OF_EVERY, exact=_choice_exact(PermuteAndFlip),
        ),
        search_case(
            "best of a negative binomial number of runs",
            (f"{_SEARCH}.RandomRuns", f"{_REPETITION}.NegativeBinomialRuns", f"{_REPETITION}.Repetition"),
            _random(lambda: NegativeBinomialRuns.with_mean(2, eta=0)), epsilon=_OF_BINOMIAL,
            exact=_binomial_exact(),
        ),
        search_case(
            "best of a Poisson number of runs",
            (f"{_SEARCH}.RandomRuns", f"{_REPETITION}.PoissonRuns"),
            _random(lambda: PoissonRuns(Fraction(2))), epsilon=_OF_POISSON, exact=_poisson_exact(),
        ),
    )  # fmt: skip
