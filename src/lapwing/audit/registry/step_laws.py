"""The steps of DP-SGD as they are run: the law of their noise, and of who takes part.

Claim    if the stage finds no violation, then in the training that was run the noise of a step, read off
         the released weights, and the samples of units follow the laws that are charged.
Because  without gradients the weights move by the noise alone. And where each unit has a weight of its own,
         the sum before noise tells who takes part. Both have known probabilities (`known_law`).
Test     tests/audit/registry/test_step_laws.py

A replay sees what reaches a mechanism, and takes its noise and its rate for granted. Here nothing is
taken from the trainer but the loss that it asks its payer for.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.forced_draws import copy_of
from lapwing.audit.stages.known_law import KnownEvent, KnownLaw, gaussian_events, with_known_laws
from lapwing.audit.training_runs import LabelledRows, charged_loss, watching
from lapwing.core.exact import sqrt_up
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import GaussianNoise, SampledGaussian
from lapwing.core.noise import bernoulli
from lapwing.learn.payer import Payer, PublicData

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHTS = 20_000
_UNITS, _STEPS = 1_500, 4
_RATE = Fraction(1, 5)
_NEARLY_GAUSSIAN = 10  # from this σ on, a sum of discrete Gaussian noises is one to e^-900
_BATCH = 64  # a power of two, so that dividing by it is exact
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)


def step_stage(trainer: type[Any] | None = None) -> RunStage:
    """Return the sampled stage of the steps of a private trainer; None is `PrivateTrainer`."""

    def known() -> list[KnownLaw]:
        from lapwing.learn import PrivateTrainer  # noqa: PLC0415 (it says if torch is missing)

        made = PrivateTrainer if trainer is None else trainer
        return [_noise_law(made, 1), _noise_law(made, 2), *_sample_laws(made)]

    return with_known_laws(None, known, float(EPSILON))


def _trainer(made: type[Any], weights: int, steps: int, payer: Payer, loss: Callable[..., Tensor]) -> Any:
    from torch import nn  # noqa: PLC0415 (an extra)

    module = nn.Linear(weights, 1, bias=False)
    nn.init.zeros_(module.weight)
    return module, made(
        module, loss, epsilon=EPSILON, delta=DELTA, clip=1, rate=_RATE, steps=steps, page=32,
        expected_batch=_BATCH, payer=payer, learning_rate=1.0,
    )  # fmt: skip


def _charged(made: type[Any], weights: int, steps: int) -> SampledGaussian:
    """Return the step that the trainer asks its payer to charge."""

    def fit(rows: LabelledRows, payer: Payer) -> None:
        _, trainer = _trainer(made, weights, steps, payer, _nothing)
        trainer.fit(np.zeros((len(rows.rows), weights), dtype=np.float32), np.zeros(len(rows.rows)))

    loss = charged_loss(fit, LabelledRows([[0]], [0]))
    assert isinstance(loss, FixedRun)
    [(step, count)] = loss.steps
    assert isinstance(step, SampledGaussian)
    assert count == steps
    return step


def _nothing(outputs: Tensor, _targets: Tensor) -> Tensor:
    return 0 * outputs.reshape(-1)


def _rewards(outputs: Tensor, _targets: Tensor) -> Tensor:
    return -outputs.reshape(-1)


def _noise_law(made: type[Any], steps: int) -> KnownLaw:
    """Return the noise of some steps together, read off weights that nothing else moves.

    The noises of two steps must be independent: then their sum has the spread σ√2, and not 2σ.
    """
    noise = _charged(made, _WEIGHTS, steps).noise
    assert isinstance(noise, GaussianNoise)
    assert noise.sigma > _NEARLY_GAUSSIAN

    def draw() -> NDArray[np.float64]:
        module, trainer = _trainer(made, _WEIGHTS, steps, PublicData(), _nothing)
        trainer.fit(np.zeros((8, _WEIGHTS), dtype=np.float32), np.zeros(8, dtype=np.float32))
        moved = module.weight.detach().numpy().reshape(-1).astype(np.float64)
        return np.asarray(moved * _BATCH / float(trainer.sensitivity.step), dtype=np.float64)

    name = "the noise of a step of DP-SGD" if steps == 1 else f"the noise of {steps} steps of DP-SGD"
    return KnownLaw(
        f"{name}, in the released weights", draw, gaussian_events(sqrt_up(steps * noise.sigma**2))
    )


def _sample_laws(made: type[Any]) -> list[KnownLaw]:
    """Return who takes part in each step: one by one, and in two steps that follow each other."""
    rate = float(_charged(made, _UNITS, _STEPS).rate)
    drawn: list[NDArray[np.bool_]] = []

    def taken() -> NDArray[np.bool_]:
        if not drawn:
            _, trainer = _trainer(made, _UNITS, _STEPS, PublicData(), _rewards)
            with watching(lambda _: True) as seen:
                trainer.fit(100 * np.eye(_UNITS, dtype=np.float32), np.zeros(_UNITS, dtype=np.float32))
            drawn.append(np.array([np.array(step["values"]) != 0 for step in seen]))
        return drawn[0]

    once = KnownEvent("a unit takes part in a step", lambda each: each.reshape(-1), rate)
    twice = KnownEvent(
        "a unit takes part in a step and in the next",
        lambda each: (each[::2] & each[1::2]).reshape(-1),
        rate**2,
    )
    beside = KnownEvent(
        "two units take part in the same step",
        lambda each: (each[:, ::2] & each[:, 1::2]).reshape(-1), rate**2,
    )  # fmt: skip
    return [KnownLaw("the samples of DP-SGD", taken, (once, twice, beside))]


def regression_samples(budget: StageBudget) -> StageResult:
    """Compare the coins of logistic regression on samples, one a unit and step, with the charged rate."""
    from lapwing.learn import trainers  # noqa: PLC0415 (an extra)
    from lapwing.learn.trainers import linear_models  # noqa: PLC0415 (an extra)

    del budget  # nothing here is by chance
    units, drawn = 50, []

    def recorded(rate: Fraction, size: int) -> NDArray[np.bool_]:
        drawn.append((Fraction(rate), size))
        return bernoulli(rate, size)

    copied = copy_of(linear_models, {"bernoulli": recorded}).LogisticRegression

    def fit(rows: LabelledRows, payer: Payer) -> None:
        model = copied(
            epsilon=EPSILON, delta=DELTA, columns=(trainers.Real(-1, 1),), classes=(0, 1), size=9,
            steps=_STEPS, rate=_RATE, payer=payer,
        )  # fmt: skip
        model.fit(rows.rows, rows.target, units=np.array(rows.units))

    base = LabelledRows([[k / units] for k in range(units)], [k % 2 for k in range(units)])
    loss = charged_loss(fit, base)
    assert isinstance(loss, FixedRun)
    charged = [(step.rate, units) for step, count in loss.steps if isinstance(step, SampledGaussian)
               for _ in range(count)]  # fmt: skip
    drawn.clear()
    fit(base, PublicData())
    witness = None
    if drawn != charged or not charged:
        witness = Witness(
            f"{units} units, {_STEPS} steps", "units are not sampled at the rate that is charged",
            {"charged": str(charged[:2]), "drawn": str(drawn[:2])},
        )  # fmt: skip
    return StageResult(
        Stage.SAMPLED, len(charged), float(EPSILON), could_show=float(EPSILON), witness=witness
    )
