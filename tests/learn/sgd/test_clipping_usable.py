"""Units for which the module fails are left out: training goes on, other floats stay, no error is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional

from lapwing.errors import BadValue
from lapwing.learn.sgd import ClippedGradients
from lapwing.learn.sgd.clipping import fill_empty_rows
from learn.sgd.made import clipped_sum, losses
from learn.sgd.test_sgd_neighbours import Sums, check, grid_of


def shares(outputs: Tensor, targets: Tensor) -> Tensor:
    """Refuses what does not lie between 0 and 1, as one row that is no number does."""
    return functional.binary_cross_entropy(outputs[:, 0].sigmoid(), targets, reduction="none")


def surprise(outputs: Tensor, targets: Tensor) -> Tensor:
    """Refuses what is not a number."""
    spread = functional.softplus(outputs[:, 1])
    found: Tensor = -Normal(outputs[:, 0], spread).log_prob(targets)  # type: ignore[no-untyped-call]
    return found


def words() -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(20, 3))


def _spoil(x: Tensor, y: Tensor, *, row: int, token: int | None = None, label: int | None = None) -> None:
    if token is not None:
        x[row, 0] = token
    elif label is not None:
        y[row] = label
    else:
        x[row] = torch.nan


Case = tuple[Callable[[], nn.Module], Callable[[Tensor, Tensor], Tensor], str, dict[str, int]]
CASES: dict[str, Case] = {
    "label too large": (lambda: nn.Linear(4, 3), losses, "label", {"label": 3}),
    "label below 0": (lambda: nn.Linear(4, 3), losses, "label", {"label": -1}),
    "token too large": (words, losses, "tokens", {"token": 9}),
    "token below 0": (words, losses, "tokens", {"token": -1}),
    "shares": (lambda: nn.Linear(4, 1), shares, "share", {}),
    "distribution": (lambda: nn.Linear(4, 2), surprise, "share", {}),
}


def rows_of(kind: str, count: int) -> tuple[Tensor, Tensor]:
    x = torch.randint(0, 9, (count, 5)) if kind == "tokens" else torch.randn(count, 4)
    return x, torch.rand(count) if kind == "share" else torch.randint(0, 3, (count,))


@pytest.mark.parametrize("name", CASES)
def test_a_row_that_fails_adds_nothing_and_changes_nobody(name: str) -> None:
    torch.manual_seed(20)
    make, loss_fn, kind, bad = CASES[name]
    x, y = rows_of(kind, 32)
    gradients = ClippedGradients(make(), loss_fn, clip=1, page=32)
    gradients.rehearse(x[:0], y[:0])
    for row in (2, 3, 31):
        _spoil(x, y, row=row, **bad)
    present = torch.ones(32, dtype=torch.bool)
    sums, expected = gradients.empty(single=True), gradients.empty(single=True)
    torch.manual_seed(21)
    gradients.add_page(x, y, present, sums)
    present[[2, 3, 31]] = False
    torch.manual_seed(21)  # the coins are those that the page had before it failed
    gradients.add_page(torch.where(present[:, None], x, 0), torch.where(present, y, 0), present, expected)
    assert torch.equal(sums, expected)
    assert expected.any()


@pytest.mark.parametrize("name", ["label too large", "shares", "distribution"])
def test_removing_a_row_that_fails_or_another_moves_within_the_price(name: str) -> None:
    torch.manual_seed(22)
    make, loss_fn, kind, bad = CASES[name]
    x, y = rows_of(kind, 20)
    _spoil(x, y, row=5, **bad)
    gradients = ClippedGradients(make(), loss_fn, clip=0.1, page=16)
    sums = Sums(gradients, grid_of(gradients, 0.1, 20), x, y)
    assert check(sums, 20, [5]) <= 1e-3  # what is left of it: other units share pages now
    assert check(sums, 20, [0, 17]) > 0.5


class Together(nn.Module):
    """Fails on a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if (x[:, 0] > 100).sum() > 1:
            raise RuntimeError(f"secret {float(x.max())}")
        found: Tensor = self.layer(x)
        return found


class Full(Together):
    """Needs more memory than there is."""

    def forward(self, x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError(f"secret {float(x.max())}")


@pytest.mark.parametrize(("make", "says"), [(Together, "on each row"), (Full, "smaller page")])
def test_what_nobody_causes_alone_ends_the_work_without_a_word(
    make: Callable[[], nn.Module], says: str
) -> None:
    gradients = ClippedGradients(make(), losses, clip=1, page=16)
    x = torch.full((16, 4), 200.0)
    sums, present = gradients.empty(single=True), torch.ones(16, dtype=torch.bool)
    with pytest.raises(BadValue, match=says) as found:
        gradients.add_page(x, torch.zeros(16, dtype=torch.int64), present, sums)
    assert found.value.__context__ is None
    assert found.value.__cause__ is None


class Normed(nn.Module):
    """Divides by a row's length: a row of zeros is no number then."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.square().sum(1, keepdim=True).sqrt()


def test_a_unit_with_fewer_rows_than_places_counts() -> None:
    torch.manual_seed(23)
    module = nn.Sequential(Normed(), nn.Linear(4, 3))
    x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
    present = torch.tensor([True, False] * 8)
    gradients = ClippedGradients(module, losses, clip=1, page=8, unit_rows=2)
    gradients.rehearse(x[:0], y[:0])
    sums = gradients.empty(single=True)
    norms = gradients.add_page(torch.where(present[:, None], x, 0), y * present, present, sums)
    alone, expected = clipped_sum(ClippedGradients(module, losses, clip=1, page=8), x[present], y[present])
    torch.testing.assert_close(norms, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(sums, torch.cat([value.flatten() for value in alone.values()]))


def test_an_empty_place_of_a_unit_holds_its_first_row() -> None:
    values = torch.tensor([[7, 0, 0], [0, 8, 9], [0, 0, 0]]).flatten()
    found = fill_empty_rows(values, values > 0, 3)
    assert found.tolist() == [7, 7, 7, 8, 8, 9, 0, 0, 0]
