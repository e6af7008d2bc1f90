"""Opacus as the oracle: the same clipped sums by its hooks and its ghost norms, and prices that agree."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional

from lapwing.learn.sgd import ClippedGradients, GradientSensitivity, StepSchedule
from learn.sgd.made import MODULES, clipped_sum, losses

# Opacus' hooks say so for the first layer: rows need no gradient of their own.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

CLIP, ROWS = 0.5, 9


class Block(nn.Module):
    """Attention and a small network, each after a LayerNorm, as in benchmarks/learn_sgd.py."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.middle = nn.LayerNorm(8), nn.LayerNorm(8)
        self.ask, self.out, self.up, self.down = (
            nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 32), nn.Linear(32, 8),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        rows, times, width = x.shape
        query, key, value = self.ask(self.before(x)).reshape(rows, times, 3, 2, 4).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(found.transpose(1, 2).reshape(rows, times, width))
        added: Tensor = self.down(functional.gelu(self.up(self.middle(x))))
        return x + added


class Transformer(nn.Module):
    """Two blocks over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(20, 8), nn.Sequential(Block(), Block())
        self.last, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.last(self.blocks(self.tokens(x))).mean(1))
        return found


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(28, 16), nn.ReLU(), nn.Linear(16, 3))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1), nn.GroupNorm(2, 12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3),
    )  # fmt: skip


Made = tuple[Callable[[], nn.Module], Callable[[int], Tensor]]
# Opacus errs with padding tokens (it gives their line a gradient, torch gives none) and with convolutions
# that reflect, and refuses what works in place; its ghost norms refuse weights that are used twice.
ERRS = {"embedding", "attention", "reflecting conv", "two layers"}
NO_GHOST = {"tied weights", "a layer twice"}
OWN: dict[str, Made] = {
    "benchmark network": (network, lambda rows: torch.randn(rows, 28)),
    "benchmark CNN": (convolutions, lambda rows: torch.randn(rows, 3, 8, 8)),
    "benchmark transformer": (Transformer, lambda rows: torch.randint(0, 20, (rows, 6))),
    "embedding without padding": (
        lambda: nn.Sequential(nn.Embedding(5, 4), nn.Flatten()),
        lambda rows: torch.randint(0, 5, (rows, 6)),
    ),
}
CASES = {name: made for name, made in MODULES.items() if name not in ERRS} | OWN
Sums = dict[str, Tensor]


def optimizer_of(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([value for value in module.parameters() if value.requires_grad], lr=1.0)


def by_hooks(module: nn.Module, x: Tensor, y: Tensor) -> Sums:
    """Opacus writes gradients out, clips and adds them."""
    hooked = GradSampleModule(module, loss_reduction="sum")
    optimizer = DPOptimizer(
        optimizer_of(module), noise_multiplier=0.0, max_grad_norm=CLIP, expected_batch_size=None,
        loss_reduction="sum",
    )  # fmt: skip
    torch.autograd.backward(losses(hooked(x), y).sum())
    optimizer.clip_and_accumulate()
    found = {name: value for name, value in module.named_parameters() if value.requires_grad}
    return {name: getattr(value, "summed_grad") for name, value in found.items()}  # noqa: B009


class SumOfLosses(nn.Module):
    """A criterion in the form that Opacus wants."""

    reduction = "sum"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        assert self.reduction == "none"
        return losses(outputs, targets)


def by_ghost_norms(module: nn.Module, x: Tensor, y: Tensor) -> Sums:
    """Opacus finds norms, then the clipped sum by a second pass back."""
    hooked = GradSampleModuleFastGradientClipping(module, max_grad_norm=CLIP, loss_reduction="sum")
    optimizer = DPOptimizerFastGradientClipping(
        optimizer_of(module), noise_multiplier=0.0, max_grad_norm=CLIP, expected_batch_size=None,
        loss_reduction="sum",
    )  # fmt: skip
    criterion = DPLossFastGradientClipping(hooked, optimizer, SumOfLosses(), loss_reduction="sum")
    criterion(hooked(x), y).backward()
    found = {name: value for name, value in module.named_parameters() if value.requires_grad}
    return {name: value.grad for name, value in found.items() if value.grad is not None}


def require_same_sums(name: str, theirs: Callable[[nn.Module, Tensor, Tensor], Sums]) -> None:
    torch.manual_seed(12)
    make, rows = CASES[name]
    module, x, y = make(), rows(ROWS), torch.randint(0, 3, (ROWS,))
    gradients = ClippedGradients(module, losses, clip=CLIP, page=16)
    gradients.rehearse(x[:0], y[:0])
    ours, norms = clipped_sum(gradients, x, y)
    assert (norms > CLIP).any()
    expected = theirs(copy.deepcopy(module), x, y)
    assert set(ours) == set(expected)
    for key, value in expected.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_clipped_sums_are_those_of_opacus_hooks(name: str) -> None:
    require_same_sums(name, by_hooks)


@pytest.mark.parametrize("name", [name for name in CASES if name not in NO_GHOST])
def test_clipped_sums_are_those_of_opacus_ghost_norms(name: str) -> None:
    require_same_sums(name, by_ghost_norms)


RUNS = [
    ("0.001", "0.7", 1000, "1e-6"),
    ("0.01", "1", 500, "1e-5"),
    ("0.05", "2", 200, "1e-5"),
    ("0.2", "4", 50, "1e-6"),
]


@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), RUNS)
def test_prices_are_within_those_of_opacus(rate: str, noise: str, steps: int, delta: str) -> None:
    """At most by Rényi orders; and within the two proven sides of its numerical accountant, ± 0.01."""
    grid = GradientSensitivity.of(1, parameters=1000, page=64, expected_batch=100)
    ours = StepSchedule(grid, Fraction(rate), Fraction(noise), steps, Fraction(delta)).epsilon()
    history = [(float(noise), float(rate), steps)]
    renyi, numerical = RDPAccountant(), PRVAccountant()
    renyi.history, numerical.history = history, history
    off, spare = 0.01, float(delta) / 1000
    distribution = numerical._get_dprv(eps_error=off, delta_error=spare)
    lower, _, upper = distribution.compute_epsilon(float(delta), spare, off)
    assert lower <= ours <= upper
    assert ours <= renyi.get_epsilon(float(delta))
