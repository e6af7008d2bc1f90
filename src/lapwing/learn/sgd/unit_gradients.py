"""One layer's part of every unit's gradient: its squared norm, and its share of the clipped sum.

Claim    `squares` is at least (1 - e) times the squared norm of the unit's part, and `add` adds, for each
         unit, that part times its factor, up to the error that `Sensitivity` prices.
Because  each class says how. Nothing here looks at two units at once, except the sum itself.
Test     tests/learn/sgd/test_layers.py, tests/learn/sgd/test_neighbours.py

The layers whose gradients follow from what went in and the slope of what came out: one backward pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lapwing.learn.sgd.sensitivity import BLOCK

# A ghost norm is taken to be longer by 2^-10 of the sum of the products' lengths. So products that
# cancel out are clipped for what they are made of, and the error of their sum stays small.
CANCELLING = 2.0**-20
# A longer input is not used: next to it, the smallest floats are no longer nothing.
LONGEST = 2.0**80
# Next to the square of this length, squares that are lost for being too small (2^-126) are nothing.
SHORTEST = 2.0**-40


def squared_lengths(rows: Tensor) -> Tensor:
    """The squared length of each row, in double precision, from blocks in the rows' own type."""
    count = rows.shape[1]
    cut = count - count % BLOCK
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    if cut:
        blocks = rows[:, :cut].reshape(len(rows), -1, BLOCK)
        total += torch.linalg.vector_norm(blocks, dim=2).double().square().sum(1)
    if cut < count:
        total += torch.linalg.vector_norm(rows[:, cut:], dim=1).double().square()
    return total


def _exact_squares(rows: Tensor) -> Tensor:
    """The squared length of each row of the last dimension, all in double precision."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
    return lengths.square()


def safe_squares(rows: Tensor) -> Tensor:
    """`squared_lengths`, and in double precision for rows whose squares are no ordinary single floats."""
    if rows.is_cuda:  # there, waiting for which rows these are would cost more than double precision
        return _exact_squares(rows)
    found = squared_lengths(rows)
    places = (~((found > SHORTEST**2) & (found < LONGEST))).nonzero().flatten()
    if len(places):
        found[places] = _exact_squares(rows[places])
    return found


def _added_up(keys: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct keys, and the sum of the rows of each, always added in the same order."""
    distinct, places = torch.unique(keys, return_inverse=True)
    counts = torch.bincount(places, minlength=len(distinct))
    sorted_rows = rows[places.argsort(stable=True)]
    return distinct, torch.segment_reduce(sorted_rows, "sum", lengths=counts, axis=0)


def at_least_single(values: Tensor) -> Tensor:
    """Floats of a module that works in less than single precision, as single ones: the same numbers."""
    return values.float() if values.is_floating_point() and values.itemsize < 4 else values


def _put(added: Tensor, into: Tensor, *, is_first: bool) -> None:
    if is_first:
        into.copy_(added)
    else:
        into.add_(added)


class ParameterGradients(ABC):
    """What one layer contributes to one parameter. Tensors have one row for each unit of the page."""

    name: str

    @abstractmethod
    def squares(self) -> Tensor:
        """The squared norm of each unit's part, in double precision."""

    @abstractmethod
    def floats(self) -> list[Tensor]:
        """What the sum is made of, by unit: no other unit may change a bit of it."""

    @abstractmethod
    def drop(self, units: Tensor) -> None:
        """Forget units (a mask) whose gradient is not finite: zero times infinity is no number."""

    @abstractmethod
    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        """Add each unit's part times its factor to the parameter's flat sum; the first overwrites it."""


@dataclass
class StackedGradients(ParameterGradients):
    """Gradients of one parameter, written out for each unit of the page."""

    name: str
    gradients: Tensor

    @classmethod
    def of(cls, name: str, rows: Tensor, present: Tensor | None, page: int) -> StackedGradients:
        """From each row's gradient (zeros, if it is not present); a unit's rows are added up."""
        flat = at_least_single(rows).flatten(1)
        if present is not None:
            flat = flat.masked_fill(~present[:, None], 0)
        each = flat.reshape(page, -1, flat.shape[1])
        return cls(name, each[:, 0] if each.shape[1] == 1 else each.sum(1))

    def squares(self) -> Tensor:
        return squared_lengths(self.gradients)

    def floats(self) -> list[Tensor]:
        return [self.gradients]

    def drop(self, units: Tensor) -> None:
        self.gradients = self.gradients.masked_fill(units[:, None], 0)

    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        added = torch.mv(self.gradients.to(into.dtype).t(), factors.to(into.dtype))
        _put(added, into, is_first=is_first)


