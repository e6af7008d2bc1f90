"""Canaries find trainers that are broken, in one run, and leave ours alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor, nn

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.stages.canaries import OneRun, Train, audit_one_run, canary_stage, tail_of_right
from lapwing.core.exact import precision
from lapwing.core.noise import bernoulli_exp, uniform_int
from lapwing.errors import BadParameter, BadValue
from lapwing.learn.payer import PublicData
from lapwing.learn.sgd import ClippedGradients, PrivateTrainer
from lapwing.learn.trainers import Category, LogisticRegression, NaiveBayes
from support.slowly import slow

CANARIES = 400
DELTA, ERROR = Fraction(1, 10**10), Fraction(1, 10**7)  # false-alarm rate of every verdict below
BATCH = 200
COLUMN = Category(range(CANARIES))
Included = NDArray[np.bool_]


def audited(train: Train, claimed: Fraction | int, guesses: int = CANARIES) -> OneRun:
    return audit_one_run(
        train, canaries=CANARIES, guesses=guesses, claimed=claimed, delta=DELTA, error=ERROR
    )


class Network:
    """One weight per canary: what is added to it tells whether that canary was there.

    Canaries are a hundred times longer than the clip, which a trainer must not let through.
    """

    def __init__(self, trainer: type[PrivateTrainer], epsilon: int, rate: str = "1") -> None:
        self.trainer, self.epsilon, self.rate = trainer, epsilon, rate

    def __call__(self, included: Included) -> NDArray[np.float64]:
        module = nn.Linear(CANARIES, 1, bias=False)
        nn.init.zeros_(module.weight)
        rows = 100 * np.eye(CANARIES, dtype=np.float32)[included]
        self.trainer(
            module, _rewards, epsilon=self.epsilon, delta=DELTA, clip=1, rate=self.rate,
            expected_batch=BATCH, payer=PublicData(), learning_rate=1.0, steps=4, page=32,
        ).fit(rows, np.zeros(len(rows), dtype=np.float32))  # fmt: skip
        return module.weight.detach().numpy().reshape(-1).astype(np.float64)


def _rewards(outputs: Tensor, targets: Tensor) -> Tensor:
    return -outputs.reshape(-1) - targets


class Unclipped(PrivateTrainer):
    """Priced for clip 1, and never clips."""

    def _gradients(self) -> ClippedGradients:
        return ClippedGradients(self.module, self._loss_fn, clip=10**6, page=self._page)


class TwiceDivided(PrivateTrainer):
    """Divides the noise by the batch once more than the sum: as if the sum were so much longer."""

    def _sum(self, *args: Any, **named: Any) -> Any:
        return super()._sum(*args, **named) * self._batch


@pytest.mark.parametrize(("epsilon", "rate"), [slow(1, "1"), slow(3, "0.5")])
def test_our_network_trainer_stays_under_its_claim(epsilon: int, rate: str) -> None:
    found = audited(Network(PrivateTrainer, epsilon, rate), epsilon)
    assert found.holds
    assert found.at_least <= epsilon


@pytest.mark.parametrize("broken", [Unclipped, TwiceDivided])
@pytest.mark.parametrize("rate", ["1", "0.5"])
def test_a_broken_network_trainer_is_caught(broken: type[PrivateTrainer], rate: str) -> None:
    found = audited(Network(broken, 1, rate), 1)
    assert not found.holds
    assert found.at_least > 1


def _logistic(included: Included) -> NDArray[np.float64]:
    model = LogisticRegression(
        epsilon=1, delta=DELTA, columns=COLUMN, classes=(0, 1), size=BATCH, payer=PublicData()
    )
    rows = np.arange(CANARIES)[included, None]
    model.fit(rows, np.ones(len(rows), dtype=np.int64))
    return np.asarray(model.weights_[:, 0], dtype=np.float64)


def _naive_bayes(included: Included) -> NDArray[np.float64]:
    model = NaiveBayes(epsilon=1, delta=DELTA, columns=COLUMN, classes=(0, 1), payer=PublicData())
    rows = np.arange(CANARIES)[included, None]
    model.fit(rows, np.ones(len(rows), dtype=np.int64))
    shares = model.predict_proba(np.arange(CANARIES)[:, None])
    return np.asarray(shares[:, 1], dtype=np.float64)


@pytest.mark.parametrize("train", [_logistic, _naive_bayes])
def test_our_other_trainers_stay_under_their_claims(train: Train) -> None:
    assert audited(train, 1).holds


def _responses(epsilon: Fraction) -> Train:
    """Randomized response about every canary: exactly ε-private, and no trainer tells more."""

    def train(included: Included) -> NDArray[np.float64]:
        count = len(included)
        wheel = bernoulli_exp([epsilon] * count)  # e^-ε
        lies = wheel & (uniform_int(0, 2, count) == 1)  # wrong half as often: 1/2 e^-ε < 1/(1+e^ε)
        return np.where(included ^ lies, 1.0, 0.0)

    return train


def test_the_bound_is_close_where_every_canary_is_told() -> None:
    """A lie has probability e^-ε / 2, so the true ε is ln(2e^ε - 1). Half of it is 8 deviations away."""
    true = np.log(2 * np.e - 1)
    found = audit_one_run(
        _responses(Fraction(1)), canaries=2000, guesses=2000, claimed=2, delta=DELTA, error=ERROR
    )
    assert 0.5 * true < found.at_least <= true


def test_a_claim_below_the_truth_is_caught() -> None:
    assert not audited(_responses(Fraction(3)), 1).holds


@pytest.mark.parametrize(("right", "epsilon"), [(80, 0.5), (95, 1.0), (100, 3.0)])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_bound_is_the_published_one(right: int, epsilon: float, delta: float) -> None:
    q = 1 / (1 + np.exp(-epsilon))
    alpha = max(binom.cdf(right - 1, 100, q) - binom.cdf(right - i - 1, 100, q) for i in [right]) / right
    for i in range(1, right):
        alpha = max(alpha, (binom.cdf(right - 1, 100, q) - binom.cdf(right - i - 1, 100, q)) / i)
    expected = min(binom.sf(right - 1, 100, q) + 2 * 150 * delta * alpha, 1)
    with precision(128):
        found = tail_of_right(150, 100, right, Fraction(epsilon), Fraction(delta))
    assert float(found) == pytest.approx(expected, rel=1e-9)


def test_nobody_is_accused_by_chance() -> None:
    """Scores that say nothing: exactly at most `error` of the possible results show anything at ε = 1."""
    q = 1 / (1 + np.exp(-1.0))
    shown = [
        v for v in range(101) if not OneRun(Fraction(1), Fraction(0), Fraction(1, 100), 100, 100, v).holds
    ]
    assert shown == list(range(shown[0], 101))
    assert binom.sf(shown[0] - 1, 100, q) <= 0.01 < binom.sf(shown[0] - 2, 100, q)


def test_abstaining_leaves_the_middle_out() -> None:
    """Scores tell half of the canaries only: guesses about these are all right."""

    def train(included: Included) -> NDArray[np.float64]:
        told = np.arange(CANARIES) % 2 == 0
        return np.where(told, np.where(included, 1.0, -1.0), 0.0)

    found = audited(train, 1, guesses=100)
    assert found.right == found.guesses == 100
    assert audited(train, 1, guesses=CANARIES).right < CANARIES


def test_a_score_that_is_no_number_tells_nothing() -> None:
    assert audited(lambda included: np.full(len(included), np.nan), 1).holds


@pytest.mark.parametrize(
    "change",
    [
        {"canaries": 1},
        {"guesses": 401},
        {"guesses": 1},
        {"delta": 1},
        {"error": 0},
        {"error": 1},
        {"claimed": 0},
    ],
)
def test_bad_parameters_are_refused_before_training(change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"canaries": 400, "guesses": 400, "claimed": 1, "delta": 0, "error": "0.01"}
    with pytest.raises(BadParameter):
        audit_one_run(lambda _: pytest.fail("trained"), **(given | change))


def test_a_trainer_must_score_every_canary() -> None:
    with pytest.raises(BadValue):
        audited(lambda _: np.zeros(3), 1)


@pytest.mark.parametrize(("guesses", "right"), [(10, 11), (200, 5), (0, 0)])
def test_impossible_results_cannot_be_made(guesses: int, right: int) -> None:
    with pytest.raises(BadParameter):
        OneRun(Fraction(1), Fraction(0), Fraction(1, 100), 100, guesses, right)


@pytest.mark.parametrize(
    ("claimed", "delta", "error", "guesses"),
    [(1, "1e-5", "1e-6", 1000), (1000, 0, "0.01", 1000), (1, 0, "1e-6", 20), (3, "1e-3", "1e-3", 1000)],
)
def test_an_audit_that_could_never_fail_is_refused_before_training(
    claimed: int, delta: str | int, error: str, guesses: int
) -> None:
    """Even all guesses right would be plausible, so that any trainer would pass."""
    with pytest.raises(BadParameter, match="always hold"):
        audit_one_run(
            lambda _: pytest.fail("trained"),
            canaries=1000, guesses=guesses, claimed=claimed, delta=delta, error=error,
        )  # fmt: skip
    with pytest.raises(BadParameter, match="always hold"):
        canary_stage(
            lambda _: pytest.fail("trained"),
            canaries=1000, guesses=guesses, claimed=claimed, delta=delta, error=error,
        )  # fmt: skip
    with pytest.raises(BadParameter, match="always hold"):
        OneRun(Fraction(claimed), Fraction(delta), Fraction(error), 1000, guesses, guesses // 2)


def test_the_stage_tells_what_it_found_and_what_it_could_have_found() -> None:
    stage = canary_stage(
        _responses(Fraction(1)), canaries=1000, guesses=1000, claimed=2, delta=DELTA, error=ERROR
    )
    result = stage(StageBudget())
    assert result.stage is Stage.CANARIES
    assert result.holds
    assert result.checks == 1000
    assert result.measured is not None
    assert result.could_show is not None
    assert result.measured <= result.claimed == 2 < result.could_show
    assert any(note.startswith("power: ") and "best bound to be expected" in note for note in result.notes)


def test_the_stage_gives_a_witness_against_a_release_without_noise() -> None:
    stage = canary_stage(
        lambda included: included.astype(float), canaries=200, guesses=100, claimed=1, delta=DELTA
    )
    result = stage(StageBudget())
    assert not result.holds
    assert result.witness is not None
    assert result.witness.numbers["right"] == 100
    assert result.witness.at_least is not None
    assert result.witness.at_least > 1


def test_the_stage_takes_the_error_of_its_budget() -> None:
    stage = canary_stage(
        lambda _: pytest.fail("trained"), canaries=1000, guesses=1000, claimed=1, delta="1e-5"
    )
    with pytest.raises(BadParameter, match="always hold"):
        stage(StageBudget(error=1e-6))
