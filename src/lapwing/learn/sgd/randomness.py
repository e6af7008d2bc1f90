"""Poisson samples of units: each is in a step with the same probability, on its own coin.

Claim    each unit is sampled independently with probability exactly `rate`; which of its rows count is
         drawn from its own rows alone; the kind of its place is drawn for it alone.
Because  coins come from `lapwing.core.noise`; rows are ranked within their unit by random keys. Who else is
         there decides the page of a unit, and its place within its kind: nothing else.
Test     tests/learn/sgd/test_sampling.py

A sample may be empty: the step then releases noise alone. Batches of a fixed size, from shuffled data, have
another price, and are not drawn here.

Sums of gradients become noisy whole numbers of the grid's steps, and those floats again.

Claim    what `release_noisy_sum` gives is a function of the sum on the grid plus the mechanism's noise, exactly.
Because  a step is a power of two, so that only `rint` rounds; whole numbers below 2^53, which
         `Sensitivity.mechanism` sees to, are exact in double precision, and so are their sums. What is done
         afterwards is done to released numbers.
Test     tests/learn/sgd/test_noisy.py, tests/learn/sgd/test_neighbours.py

Each draw is used once, lives in memory only, and is lost with the process: whoever goes on after a crash
draws anew.

The coins that torch throws for a module (dropout): secret and fresh in training, none in a rehearsal.

Claim    while `fresh_randomness` lasts, what torch draws at random follows from 64 fresh bits of `lapwing.core.noise`,
         new ones for each call of what it gives, and not from a seed that somebody set.
Because  torch's generators are seeded from there, and put back to what they were afterwards.
Test     tests/learn/sgd/test_coins.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lapwing.core.budget import ProcessBound
from lapwing.core.gaussian import Gaussian
from lapwing.core.gaussian_sampler import LOT, SLOT_BITS, Lookup
from lapwing.core.noise import (
    bernoulli,
    discrete_gaussian_lookup,
    discrete_gaussian_lots,
    random_bytes,
    uniform_int,
)
from lapwing.errors import BadValue, SessionOver
from lapwing.learn.sgd.sensitivity import GradientSensitivity

ABSENT = -1
SampledRows = NDArray[np.int64]
PlaceKinds = NDArray[np.int64]


class UnitIndex:
    """The units of a data set, and where their rows are."""

    def __init__(self, rows: int, units: NDArray[np.int64] | None) -> None:
        if units is None:
            self._order = np.arange(rows, dtype=np.int64)
            self._ends = self._order + 1
        else:
            units = np.asarray(units)  # else a table's column is looked up by its own labels
            if units.shape != (rows,) or units.dtype.kind not in "iu":
                raise BadValue("units must be whole numbers, one for each row")
            self._order = np.argsort(units, kind="stable").astype(np.int64)
            ordered = units[self._order]
            last = np.append(ordered[1:] != ordered[:-1], True) if rows else np.zeros(0, dtype=bool)
            self._ends = np.flatnonzero(last).astype(np.int64) + 1

    def __len__(self) -> int:
        return len(self._ends)

    def sample(self, rate: Fraction, unit_rows: int) -> SampledRows:
        """A line for each sampled unit: the places of up to `unit_rows` of its rows, then `ABSENT`."""
        if not len(self):
            return np.zeros((0, unit_rows), dtype=np.int64)
        return self.rows_of(np.flatnonzero(bernoulli(rate, len(self))), unit_rows)

    def rows_of(self, chosen: NDArray[np.intp], unit_rows: int) -> SampledRows:
        """Up to `unit_rows` rows of each unit, drawn without putting back."""
        ends = self._ends[chosen]
        starts = np.where(chosen > 0, self._ends[chosen - 1], 0)
        counts = ends - starts
        found = np.full((len(chosen), unit_rows), ABSENT, dtype=np.int64)
        if not len(chosen):
            return found
        if counts.max() == 1:
            found[:, 0] = self._order[starts]
            return found
        line = np.repeat(np.arange(len(chosen)), counts)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = uniform_int(0, 1 << 62, len(line))
        # Sorted by key within each line, a row's new offset is its rank.
        ranked = np.lexsort((keys, line))
        kept = offsets < unit_rows
        places = self._order[np.repeat(starts, counts) + offsets][ranked]
        found[line[kept], offsets[kept]] = places[kept]
        return found


def draw_place_kinds(count: int, page: int, kinds: int) -> PlaceKinds:
    """Draw each unit's kind of place on its own coin: a kind comes as often as a page has places of it."""
    if kinds == 1 or not count:
        return np.zeros(count, dtype=np.int64)
    return uniform_int(0, page, count) % kinds


