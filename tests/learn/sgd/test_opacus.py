"""Opacus, where it is installed, gives the same clipped sums and norms."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from lapwing.learn.sgd import ClippedGradients
from learn.sgd.made import Attention, losses

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    opacus = pytest.importorskip("opacus.grad_sample")

CASES = {
    "two layers": (nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)), torch.randn(9, 6)),
    "convolutions": (
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)),
        torch.randn(9, 1, 4, 4),
    ),
    # Without the padding token: Opacus gives its line a gradient, torch itself gives none.
    "attention": (Attention(), torch.randint(1, 11, (9, 5))),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_clipped_sums_are_those_of_opacus(name: str) -> None:
    module, x = CASES[name]
    y = torch.randint(0, 3, (len(x),))
    wrapped = opacus.GradSampleModule(copy.deepcopy(module), loss_reduction="sum")
    torch.autograd.backward(losses(wrapped(x), y).sum())
    theirs = {key.removeprefix("_module."): value.grad_sample for key, value in wrapped.named_parameters()}
    norms = torch.stack([value.flatten(1).norm(dim=1) for value in theirs.values()]).norm(dim=0)
    factors = (0.5 / norms).clamp(max=1)
    ours, our_norms = ClippedGradients(module, losses, clip=0.5, page=4).of(x, y)
    torch.testing.assert_close(our_norms.float(), norms, rtol=1e-5, atol=1e-6)
    for key, value in theirs.items():
        torch.testing.assert_close(
            ours[key], torch.einsum("u,u...->...", factors, value), rtol=1e-4, atol=1e-5
        )
