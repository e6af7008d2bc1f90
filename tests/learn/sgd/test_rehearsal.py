"""Modules that mix rows, or whose gradients come out wrong, are found on made-up rows, or go by vmap."""

from __future__ import annotations

import types
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lapwing.errors import BadParameter
from lapwing.learn.sgd import ClippedGradients
from lapwing.learn.sgd.unit_gradients import RULES, ParameterGradients, _linear
from learn.sgd.made import ByPlace, clipped_one_by_one, clipped_sum, losses

NO_TARGETS = torch.zeros(0, dtype=torch.int64)
NO_NUMBERS = torch.zeros(0)


class InGroups(nn.Module):
    """Statistics of groups of rows, in training only."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        groups = x.reshape(-1, self.size, x.shape[1])
        return (groups - groups.mean(1, keepdim=True)).reshape(x.shape)


class ByTheLongest(nn.Module):
    """Scaled by the largest number of the batch: one row in many decides."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.detach().abs().max()


def mean_for_all(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets).expand(len(targets))


def beside_the_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    found = losses(outputs, targets)
    return found - found.mean()


def scaled(first: nn.Module) -> nn.Module:
    return nn.Sequential(first, nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))


@pytest.mark.parametrize("size", [2, 8, 16, 32, 64])
def test_statistics_of_groups_are_found_in_training_mode(size: int) -> None:
    gradients = ClippedGradients(scaled(InGroups(size)), losses, clip=1)
    with pytest.raises(BadParameter, match="mixes the rows"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


@pytest.mark.parametrize("width", [1, 13, 37, 784])
def test_one_row_that_decides_for_all_is_found(width: int) -> None:
    module = nn.Sequential(ByTheLongest(), nn.Linear(width, 3))
    gradients = ClippedGradients(module, losses, clip=1)
    with pytest.raises(BadParameter, match="mixes the rows"):
        gradients.rehearse(torch.zeros(0, width), NO_TARGETS)


@pytest.mark.parametrize("loss_fn", [mean_for_all, beside_the_mean])
def test_losses_that_depend_on_how_many_are_there_are_found(
    loss_fn: Callable[[Tensor, Tensor], Tensor],
) -> None:
    gradients = ClippedGradients(nn.Linear(6, 3), loss_fn, clip=1)
    with pytest.raises(BadParameter, match="mixes the rows"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


def test_floats_that_depend_on_the_place_are_found_in_any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bit, at one place of 64, for long rows alone. (Under cross-entropy such rows may have
    slope 0, and then there is nothing to find.)"""

    def odd(layer: nn.Linear, inputs: Tensor, slopes: Tensor, page: int) -> list[ParameterGradients]:
        last = torch.arange(page) == page - 1
        long = inputs.norm(dim=1) > 500
        return _linear(
            layer, inputs, torch.where((last & long)[:, None], slopes * (1 + 2e-7), slopes), page
        )

    monkeypatch.setitem(RULES, nn.Linear, odd)
    gradients = ClippedGradients(nn.Linear(8, 4), lambda outputs, _: outputs.square().sum(1), clip=1)
    gradients.rehearse(torch.zeros(0, 8), NO_TARGETS)
    assert gradients.kinds == 64


@pytest.mark.parametrize(("last", "page", "kinds"), [(False, 64, 16), (True, 64, 64), (False, 16, 16)])
def test_places_that_differ_by_a_last_bit_are_kinds_of_their_own(last: bool, page: int, kinds: int) -> None:
    """Whatever the processor, a network is taken; it is for each unit to draw its kind of place."""
    module = scaled(ByPlace(last=last))
    gradients = ClippedGradients(module, losses, clip=1, page=page)
    gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)
    assert gradients.method == "one backward pass"
    assert gradients.kinds == kinds


def test_kinds_of_places_that_appear_while_training_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.Identity())
    gradients = ClippedGradients(module, losses, clip=1)
    gradients.rehearse(torch.zeros(0, 8), NO_TARGETS)
    assert gradients.kinds in (1, 16)  # what the processor has
    module[1] = ByPlace(last=True)
    gradients.rehearse_again(torch.zeros(0, 8), NO_TARGETS, step=4)
    assert gradients.kinds == 64


def test_mixed_rows_are_found_also_where_places_differ() -> None:
    gradients = ClippedGradients(scaled(nn.Sequential(ByPlace(last=False), InGroups(4))), losses, clip=1)
    with pytest.raises(BadParameter, match="mixes the rows"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


class NumbersItsRows(nn.Module):
    """A row's place is added to it."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(len(x))[:, None]


def test_what_no_rounding_explains_is_refused() -> None:
    gradients = ClippedGradients(scaled(NumbersItsRows()), losses, clip=1)
    with pytest.raises(BadParameter, match="another gradient at another place"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


class MixesTheSmall(nn.Module):
    """Only rows close to zero depend on the others."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.abs().amax(1, keepdim=True) < 0.05, x - x.mean(0), x)


def test_rows_that_mix_at_one_size_alone_are_taken_one_by_one() -> None:
    gradients = ClippedGradients(scaled(MixesTheSmall()), losses, clip=1)
    gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)
    assert gradients.method == "vmap"


@pytest.mark.parametrize(("page", "unit_rows"), [(1, 1), (8, 1), (50, 1), (65, 1), (8, 3), (100, 2)])
def test_pages_that_do_not_fill_up_are_refused(page: int, unit_rows: int) -> None:
    gradients = ClippedGradients(nn.Linear(6, 3), losses, clip=1, page=page, unit_rows=unit_rows)
    with pytest.raises(BadParameter, match="page: times unit_rows must be a multiple of 16"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


class TiedHead(nn.Module):
    """The table of tokens is the last layer as well, by a function that no hook sees."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.middle = nn.Embedding(5, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(self.middle(self.tokens(x).mean(1)).tanh(), self.tokens.weight)


class Listed(nn.Module):
    """A weight in a list, which is no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.weights = nn.Linear(6, 4), nn.ParameterList([nn.Parameter(torch.randn(4, 3))])

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x).tanh() @ self.weights[0]
        return found


class Borrowed(nn.Module):
    """The weight of a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(functional.linear(x, self.layer.weight))
        return found


class Penalised(nn.Module):
    """A layer that is called, and its weight used besides."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) + 0.1 * self.layer.weight.square().sum() * torch.arange(3)
        return found


class Positions(nn.Module):
    """The same places for all rows, as in nanoGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.out = nn.Embedding(5, 6), nn.Embedding(16, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out((self.tokens(x) + self.places(torch.arange(x.shape[1]))).tanh().mean(1))
        return found


def patched() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 3))

    def five_times(self: nn.Linear, x: Tensor) -> Tensor:
        return 5 * functional.linear(x, self.weight, self.bias)

    module[0].forward = types.MethodType(five_times, module[0])
    return module


def numbers(count: int) -> Tensor:
    return torch.randn(count, 6)


def tokens(times: int) -> Callable[[int], Tensor]:
    return lambda count: torch.randint(0, 5, (count, times))


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (TiedHead, tokens(5)), (Listed, numbers), (Borrowed, numbers), (Penalised, numbers),
        (Positions, tokens(5)), (Positions, tokens(16)), (patched, numbers),
    ],
)  # fmt: skip
def test_what_one_pass_gets_wrong_goes_by_vmap(
    make: Callable[[], nn.Module], rows: Callable[[int], Tensor]
) -> None:
    torch.manual_seed(30)
    module, x, y = make(), rows(19), torch.randint(0, 3, (19,))
    gradients = ClippedGradients(module, losses, clip=0.5, page=16)
    gradients.rehearse(x[:0], y[:0])
    assert gradients.method == "vmap"
    sums, norms = clipped_sum(gradients, x, y)
    expected, exact_norms = clipped_one_by_one(module, x, y, 0.5, 1)
    torch.testing.assert_close(norms, exact_norms, rtol=1e-4, atol=1e-7)
    for key, value in expected.items():
        torch.testing.assert_close(sums[key].double(), value, rtol=1e-4, atol=1e-5)