@dataclass
class OuterGradients(ParameterGradients):
    """A weight applied once to each unit: the gradient is b aᵀ, and its norm |a| |b|. Never written out."""

    name: str
    inputs: Tensor
    slopes: Tensor

    def squares(self) -> Tensor:
        # A product of a large and a small length must not be lost on the way.
        inputs = safe_squares(self.inputs)
        return (inputs * safe_squares(self.slopes)).masked_fill_(inputs > LONGEST**2, torch.inf)

    def floats(self) -> list[Tensor]:
        return [self.inputs, self.slopes]

    def drop(self, units: Tensor) -> None:
        self.inputs = self.inputs.masked_fill(units[:, None], 0)
        self.slopes = self.slopes.masked_fill(units[:, None], 0)

    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        scaled = self.slopes.to(into.dtype) * factors.to(into.dtype)[:, None]
        # Not addmm: a page is summed by itself, so that no term goes through more roundings than priced.
        shaped, inputs = into.view(self.slopes.shape[1], -1), self.inputs.to(into.dtype)
        if is_first:
            torch.mm(scaled.t(), inputs, out=shaped)
        else:
            shaped.add_(torch.mm(scaled.t(), inputs))


@dataclass
class GhostGradients(ParameterGradients):
    """A large weight applied several times to each unit: the norm follows from products of pairs.

    |Σ b aᵀ|² = Σ (a·a')(b·b'). All in double precision, and one unit after the other when summed, so that
    what cancels out within a unit is its own affair.
    """

    name: str
    inputs: Tensor  # unit, time, in
    slopes: Tensor  # unit, time, out

    def squares(self) -> Tensor:
        a, b = self.inputs.double(), self.slopes.double()
        pairs = torch.bmm(a, a.mT).mul_(torch.bmm(b, b.mT)).flatten(1).sum(1)
        inputs = torch.linalg.vector_norm(a, dim=2)
        lengths = (inputs * torch.linalg.vector_norm(b, dim=2)).sum(1)
        found: Tensor = pairs.clamp(min=0) + CANCELLING * lengths.square()
        return found.masked_fill_((inputs > LONGEST).any(1), torch.inf)

    def floats(self) -> list[Tensor]:
        return [self.inputs, self.slopes]

    def drop(self, units: Tensor) -> None:
        self.inputs = self.inputs.masked_fill(units[:, None, None], 0)
        self.slopes = self.slopes.masked_fill(units[:, None, None], 0)

    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        scaled = self.slopes.double() * factors[:, None, None]
        total = torch.zeros(into.shape, dtype=torch.float64, device=into.device)
        for b, a in zip(scaled, self.inputs.double(), strict=True):
            total.add_((b.t() @ a).flatten())
        _put(total.to(into.dtype), into, is_first=is_first)


