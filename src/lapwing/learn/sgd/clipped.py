"""Sums of clipped gradients: each unit's gradient is scaled to a norm of at most the clip, then added.

Claim    the sum is that of `torch.func`'s gradients unit by unit, each clipped, to float accuracy; a unit
         whose gradient is not finite adds nothing; no unit's floats depend on the others'.
Because  a page always has the same shape, whoever is in it: what is missing is padded and has slope 0. At
         one shape, a row's floats depend on the row alone; `rehearse` tries this, bit for bit, on made-up
         rows, before anything is charged, and refuses a module where it fails.
Test     tests/learn/sgd/test_layers.py, tests/learn/sgd/test_clipped.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Literal

import torch
from torch import Tensor, nn

from lapwing.errors import BadParameter, LapwingError
from lapwing.exact import Number, positive, whole
from lapwing.learn.sgd.layers import parts_of
from lapwing.learn.sgd.opacus_rows import OpacusRows
from lapwing.learn.sgd.parts import Part
from lapwing.learn.sgd.refusals import refuse_short_floats, refuse_unfit
from lapwing.learn.sgd.tracing import CannotTrace, Layers, LossFunction, Page, layers_of, trace
from lapwing.learn.sgd.vmapped import layer_parts, module_parts

_SMALLEST_FACTOR = 2.0**-100
_SEED = 20  # of made-up rows and their dropout: public, and far from all that is released

Backend = Literal["own", "opacus"]


class ClippedGradients:
    """Clips and sums the gradients of a module, `page` units at once, each of up to `unit_rows` rows.

    A unit's rows are added up before clipping. `way` says how: "one backward pass", "vmap" or, with that
    `backend`, "opacus".
    """

    def __init__(
        self,
        module: nn.Module,
        loss_fn: LossFunction,
        *,
        clip: Number,
        page: int = 64,
        unit_rows: int = 1,
        backend: Backend = "own",
    ) -> None:
        refuse_unfit(module)
        refuse_short_floats()
        self._module, self._loss_fn = module, loss_fn
        # Rounded down: a float above the clip would be a longer step than the price says.
        self._clip = math.nextafter(float(positive(clip, "clip")), 0.0)
        self.page = whole(page, "page", at_least=1)
        self.unit_rows = whole(unit_rows, "unit_rows", at_least=1)
        self._trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
        if backend not in ("own", "opacus"):
            raise BadParameter("backend", "must be own or opacus")
        self._opacus = OpacusRows(module, loss_fn) if backend == "opacus" else None
        self._layers: Layers | None = None
        with suppress(CannotTrace):
            self._layers = layers_of(module)

    @property
    def way(self) -> str:
        """How gradients are found."""
        if self._opacus is not None:
            return "opacus"
        if self._layers is None:
            return "vmap"
        others = len(self._layers.others)
        return f"one backward pass, vmap for {others} layers" if others else "one backward pass"

    @property
    def trained(self) -> list[Tensor]:
        """What is trained, in the order of the sums."""
        return list(self._trained.values())

    @property
    def size(self) -> int:
        """How many numbers are trained."""
        return sum(value.numel() for value in self._trained.values())

    @property
    def rows(self) -> int:
        """How many rows a page has, padding included."""
        return self.page * self.unit_rows

    def empty(self, *, single: bool) -> Tensor:
        """A sum of nothing, all parameters in one vector: in single precision, if the module is, too."""
        first = next(iter(self._trained.values()))
        dtype = first.dtype if single else torch.float64
        return torch.zeros(self.size, dtype=dtype, device=first.device)

    def views(self, sums: Tensor) -> dict[str, Tensor]:
        """The vector's slices by parameter, in the order of the module's."""
        counts = [value.numel() for value in self._trained.values()]
        return dict(zip(self._trained, torch.split(sums, counts), strict=True))

    def add_page(
        self, x: Tensor, y: Tensor, present: Tensor, sums: Tensor, *, is_first: bool = False
    ) -> Tensor:
        """Add the clipped gradients of one page to `sums` (zeros, if it is the first); give the norms.

        Both are private.
        """
        if len(x) != self.rows or len(y) != self.rows or present.shape != (self.rows,):
            raise BadParameter("page", f"must have {self.rows} rows, padding included")
        with _steady(x):
            parts = self._parts(Page(x, y, present, self.page))
        norms = torch.stack([part.squares() for part in parts]).sum(0).sqrt_()
        factors = (self._clip / norms).clamp_(max=1.0)
        unusable = ~(factors >= _SMALLEST_FACTOR)  # not a number, infinite, or beyond what floats can scale
        if unusable.any():
            factors.masked_fill_(unusable, 0.0)
            for part in parts:
                part.drop(unusable)
        into = self.views(sums)
        while parts:  # each is given up as it is added, which keeps memory low
            part = parts.pop()
            part.add(factors, into[part.name], is_first=is_first)
        return norms

    def of(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The sum of clipped gradients of any number of rows (a unit's are next to one another), and norms.

        Both are private: release neither. The trainer adds noise.
        """
        if len(x) % self.unit_rows or len(x) != len(y):
            raise BadParameter("x", "must have unit_rows rows for each unit, and y as many")
        sums, norms = self.empty(single=True), []
        for start in range(0, len(x), self.rows):
            rows, targets = x[start : start + self.rows], y[start : start + self.rows]
            present = torch.arange(self.rows, device=x.device) < len(rows)
            norm = self.add_page(self.padded(rows), self.padded(targets), present, sums)
            norms.append(norm[: len(rows) // self.unit_rows])
        shaped = {name: part.view_as(self._trained[name]) for name, part in self.views(sums).items()}
        return shaped, torch.cat(norms) if norms else torch.zeros(0, dtype=torch.float64)

    def padded(self, rows: Tensor) -> Tensor:
        """The rows, and zeros up to a page."""
        if len(rows) == self.rows:
            return rows
        return torch.cat([rows, rows.new_zeros((self.rows - len(rows), *rows.shape[1:]))])

    def _parts(self, page: Page, *, made_up: bool = False) -> list[Part]:
        if self._opacus is not None:
            return self._opacus.parts(page, made_up=made_up)
        trained = set(self._trained)
        if self._layers is None:
            return module_parts(self._module, self._loss_fn, trained, page)
        visits = trace(self._module, self._loss_fn, self._layers, page)
        parts: list[Part] = []
        for name in list(visits):
            visit, prefix = visits.pop(name), f"{name}." if name else ""
            if visit.slopes is None:
                continue  # the loss does not depend on this layer
            if name in self._layers.ruled:
                layer = self._layers.ruled[name]
                found = parts_of(layer, prefix, visit.inputs[0], visit.slopes, self.page)
            else:
                layer = self._layers.others[name]
                found = layer_parts(layer, prefix, trained, visit, self.page)
            parts += [part for part in found if part.name in trained]
        return parts or module_parts(self._module, self._loss_fn, trained, page)

    def rehearse(self, x: Tensor, y: Tensor) -> None:
        """Try the module on made-up rows of the same form, and refuse what cannot be trained privately."""
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(_SEED)
            rows, targets = _made_up(x, self.rows), _made_up(y, self.rows)
            others = _made_up(x, self.rows), _made_up(y, self.rows)
        buffers = {name: value.clone() for name, value in self._module.named_buffers()}
        try:
            self._rehearse(rows, targets, *others)
        except CannotTrace:
            self._layers = None
            self._rehearse(rows, targets, *others)
        for name, value in self._module.named_buffers():
            if not torch.equal(value, buffers[name]):
                value.copy_(buffers[name])
                raise BadParameter("module", f"its buffer {name} keeps statistics of private data, unpaid")

    def _rehearse(self, x: Tensor, y: Tensor, other_x: Tensor, other_y: Tensor) -> None:
        units, rows = self.page // 2, self.page // 2 * self.unit_rows
        mixed_x, mixed_y = torch.cat([x[:rows], other_x[rows:]]), torch.cat([y[:rows], other_y[rows:]])
        kept = [(one[:units], other[:units]) for one, other in self._both(x, y, mixed_x, mixed_y)]
        if not all(_same(one, other) for one, other in kept):
            raise BadParameter(
                "module", "mixes the rows of a batch: a row's gradient changed when other rows did"
            )
        with _evaluating(self._module):
            for turn in (1, self.page // 2 + 1):
                turned = x.roll(turn * self.unit_rows, 0), y.roll(turn * self.unit_rows, 0)
                if not all(_same(one.roll(turn, 0), other) for one, other in self._both(x, y, *turned)):
                    raise BadParameter(
                        "page", "is of a size at which a row's floats depend on its place. Try another"
                    )

    def _both(
        self, x: Tensor, y: Tensor, other_x: Tensor, other_y: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """All floats of two pages, side by side, one line for each unit."""
        one, other = self._tried(x, y), self._tried(other_x, other_y)
        for first, second in zip(one, other, strict=True):
            for here, there in zip(first.floats(), second.floats(), strict=True):
                yield here.reshape(self.page, -1), there.reshape(self.page, -1)
            yield first.squares(), second.squares()

    def _tried(self, x: Tensor, y: Tensor) -> list[Part]:
        """The parts of a page of made-up rows, with the same coins each time."""
        present = torch.ones(self.rows, dtype=torch.bool, device=x.device)
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(_SEED)
            with _steady(x):
                return _explained(lambda: self._parts(Page(x, y, present, self.page), made_up=True))


def _steady(x: Tensor) -> AbstractContextManager[None]:
    """On a GPU, let the same rows take the same way each time: no algorithm is chosen by a race."""
    if not x.is_cuda:
        return nullcontext()
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    )
    return flags


def _same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, except that what is not a number is that."""
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _explained(run: Callable[[], list[Part]]) -> list[Part]:
    """Run, and say what the module cannot do. Only made-up rows are shown to it."""
    try:
        return run()
    except (CannotTrace, LapwingError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        said = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise BadParameter("module", f"cannot be taken unit by unit on such rows: {said}") from error


def _made_up(like: Tensor, rows: int) -> Tensor:
    """Rows of the same form as `like`, of which only the form is looked at."""
    shape = (rows, *like.shape[1:])
    if like.dtype.is_floating_point:
        return torch.randn(shape, dtype=like.dtype, device=like.device)
    return torch.randint(0, 2, shape, dtype=like.dtype, device=like.device)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Without dropout: its coins go by place."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
