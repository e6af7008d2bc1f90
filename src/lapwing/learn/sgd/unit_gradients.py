"""The gradients of one parameter, unit by unit: their squared norms, and their share of the clipped sum.

Claim    `squares` is at least (1 - e) times the squared norm of the unit's gradient, and `add` adds, for
         each unit, that gradient times its factor, up to the error that `GradientSensitivity` prices.
Because  each class says how. Nothing here looks at two units at once, except the sum itself.
Test     tests/learn/sgd/test_unit_gradients.py, tests/learn/sgd/test_sgd_neighbours.py

Layers with a rule get their gradients from their inputs and the slopes of their outputs, in one backward
pass.
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
# cancel out are clipped by their lengths, and the error of their sum stays small.
CANCELLING = 2.0**-20
# A longer input is not used: next to it, the smallest floats are no longer nothing.
LONGEST = 2.0**80
# Next to the square of this length, squares that are lost for being too small (2^-126) are nothing.
SHORTEST = 2.0**-40


def squared_lengths(rows: Tensor) -> Tensor:
    """Return the squared length of each row, in double precision, from blocks in the rows' own type."""
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
    """Return the squared length of each row of the last dimension, all in double precision."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
    return lengths.square()


def safe_squares(rows: Tensor) -> Tensor:
    """Return `squared_lengths`, in double precision for rows whose squares are extreme floats."""
    if rows.is_cuda:  # there, waiting for which rows these are would cost more than double precision
        return _exact_squares(rows)
    squares = squared_lengths(rows)
    places = (~((squares > SHORTEST**2) & (squares < LONGEST))).nonzero().flatten()
    if len(places):
        squares[places] = _exact_squares(rows[places])
    return squares


def _added_up(keys: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct keys, and the sum of the rows of each, always added in the same order."""
    distinct, places = torch.unique(keys, return_inverse=True)
    counts = torch.bincount(places, minlength=len(distinct))
    sorted_rows = rows[places.argsort(stable=True)]
    return distinct, torch.segment_reduce(sorted_rows, "sum", lengths=counts, axis=0)


def at_least_single(values: Tensor) -> Tensor:
    """Convert floats shorter than single precision to single precision: the numbers stay the same."""
    return values.float() if values.is_floating_point() and values.itemsize < 4 else values


def _put(added: Tensor, into: Tensor, *, is_first: bool) -> None:
    if is_first:
        into.copy_(added)
    else:
        into.add_(added)


class ParameterGradients(ABC):
    """The gradients of one parameter in one layer. Tensors have one row for each unit of the page."""

    name: str

    @abstractmethod
    def squares(self) -> Tensor:
        """Return the squared norm of each unit's gradient, in double precision."""

    @abstractmethod
    def floats(self) -> list[Tensor]:
        """Return the floats of the sum, by unit: no other unit may change a bit of them."""

    @abstractmethod
    def drop(self, units: Tensor) -> None:
        """Set units (a mask) to zero whose gradient is not finite: zero times infinity is not a number."""

    @abstractmethod
    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        """Add each unit's gradient times its factor to the flat sum; the first overwrites it."""


@dataclass
class StackedGradients(ParameterGradients):
    """Gradients of one parameter, written out for each unit of the page."""

    name: str
    gradients: Tensor

    @classmethod
    def of(cls, name: str, rows: Tensor, present: Tensor | None, page: int) -> StackedGradients:
        """Add up each unit's rows of gradients. Rows that are not present count as zeros."""
        flat = at_least_single(rows).flatten(1)
        if present is not None:
            flat = flat.masked_fill(~present[:, None], 0)
        each = flat.reshape(page, -1, flat.shape[1])
        return cls(name, _added(each))

    def squares(self) -> Tensor:
        """Return the squared norms of the gradients."""
        return squared_lengths(self.gradients)

    def floats(self) -> list[Tensor]:
        """Return the gradients."""
        return [self.gradients]

    def drop(self, units: Tensor) -> None:
        """Set the gradients of these units to zero."""
        self.gradients = self.gradients.masked_fill(units[:, None], 0)

    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        """Add the gradients times their factors."""
        added = torch.mv(self.gradients.to(into.dtype).t(), factors.to(into.dtype))
        _put(added, into, is_first=is_first)