@dataclass
class EmbeddingGradients(ParameterGradients):
    """An embedding: `rows[i]` is what unit `units[i]` adds to the line `lines[i]`, each pair once."""

    name: str
    page: int
    units: Tensor
    lines: Tensor
    rows: Tensor

    @classmethod
    def of(
        cls, name: str, tokens: Tensor, slopes: Tensor, table: int, skipped: int | None
    ) -> EmbeddingGradients:
        """From tokens (unit, time) and slopes (unit, time, width); a unit's equal tokens are added up."""
        page, width = len(tokens), slopes.shape[-1]
        units = torch.arange(page, device=tokens.device)[:, None]
        keys, rows = _added_up((units * table + tokens).flatten(), slopes.reshape(-1, width))
        lines = keys % table
        if skipped is not None:
            rows = rows.masked_fill((lines == skipped)[:, None], 0)
        return cls(name, page, keys // table, lines, rows)

    def squares(self) -> Tensor:
        return self._by_unit(_exact_squares(self.rows))

    def _by_unit(self, values: Tensor) -> Tensor:
        counts = torch.bincount(self.units, minlength=self.page)  # the units stand in order
        return torch.segment_reduce(values, "sum", lengths=counts, axis=0)

    def floats(self) -> list[Tensor]:
        return [self._by_unit(self.rows)]  # units have different numbers of lines

    def drop(self, units: Tensor) -> None:
        self.rows = self.rows.masked_fill(units[self.units][:, None], 0)

    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        scaled = self.rows.to(into.dtype) * factors.to(into.dtype)[self.units][:, None]
        lines, added = _added_up(self.lines, scaled)
        if is_first:
            into.zero_()
        into.view(-1, self.rows.shape[1]).index_add_(0, lines, added)


# Written out, a weight's gradients of a page take at most so many floats; else ghost norms are used.
MOST_WRITTEN = 1 << 25
# Pairs of times cost time² · (in + out); writing out costs in · out. So much more may it be.
WRITING = 16


def _by_unit(tensor: Tensor, page: int) -> Tensor:
    """(rows, ..., width) as (unit, all rows and times of the unit, width)."""
    return tensor.reshape(page, -1, tensor.shape[-1])


def _weights(name: str, inputs: Tensor, slopes: Tensor) -> ParameterGradients:
    """Σ over times of slope inputᵀ, by the cheapest of three ways."""
    (page, times, out), width = slopes.shape, inputs.shape[2]
    if times == 1:
        return OuterGradients(name, inputs[:, 0], slopes[:, 0])
    if width * out > min(WRITING * times * (width + out), MOST_WRITTEN // page):
        return GhostGradients(name, inputs, slopes)
    return StackedGradients(name, torch.bmm(slopes.mT, inputs).flatten(1))


def _linear(layer: nn.Linear, inputs: Tensor, slopes: Tensor, page: int) -> dict[str, ParameterGradients]:
    a, b = _by_unit(inputs, page), _by_unit(slopes, page)
    parts: dict[str, ParameterGradients] = {"weight": _weights("weight", a, b)}
    if layer.bias is not None:
        parts["bias"] = StackedGradients("bias", b.sum(1) if b.shape[1] > 1 else b[:, 0])
    return parts


def _conv(layer: nn.Conv2d, inputs: Tensor, slopes: Tensor, page: int) -> dict[str, ParameterGradients]:
    padding = layer.padding
    assert not isinstance(padding, str)  # `takes` sends these elsewhere
    patches = functional.unfold(
        inputs, layer.kernel_size, dilation=layer.dilation, padding=padding, stride=layer.stride
    )  # row, in · kernel, place
    groups, rows = layer.groups, len(inputs)
    b = slopes.reshape(rows * groups, layer.out_channels // groups, -1)
    a = patches.reshape(rows * groups, -1, b.shape[2])
    each = torch.bmm(b, a.mT).reshape(page, rows // page, -1)
    parts: dict[str, ParameterGradients] = {"weight": StackedGradients("weight", _added(each))}
    if layer.bias is not None:
        parts["bias"] = StackedGradients(
            "bias", _added(slopes.flatten(2).sum(2).reshape(page, rows // page, -1))
        )
    return parts


def _embedding(
    layer: nn.Embedding, inputs: Tensor, slopes: Tensor, page: int
) -> dict[str, ParameterGradients]:
    tokens, b = inputs.reshape(page, -1), _by_unit(slopes, page)
    scattered = EmbeddingGradients.of("weight", tokens, b, layer.num_embeddings, layer.padding_idx)
    return {"weight": scattered}


def _layer_norm(
    layer: nn.LayerNorm, inputs: Tensor, slopes: Tensor, page: int
) -> dict[str, ParameterGradients]:
    normed = functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    width = layer.weight.numel()
    b = slopes.reshape(page, -1, width)
    parts: dict[str, ParameterGradients] = {
        "weight": StackedGradients("weight", (b * normed.reshape(page, -1, width)).sum(1))
    }
    if layer.bias is not None:
        parts["bias"] = StackedGradients("bias", b.sum(1))
    return parts


def _group_norm(
    layer: nn.GroupNorm, inputs: Tensor, slopes: Tensor, page: int
) -> dict[str, ParameterGradients]:
    normed = functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
    shape = (page, len(inputs) // page, layer.num_channels)
    weight = (slopes * normed).flatten(2).sum(2).reshape(shape)
    bias = slopes.flatten(2).sum(2).reshape(shape)
    return {
        "weight": StackedGradients("weight", _added(weight)),
        "bias": StackedGradients("bias", _added(bias)),
    }


def _added(rows: Tensor) -> Tensor:
    """(unit, row, value) added over the unit's rows."""
    return rows[:, 0] if rows.shape[1] == 1 else rows.sum(1)


Rule = Callable[..., dict[str, ParameterGradients]]
RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
}


def has_rule(layer: nn.Module) -> bool:
    """Whether the layer has a rule here, as it is set."""
    if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return False
    if isinstance(layer, nn.Embedding) and (layer.scale_grad_by_freq or layer.sparse):
        return False
    return type(layer) in RULES


def layer_gradients(
    layer: nn.Module, prefix: str, inputs: Tensor, slopes: Tensor, page: int
) -> list[ParameterGradients]:
    """The layer's parts, under the full names of their parameters."""
    found = RULES[type(layer)](layer, at_least_single(inputs), at_least_single(slopes), page)
    for name, part in found.items():
        part.name = f"{prefix}{name}"
    return list(found.values())
