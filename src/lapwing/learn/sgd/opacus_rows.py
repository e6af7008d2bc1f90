"""Each row's gradient as Opacus finds it (extra `opacus`): another way to the same pages.

Claim    a unit's gradient is the sum of what Opacus gives for its rows; all else is as for any other way.
Because  Opacus is asked for gradients alone. Its clipping, noise, samples and accountant are not used:
         norms are taken here, of the very floats that are summed. So a wrong rule for a layer gives a wrong
         direction, of at most the clip's length; and a rule that mixes rows is found by `rehearse`.
Test     tests/learn/sgd/test_opacus_backend.py
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from lapwing.errors import BadParameter, MissingExtra
from lapwing.learn.sgd.parts import Part, Stacked
from lapwing.learn.sgd.tracing import LossFunction, Page, one_loss_a_row

WRONG = "what Opacus finds by row does not add up to the gradient. Use backend='own'"


def _library() -> Any:
    try:
        from opacus import grad_sample  # noqa: PLC0415 (an extra)
    except ImportError:
        raise MissingExtra("opacus", "Training with the gradients of Opacus") from None
    return grad_sample


class OpacusRows:
    """The gradients of a module's rows, through hooks that Opacus puts on its layers."""

    def __init__(self, module: nn.Module, loss_fn: LossFunction) -> None:
        self._opacus = _library()
        self._module, self._loss_fn = module, loss_fn
        _refuse_what_opacus_cannot(module)

    def parts(self, page: Page) -> list[Part]:
        """The parts of a page."""
        trained = {
            name: value
            for name, value in self._after_a_pass(page).named_parameters()
            if value.requires_grad
        }
        rows = {name: _rows(name, value, len(page.x)) for name, value in trained.items()}
        return [Stacked.of(name, rows.pop(name), page.present, page.units) for name in list(rows)]

    def _after_a_pass(self, page: Page) -> nn.Module:
        """A likeness of the module after a pass forward and back, with all that Opacus left on it.

        It shares the module's numbers, and nothing else: the sum of all gradients, which torch cannot be
        kept from finding, and the rows that Opacus keeps are thrown away with it.
        """
        likeness = _likeness(self._module)
        hooked = self._opacus.GradSampleModule(likeness, loss_reduction="sum")
        for layer in hooked.iterate_submodules(likeness):
            layer.training = True  # else Opacus does not look; dropout inside such a layer is refused
        with torch.enable_grad(), warnings.catch_warnings():
            # It is meant: rows need no gradient of their own.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            losses = one_loss_a_row(self._loss_fn(hooked(page.x), page.y), len(page.x))
            if losses.requires_grad:
                torch.autograd.backward(losses, page.present.to(losses.dtype))
        return likeness


def _likeness(module: nn.Module) -> nn.Module:
    """A copy that shares the module's numbers and buffers. It does nothing in place, which hooks forbid."""
    shared: dict[int, Any] = {id(value): value for value in module.buffers()}
    for value in module.parameters():
        shared[id(value)] = nn.Parameter(value.detach(), requires_grad=value.requires_grad)
    likeness = copy.deepcopy(module, shared)
    for part in likeness.modules():
        if getattr(part, "inplace", False) is True:
            setattr(part, "inplace", False)  # noqa: B010 (mypy sees a submodule)
    return likeness


def _refuse_what_opacus_cannot(module: nn.Module) -> None:
    for name, part in module.named_modules():
        where = f"{name or 'the module'} ({type(part).__name__})"
        if not any(value.requires_grad for value in part.parameters(recurse=False)):
            continue
        if any(True for _ in part.buffers()):
            raise BadParameter("module", f"{where} has buffers, which Opacus refuses. Use backend='own'")
        if isinstance(part, nn.Embedding) and (
            part.padding_idx is not None or part.scale_grad_by_freq or part.sparse
        ):
            raise BadParameter(
                "module",
                f"{where} has padding_idx, scale_grad_by_freq or sparse, which Opacus passes over. "
                "Use backend='own'",
            )
        if isinstance(part, nn.Embedding) and part.weight.device.type != "cpu":
            # By luck a rehearsal may not see it: the order decides only where a row has a token thrice.
            raise BadParameter(
                "module", f"{where} is on a GPU, where Opacus adds tokens in any order. Use backend='own'"
            )


def _rows(name: str, value: Tensor, rows: int) -> Tensor:
    """A parameter's gradient for each row; zeros, if Opacus found none."""
    found = getattr(value, "grad_sample", None)
    if found is None:
        return value.new_zeros((rows, *value.shape), requires_grad=False)
    if not isinstance(found, Tensor) or found.shape != (rows, *value.shape):
        raise BadParameter(
            "module", f"{name}: Opacus does not find one gradient for each row. Use backend='own'"
        )
    return found.detach()
