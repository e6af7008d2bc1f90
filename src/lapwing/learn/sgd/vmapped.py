"""Gradients unit by unit through torch.func, for what has no rule of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from lapwing.learn.sgd.parts import Part, Stacked
from lapwing.learn.sgd.tracing import LossFunction, Page, Visit, one_loss_a_row


def _named(module: nn.Module, trained: set[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The trained parameters, and all that stays as it is."""
    fixed: dict[str, Tensor] = dict(module.named_buffers())
    moving: dict[str, Tensor] = {}
    for name, value in module.named_parameters():
        (moving if name in trained else fixed)[name] = value.detach()
    return moving, fixed


def layer_parts(layer: nn.Module, prefix: str, trained: set[str], visit: Visit, page: int) -> list[Part]:
    """The parts of one layer, from what went in and the slope of what came out."""
    own = {name.removeprefix(prefix) for name in trained if name.startswith(prefix)}
    moving, fixed = _named(layer, own)

    def of_row(slope: Tensor, *row: Tensor) -> dict[str, Tensor]:
        def run(values: dict[str, Tensor]) -> Tensor:
            out = functional_call(layer, {**fixed, **values}, tuple(value[None] for value in row))
            assert isinstance(out, Tensor)
            return out[0]

        pull = vjp(run, moving)[1]
        return dict(pull(slope)[0])

    assert visit.slopes is not None
    gradients = vmap(of_row, randomness="error")(visit.slopes, *visit.inputs)
    return [Stacked.of(f"{prefix}{name}", rows, None, page) for name, rows in gradients.items()]


def module_parts(module: nn.Module, loss_fn: LossFunction, trained: set[str], page: Page) -> list[Part]:
    """The parts of a whole module, row by row."""
    moving, fixed = _named(module, trained)

    def loss(values: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
        out = functional_call(module, {**fixed, **values}, (row[None],))
        return one_loss_a_row(loss_fn(out, target[None]), 1)[0]

    with torch.enable_grad():
        gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(moving, page.x, page.y)
    return [Stacked.of(name, rows, page.present, page.units) for name, rows in gradients.items()]
