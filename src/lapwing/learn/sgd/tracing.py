"""One pass forward and back through a module: what went into each layer, the slope of what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from lapwing.errors import BadParameter
from lapwing.learn.sgd.layers import takes

LossFunction = Callable[[Tensor, Tensor], Tensor]


class CannotTrace(Exception):
    """The module does not fall into layers that are called once each; vmap takes it whole."""


@dataclass(frozen=True)
class Page:
    """Rows that are worked on at once: `units` of them, or several of each unit, one after the other."""

    x: Tensor
    y: Tensor
    present: Tensor
    units: int

    def only(self, units: Tensor) -> Page:
        """The page with these units (a mask) alone: the others' places are empty, as after a sample."""
        rows = units.repeat_interleave(len(self.present) // self.units)
        x, y = (
            values.masked_fill(~rows.reshape(-1, *[1] * (values.ndim - 1)), 0)
            for values in (self.x, self.y)
        )
        return Page(x, y, self.present & rows, self.units)


@dataclass
class Visit:
    """One layer in one pass. `slopes` is filled on the way back."""

    inputs: tuple[Tensor, ...]
    versions: tuple[int, ...]
    slopes: Tensor | None = None


@dataclass
class Layers:
    """The layers of a module that hold its trained parameters: with a rule, or for vmap one by one."""

    ruled: dict[str, nn.Module] = field(default_factory=dict)
    others: dict[str, nn.Module] = field(default_factory=dict)


def layers_of(module: nn.Module) -> Layers:
    """Where the trained parameters are. Raises `CannotTrace` if they are shared, or used in ways unseen."""
    owners: dict[int, int] = {}
    for part in module.modules():
        for value in part.parameters(recurse=False):
            owners[id(value)] = owners.get(id(value), 0) + 1
        if is_parametrized(part) or part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            raise CannotTrace
    if max(owners.values()) > 1:
        raise CannotTrace  # the squared norms of tied parameters do not add up
    found = Layers()
    _sort(module, "", found)
    if module in found.others.values():
        raise CannotTrace
    return found


def _sort(part: nn.Module, name: str, found: Layers) -> None:
    if not any(value.requires_grad for value in part.parameters()):
        return
    if takes(part):
        found.ruled[name] = part
    elif any(value.requires_grad for value in part.parameters(recurse=False)):
        # Its forward may use the parameters of what is inside it (as MultiheadAttention does).
        if _is_random(part):
            raise CannotTrace  # vmap would run it a second time, with other coins
        found.others[name] = part
    else:
        for child, inner in part.named_children():
            _sort(inner, f"{name}.{child}" if name else child, found)


def _is_random(part: nn.Module) -> bool:
    return any(
        isinstance(inner, nn.modules.dropout._DropoutNd) or getattr(inner, "dropout", 0)
        for inner in part.modules()
    )


@contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    """No gradients of parameters, which would be sums over all units; and nothing written in place."""
    trained = [value for value in module.parameters() if value.requires_grad]
    in_place = [part for part in module.modules() if getattr(part, "inplace", False) is True]
    try:
        for value in trained:
            value.requires_grad_(False)
        for part in in_place:
            setattr(part, "inplace", False)  # noqa: B010 (mypy sees a submodule)
        yield
    finally:
        for value in trained:
            value.requires_grad_(True)
        for part in in_place:
            setattr(part, "inplace", True)  # noqa: B010


def trace(module: nn.Module, loss_fn: LossFunction, layers: Layers, page: Page) -> dict[str, Visit]:
    """Each layer's visit. Rows that are not present have slope 0."""
    visits: dict[str, Visit] = {}
    handles = []

    def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], Tensor]:
        def hook(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> Tensor:
            fits = isinstance(output, Tensor) and inputs and all(isinstance(i, Tensor) for i in inputs)
            if name in visits or not fits:
                raise CannotTrace  # called twice, or with more than tensors
            visit = visits[name] = Visit(
                tuple(value.detach() for value in inputs), tuple(value._version for value in inputs)
            )
            if not output.requires_grad:
                output.requires_grad_(True)
            output.register_hook(lambda slope: _set(visit, slope))
            found: Tensor = output
            return found

        return hook

    try:
        for name, layer in (layers.ruled | layers.others).items():
            handles.append(layer.register_forward_hook(keep(name)))
        with _frozen(module), torch.enable_grad():
            losses = one_loss_a_row(loss_fn(module(page.x), page.y), len(page.x))
            if losses.requires_grad:
                torch.autograd.backward(losses, page.present.to(losses.dtype))
    finally:
        for handle in handles:
            with suppress(KeyError):
                handle.remove()
    for visit in visits.values():
        if visit.versions != tuple(value._version for value in visit.inputs):
            raise CannotTrace  # what went in was written over afterwards
    return visits


def _set(visit: Visit, slope: Tensor) -> None:
    visit.slopes = slope.detach()


def one_loss_a_row(losses: Tensor, rows: int) -> Tensor:
    """The losses, if there is one for each row."""
    if losses.shape != (rows,):
        raise BadParameter("loss_fn", "must give one loss for each row: use reduction='none'")
    return losses
