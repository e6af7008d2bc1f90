"""All randomness of a training step: Poisson samples, exact noise, and torch's own generators (dropout).

Claim    each unit is sampled independently with probability exactly `rate`; which of its rows count is
         drawn from its own rows alone; the kind of its place is drawn for it alone.
Because  random numbers come from `lapwing.core.noise`; rows are ranked within their unit by random keys.
         The other units decide the page of a unit, and its place within its kind: nothing else.
Test     tests/learn/sgd/test_randomness_sampling.py

A sample may be empty: the step then releases noise alone. Batches of a fixed size, from shuffled data,
have another price, and are not drawn here.

Claim    the result of `release_noisy_sum` is a function of the sum on the grid plus the mechanism's noise,
         exactly.
Because  a step is a power of two, so that only `rint` rounds; whole numbers below 2^53, which
         `GradientSensitivity.mechanism` guarantees, are exact in double precision, and so are their sums.
         Everything after that is computed from released numbers.
Test     tests/learn/sgd/test_randomness_noise.py, tests/learn/sgd/test_sgd_neighbours.py

Each draw is used once, is in memory only, and is lost with the process: after a crash, new noise is drawn.

Claim    inside `fresh_randomness`, torch's random numbers follow from 64 fresh bits of
         `lapwing.core.noise`, new ones for each call of the function that it yields, and not from a seed
         that somebody set.
Because  torch's generators are seeded from there, and restored afterwards.
Test     tests/learn/sgd/test_randomness_torch.py
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

from lapwing.core.gaussian import Gaussian
from lapwing.core.gaussian_sampler import LOT, SLOT_BITS, Lookup
from lapwing.core.noise import (
    bernoulli,
    discrete_gaussian_lookup,
    discrete_gaussian_lots,
    random_bytes,
    uniform_int,
)
from lapwing.core.observed import is_observed, observed_call
from lapwing.core.process_bound import ProcessBound
from lapwing.errors import BadValue, SessionOver
from lapwing.learn.sgd.sensitivity import GradientSensitivity

ABSENT = -1
SampledRows = NDArray[np.int64]
PlaceKinds = NDArray[np.int64]


class UnitIndex:
    """The units of a data set, and the places of their rows."""

    def __init__(self, rows: int, units: NDArray[np.int64] | None) -> None:
        if units is None:
            self._order = np.arange(rows, dtype=np.int64)
            self._ends = self._order + 1
        else:
            units = np.asarray(units)  # otherwise a table's column is indexed by its own labels
            if units.shape != (rows,) or units.dtype.kind not in "iu":
                raise BadValue("units must be whole numbers, one for each row")
            self._order = np.argsort(units, kind="stable").astype(np.int64)
            ordered = units[self._order]
            last = np.append(ordered[1:] != ordered[:-1], True) if rows else np.zeros(0, dtype=bool)
            self._ends = np.flatnonzero(last).astype(np.int64) + 1

    def __len__(self) -> int:
        return len(self._ends)

    def sample(self, rate: Fraction, unit_rows: int) -> SampledRows:
        """Sample units: a line for each, with the places of up to `unit_rows` rows, then `ABSENT`."""
        if not len(self):
            return np.zeros((0, unit_rows), dtype=np.int64)
        return self.rows_of(np.flatnonzero(bernoulli(rate, len(self))), unit_rows)

    def rows_of(self, chosen: NDArray[np.intp], unit_rows: int) -> SampledRows:
        """Draw up to `unit_rows` rows of each unit, without replacement."""
        ends = self._ends[chosen]
        starts = np.where(chosen > 0, self._ends[chosen - 1], 0)
        counts = ends - starts
        sampled = np.full((len(chosen), unit_rows), ABSENT, dtype=np.int64)
        if not len(chosen):
            return sampled
        if counts.max() == 1:
            sampled[:, 0] = self._order[starts]
            return sampled
        line = np.repeat(np.arange(len(chosen)), counts)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = uniform_int(0, 1 << 62, len(line))
        # Sorted by key within each line, a row's new offset is its rank.
        ranked = np.lexsort((keys, line))
        kept = offsets < unit_rows
        places = self._order[np.repeat(starts, counts) + offsets][ranked]
        sampled[line[kept], offsets[kept]] = places[kept]
        return sampled


def draw_place_kinds(count: int, page: int, kinds: int) -> PlaceKinds:
    """Draw each unit's kind of place independently, by the kind's share of a page's places."""
    if kinds == 1 or not count:
        return np.zeros(count, dtype=np.int64)
    return uniform_int(0, page, count) % kinds


