"""Sums of clipped gradients: each unit's gradient is scaled to a norm of at most the clip, then added.

Claim    the sum is that of `torch.func`'s gradients unit by unit, each clipped, to float accuracy; a unit
         whose gradient is not finite, or for which the module fails, adds nothing; no unit's floats
         depend on the others'.
Because  a page always has the same shape, whoever is in it: what is missing is padded and has slope 0. At
         one shape, a row's floats depend on the row and the kind of its place; `rehearse` tries this, bit
         for bit, on made-up rows, before anything is charged: it refuses a module that mixes rows, and
         finds out how many kinds of places there are.
Test     tests/learn/sgd/test_layers.py, tests/learn/sgd/test_clipped.py
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import reduce
from typing import Literal

import torch
from torch import Tensor, nn

from lapwing.errors import BadParameter
from lapwing.exact import Number, positive, whole
from lapwing.learn.sgd.layers import parts_of
from lapwing.learn.sgd.opacus_rows import WRONG, OpacusRows
from lapwing.learn.sgd.parts import Part
from lapwing.learn.sgd.refusals import Kept, refuse_short_floats, refuse_unfit
from lapwing.learn.sgd.rehearsal import TILE, Form, Rehearsal, steady
from lapwing.learn.sgd.tracing import CannotTrace, Layers, LossFunction, Page, layers_of, trace
from lapwing.learn.sgd.usable import repeated, usable_parts
from lapwing.learn.sgd.vmapped import layer_parts, module_parts

_SMALLEST_FACTOR = 2.0**-100
_SEED = 20  # of made-up rows and their dropout: public, and far from all that is released

_WRONG = "units' gradients do not add up to torch's own, to 0.1 %. (Does it work in short floats inside?)"

Backend = Literal["own", "opacus"]


class ClippedGradients:
    """Clips and sums the gradients of a module, `page` units at once, each of up to `unit_rows` rows.

    A unit's rows are added up before clipping. `way` says how: "one backward pass", "vmap" or, with that
    `backend`, "opacus". Whole numbers in made-up rows are below `tokens`, and in targets below `classes`.
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
        tokens: int | None = None,
        classes: int | None = None,
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
        self._tokens, self._classes = (
            None if below is None else whole(below, name, at_least=1)
            for below, name in ((tokens, "tokens"), (classes, "classes"))
        )
        self._is_share = False
        self.kinds = 1  # of places in a page: place p is of kind p % kinds
        self._rooms: dict[bool, Tensor] = {}
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

    def room(self, *, single: bool) -> Tensor:
        """As `empty`, but always the same memory, with whatever was last in it."""
        if single not in self._rooms:
            self._rooms = {single: self.empty(single=single)}
        return self._rooms[single]

    def views(self, sums: Tensor) -> dict[str, Tensor]:
        """The vector's slices by parameter, in the order of the module's."""
        counts = [value.numel() for value in self._trained.values()]
        return dict(zip(self._trained, torch.split(sums, counts), strict=True))

    def add_page(
        self, x: Tensor, y: Tensor, present: Tensor, sums: Tensor, *, is_first: bool = False
    ) -> Tensor:
        """Add the clipped gradients of one page to `sums`, and give the norms. Both are private.

        The first page overwrites whatever `sums` holds.
        """
        if len(x) != self.rows or len(y) != self.rows or present.shape != (self.rows,):
            raise BadParameter("page", f"must have {self.rows} rows, padding included")
        if self.unit_rows > 1:
            x, y = repeated(x, present, self.page), repeated(y, present, self.page)
        parts = usable_parts(self._steady_parts, Page(x, y, present, self.page))
        # One after the other: torch.sum adds in an order that depends on the place.
        norms = reduce(torch.add, [part.squares() for part in parts]).sqrt()
        factors = (self._clip / norms).clamp_(max=1.0)
        unusable = ~(factors >= _SMALLEST_FACTOR)  # not a number, infinite, or beyond what floats can scale
        if unusable.any():
            factors.masked_fill_(unusable, 0.0)
            for part in parts:
                part.drop(unusable)
        into = self.views(sums)
        for name in into.keys() - {part.name for part in parts} if is_first else ():
            into[name].zero_()  # the loss does not depend on it
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

    def _parts(self, page: Page) -> list[Part]:
        if self._opacus is not None:
            return self._opacus.parts(page)
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
        """Try the module on made-up rows of the same form, and refuse what cannot be trained privately.

        What one backward pass cannot do, or does wrong, is left to vmap. `kinds` of places is set.
        """
        if self.rows % TILE:
            raise BadParameter(
                "page",
                f"times unit_rows must be a multiple of {TILE}: at others, floats depend on a row's place",
            )
        kept = Kept(self._module, self._loss_fn)
        try:
            self._choose_way(x, y)
        finally:
            kept.refuse_changes()

    def rehearse_again(self, x: Tensor, y: Tensor, *, step: int) -> None:
        """Do a few trials more, with the numbers that the module has by now, on other made-up rows."""
        rehearsal = self._rehearsal(x, y, is_share=self._is_share, seed=_SEED + step)
        self.kinds = rehearsal.brief(self.kinds)

    def _choose_way(self, x: Tensor, y: Tensor) -> None:
        by_layers, first = self._layers, None  # what was wrong at first says most
        for layers in [None] if by_layers is None or self._opacus is not None else [by_layers, None]:
            for is_share in (False, True) if y.is_floating_point() else (False,):
                self._layers, self._is_share = layers, is_share
                try:
                    self.kinds = self._rehearsal(x, y, is_share=is_share, seed=_SEED).full()
                except CannotTrace:
                    break
                except BadParameter as error:
                    first = first or error
                else:
                    return
        self._layers = by_layers
        assert first is not None  # vmap says what it cannot do
        raise first

    def _rehearsal(self, x: Tensor, y: Tensor, *, is_share: bool, seed: int) -> Rehearsal:
        return Rehearsal(
            module=self._module,
            loss_fn=self._loss_fn,
            trained=self._trained,
            parts=self._steady_parts,
            units=self.page,
            unit_rows=self.unit_rows,
            form=Form(x, y, self._tokens or 2, self._classes or 2, is_share),
            seed=seed,
            drops_in_sums=self._opacus is not None,
            wrong=WRONG if self._opacus is not None else _WRONG,
        )

    def _steady_parts(self, page: Page) -> list[Part]:
        with steady(page.x):
            return self._parts(page)