@dataclass
class _Products(ParameterGradients):
    """Gradients that are sums of slope inputᵀ: (unit, width), or (unit, time, width)."""

    name: str
    inputs: Tensor
    slopes: Tensor

    def floats(self) -> list[Tensor]:
        """Return inputs and slopes."""
        return [self.inputs, self.slopes]

    def drop(self, units: Tensor) -> None:
        """Set the inputs and slopes of these units to zero."""
        mask = units.reshape(-1, *[1] * (self.inputs.ndim - 1))
        self.inputs, self.slopes = self.inputs.masked_fill(mask, 0), self.slopes.masked_fill(mask, 0)


@dataclass
class OuterGradients(_Products):
    """The gradients b aᵀ of a weight that is applied once to each unit, with norm |a| |b|.

    Never written out.
    """

    def squares(self) -> Tensor:
        """Return the products of the squared lengths."""
        # A product of a large and a small length must not be lost on the way.
        inputs = safe_squares(self.inputs)
        return (inputs * safe_squares(self.slopes)).masked_fill_(inputs > LONGEST**2, torch.inf)

    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        """Add the products times their factors."""
        scaled = self.slopes.to(into.dtype) * factors.to(into.dtype)[:, None]
        # Not addmm: a page is summed by itself, so that no term goes through more roundings than priced.
        shaped, inputs = into.view(self.slopes.shape[1], -1), self.inputs.to(into.dtype)
        if is_first:
            torch.mm(scaled.t(), inputs, out=shaped)
        else:
            shaped.add_(torch.mm(scaled.t(), inputs))


@dataclass
class GhostGradients(_Products):
    """The gradients of a large weight that is applied several times to each unit, by products of pairs.

    |Σ b aᵀ|² = Σ (a·a')(b·b'). All is in double precision, and summed one unit after the other, so that
    cancellation stays within a unit.
    """

    def squares(self) -> Tensor:
        """Return the squared norms, by products of pairs."""
        a, b = self.inputs.double(), self.slopes.double()
        pairs = torch.bmm(a, a.mT).mul_(torch.bmm(b, b.mT)).flatten(1).sum(1)
        inputs = torch.linalg.vector_norm(a, dim=2)
        lengths = (inputs * torch.linalg.vector_norm(b, dim=2)).sum(1)
        squares: Tensor = pairs.clamp(min=0) + CANCELLING * lengths.square()
        return squares.masked_fill_((inputs > LONGEST).any(1), torch.inf)

    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        """Add the products times their factors, one unit after the other."""
        scaled = self.slopes.double() * factors[:, None, None]
        total = torch.zeros(into.shape, dtype=torch.float64, device=into.device)
        for b, a in zip(scaled, self.inputs.double(), strict=True):
            total.add_((b.t() @ a).flatten())
        _put(total.to(into.dtype), into, is_first=is_first)