class WrittenOver(nn.Module):
    """What went into a layer is changed afterwards: torch itself refuses that."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = self.first(x).sin()
        found += self.second(found)
        out: Tensor = self.third(found)
        return out


def test_inputs_that_are_written_over_are_refused() -> None:
    gradients = ClippedGradients(WrittenOver(), losses, clip=1)
    with pytest.raises(BadParameter, match="modified by an inplace operation"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


def shares(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy(outputs[:, 0].sigmoid(), targets, reduction="none")


def test_targets_that_must_be_shares_are_made_up_as_shares() -> None:
    gradients = ClippedGradients(nn.Linear(6, 1), shares, clip=1)
    gradients.rehearse(torch.zeros(0, 6), NO_NUMBERS)
    assert gradients.method == "one backward pass"
    gradients.rehearse_again(torch.zeros(0, 6), NO_NUMBERS, step=3)


def test_declared_numbers_are_all_made_up() -> None:
    """A module that fails for the last of them is found before anything is charged."""
    module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 3))
    no_tokens = torch.zeros(0, 2, dtype=torch.int64)
    ClippedGradients(module, losses, clip=1, tokens=5, classes=3).rehearse(no_tokens, NO_TARGETS)
    for tokens, classes in ((9, 3), (5, 9)):
        gradients = ClippedGradients(module, losses, clip=1, tokens=tokens, classes=classes)
        with pytest.raises(BadParameter, match="on such rows"):
            gradients.rehearse(no_tokens, NO_TARGETS)


class Fragile(nn.Module):
    """Does not take an empty place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if (x == 0).all(1).any():
            raise ValueError("a row of zeros")
        found: Tensor = self.layer(x)
        return found


def test_a_module_that_fails_on_empty_places_is_refused() -> None:
    """Else every unit would be left out, alone among empty places."""
    gradients = ClippedGradients(Fragile(), losses, clip=1)
    with pytest.raises(BadParameter, match="a row of zeros"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


def test_a_rehearsal_leaves_torchs_coins_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 7), nn.Dropout(0.5), nn.Linear(7, 3))
    torch.manual_seed(0)
    ClippedGradients(module, losses, clip=1).rehearse(torch.zeros(0, 6), NO_TARGETS)
    assert torch.equal(torch.rand(3), expected)
