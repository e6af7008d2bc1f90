"""Sums of gradients become noisy whole numbers of the grid's steps, and those floats again.

Claim    what `release` gives is a function of the sum on the grid plus the mechanism's noise, exactly.
Because  a step is a power of two, so that only `rint` rounds; whole numbers below 2^53, which
         `Sensitivity.mechanism` sees to, are exact in double precision, and so are their sums. What is done
         afterwards is done to released numbers.
Test     tests/learn/sgd/test_noisy.py, tests/learn/sgd/test_neighbours.py

Each draw is used once, lives in memory only, and is lost with the process: whoever goes on after a crash
draws anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lapwing.errors import BadValue, SessionOver
from lapwing.learn.sgd.sensitivity import Sensitivity
from lapwing.mechanisms.gaussian import Gaussian
from lapwing.noise import LOT, SLOT_BITS, Lookup, discrete_gaussian_lookup, discrete_gaussian_lots
from lapwing.privacy.once import Once

Floats = NDArray[np.floating[Any]]
AT_ONCE = 1 << 22  # numbers that are looked up at once on a GPU


def on_grid(sums: Floats, grid: Sensitivity) -> Floats:
    """Floats become whole numbers of steps, in place. Private: they get noise next.

    Scaled by a power of two, a float changes its exponent alone. (One that is too small for that is far
    below half a step.)
    """
    sums *= sums.dtype.type(1 / grid.step)
    return np.rint(sums, out=sums)


class Careful:
    """A sum of very many parts in double precision: what is lost at each addition is added in the end."""

    def __init__(self, zeros: Tensor) -> None:
        self._total, self._lost, self._part = zeros, torch.zeros_like(zeros), torch.zeros_like(zeros)

    def next(self) -> Tensor:
        """Take in the last part; zeros, to write the next one into."""
        before, part = self._total, self._part
        total = before + part
        kept = total - before
        self._lost += (before - (total - kept)) + (part - kept)  # exact: Knuth's sum of two
        self._total = total
        return part.zero_()

    def sum(self, grid: Sensitivity) -> Tensor:
        """All parts together, cut where whole numbers would stop being exact."""
        self.next()
        most = float(grid.largest * grid.step)
        return self._total.add_(self._lost).clamp_(-most, most)


class Noise(Once):
    """A mechanism's noise for one vector in each of `steps` steps, and no more."""

    def __init__(self, mechanism: Gaussian, *, steps: int) -> None:
        super().__init__()
        self._sigma, self.size, self._left = mechanism.sigma, mechanism.dimension, steps
        self._starts: NDArray[np.int32] | None = None
        self._table: Tensor | None = None  # those starts, on the device that asked last

    def lots(self) -> Iterator[NDArray[np.float64]]:
        """Fresh noise for one step, a lot after the other. The next lot overwrites the last."""
        self._begin()
        return discrete_gaussian_lots(self._sigma, self.size)

    def on(self, device: torch.device) -> Tensor:
        """Fresh noise for one step, there. Only random words go there, where a table is known by heart."""
        self._begin()
        found = torch.empty(self.size, dtype=torch.float64, device=device)
        for start in range(0, self.size, AT_ONCE):
            part = found[start : start + AT_ONCE]
            coded = discrete_gaussian_lookup(self._sigma, len(part))
            if coded is None:
                drawn = [lot.copy() for lot in discrete_gaussian_lots(self._sigma, len(part))]
                part.copy_(torch.from_numpy(np.concatenate(drawn)))
                continue
            if self._starts is not coded.starts or self._table is None or self._table.device != device:
                self._starts, self._table = coded.starts, torch.from_numpy(coded.starts).to(device)
            part.copy_(looked_up(coded, self._table))
        return found

    def _begin(self) -> None:
        self.require_here()
        if not self._left:
            raise SessionOver("all the noise that was paid for is used")
        self._left -= 1


def looked_up(coded: Lookup, starts: Tensor) -> Tensor:
    """The numbers of a lookup, computed where the table is: whole numbers in integers, so exact."""
    words = torch.from_numpy(coded.words.copy()).to(starts.device)
    spare = torch.from_numpy(coded.spare).to(starts.device)
    slots = (words >> SLOT_BITS) & ((1 << SLOT_BITS) - 1)
    numbers = starts.index_select(0, slots) + (words & coded.mask)
    lacking = slots >= coded.used
    return torch.where(lacking, spare[(lacking.cumsum(0) - 1).clamp_(min=0)], numbers)


def release(sums: Tensor, grid: Sensitivity, noise: Noise, *, divided_by: int) -> Tensor:
    """The noisy sum, divided by a public number. `sums` is overwritten where it can be."""
    if sums.shape != (noise.size,):
        raise BadValue("the sum is not of the form that was priced")
    if sums.device.type == "cuda":  # others may have no double precision
        return released_there(sums, grid, noise, divided_by=divided_by)
    numbers = sums.cpu()
    each: Floats = numbers.numpy()
    share = each.dtype.type(grid.step / divided_by)
    # Lot by lot, so that all of this happens in a processor's cache.
    for start, drawn in zip(range(0, len(each), LOT), noise.lots(), strict=True):
        part = each[start : start + LOT]
        part[:] = np.add(drawn, on_grid(part, grid), out=drawn)
        part *= share
    return numbers.to(sums.device)


def released_there(sums: Tensor, grid: Sensitivity, noise: Noise, *, divided_by: int) -> Tensor:
    """The same on a GPU: in double precision scaling, rounding and adding are exact there, too."""
    wholes = (sums.double() * float(1 / grid.step)).round_()
    return wholes.add_(noise.on(sums.device)).to(sums.dtype).mul_(float(grid.step / divided_by))
