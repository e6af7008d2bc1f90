"""A trainer reveals neither rows out of range, random numbers, state of a loss, nor the number of units."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lapwing.learn.payer import PublicData
from lapwing.learn.sgd import PrivateTrainer, clipping, sensitivity
from lapwing.learn.sgd.randomness import UnitIndex
from learn.sgd.made import clipped_sum, losses
from learn.sgd.test_private_trainer import DELTA, X, Y, module_of, trainer_of


class Seen:
    """What goes into pages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.present: list[int] = []
        self.sums: list[Tensor] = []
        on_page = clipping.ClippedGradients.add_page

        def look(gradients: clipping.ClippedGradients, *given: Tensor, is_first: bool) -> Tensor:
            norms = on_page(gradients, *given, is_first=is_first)
            self.present.append(int(given[2].sum()))
            self.sums.append(given[3].clone())
            return norms

        monkeypatch.setattr(clipping.ClippedGradients, "add_page", look)


def test_rows_outside_declared_ranges_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, one of them would end the process: they never get there."""
    seen = Seen(monkeypatch)
    tokens = torch.randint(0, 6, (50, 2))
    tokens[3, 1], tokens[4, 0] = 6, -1
    wrong = Y.clone()
    wrong[4], wrong[5] = 3, -100
    module = nn.Sequential(nn.Embedding(6, 3), nn.Flatten(), nn.Linear(6, 3))
    trainer = trainer_of(PublicData(), module, rate=1, steps=1, page=64, tokens=6, classes=3)
    trainer.fit(tokens, wrong)
    assert seen.present == [47]
    assert trainer._public()["tokens"] == "6"


def test_dropout_throws_secret_coins_whatever_seed_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs on the same rows, after the same seed: nobody can know the coins. And the seed is kept."""
    seen = Seen(monkeypatch)
    module = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    trainer = trainer_of(PublicData(), module, rate=1, steps=1, page=64)
    for _ in range(2):
        torch.manual_seed(0)
        expected = torch.rand(3)
        torch.manual_seed(0)
        with monkeypatch.context() as patched:
            patched.setattr("lapwing.learn.sgd.private_trainer.load_module_bytes", lambda *_: None)
            trainer.fit(X, Y)
        assert torch.equal(torch.rand(3), expected)
    assert not torch.equal(seen.sums[0], seen.sums[1])


class Remembering(nn.Module):
    """A loss that counts in a plain number, which nobody sees."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return losses(outputs, targets)


def test_what_a_loss_remembers_stays_with_a_copy() -> None:
    loss_fn = Remembering()
    PrivateTrainer(
        module_of(), loss_fn, epsilon=1, delta=DELTA, clip=1, rate="0.2", expected_batch=10, steps=6,
        learning_rate=0.5, page=16, payer=PublicData(),
    ).fit(X, Y)  # fmt: skip
    assert loss_fn.calls == 0


def test_the_module_is_rehearsed_again_with_the_numbers_that_it_has_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[int] = []
    again = clipping.ClippedGradients.rehearse_again

    def look(gradients: clipping.ClippedGradients, x: Tensor, y: Tensor, *, step: int) -> None:
        steps.append(step)
        assert len(x) == len(y) == 0
        again(gradients, x, y, step=step)

    monkeypatch.setattr(clipping.ClippedGradients, "rehearse_again", look)
    trainer_of(PublicData(), steps=18).fit(X, Y)
    assert steps == [4, 16]


@pytest.mark.parametrize(("away", "kinds"), [(0, 1), (1, 16), (40, 64), (69, 1), (69, 16)])
def test_very_many_units_are_summed_with_care(
    monkeypatch: pytest.MonkeyPatch, away: int, kinds: int
) -> None:
    """As if 70 were more than 2^22. Whoever leaves makes it few again: the sums are within the price."""
    monkeypatch.setattr(sensitivity, "DOUBLE_UP_TO", 69)
    module = nn.Linear(4, 3)
    trainer = trainer_of(PublicData(), module, rate=1, page=64, expected_batch=10)
    x, y = torch.randn(70, 4), torch.randint(0, 3, (70,))
    some = [k for k in range(70) if k != away]
    gradients = trainer._gradients()
    gradients.kinds = kinds
    many, fewer = (
        trainer._sum(gradients, x[rows], y[rows], UnitIndex(len(rows), None)).clone()
        for rows in (list(range(70)), some)
    )
    single = torch.cat([value.flatten() for value in clipped_sum(gradients, x, y)[0].values()])
    torch.testing.assert_close(many, single.double(), rtol=1e-5, atol=1e-5)
    step = float(trainer.sensitivity.step)
    moved = (many.double() / step).round() - (fewer.double() / step).round()
    assert float(moved.norm()) <= trainer.sensitivity.distance
