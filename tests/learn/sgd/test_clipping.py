"""Sums of clipped gradients: bad rows, padding, pages."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lapwing.errors import BadParameter
from lapwing.learn.sgd import ClippedGradients
from lapwing.learn.sgd.unit_gradients import safe_squares
from learn.sgd.made import clipped_sum, losses


def gradients_of(page: int = 4) -> ClippedGradients:
    torch.manual_seed(7)
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    return ClippedGradients(module, losses, clip="0.1", page=page)


_COINS = torch.Generator().manual_seed(11)
X, Y = torch.randn(10, 6, generator=_COINS), torch.randint(0, 3, (10,), generator=_COINS)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
def test_a_unit_without_a_finite_gradient_adds_nothing_and_spoils_nobody(bad: float) -> None:
    spoiled = X.clone()
    spoiled[3] = bad
    present = torch.ones(10, dtype=torch.bool)
    found, expected = gradients_of(10), gradients_of(10)
    sums, alone = found.empty(single=True), expected.empty(single=True)
    found.add_page(spoiled, Y, present, sums)
    present[3] = False
    expected.add_page(X, Y, present, alone)
    assert torch.isfinite(sums).all()
    if bad != 1e38:  # a large input saturates tanh: its gradient is finite, and clipped
        torch.testing.assert_close(sums, alone, rtol=1e-5, atol=1e-7)


def test_padding_adds_nothing() -> None:
    gradients = gradients_of(10)
    sums = gradients.empty(single=True)
    norms = gradients.add_page(
        torch.zeros(10, 6), torch.zeros(10, dtype=torch.int64), torch.zeros(10) > 0, sums
    )
    assert not sums.any()
    assert not norms.any()


def test_what_the_loss_does_not_depend_on_gets_nothing() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.idle(x)
            found: Tensor = self.used(x)
            return found

    gradients = ClippedGradients(Idle(), losses, clip=1, page=10)
    sums = gradients.empty(single=True).fill_(torch.nan)
    gradients.add_page(X, Y, torch.ones(10, dtype=torch.bool), sums, is_first=True)
    parts = gradients.views(sums)
    assert parts["used.weight"].any()
    assert not parts["idle.weight"].any()
    assert not parts["idle.bias"].any()


@pytest.mark.parametrize("width", [3, 1024, 2500])
def test_lengths_of_all_sizes_are_right_and_nobodys_depend_on_others(width: int) -> None:
    torch.manual_seed(5)
    scales = [0.0, 1e-44, 1e-38, 1e-30, 1e-19, 1e-13, 1e-6, 1.0, 1e6, 1e12, 1e15, 1e19, 1e30, 3e37]
    rows = torch.randn(len(scales), width) * torch.tensor(scales)[:, None]
    found = safe_squares(rows)
    torch.testing.assert_close(found, rows.double().square().sum(1), rtol=1e-4, atol=0)
    assert torch.equal(torch.cat([safe_squares(row[None]) for row in rows]), found)


def test_pages_of_any_size_give_the_same_sum() -> None:
    expected = clipped_sum(gradients_of(10), X, Y)
    for page in (1, 3, 7, 64):
        sums, norms = clipped_sum(gradients_of(page), X, Y)
        torch.testing.assert_close(norms, expected[1], rtol=1e-6, atol=1e-9)
        for name, value in expected[0].items():
            torch.testing.assert_close(sums[name], value, rtol=1e-5, atol=1e-7)


def test_no_rows_are_a_sum_of_nothing() -> None:
    sums, norms = clipped_sum(gradients_of(), X[:0], Y[:0])
    assert len(norms) == 0
    assert not any(value.any() for value in sums.values())


def test_a_page_has_its_shape() -> None:
    gradients = gradients_of(8)
    sums = gradients.empty(single=True)
    with pytest.raises(BadParameter, match="8 rows"):
        gradients.add_page(X, Y, torch.ones(10, dtype=torch.bool), sums)


def test_norms_are_no_longer_than_the_clip_afterwards() -> None:
    for row in range(10):
        sums, _ = clipped_sum(gradients_of(4), X[row : row + 1], Y[row : row + 1])
        length = torch.sqrt(sum(value.double().square().sum() for value in sums.values()))  # type: ignore[arg-type]
        assert float(length) <= 0.1 * (1 + 1e-6)