def lay_out_pages(sampled: SampledRows, kind: PlaceKinds, page: int, kinds: int) -> SampledRows:
    """Arrange the sample in pages (page, place, row), each unit at a place of its kind.

    Place p is of kind p % kinds. Empty places are `ABSENT`.
    """
    in_page = np.bincount(np.arange(page) % kinds, minlength=kinds)
    order = np.argsort(kind, kind="stable")
    counts = np.bincount(kind, minlength=kinds)
    rank = np.empty(len(kind), dtype=np.int64)  # of a unit among the units of its kind
    rank[order] = np.arange(len(kind)) - np.repeat(np.cumsum(counts) - counts, counts)
    pages = -int((-counts // in_page).min())
    laid_out = np.full((pages, page, sampled.shape[1]), ABSENT, dtype=np.int64)
    laid_out[rank // in_page[kind], rank % in_page[kind] * kinds + kind] = sampled
    return laid_out


AnyFloats = NDArray[np.floating[Any]]
AT_ONCE = 1 << 22  # numbers that are looked up at once on a GPU


def round_to_grid(sums: AnyFloats, grid: GradientSensitivity) -> AnyFloats:
    """Convert floats to whole numbers of steps, in place. The result is private, and gets noise next.

    Scaling by a power of two changes only the exponent of a float. (A float that is too small for that is
    far below half a step.)
    """
    sums *= sums.dtype.type(1 / grid.step)
    return np.rint(sums, out=sums)


class CompensatedSum:
    """A sum of very many parts in double precision: rounding errors are kept, and added in the end."""

    def __init__(self, zeros: Tensor) -> None:
        self._total, self._lost, self._part = zeros, torch.zeros_like(zeros), torch.zeros_like(zeros)

    def next(self) -> Tensor:
        """Add the last part, and return zeros to write the next one into."""
        before, part = self._total, self._part
        total = before + part
        kept = total - before
        self._lost += (before - (total - kept)) + (part - kept)  # exact: Knuth's sum of two
        self._total = total
        return part.zero_()

    def sum(self, grid: GradientSensitivity) -> Tensor:
        """Return the sum of all parts, clamped where whole numbers would stop being exact."""
        self.next()
        most = float(grid.largest * grid.step)
        return self._total.add_(self._lost).clamp_(-most, most)


class StepNoise(ProcessBound):
    """The mechanism's noise for one vector in each of `steps` steps, and no more."""

    def __init__(self, mechanism: Gaussian, *, steps: int) -> None:
        super().__init__()
        self.mechanism, self._left = mechanism, steps
        self._starts: NDArray[np.int32] | None = None
        self._table: Tensor | None = None  # the starts, on the device of the last call

    def lots(self) -> Iterator[NDArray[np.float64]]:
        """Yield fresh noise for one step, in lots. Each lot overwrites the last."""
        self._begin()
        return discrete_gaussian_lots(self.mechanism.sigma, self.mechanism.dimension)

    def on(self, device: torch.device) -> Tensor:
        """Return fresh noise for one step on a device.

        If there is a table, only random words are sent there.
        """
        self._begin()
        noise = torch.empty(self.mechanism.dimension, dtype=torch.float64, device=device)
        for start in range(0, self.mechanism.dimension, AT_ONCE):
            part = noise[start : start + AT_ONCE]
            coded = discrete_gaussian_lookup(self.mechanism.sigma, len(part))
            if coded is None:
                drawn = [lot.copy() for lot in discrete_gaussian_lots(self.mechanism.sigma, len(part))]
                part.copy_(torch.from_numpy(np.concatenate(drawn)))
                continue
            if self._starts is not coded.starts or self._table is None or self._table.device != device:
                self._starts, self._table = coded.starts, torch.from_numpy(coded.starts).to(device)
            part.copy_(look_up_noise(coded, self._table))
        return noise

    def _begin(self) -> None:
        self.require_here()
        if not self._left:
            raise SessionOver("all the noise that was paid for has been used")
        self._left -= 1


def look_up_noise(coded: Lookup, starts: Tensor) -> Tensor:
    """Compute the numbers of a lookup on the table's device: whole numbers in integers, so exact."""
    words = torch.from_numpy(coded.words.copy()).to(starts.device)
    spare = torch.from_numpy(coded.spare).to(starts.device)
    slots = (words >> SLOT_BITS) & ((1 << SLOT_BITS) - 1)
    numbers = starts.index_select(0, slots) + (words & coded.mask)
    lacking = slots >= coded.used
    return torch.where(lacking, spare[(lacking.cumsum(0) - 1).clamp_(min=0)], numbers)


def release_noisy_sum(
    sums: Tensor, grid: GradientSensitivity, noise: StepNoise, *, divided_by: int
) -> Tensor:
    """Return the noisy sum, divided by a public number. `sums` is overwritten where possible."""
    if sums.shape != (noise.mechanism.dimension,):
        raise BadValue("the sum is not of the form that was priced")
    share = grid.step / divided_by
    if is_observed():  # an auditor sees the whole numbers before noise, and may decide the noisy ones
        each = sums.cpu().double().numpy().copy()
        wholes = round_to_grid(each.copy(), grid).astype(np.int64)
        noisy = observed_call(
            noise.mechanism,
            lambda: _add_noise(each, grid, noise, Fraction(1)).astype(np.int64),
            values=wholes,
        )
        return torch.from_numpy(np.asarray(noisy, np.float64) * float(share)).to(sums.device, sums.dtype)
    if sums.device.type == "cuda":  # other devices may lack double precision
        return release_on_gpu(sums, grid, noise, divided_by=divided_by)
    numbers = sums.cpu()
    _add_noise(numbers.numpy(), grid, noise, share)
    return numbers.to(sums.device)


def _add_noise(each: AnyFloats, grid: GradientSensitivity, noise: StepNoise, share: Fraction) -> AnyFloats:
    """Convert floats to whole numbers of steps, add noise, and multiply by `share`, in place.

    Lot by lot, so that all of this happens in a processor's cache.
    """
    factor = each.dtype.type(share)
    for start, drawn in zip(range(0, len(each), LOT), noise.lots(), strict=True):
        part = each[start : start + LOT]
        part[:] = np.add(drawn, round_to_grid(part, grid), out=drawn)
        part *= factor
    return each


def release_on_gpu(sums: Tensor, grid: GradientSensitivity, noise: StepNoise, *, divided_by: int) -> Tensor:
    """Return the same on a GPU: in double precision, scaling, rounding and adding are exact there, too."""
    wholes = (sums.double() * float(1 / grid.step)).round_()
    return wholes.add_(noise.on(sums.device)).to(sums.dtype).mul_(float(grid.step / divided_by))


GeneratorState = tuple[Tensor, Tensor | None]


def _seed(device: torch.device, number: int) -> None:
    # Not torch.manual_seed: without a GPU, each call of it adds to a list of deferred calls.
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)


def _forked(device: torch.device) -> Any:
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


@contextmanager
def fixed_randomness(device: torch.device, number: int) -> Iterator[None]:
    """Use the same random numbers each time, for made-up rows."""
    with _forked(device):
        _seed(device, number)
        yield


@contextmanager
def fresh_randomness(device: torch.device) -> Iterator[Callable[[], None]]:
    """Yield a function that seeds torch with fresh, secret random bits each time it is called."""
    with _forked(device):
        yield lambda: _seed(device, int.from_bytes(random_bytes(8), "little"))


def generator_state(device: torch.device) -> GeneratorState:
    """Return the state of torch's generators."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def restore_generator(state: GeneratorState, device: torch.device) -> None:
    """Restore the state of torch's generators, so that they repeat their random numbers."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)


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
    """Switch dropout off, and leave all else as in training: dropout depends on a row's place."""
    # Attention and recurrent layers take it as a number.
    parts = [part for part in module.modules() if isinstance(getattr(part, "dropout", None), float)]
    numbers = [part.dropout for part in parts]
    for part in parts:
        setattr(part, "dropout", 0.0)  # noqa: B010 (mypy sees a submodule)
    try:
        with _WithoutDropout():
            yield
    finally:
        for part, number in zip(parts, numbers, strict=True):
            setattr(part, "dropout", number)  # noqa: B010