@dataclass
class EmbeddingGradients(ParameterGradients):
    """The gradients of an embedding: unit `units[i]` adds `rows[i]` to line `lines[i]`, each pair once."""

    name: str
    page: int
    units: Tensor
    lines: Tensor
    rows: Tensor

    @classmethod
    def of(
        cls, name: str, tokens: Tensor, slopes: Tensor, table: int, skipped: int | None
    ) -> EmbeddingGradients:
        """Add up each unit's equal tokens, from tokens (unit, time) and slopes (unit, time, width)."""
        page, width = len(tokens), slopes.shape[-1]
        units = torch.arange(page, device=tokens.device)[:, None]
        keys, rows = _added_up((units * table + tokens).flatten(), slopes.reshape(-1, width))
        lines = keys % table
        if skipped is not None:
            rows = rows.masked_fill((lines == skipped)[:, None], 0)
        return cls(name, page, keys // table, lines, rows)

    def squares(self) -> Tensor:
        """Return the squared norms of the units' lines."""
        return self._by_unit(_exact_squares(self.rows))

    def _by_unit(self, values: Tensor) -> Tensor:
        counts = torch.bincount(self.units, minlength=self.page)  # the units stand in order
        return torch.segment_reduce(values, "sum", lengths=counts, axis=0)

    def floats(self) -> list[Tensor]:
        """Return the sum of each unit's lines: units have different numbers of them."""
        return [self._by_unit(self.rows)]  # units have different numbers of lines

    def drop(self, units: Tensor) -> None:
        """Set the lines of these units to zero."""
        self.rows = self.rows.masked_fill(units[self.units][:, None], 0)

    def add(self, factors: Tensor, into: Tensor, *, is_first: bool) -> None:
        """Add the lines times their units' factors."""
        scaled = self.rows.to(into.dtype) * factors.to(into.dtype)[self.units][:, None]
        lines, added = _added_up(self.lines, scaled)
        if is_first:
            into.zero_()
        into.view(-1, self.rows.shape[1]).index_add_(0, lines, added)


# A weight's gradients of a page are written out up to this many floats; otherwise ghost norms are used.
MOST_WRITTEN = 1 << 25
# Pairs of times cost time² · (in + out); writing out costs in · out, and may cost this much more.
WRITING = 16


def _by_unit(tensor: Tensor, page: int) -> Tensor:
    """Reshape (rows, ..., width) to (unit, all rows and times of the unit, width)."""
    return tensor.reshape(page, -1, tensor.shape[-1])


def _weights(name: str, inputs: Tensor, slopes: Tensor) -> ParameterGradients:
    """Return Σ over times of slope inputᵀ, by the cheapest of three classes."""
    (page, times, out), width = slopes.shape, inputs.shape[2]
    if times == 1:
        return OuterGradients(name, inputs[:, 0], slopes[:, 0])
    if width * out > min(WRITING * times * (width + out), MOST_WRITTEN // page):
        return GhostGradients(name, inputs, slopes)
    return StackedGradients(name, torch.bmm(slopes.mT, inputs).flatten(1))


def _linear(layer: nn.Linear, inputs: Tensor, slopes: Tensor, page: int) -> list[ParameterGradients]:
    a, b = _by_unit(inputs, page), _by_unit(slopes, page)
    weight = _weights("weight", a, b)
    return [weight] if layer.bias is None else [weight, StackedGradients("bias", _added(b))]


def _conv(layer: nn.Conv2d, inputs: Tensor, slopes: Tensor, page: int) -> list[ParameterGradients]:
    padding = layer.padding
    assert not isinstance(padding, str)  # `has_rule` refuses these
    patches = functional.unfold(
        inputs, layer.kernel_size, dilation=layer.dilation, padding=padding, stride=layer.stride
    )  # row, in · kernel, place
    groups, rows = layer.groups, len(inputs)
    b = slopes.reshape(rows * groups, layer.out_channels // groups, -1)
    a = patches.reshape(rows * groups, -1, b.shape[2])
    each = torch.bmm(b, a.mT).reshape(page, rows // page, -1)
    weight = StackedGradients("weight", _added(each))
    if layer.bias is None:
        return [weight]
    bias = slopes.flatten(2).sum(2).reshape(page, rows // page, -1)
    return [weight, StackedGradients("bias", _added(bias))]


def _embedding(layer: nn.Embedding, inputs: Tensor, slopes: Tensor, page: int) -> list[ParameterGradients]:
    tokens, b = inputs.reshape(page, -1), _by_unit(slopes, page)
    return [EmbeddingGradients.of("weight", tokens, b, layer.num_embeddings, layer.padding_idx)]


def _layer_norm(layer: nn.LayerNorm, inputs: Tensor, slopes: Tensor, page: int) -> list[ParameterGradients]:
    normed = functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    width = layer.weight.numel()
    b = slopes.reshape(page, -1, width)
    weight = StackedGradients("weight", (b * normed.reshape(page, -1, width)).sum(1))
    return [weight] if layer.bias is None else [weight, StackedGradients("bias", b.sum(1))]


def _group_norm(layer: nn.GroupNorm, inputs: Tensor, slopes: Tensor, page: int) -> list[ParameterGradients]:
    normed = functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
    shape = (page, len(inputs) // page, layer.num_channels)
    weight = (slopes * normed).flatten(2).sum(2).reshape(shape)
    bias = slopes.flatten(2).sum(2).reshape(shape)
    return [StackedGradients("weight", _added(weight)), StackedGradients("bias", _added(bias))]


def _added(rows: Tensor) -> Tensor:
    """Add (unit, row, value) over the unit's rows."""
    return rows[:, 0] if rows.shape[1] == 1 else rows.sum(1)


Rule = Callable[..., list[ParameterGradients]]
RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear, nn.Conv2d: _conv, nn.Embedding: _embedding, nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
}  # fmt: skip


def has_rule(layer: nn.Module) -> bool:
    """Tell whether the layer, with its settings, has a rule here."""
    if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return False
    if isinstance(layer, nn.Embedding) and (layer.scale_grad_by_freq or layer.sparse):
        return False
    return type(layer) in RULES


def layer_gradients(
    layer: nn.Module, prefix: str, inputs: Tensor, slopes: Tensor, page: int
) -> list[ParameterGradients]:
    """Return the layer's gradients, under the full names of their parameters."""
    gradients = RULES[type(layer)](layer, at_least_single(inputs), at_least_single(slopes), page)
    for part in gradients:
        part.name = f"{prefix}{part.name}"
    return gradients
