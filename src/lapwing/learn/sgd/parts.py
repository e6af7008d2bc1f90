"""One layer's part of every unit's gradient: its squared norm, and its share of the clipped sum.

Claim    `squares` is at least (1 - e) times the squared norm of the unit's part, and `add` adds, for each
         unit, that part times its factor, up to the error that `Sensitivity` prices.
Because  each class says how. Nothing here looks at two units at once, except the sum itself.
Test     tests/learn/sgd/test_layers.py, tests/learn/sgd/test_neighbours.py
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

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


def wide(values: Tensor) -> Tensor:
    """Floats of a module that works in less than single precision, as single ones: the same numbers."""
    return values.float() if values.is_floating_point() and values.itemsize < 4 else values


def _put(added: Tensor, into: Tensor, *, is_first: bool) -> None:
    if is_first:
        into.copy_(added)
    else:
        into.add_(added)


class Part(ABC):
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
class Stacked(Part):
    """Gradients of one parameter, written out for each unit of the page."""

    name: str
    gradients: Tensor

    @classmethod
    def of(cls, name: str, rows: Tensor, present: Tensor | None, page: int) -> Stacked:
        """From each row's gradient (zeros, if it is not present); a unit's rows are added up."""
        flat = wide(rows).flatten(1)
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
class Outer(Part):
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
class Ghost(Part):
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
class Scattered(Part):
    """An embedding: `rows[i]` is what unit `units[i]` adds to the line `lines[i]`, each pair once."""

    name: str
    page: int
    units: Tensor
    lines: Tensor
    rows: Tensor

    @classmethod
    def of(cls, name: str, tokens: Tensor, slopes: Tensor, table: int, skipped: int | None) -> Scattered:
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
