"""Removing one unit moves the whole numbers by no more than is priced, whatever its gradient is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lapwing.learn.sgd import ClippedGradients, GradientSensitivity
from lapwing.learn.sgd.randomness import ABSENT, draw_place_kinds, lay_out_pages, round_to_grid
from learn.sgd.made import MODULES, ByPlace, losses

Whole = NDArray[np.int64]


def product(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss whose slope is the target: the gradient can be made to be anything."""
    return (outputs.flatten(1) * targets.flatten(1)).sum(1)


class Sums:
    """The whole numbers of any set of units, laid out in pages as the trainer does it."""

    def __init__(
        self, gradients: ClippedGradients, grid: GradientSensitivity, x: Tensor, y: Tensor
    ) -> None:
        self.gradients, self.grid, self.x, self.y = gradients, grid, x, y
        page, kinds = gradients.page, gradients.kinds
        self.kind = draw_place_kinds(len(x), page, kinds)  # each unit's own coin, whoever else is there

    def of(self, units: list[int]) -> Whole:
        each = self.gradients.unit_rows
        sampled = np.array([[unit * each + row for row in range(each)] for unit in units], dtype=np.int64)
        sampled, kind = sampled.reshape(len(units), each), self.kind[units]
        pages = lay_out_pages(sampled, kind, self.gradients.page, self.gradients.kinds)
        sums = self.gradients.empty(single=self.grid.is_single(len(units), len(pages)))
        for page in pages:
            places = torch.from_numpy(page.reshape(-1))
            present = places != ABSENT
            x = self.x.new_zeros((len(places), *self.x.shape[1:]))
            y = self.y.new_zeros((len(places), *self.y.shape[1:]))
            x[present], y[present] = self.x[places[present]], self.y[places[present]]
            self.gradients.add_page(x, y, present, sums)
        return round_to_grid(sums.numpy(), self.grid).astype(np.int64)


def squared_distance(one: Whole, other: Whole) -> int:
    return sum(int(gap) ** 2 for gap in (one - other) if gap)


def check(sums: Sums, units: int, removed: list[int]) -> float:
    """Each removal stays within the price; how much of it the worst one uses."""
    everyone, most = sums.of(list(range(units))), 0
    for unit in removed:
        moved = squared_distance(everyone, sums.of([k for k in range(units) if k != unit]))
        assert moved <= sums.grid.distance**2
        most = max(most, moved)
    return math.sqrt(most) / sums.grid.distance


def grid_of(gradients: ClippedGradients, clip: float, batch: int) -> GradientSensitivity:
    return GradientSensitivity.of(
        clip, parameters=gradients.size, page=gradients.page, expected_batch=batch
    )


@pytest.mark.parametrize("unit_rows", [1, 2])
@pytest.mark.parametrize("name", MODULES)
def test_removing_a_unit_moves_within_the_price(name: str, unit_rows: int) -> None:
    torch.manual_seed(2)
    make, rows = MODULES[name]
    x = rows(41 * unit_rows)
    gradients = ClippedGradients(make(), losses, clip=0.25, page=16, unit_rows=unit_rows)
    y = torch.randint(0, 3, (len(x),))
    gradients.rehearse(x[:0], y[:0])
    sums = Sums(gradients, grid_of(gradients, 0.25, 40), x, y)
    assert check(sums, 41, [0, 15, 16, 40]) > 0.9  # the price is not far above what happens


SIZES = [0.0, 1e-30, 1e-12, 0.999999, 1.0, 1.0000001, 3.0, 1e12, 1e25, 3e38, float("inf"), float("nan")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [1e-6, 1.0, 1e6])
def test_whatever_the_gradients_are(dtype: torch.dtype, clip: float) -> None:
    torch.manual_seed(3)
    module = nn.Linear(40, 30).to(dtype)
    gradients = ClippedGradients(module, product, clip=clip, page=16)
    units = 3 * len(SIZES)
    x, y = torch.randn(units, 40, dtype=dtype), torch.randn(units, 30, dtype=dtype)
    y = y / (y.norm(dim=1) * torch.sqrt(x.square().sum(1) + 1))[:, None]  # gradients of norm 1, then of any
    sizes = torch.tensor(SIZES * 3, dtype=torch.float64) * clip
    y = (y.double() * sizes[:, None]).to(dtype)
    sums = Sums(gradients, grid_of(gradients, clip, units), x, y)
    assert check(sums, units, list(range(units))) > 0.9


@pytest.mark.parametrize("split", [1e19, 1e-19, 1e15, 1e-15])
def test_a_large_input_times_a_small_slope_is_not_lost(split: float) -> None:
    """Each factor's square is beyond single precision, or vanishes; their product is what counts."""
    module = nn.Linear(50, 50, bias=False)
    gradients = ClippedGradients(module, product, clip=1, page=4)
    x = torch.full((5, 50), split)
    y = torch.full((5, 50), 10 / split)
    assert check(Sums(gradients, grid_of(gradients, 1, 5), x, y), 5, [0, 4]) <= 1


