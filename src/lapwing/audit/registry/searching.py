"""The cases of private selection: searches over candidates, and the best of a random number of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget
from lapwing.audit.stages.replay import Compose, MechanismCall, ReplayPair, replay_stage
from lapwing.audit.training_runs import (
    SEEDS,
    AddedUnit,
    Fit,
    LabelledRows,
    charged_loss,
    composed_apart,
    training_pair,
    with_extra,
)
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import Loss, ParallelComposition
from lapwing.core.selection import Exponential, PermuteAndFlip
from lapwing.learn.payer import Payer, PublicData
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns, Repetition, RunCountLaw

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
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

    def fit(rows: LabelledRows, payer: Payer) -> None:
        units = np.array(rows.units, dtype=np.int64)
        search = Search(
            _trainer(PublicData()), candidates, strategy=strategy, score_by=CORRECT, payer=payer
        )
        search.fit(rows.rows, rows.target, units=units, tests=units % _EVERY_THIRD == 0)

    return fit


def search_pairs(
    fit: Fit, tests: Callable[[Any], bool]
) -> Callable[[StageBudget], Iterator[ReplayPair]]:
    """Return pairs that add a unit to one half. It must move no mechanism of the other half.

    Args:
        fit: Searches on rows, and pays with a payer.
        tests: Whether a mechanism reads the testing half.
    """

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        seeds, added = (SEEDS, _ADDED) if budget.is_thorough else (SEEDS[:1], _ADDED[:2])
        for seed in seeds:
            for words, rows, target in added:
                for half, base in (("tests", _TESTED), ("trains", _TRAINED)):
                    is_tested = half == "tests"
                    yield training_pair(
                        f"{len(base.rows)} units; the same and {words} that {half}",
                        fit, base, base.with_unit(rows, target), seed=seed,
                        unmoved=lambda mechanism, is_tested=is_tested: tests(mechanism) is not is_tested,
                    )  # fmt: skip

    return pairs


def search_case(
    name: str, covers: Sequence[str], strategy: Callable[[], Any], *, exact: RunStage | None = None
) -> AuditCase:
    """Return the case of a search strategy: replay of a whole search, and an exact stage if there is one."""
    candidates = [{"epsilon": EPSILON}, {"epsilon": EPSILON / 2}]

    def replay() -> RunStage:
        chosen = strategy()
        fit = searching_fit(chosen, candidates)
        charged = charged_loss(fit, _TESTED)
        prices = [_trainer(PublicData()).set_params(**one).price(2) for one in candidates]
        compose = _composition(chosen, prices)
        return replay_stage(search_pairs(fit, is_choice), charged, epsilon=EPSILON, compose=compose)

    stages = {Stage.REPLAY: with_extra(Stage.REPLAY, float(EPSILON), replay)}
    if exact is not None:
        stages[Stage.EXACT] = exact
    return AuditCase(name, Family.SELECTION, tuple(covers), EPSILON, DELTA, stages)


def is_choice(mechanism: Any) -> bool:
    """Tell whether a mechanism of a search reads testing units: a choice, or the noise of one score."""
    is_score = isinstance(mechanism, Gaussian) and mechanism.dimension == 1
    return is_score or isinstance(mechanism, Exponential | PermuteAndFlip)


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
    counts = Counter(call.mechanism.loss for call in run[:-1])
    known = [one for one in prices if isinstance(one, FixedRun) and dict(one.steps) == counts]
    trained: Loss = known[0] if known else FixedRun(tuple(counts.items()), DELTA)
    return ParallelComposition((trained, run[-1].mechanism.loss))


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


def selection_cases() -> tuple[AuditCase, ...]:
    """Return a case for each way to select privately."""
    every = f"{_SEARCH}.EveryCandidate"
    return (
        search_case(
            "search over every candidate, exponential mechanism", (every, f"{_SEARCH}.Search"),
            _every(Exponential),
        ),
        search_case("search over every candidate, permute-and-flip", (every,), _every(PermuteAndFlip)),
        search_case(
            "best of a negative binomial number of runs",
            (f"{_SEARCH}.RandomRuns", f"{_REPETITION}.NegativeBinomialRuns", f"{_REPETITION}.Repetition"),
            _random(lambda: NegativeBinomialRuns.with_mean(2, eta=0)),
        ),
        search_case(
            "best of a Poisson number of runs",
            (f"{_SEARCH}.RandomRuns", f"{_REPETITION}.PoissonRuns"),
            _random(lambda: PoissonRuns(Fraction(2))),
        ),
    )  # fmt: skip
