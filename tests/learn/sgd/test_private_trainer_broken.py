"""The A cases: broken trainers are caught by what catches nothing on ours (A1, shuffling: test_trainer).

One step at rate 1, with a canary: a unit whose gradient is as long as may be. What comes out with and
without the canary is told apart by one threshold; the proven lower bound on ε is Clopper-Pearson at 1e-6 on
each side, so a sound trainer is accused wrongly with probability below 2e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import Tensor, nn

from lapwing.learn.payer import PublicData
from lapwing.learn.sgd import PrivateTrainer
from lapwing.learn.sgd.randomness import StepNoise, UnitIndex, release_noisy_sum

EPSILON, DELTA, TRIALS, OTHERS, BATCH = 1, Fraction(1, 10**5), 1500, 20, 20


def product(outputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of a row is its input times its target."""
    return outputs[:, 0] * targets


def trainer_of() -> PrivateTrainer:
    return PrivateTrainer(
        nn.Linear(2, 1, bias=False), product, epsilon=EPSILON, delta=DELTA, clip=1, rate=1, steps=1,
        expected_batch=BATCH, payer=PublicData(), learning_rate=1.0, page=16,
    )  # fmt: skip


def rows(canary: bool, length: float) -> tuple[Tensor, Tensor]:
    x = torch.zeros(OTHERS + canary, 2)
    x[:OTHERS, 1] = 1.0  # everybody else is the same, and beside the canary
    if canary:
        x[-1, 0] = length
    return x, torch.ones(len(x))


Release = Callable[[PrivateTrainer, Tensor, StepNoise], float]


def sound(trainer: PrivateTrainer, sums: Tensor, noise: StepNoise) -> float:
    return float(release_noisy_sum(sums.clone(), trainer.sensitivity, noise, divided_by=BATCH)[0])


def noise_divided_twice(trainer: PrivateTrainer, sums: Tensor, noise: StepNoise) -> float:
    return float(sums[0]) / BATCH + sound(trainer, torch.zeros_like(sums), noise) / BATCH


def proven_epsilon(release: Release, *, length: float = 1.0, is_clipped: bool = True) -> float:
    """The ε that the outcomes prove, at the threshold halfway between the two means."""
    trainer = trainer_of()
    noise = StepNoise(trainer.sensitivity.mechanism(trainer.schedule.noise), steps=2 * TRIALS)
    found: list[list[float]] = []
    for canary in (False, True):
        x, y = rows(canary, length)
        people = UnitIndex(len(x), None)
        gradients = trainer._gradients()
        sums = trainer._sum(gradients, x, y, people)
        if not is_clipped and canary:
            sums = sums + torch.tensor([length, 0.0])
        found.append([release(trainer, sums, noise) for _ in range(TRIALS)])
    without, with_it = np.array(found[0]), np.array(found[1])
    middle = (np.median(without) + np.median(with_it)) / 2
    sign = 1 if np.median(with_it) >= np.median(without) else -1
    right = int((sign * with_it > sign * middle).sum())
    wrong = int((sign * without > sign * middle).sum())
    low = beta.ppf(1e-6, right, TRIALS - right + 1) if right else 0.0
    high = beta.ppf(1 - 1e-6, wrong + 1, TRIALS - wrong) if wrong < TRIALS else 1.0
    return math.log(max(low - float(DELTA), 1e-12) / high)


@pytest.mark.slow
def test_ours_stays_under_its_epsilon() -> None:
    assert proven_epsilon(sound) < EPSILON
    assert proven_epsilon(sound, length=1e6) < EPSILON


def test_no_clipping_is_caught() -> None:
    assert proven_epsilon(sound, length=1e3, is_clipped=False) > EPSILON


def test_A4_noise_divided_by_the_batch_twice_is_caught() -> None:
    assert proven_epsilon(noise_divided_twice) > EPSILON


def test_A3_what_is_divided_by_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """With equal sums and other sizes, training ends at the same place (here without noise)."""
    monkeypatch.setattr(
        "lapwing.learn.sgd.randomness.discrete_gaussian_lots", lambda _, size: [np.zeros(size)]
    )
    moved: list[Tensor] = []
    for size in (1, 1000):
        x = torch.zeros(size, 2)
        x[0, 0] = 0.5
        trainer = trainer_of()
        (weight,) = trainer.module.parameters()
        torch.nn.init.zeros_(weight)
        trainer.fit(x, torch.ones(size))
        moved.append(-weight.detach().clone())
    torch.testing.assert_close(moved[0], moved[1])
    assert float(moved[0][0, 0]) == pytest.approx(0.5 / BATCH)


def test_A3_dividing_by_the_private_size_tells_it() -> None:
    """The broken variant: a unit whose own gradient is 0 moves everybody's share, as if it had one."""
    trainer = trainer_of()
    x = torch.zeros(400, 2)
    x[:, 1] = 1.0
    x[-1] = 0.0
    shares = []
    for size in (400, 399):
        sums = trainer._sum(trainer._gradients(), x[:size], torch.ones(size), UnitIndex(size, None))
        shares.append(sums[1] / size)
    moved_by_one = abs(shares[0] - shares[1]) * 400
    public = trainer._sum(trainer._gradients(), x, torch.ones(400), UnitIndex(400, None))[1]
    assert float(public) == pytest.approx(399)
    assert moved_by_one > 0.9  # as if it had a gradient of full length