def lay_out_pages(sampled: SampledRows, kind: PlaceKinds, page: int, kinds: int) -> SampledRows:
    """The sample in pages of `page` places (page, place, row), each unit at a place of its kind.

    Place p is of kind p % kinds. Places where nobody is are `ABSENT`.
    """
    in_page = np.bincount(np.arange(page) % kinds, minlength=kinds)
    order = np.argsort(kind, kind="stable")
    counts = np.bincount(kind, minlength=kinds)
    rank = np.empty(len(kind), dtype=np.int64)  # of a unit among those of its kind
    rank[order] = np.arange(len(kind)) - np.repeat(np.cumsum(counts) - counts, counts)
    pages = -int((-counts // in_page).min())
    found = np.full((pages, page, sampled.shape[1]), ABSENT, dtype=np.int64)
    found[rank // in_page[kind], rank % in_page[kind] * kinds + kind] = sampled
    return found


Floats = NDArray[np.floating[Any]]
AT_ONCE = 1 << 22  # numbers that are looked up at once on a GPU


def round_to_grid(sums: Floats, grid: GradientSensitivity) -> Floats:
    """Floats become whole numbers of steps, in place. Private: they get noise next.

    Scaled by a power of two, a float changes its exponent alone. (One that is too small for that is far
    below half a step.)
    """
    sums *= sums.dtype.type(1 / grid.step)
    return np.rint(sums, out=sums)


class CompensatedSum:
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

    def sum(self, grid: GradientSensitivity) -> Tensor:
        """All parts together, cut where whole numbers would stop being exact."""
        self.next()
        most = float(grid.largest * grid.step)
        return self._total.add_(self._lost).clamp_(-most, most)


class StepNoise(ProcessBound):
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
            part.copy_(look_up_noise(coded, self._table))
        return found

    def _begin(self) -> None:
        self.require_here()
        if not self._left:
            raise SessionOver("all the noise that was paid for is used")
        self._left -= 1


def look_up_noise(coded: Lookup, starts: Tensor) -> Tensor:
    """The numbers of a lookup, computed where the table is: whole numbers in integers, so exact."""
    words = torch.from_numpy(coded.words.copy()).to(starts.device)
    spare = torch.from_numpy(coded.spare).to(starts.device)
    slots = (words >> SLOT_BITS) & ((1 << SLOT_BITS) - 1)
    numbers = starts.index_select(0, slots) + (words & coded.mask)
    lacking = slots >= coded.used
    return torch.where(lacking, spare[(lacking.cumsum(0) - 1).clamp_(min=0)], numbers)


def release_noisy_sum(
    sums: Tensor, grid: GradientSensitivity, noise: StepNoise, *, divided_by: int
) -> Tensor:
    """The noisy sum, divided by a public number. `sums` is overwritten where it can be."""
    if sums.shape != (noise.size,):
        raise BadValue("the sum is not of the form that was priced")
    if sums.device.type == "cuda":  # others may have no double precision
        return release_on_gpu(sums, grid, noise, divided_by=divided_by)
    numbers = sums.cpu()
    each: Floats = numbers.numpy()
    share = each.dtype.type(grid.step / divided_by)
    # Lot by lot, so that all of this happens in a processor's cache.
    for start, drawn in zip(range(0, len(each), LOT), noise.lots(), strict=True):
        part = each[start : start + LOT]
        part[:] = np.add(drawn, round_to_grid(part, grid), out=drawn)
        part *= share
    return numbers.to(sums.device)


def release_on_gpu(sums: Tensor, grid: GradientSensitivity, noise: StepNoise, *, divided_by: int) -> Tensor:
    """The same on a GPU: in double precision scaling, rounding and adding are exact there, too."""
    wholes = (sums.double() * float(1 / grid.step)).round_()
    return wholes.add_(noise.on(sums.device)).to(sums.dtype).mul_(float(grid.step / divided_by))


GeneratorState = tuple[Tensor, Tensor | None]


def _seed(device: torch.device, number: int) -> None:
    # Not torch.manual_seed: without a GPU, each call of it adds to a list of what to do on one later.
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)


def _forked(device: torch.device) -> Any:
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


@contextmanager
def fixed_randomness(device: torch.device, number: int) -> Iterator[None]:
    """The same coins each time: for made-up rows."""
    with _forked(device):
        _seed(device, number)
        yield


@contextmanager
def fresh_randomness(device: torch.device) -> Iterator[Callable[[], None]]:
    """Fresh, secret coins, from each call of what is given on."""
    with _forked(device):
        yield lambda: _seed(device, int.from_bytes(random_bytes(8), "little"))


def generator_state(device: torch.device) -> GeneratorState:
    """Where torch's generators stand."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def restore_generator(coins: GeneratorState, device: torch.device) -> None:
    """Let torch throw the coins again that it threw from here on."""
    torch.set_rng_state(coins[0])
    if coins[1] is not None:
        torch.cuda.set_rng_state(coins[1], device)


class _WithoutDropout(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given, name = kwargs or {}, getattr(func, "__name__", "")
        if "dropout" in name:
            return args[0] if args else given["input"]
        if name == "scaled_dot_product_attention":
            args, given = args[:4] + (0.0,) * (len(args) > 4) + args[5:], {**given}
            given.pop("dropout_p", None)
        return func(*args, **given)


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Dropout does nothing, and all else is as in training: its coins go by place, as nothing else may."""
    # Attention and recurrent layers take it as a number.
    numbers = [
        (part, part.dropout)
        for part in module.modules()
        if isinstance(getattr(part, "dropout", None), float)
    ]
    for part, _ in numbers:
        setattr(part, "dropout", 0.0)  # noqa: B010 (mypy sees a submodule)
    try:
        with _WithoutDropout():
            yield
    finally:
        for part, number in numbers:
            setattr(part, "dropout", number)  # noqa: B010
