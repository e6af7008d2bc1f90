"""Replays of training: ours hold, and each of several broken trainers is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.audit.case import Stage, StageBudget, StageResult
from lapwing.audit.registry.learning import (
    ADDED,
    BASE,
    NETWORK_ADDED,
    NETWORK_BASE,
    network_canaries,
    private_trainer_fit,
    sklearn_fit,
)
from lapwing.audit.registry.validating import validator_case
from lapwing.audit.stages.canaries import canary_stage
from lapwing.audit.stages.replay import replay_stage
from lapwing.audit.training_runs import (
    AuditPayer,
    Fit,
    LabelledRows,
    charged_loss,
    composed_apart,
    composed_as,
    neighbour_pairs,
    participation_stage,
    training_pair,
    with_extra,
)
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.losses import GaussianNoise, ParallelComposition, SampledGaussian
from lapwing.errors import MissingExtra
from lapwing.learn.payer import EACH_ROW, PaidResult, Payer
from lapwing.learn.sgd import ClippedGradients, GradientSensitivity, PrivateTrainer
from lapwing.learn.trainers import Binned, NaiveBayes
from lapwing.learn.trainers.estimator import COUNT
from lapwing.learn.trainers.priced_releases import PricedReleases, ReleaseGroup
from lapwing.learn.validators import MeanValidator

QUICK = StageBudget(is_thorough=False)
ONE, DELTA = Fraction(1), Fraction(1, 10**6)


def replayed(fit: Fit, *, network: bool = False, quick: int | None = None) -> StageResult:
    base, added = (NETWORK_BASE, NETWORK_ADDED) if network else (BASE, ADDED)
    charged = charged_loss(fit, base)
    pairs = neighbour_pairs(fit, base, added, quick=quick)
    compose = composed_as(charged)
    return replay_stage(pairs, charged, epsilon=ONE, delta=DELTA, compose=compose)(QUICK)


def bayes_fit(kind: type[NaiveBayes]) -> Fit:
    columns = Binned([-0.5, 0, 0.5])
    return sklearn_fit(
        lambda payer: kind(epsilon=1, delta="1e-6", columns=columns, classes=(0, 1, 2), payer=payer)
    )


def network_fit(kind: type[PrivateTrainer]) -> Fit:
    """All units in each of two steps, which is priced quickly."""
    return private_trainer_fit(kind, rate=1, steps=2)


class WrongSensitivity(NaiveBayes):
    """Noise for one column, and counts of four."""

    def _price(self, columns: int) -> PricedReleases:
        return self._priced(ReleaseGroup(COUNT**2, super()._price(columns).parts[0].dimension))


class AllRows(NaiveBayes):
    """Counts all rows of a unit, at the price of one."""

    def fit(self, X: Any, y: Any = None, units: Any = None, **others: Any) -> AllRows:  # noqa: N803
        return super().fit(X, y, units=EACH_ROW, **others)


class Unclipped(PrivateTrainer):
    """Priced for clip 1, and never clips."""

    def _gradients(self) -> ClippedGradients:
        return ClippedGradients(self.module, self._loss_fn, clip=10**6, page=self._page)


class HalfDistance(GradientSensitivity):
    @property
    def distance(self) -> int:
        return GradientSensitivity.distance.fget(self) // 2  # type: ignore[attr-defined, no-any-return]


class HalfTheNoise(PrivateTrainer):
    """Noise for half of the distance by which a unit moves a sum."""

    def _train(self, *args: Any) -> bytes:
        own = self.schedule.sensitivity
        half = HalfDistance(own.clip, own.parameters, own.page, own.single_up_to)
        self.schedule = replace(self.schedule, sensitivity=half)
        return super()._train(*args)


class TakenTwice(PrivateTrainer):
    """Charges its steps once, and does them twice."""

    def _train(self, *args: Any) -> bytes:
        super()._train(*args)
        return super()._train(*args)


class Noiseless(PrivateTrainer):
    """Charges for noise, and adds hardly any."""

    def _train(self, *args: Any) -> bytes:
        self.schedule = replace(self.schedule, noise=Fraction(1, 1000))
        return super()._train(*args)


class Everybody(PrivateTrainer):
    """Charges for a sample of a quarter of the units, and takes all of them."""

    def _sum(self, *args: Any, **named: Any) -> Any:
        own = self.schedule
        self.schedule = replace(own, rate=Fraction(1))
        try:
            return super()._sum(*args, **named)
        finally:
            self.schedule = own


@pytest.mark.parametrize("fit", [bayes_fit(NaiveBayes)])
def test_our_trainer_stays_within_its_price(fit: Fit) -> None:
    result = replayed(fit)
    assert result.holds
    assert result.checks > 30


def test_dp_sgd_stays_within_its_price() -> None:
    assert replayed(network_fit(PrivateTrainer), network=True, quick=1).holds


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (WrongSensitivity, "the inputs are farther apart than declared: squared L2"),
        (AllRows, "the inputs are farther apart than declared: squared L2"),
    ],
)
def test_a_broken_count_model_is_caught(kind: type[NaiveBayes], event: str) -> None:
    result = replayed(bayes_fit(kind))
    assert result.witness is not None
    assert result.witness.event == event


class TwiceThePrice(NaiveBayes):
    """Charges and draws for ε = 2, and claims 1."""

    def _priced(self, *groups: ReleaseGroup) -> PricedReleases:
        claimed, self.epsilon = self.epsilon, 2
        try:
            return super()._priced(*groups)
        finally:
            self.epsilon = claimed


def test_a_trainer_that_is_charged_more_than_it_claims_is_caught() -> None:
    result = replayed(bayes_fit(TwiceThePrice))
    assert result.witness is not None
    assert result.witness.event == "the charge is more than the claim"


class ShowsRows(NaiveBayes):
    """Tells in an attribute how many rows there were."""

    def fit(self, X: Any, y: Any = None, units: Any = None, **others: Any) -> ShowsRows:  # noqa: N803
        super().fit(X, y, units=units, **others)
        self.rows_ = len(X)
        return self


class ReceiptOfRows(NaiveBayes):
    """Tells in its receipt how many rows there were."""

    def _pay(self, table: Any, work: Any) -> PaidResult:
        self._row_count = len(table)
        return super()._pay(table, work)

    def _settings(self, columns: int) -> dict[str, str | int]:
        return {**super()._settings(columns), "rows": self._row_count}


class ShowsSteps(PrivateTrainer):
    """Tells in an attribute how many rows there were."""

    def fit(self, *args: Any, **named: Any) -> PrivateTrainer:
        self.rows_ = len(args[0])
        return super().fit(*args, **named)


@pytest.mark.parametrize("kind", [ShowsRows, ReceiptOfRows])
def test_what_a_user_sees_beside_the_stored_model_is_compared(kind: type[NaiveBayes]) -> None:
    result = replayed(bayes_fit(kind))
    assert result.witness is not None
    assert "results differ" in result.witness.event


def test_attributes_of_a_trained_network_are_compared() -> None:
    result = replayed(network_fit(ShowsSteps), network=True, quick=1)
    assert result.witness is not None
    assert "results differ" in result.witness.event


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (Unclipped, "the inputs are farther apart than declared: squared L2"),
        (HalfTheNoise, "the inputs are farther apart than declared: squared L2"),
        (TakenTwice, "the losses of all calls add up to more than what is charged"),
        (Noiseless, "the losses of all calls add up to more than what is charged"),
    ],
)
def test_a_broken_network_trainer_is_caught(kind: type[PrivateTrainer], event: str) -> None:
    result = replayed(network_fit(kind), network=True, quick=2)
    assert result.witness is not None
    assert result.witness.event == event


@pytest.mark.slow
def test_a_trainer_that_samples_too_often_is_caught() -> None:
    fit = private_trainer_fit(Everybody, rate="1/4", steps=2, delta="1e-4")
    charged = charged_loss(fit, NETWORK_BASE)
    stage = participation_stage(
        lambda _: StageResult(Stage.REPLAY, 1, 1.0), fit, NETWORK_BASE, NETWORK_ADDED[0], charged
    )
    result = stage(StageBudget())
    assert result.witness is not None
    assert result.witness.numbers["moved"] == result.witness.numbers["steps"] == 32
    assert stage(QUICK).holds  # only a thorough audit counts


def test_a_trainer_without_noise_is_caught_by_canaries() -> None:
    stage = canary_stage(network_canaries(Noiseless), canaries=200, guesses=100, claimed=1, delta="1e-10")
    result = stage(StageBudget())
    assert result.witness is not None
    assert result.witness.numbers["right"] == 100


class TooLittleNoise(MeanValidator):
    """Noise for half of the distance by which a unit moves the sums."""

    @property
    def _noise(self) -> Laplace:
        return Laplace.for_epsilon(self.epsilon, l1=self._l1 // 2)


@pytest.mark.parametrize(("kind", "holds"), [(MeanValidator, True), (TooLittleNoise, False)])
def test_a_validator_with_too_small_an_l1_distance_is_caught(
    kind: type[MeanValidator], holds: bool
) -> None:
    validator = kind(
        target=Fraction(1, 10), eta=Fraction(1, 20), epsilon=ONE, low=Fraction(0), high=ONE,
        step=Fraction(1, 10),
    )  # fmt: skip
    result = validator_case("mean", validator, (), (0.2, 0.5), (1.0, 0.0)).stages[Stage.REPLAY](QUICK)
    assert result.holds is holds
    if not holds:
        assert result.witness is not None
        assert result.witness.event == "the inputs are farther apart than declared: L1"


@pytest.mark.parametrize(("leaks", "holds"), [(False, True), (True, False)])
def test_work_on_two_halves_must_move_one_of_them_only(leaks: bool, holds: bool) -> None:
    """Training on all units, at the price of disjoint halves."""
    trained, tested = Gaussian(Fraction(5), ONE, 1), Laplace.for_epsilon(1, l1=1)
    run = FixedRun.of((trained.loss, 1), delta=Fraction(1, 10**6))
    charged = ParallelComposition((run, tested.loss))

    def fit(rows: LabelledRows, payer: Payer) -> None:
        tests = sum(unit % 2 == 0 for unit in rows.units)
        trains = len(rows.units) - (0 if leaks else tests)

        def work() -> bytes:
            trained.sample([trains])
            tested.sample([tests])
            return b""

        payer.pay(charged, work, mechanism="halves", parameters={})

    base = LabelledRows([[0]] * 4, [0] * 4)
    pair = training_pair(
        "4 units; the same and one that tests", fit, base, base.with_unit([[0]], [0]), seed=1,
        unmoved=lambda mechanism: mechanism == trained,
    )  # fmt: skip
    compose = composed_apart(run, lambda mechanism: mechanism == tested)
    stage = replay_stage([pair], charged, epsilon=ONE, delta=DELTA, compose=compose)
    assert stage(QUICK).holds is holds


def test_calls_compose_as_they_are_charged() -> None:
    noise = GaussianNoise(Fraction(20), ONE, 3)
    charged = FixedRun.of((SampledGaussian(Fraction(1, 2), noise), 2), delta=Fraction(1, 10**6))
    compose = composed_as(charged)
    call = type("Call", (), {"mechanism": Gaussian(Fraction(20), ONE, 3)})
    other = type("Call", (), {"mechanism": Gaussian(Fraction(19), ONE, 3)})
    assert compose([call, call]) is charged  # type: ignore[list-item]
    assert compose([call] * 3).pair[0] > charged.pair[0]  # type: ignore[index,list-item]
    assert compose([call, other]).pair[0] > charged.pair[0]  # type: ignore[index,list-item]


def test_the_payer_charges_nothing_and_keeps_loss_and_result() -> None:
    payer, loss = AuditPayer(), Gaussian(Fraction(20), ONE, 1).loss
    paid = payer.pay(loss, lambda: b"model", mechanism="any", parameters={"steps": 2})
    assert paid.receipt is None
    assert payer.paid == [(loss, b"model", "any", {"steps": 2})]


def test_a_trainer_must_ask_its_payer() -> None:
    with pytest.raises(TypeError, match="did not ask"):
        charged_loss(lambda rows, payer: None, BASE)


def test_an_added_unit_is_the_last_one_with_the_last_rows() -> None:
    more = BASE.with_unit([[1], [2]], [0, 0])
    assert more.units[-2:] == [12, 12]
    assert more.rows[:12] == BASE.rows
    assert sorted(BASE.reversed().units) == BASE.units
    assert np.bincount(BASE.with_other_rows().units).tolist() == [2] * 12


def test_a_missing_extra_is_told_and_does_not_count_as_passed() -> None:
    def missing() -> Callable[[StageBudget], StageResult]:
        raise MissingExtra("learn", "Training a model")

    result = with_extra(Stage.REPLAY, 1.0, missing)(QUICK)
    assert not result.holds
    assert "lapwing[learn]" in result.unable