def test_products_that_cancel_out_are_clipped_for_what_they_are_made_of() -> None:
    torch.manual_seed(4)
    module = nn.Linear(90, 80, bias=False)
    gradients = ClippedGradients(module, product, clip=1, page=4)
    x, y = torch.randn(9, 2, 90) * 1e6, torch.randn(9, 2, 80) * 1e6
    x[:, 1] = x[:, 0] * (1 + 2e-7)
    y[:, 1] = -y[:, 0]
    sums = Sums(gradients, grid_of(gradients, 1, 9), x, y)
    check(sums, 9, list(range(9)))


def test_many_units_at_the_clip_in_single_and_double_precision() -> None:
    torch.manual_seed(5)
    gradients = ClippedGradients(nn.Linear(30, 20), product, clip=1, page=16)
    x, y = torch.randn(700, 30).abs(), torch.randn(700, 20).abs() * 100  # sums grow: the worst for floats
    for batch in (100, 650):  # 700 sampled units are above what single precision is priced for, and below
        grid = grid_of(gradients, 1, batch)
        assert (grid.single_up_to < 700) == (batch == 100)
        assert check(Sums(gradients, grid, x, y), 700, [0, 333, 699]) > 0.95


def test_a_sample_just_above_and_below_single_precision() -> None:
    """Adding one unit more changes how everybody is summed: that is priced, too."""
    torch.manual_seed(6)
    gradients = ClippedGradients(nn.Linear(30, 20), product, clip=1, page=16)
    grid = grid_of(gradients, 1, 100)
    units = grid.single_up_to + 1
    x, y = torch.randn(units, 30).abs(), torch.randn(units, 20).abs() * 100
    assert check(Sums(gradients, grid, x, y), units, [0, 50, units - 1]) > 0.95


def test_without_clipping_a_unit_moves_more_than_is_priced() -> None:
    """The broken variant: this test's measure finds it."""
    gradients = ClippedGradients(nn.Linear(30, 20), product, clip=1e6, page=16)
    grid = grid_of(gradients, 1, 20)
    x, y = torch.randn(20, 30), torch.randn(20, 20)
    sums = Sums(gradients, grid, x, y)
    moved = squared_distance(sums.of(list(range(20))), sums.of(list(range(19))))
    assert moved > 4 * grid.distance**2


def test_clipping_rows_instead_of_units_moves_more_than_is_priced() -> None:
    by_row = ClippedGradients(nn.Linear(30, 20), product, clip=1, page=16)
    grid = grid_of(by_row, 1, 20)
    x, y = torch.randn(1, 30).repeat(20, 1), torch.randn(1, 20).repeat(20, 1) * 10
    sums = Sums(by_row, grid, x, y)
    moved = squared_distance(sums.of(list(range(20))), sums.of(list(range(15))))  # five rows of one unit
    assert moved > 16 * grid.distance**2


@pytest.mark.parametrize(("last", "page"), [(False, 16), (False, 64), (True, 64)])
# Case C6.
def test_a_last_bit_that_goes_by_place_is_nobody_elses_when_a_unit_leaves(last: bool, page: int) -> None:
    """Past a ReLU the bit is a whole gradient: that of every other unit is 0 at some places alone."""
    hidden = nn.Linear(4, 8, bias=False)
    with torch.no_grad():
        hidden.weight.copy_(torch.tensor([1.0, -1.0, 0.0, 0.0]).expand(8, 4))
    module = nn.Sequential(ByPlace(last=last), hidden, nn.ReLU(), nn.Linear(8, 3))
    gradients = ClippedGradients(module, lambda out, y: 1e9 * losses(out, y), clip=1, page=page)
    gradients.rehearse(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    assert gradients.kinds == (page if last else 16)
    x, y = torch.ones(101, 4), torch.zeros(101, dtype=torch.int64)
    x[1::2, 1] = 2  # far from the edge
    grid = grid_of(gradients, 1, 100)
    assert check(Sums(gradients, grid, x, y), 101, [0, 50, 100]) > 0.9
    gradients.kinds = 1  # the broken variant: in order, so that all after unit 0 change places
    in_order = Sums(gradients, grid, x, y)
    moved = squared_distance(in_order.of(list(range(101))), in_order.of(list(range(1, 101))))
    assert last or moved > 100 * grid.distance**2


class InShortFloats(nn.Module):
    """Works in bfloat16 inside, which no setting shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found: Tensor = self.layer(x)
        return found


def test_short_floats_inside_a_module_are_clipped_for_what_they_are() -> None:
    torch.manual_seed(24)
    gradients = ClippedGradients(InShortFloats(), product, clip=1e-2, page=16)
    x, y = torch.zeros(200, 4), torch.randn(200, 8)
    sums = Sums(gradients, grid_of(gradients, 1e-2, 1), x, y)
    for unit in range(200):
        alone = sums.of([unit])
        assert squared_distance(alone, 0 * alone) <= sums.grid.distance**2
