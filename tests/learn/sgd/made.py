"""Small modules and rows for tests of DP-SGD, and the slow oracle: torch.func, one unit at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional

from lapwing.learn.sgd import ClippedGradients


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss for each row, whatever the outputs' shape."""
    return functional.cross_entropy(outputs.flatten(1), targets, reduction="none")


class Attention(nn.Module):
    """An embedding, one head of attention, a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8, padding_idx=0)
        self.ask, self.norm, self.head = nn.Linear(8, 24), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(row, time) to three classes."""
        query, key, value = self.ask(self.tokens(x)).chunk(3, dim=-1)
        found: Tensor = self.head(
            self.norm(functional.scaled_dot_product_attention(query, key, value)).mean(1)
        )
        return found


class Scale(nn.Module):
    """A layer that no rule knows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        """Each column times a number."""
        return x * self.scale.sin()


class Tied(nn.Module):
    """The same weight twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        """Six numbers to six."""
        found: Tensor = self.second(self.first(x).relu())
        return found


class Twice(nn.Module):
    """The same layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Six numbers to six."""
        found: Tensor = self.layer(self.layer(x).relu())
        return found


class ByPlace(nn.Module):
    """A double for processors that multiply a row in another order at another place: the last bit differs.

    At every other place, or at the last one alone, and there in the first column.
    """

    def __init__(self, *, last: bool) -> None:
        super().__init__()
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        """The rows, but for a last bit."""
        places = torch.arange(len(x))
        odd = places == len(x) - 1 if self.last else places % 2 == 1
        first = torch.arange(x.shape[1]) == 0
        return torch.where(odd[:, None] & first, x * (1 + 2.0**-23), x)


def _numbers(*shape: int) -> Callable[[int], Tensor]:
    return lambda rows: torch.randn(rows, *shape)


def _tokens(count: int, times: int) -> Callable[[int], Tensor]:
    return lambda rows: torch.randint(0, count, (rows, times))


Made = tuple[Callable[[], nn.Module], Callable[[int], Tensor]]
MODULES: dict[str, Made] = {
    "linear": (lambda: nn.Linear(6, 3), _numbers(6)),
    "linear without bias": (lambda: nn.Linear(6, 3, bias=False), _numbers(6)),
    "linear over times": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.Flatten(), nn.Linear(20, 3)),
        _numbers(4, 6),
    ),
    "large linear over times": (
        lambda: nn.Sequential(nn.Linear(90, 80), nn.Flatten(), nn.Linear(160, 3)),
        _numbers(2, 90),
    ),
    "two layers": (
        lambda: nn.Sequential(nn.Linear(6, 7), nn.ReLU(inplace=True), nn.Linear(7, 3)),
        _numbers(6),
    ),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()),
        _numbers(2, 6, 5),
    ),
    "dilated grouped conv": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, (2, 3), dilation=2, groups=2, bias=False), nn.Flatten()),
        _numbers(4, 7, 8),
    ),
    "reflecting conv": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Flatten()),
        _numbers(2, 5, 5),
    ),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 4, padding_idx=1), nn.Flatten()), _tokens(5, 6)),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm((3, 4)), nn.Flatten()), _numbers(2, 3, 4)),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten()), _numbers(4, 3, 2)),
    "attention": (Attention, _tokens(11, 5)),
    "convolutions and norms": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 3),
        ),
        _numbers(1, 6, 6),
    ),
    "other layers": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), Scale(12), nn.Linear(12, 3)),
        _numbers(2, 5),
    ),
    "frozen layer": (
        lambda: nn.Sequential(nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 3)),
        _numbers(6),
    ),
    "tied weights": (Tied, _numbers(6)),
    "a layer twice": (Twice, _numbers(6)),
}


def clipped_one_by_one(
    module: nn.Module, x: Tensor, y: Tensor, clip: float, unit_rows: int
) -> tuple[dict[str, Tensor], Tensor]:
    """What `ClippedGradients.of` must give, in double precision and without any trick."""
    module = module.double()
    values = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}

    def loss(chosen: dict[str, Tensor], rows: Tensor, targets: Tensor) -> Tensor:
        return losses(functional_call(module, chosen, (rows,)), targets).sum()

    sums = {name: torch.zeros_like(value) for name, value in values.items()}
    norms = []
    for start in range(0, len(x), unit_rows):
        rows, targets = x[start : start + unit_rows], y[start : start + unit_rows]
        rows = rows.double() if rows.is_floating_point() else rows
        found = grad(loss)(values, rows, targets)
        norm = torch.sqrt(torch.stack([value.square().sum() for value in found.values()]).sum())
        norms.append(norm)
        for name, value in found.items():
            sums[name] += value * min(1.0, clip / float(norm)) if norm else 0
    return sums, torch.stack(norms)


def clipped_sum(gradients: ClippedGradients, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The sum of clipped gradients of any number of rows, a unit's rows side by side, and the norms."""
    assert len(x) % gradients.unit_rows == 0
    assert len(x) == len(y)
    sums, norms = gradients.empty(single=True), []
    for start in range(0, len(x), gradients.rows):
        rows, targets = x[start : start + gradients.rows], y[start : start + gradients.rows]
        present = torch.arange(gradients.rows, device=x.device) < len(rows)
        padded = [
            torch.cat([part, part.new_zeros((gradients.rows - len(part), *part.shape[1:]))])
            for part in (rows, targets)
        ]
        norm = gradients.add_page(padded[0], padded[1], present, sums)
        norms.append(norm[: len(rows) // gradients.unit_rows])
    trained = zip(gradients.views(sums).items(), gradients.trained, strict=True)
    shaped = {name: part.view_as(value) for (name, part), value in trained}
    return shaped, torch.cat(norms) if norms else torch.zeros(0, dtype=torch.float64)
