"""One backward pass gives the gradients of torch.func, unit by unit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lapwing.learn.sgd import ClippedGradients
from lapwing.learn.sgd.unit_gradients import (
    GhostGradients,
    OuterGradients,
    StackedGradients,
    layer_gradients,
)
from learn.sgd.made import MODULES, clipped_one_by_one, clipped_sum, losses

UNITS = 19
WITHOUT_TRICK = {"tied weights", "a layer twice"}


@pytest.mark.parametrize("unit_rows", [1, 3])
@pytest.mark.parametrize("name", MODULES)
def test_clipped_sums_and_norms_are_those_of_gradients_taken_one_by_one(name: str, unit_rows: int) -> None:
    torch.manual_seed(1)
    make, rows = MODULES[name]
    module, x = make(), rows(UNITS * unit_rows)
    y = torch.randint(0, 3, (len(x),))
    gradients = ClippedGradients(module, losses, clip=0.5, page=16, unit_rows=unit_rows)
    gradients.rehearse(x[:0], y[:0])
    sums, norms = clipped_sum(gradients, x, y)
    expected, exact_norms = clipped_one_by_one(copy.deepcopy(module), x, y, 0.5, unit_rows)
    # Ghost norms are a little longer on purpose where products cancel out.
    torch.testing.assert_close(norms, exact_norms, rtol=1e-4, atol=1e-7)
    assert (norms > 0.5).any()
    assert sums.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(sums[key].double(), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODULES)
def test_the_first_page_overwrites_whatever_was_in_the_sums(name: str) -> None:
    make, rows = MODULES[name]
    torch.manual_seed(3)
    x, y, present = rows(16), torch.randint(0, 3, (16,)), torch.arange(16) < 13
    gradients = ClippedGradients(make(), losses, clip=0.5, page=16)
    gradients.rehearse(x[:0], y[:0])
    expected, found = gradients.empty(single=True), gradients.reused_sum(single=True)
    gradients.add_page(x, y, present, expected)
    found.fill_(torch.nan)
    gradients.add_page(x, y, present, found, is_first=True)
    # Not bit for bit: a sum may be added in any order, and on some processors that goes by its address.
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    assert gradients.reused_sum(single=True) is found


@pytest.mark.parametrize("name", MODULES)
def test_supported_layers_need_no_vmap(name: str) -> None:
    make, rows = MODULES[name]
    gradients = ClippedGradients(make(), losses, clip=1, page=16)
    x = rows(8)
    gradients.rehearse(x[:0], torch.zeros(0, dtype=torch.int64))
    others = {"other layers": 2, "reflecting conv": 1}
    if name in WITHOUT_TRICK:
        assert gradients.method == "vmap"
    elif name in others:
        assert gradients.method == f"one backward pass, vmap for {others[name]} layers"
    else:
        assert gradients.method == "one backward pass"


def test_weights_are_written_out_only_where_that_is_cheap() -> None:
    def kind(width: int, out: int, times: int) -> type:
        layer = nn.Linear(width, out, bias=False)
        parts = layer_gradients(layer, "", torch.randn(4, times, width), torch.randn(4, times, out), 4)
        return type(parts[0])

    assert kind(784, 512, 1) is OuterGradients
    assert kind(128, 128, 32) is StackedGradients
    assert kind(784, 512, 2) is GhostGradients


def test_training_leaves_the_module_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(6, 7), nn.ReLU(inplace=True), nn.Linear(7, 3))
    gradients = ClippedGradients(module, losses, clip=1, page=16)
    clipped_sum(gradients, torch.randn(5, 6), torch.zeros(5, dtype=torch.int64))
    assert all(value.requires_grad and value.grad is None for value in module.parameters())
    assert getattr(module[1], "inplace") is True  # noqa: B009 (mypy sees a submodule)
    assert not any(part._forward_hooks for part in module.modules())
