"""Sums of clipped gradients: each unit's gradient is scaled to a norm of at most the clip, then added.

A *page* is a microbatch: a fixed number of units that are processed at once.

Claim    the sum is that of `torch.func`'s gradients unit by unit, each clipped, to float accuracy; a unit
         whose gradient is not finite, or for which the module fails, adds nothing; no unit's floats
         depend on the others'.
Because  a page always has the same shape, whichever units are in it: empty places are padded and have slope
         0. At one shape, a row's floats depend on the row and the kind of its place. `rehearse` checks
         this, bit for bit, on made-up rows, before anything is charged: it refuses a module that mixes
         rows, and finds the number of kinds of places.
Test     tests/learn/sgd/test_unit_gradients.py, tests/learn/sgd/test_clipping.py

Claim    whether a unit counts depends on the unit alone, and no unit in a page can stop the training.
Because  a page that fails is computed again in halves, at the same shape and with the same random numbers,
         down to the units that fail with all other places empty. Those places become empty, too. The
         assumption that a page fails exactly if one of its units does is in docs/arguments/dp_sgd.md.
Test     tests/learn/sgd/test_clipping_usable.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from typing import Literal

import torch
from torch import Tensor, nn

from lapwing.core.exact import Number, positive, whole
from lapwing.errors import BadParameter, BadValue
from lapwing.learn.sgd import per_row_gradients, rehearsal
from lapwing.learn.sgd.per_row_gradients import (
    CannotTrace,
    GradientPage,
    LossFunction,
    module_gradients_by_vmap,
)
from lapwing.learn.sgd.randomness import generator_state, restore_generator
from lapwing.learn.sgd.unit_gradients import ParameterGradients, layer_gradients

FindGradients = Callable[[GradientPage], list[ParameterGradients]]


def gradients_of_usable_units(find: FindGradients, page: GradientPage) -> list[ParameterGradients]:
    """Return the page's gradients, without the units for which `find` raises.

    Its errors are never passed on.
    """
    device = page.x.device
    state = generator_state(device)
    gradients = _tried(find, page)
    if gradients is not None:
        return gradients

    def again(units: Tensor) -> list[ParameterGradients] | None:
        restore_generator(state, device)  # other random numbers would change which units fail
        return _tried(find, page.only(units))

    there = page.present.reshape(page.units, -1).any(1)
    fails = _failing(again, there)
    gradients = again(there & ~fails)
    if gradients is None:
        # Raised here, not in the except block: the module's own error must not be attached to it.
        raise BadValue("the module fails on a page of rows although it works on each row")
    return gradients


def _tried(find: FindGradients, page: GradientPage) -> list[ParameterGradients] | None:
    try:
        return find(page)
    except (MemoryError, torch.OutOfMemoryError):
        is_full = True  # no unit's fault: leaving units out would not help
    except Exception:  # a module may raise anything
        is_full = False
    if is_full:
        raise BadValue("a page of rows needs more memory than there is. Use a smaller page")
    return None


def _failing(again: Callable[[Tensor], list[ParameterGradients] | None], units: Tensor) -> Tensor:
    """Return the units that fail by themselves. Their page was found to fail."""
    places = units.nonzero().flatten()
    if len(places) <= 1:
        return units.clone()
    fails = torch.zeros_like(units)
    for part in places.tensor_split(2):
        half = torch.zeros_like(units)
        half[part] = True
        if again(half) is None:
            fails |= _failing(again, half)
    return fails


def fill_empty_rows(values: Tensor, present: Tensor, units: int) -> Tensor:
    """Replace a unit's empty rows by its first row, with slope 0.

    So a unit's empty places cannot do anything that its own row does not: a row of zeros divided by its
    length is not a number, and neither is 0 times its slope.
    """
    there = present.reshape(units, -1)
    places = torch.arange(len(present), device=present.device).reshape(units, -1)
    first = places.gather(1, there.to(torch.uint8).argmax(1, keepdim=True))
    return values[torch.where(there, places, first).flatten()]


_SMALLEST_FACTOR = 2.0**-100
_SEED = 20  # of made-up rows and their dropout: public, and not used for anything released

_WRONG = "units' gradients do not add up to torch's own, to 0.1 %. (Does it work in short floats inside?)"

Backend = Literal["own", "opacus"]


class ClippedGradients:
    """The clipped gradients of a module, `page` units at once, each of up to `unit_rows` rows.

    A unit's rows are added up before clipping. Whole numbers in made-up rows are below `tokens`, and in
    targets below `classes`.
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
        rehearsal.refuse_unfit_module(module)
        rehearsal.refuse_short_floats()
        self._module, self._loss_fn = module, loss_fn
        # Rounded down: a float above the clip would be a longer step than the price says.
        self._clip = math.nextafter(float(positive(clip, "clip")), 0.0)
        self.page = whole(page, "page", at_least=1)
        self.unit_rows = whole(unit_rows, "unit_rows", at_least=1)
        self._trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
        if backend not in ("own", "opacus"):
            raise BadParameter("backend", "must be own or opacus")
        self._opacus = per_row_gradients.OpacusGradients(module, loss_fn) if backend == "opacus" else None
        self._tokens = None if tokens is None else whole(tokens, "tokens", at_least=1)
        self._classes = None if classes is None else whole(classes, "classes", at_least=1)
        self._is_share = False
        self.kinds = 1  # of places in a page: place p is of kind p % kinds
        self._reused: dict[bool, Tensor] = {}
        self._layers: per_row_gradients.TracedLayers | None = None
        with suppress(CannotTrace):
            self._layers = per_row_gradients.find_layers(module)

    @property
    def method(self) -> str:
        """The gradient method: "one backward pass", "vmap" or, with that `backend`, "opacus"."""
        if self._opacus is not None:
            return "opacus"
        if self._layers is None:
            return "vmap"
        others = len(self._layers.others)
        return f"one backward pass, vmap for {others} layers" if others else "one backward pass"

    @property
    def trained(self) -> list[Tensor]:
        """The trained parameters, in the order of the sums."""
        return list(self._trained.values())

    @property
    def size(self) -> int:
        """The number of trained numbers."""
        return sum(value.numel() for value in self._trained.values())

    @property
    def rows(self) -> int:
        """The number of rows of a page, padding included."""
        return self.page * self.unit_rows

    def empty(self, *, single: bool) -> Tensor:
        """Return a zero sum, all parameters in one vector: with `single`, in the module's own precision."""
        first = next(iter(self._trained.values()))
        dtype = first.dtype if single else torch.float64
        return torch.zeros(self.size, dtype=dtype, device=first.device)

    def reused_sum(self, *, single: bool) -> Tensor:
        """Return memory like that of `empty`, always the same, with the last sum still in it."""
        if single not in self._reused:
            self._reused = {single: self.empty(single=single)}
        return self._reused[single]

    def views(self, sums: Tensor) -> dict[str, Tensor]:
        """Return the vector's slices by parameter, in the order of the module's."""
        counts = [value.numel() for value in self._trained.values()]
        return dict(zip(self._trained, torch.split(sums, counts), strict=True))

    def add_page(
        self, x: Tensor, y: Tensor, present: Tensor, sums: Tensor, *, is_first: bool = False
    ) -> Tensor:
        """Add the clipped gradients of one page to `sums`, and return the norms. Both are private.

        The first page overwrites `sums`.
        """
        if len(x) != self.rows or len(y) != self.rows or present.shape != (self.rows,):
            raise BadParameter("page", f"must have {self.rows} rows, padding included")
        if self.unit_rows > 1:
            x, y = fill_empty_rows(x, present, self.page), fill_empty_rows(y, present, self.page)
        parts = gradients_of_usable_units(self._steady_parts, GradientPage(x, y, present, self.page))
        # One after the other: torch.sum adds in an order that depends on the place.
        norms = reduce(torch.add, [part.squares() for part in parts]).sqrt()
        factors = (self._clip / norms).clamp_(max=1.0)
        unusable = ~(factors >= _SMALLEST_FACTOR)  # not a number, infinite, or too large to be scaled
        if unusable.any():
            factors.masked_fill_(unusable, 0.0)
            for part in parts:
                part.drop(unusable)
        into = self.views(sums)
        for name in into.keys() - {part.name for part in parts} if is_first else ():
            into[name].zero_()  # the loss does not depend on this parameter
        while parts:  # each is released as it is added, which keeps memory low
            part = parts.pop()
            part.add(factors, into[part.name], is_first=is_first)
        return norms

    def _parts(self, page: GradientPage) -> list[ParameterGradients]:
        if self._opacus is not None:
            return self._opacus.parts(page)
        trained = set(self._trained)
        if self._layers is None:
            return module_gradients_by_vmap(self._module, self._loss_fn, trained, page)
        visits = per_row_gradients.trace_layers(self._module, self._loss_fn, self._layers, page)
        parts: list[ParameterGradients] = []
        for name in list(visits):
            visit, prefix = visits.pop(name), f"{name}." if name else ""
            if visit.slopes is None:
                continue  # the loss does not depend on this layer
            if name in self._layers.ruled:
                layer = self._layers.ruled[name]
                gradients = layer_gradients(layer, prefix, visit.inputs[0], visit.slopes, self.page)
            else:
                layer = self._layers.others[name]
                gradients = per_row_gradients.layer_gradients_by_vmap(
                    layer, prefix, trained, visit, self.page
                )
            parts += [part for part in gradients if part.name in trained]
        return parts or module_gradients_by_vmap(self._module, self._loss_fn, trained, page)

    def rehearse(self, x: Tensor, y: Tensor) -> None:
        """Try the module on made-up rows of the same form. Refuse one that cannot be trained privately.

        A module that fails with one backward pass is tried with vmap. `kinds` (of places) is set.
        """
        if self.rows % (tile := rehearsal.TILE):
            why = f"times unit_rows must be a multiple of {tile}: at others, floats depend on a row's place"
            raise BadParameter("page", why)
        kept = rehearsal.BufferGuard(self._module, self._loss_fn)
        try:
            self._choose_method(x, y)
        finally:
            kept.refuse_changes()

    def rehearse_again(self, x: Tensor, y: Tensor, *, step: int) -> None:
        """Do a few more trials, with the module's present numbers, on other made-up rows."""
        trials = self._rehearsal(x, y, is_share=self._is_share, seed=_SEED + step)
        self.kinds = trials.brief(self.kinds)

    def _choose_method(self, x: Tensor, y: Tensor) -> None:
        by_layers, first = self._layers, None  # the first error is the most helpful one
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
        assert first is not None  # vmap raises an error of its own
        raise first

    def _rehearsal(self, x: Tensor, y: Tensor, *, is_share: bool, seed: int) -> rehearsal.GradientRehearsal:
        form = rehearsal.RowForm(x, y, self._tokens or 2, self._classes or 2, is_share)
        by_opacus = self._opacus is not None
        return rehearsal.GradientRehearsal(
            module=self._module, loss_fn=self._loss_fn, trained=self._trained, parts=self._steady_parts,
            units=self.page, unit_rows=self.unit_rows, form=form, seed=seed, drops_in_sums=by_opacus,
            wrong=per_row_gradients.OPACUS_IS_WRONG if by_opacus else _WRONG,
        )  # fmt: skip

    def _steady_parts(self, page: GradientPage) -> list[ParameterGradients]:
        with rehearsal.deterministic_gpu(page.x):
            return self._parts(page)
