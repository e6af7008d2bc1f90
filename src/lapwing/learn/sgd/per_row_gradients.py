"""Gradients of each row, by one of three methods: one backward pass, vmap, or Opacus.

*One backward pass*: hooks record the inputs of each layer, and the slopes of its outputs. *vmap*:
torch.func finds gradients unit by unit, for layers without a rule. *Opacus* (extra `opacus`):

Claim    a unit's gradient is the sum of the gradients that Opacus finds for its rows; everything else is
         the same as for the other methods.
Because  Opacus is asked for gradients alone. Its clipping, noise, samples and accountant are not used:
         norms are taken here, of the very floats that are summed. So a wrong rule for a layer gives a wrong
         direction, of at most the clip's length; and a rule that mixes rows is found by `rehearse`.
Test     tests/learn/sgd/test_per_row_gradients_opacus.py
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap
from torch.nn.utils.parametrize import is_parametrized

from lapwing.errors import BadParameter, MissingExtra
from lapwing.learn.sgd.unit_gradients import ParameterGradients, StackedGradients, has_rule

LossFunction = Callable[[Tensor, Tensor], Tensor]


class CannotTrace(Exception):
    """The module does not consist of layers that are called once each, so vmap must take it whole."""


@dataclass(frozen=True)
class GradientPage:
    """Rows that are processed at once: one row of each of `units` units, or several adjacent rows of each.

    `present` is False for places that are empty.
    """

    x: Tensor
    y: Tensor
    present: Tensor
    units: int

    def only(self, units: Tensor) -> GradientPage:
        """Return the page with these units (a mask) alone: all other places are empty."""
        rows = units.repeat_interleave(len(self.present) // self.units)
        x, y = (
            values.masked_fill(~rows.reshape(-1, *[1] * (values.ndim - 1)), 0)
            for values in (self.x, self.y)
        )
        return GradientPage(x, y, self.present & rows, self.units)


@dataclass
class LayerPass:
    """The inputs of one layer in one pass. The backward pass sets `slopes`."""

    inputs: tuple[Tensor, ...]
    versions: tuple[int, ...]
    slopes: Tensor | None = None


@dataclass
class TracedLayers:
    """The layers of a module that hold its trained parameters: those with a rule, and those for vmap."""

    ruled: dict[str, nn.Module] = field(default_factory=dict)
    others: dict[str, nn.Module] = field(default_factory=dict)


def find_layers(module: nn.Module) -> TracedLayers:
    """Return the layers with trained parameters.

    Raises CannotTrace if parameters are shared, or used in ways that cannot be seen.
    """
    owners: Counter[int] = Counter()
    for part in module.modules():
        owners.update(map(id, part.parameters(recurse=False)))
        if is_parametrized(part) or part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            raise CannotTrace
    if max(owners.values()) > 1:
        raise CannotTrace  # the squared norms of tied parameters do not add up
    layers = TracedLayers()
    _sort(module, "", layers)
    if module in layers.others.values():
        raise CannotTrace
    return layers


def _sort(part: nn.Module, name: str, layers: TracedLayers) -> None:
    if not any(value.requires_grad for value in part.parameters()):
        return
    if has_rule(part):
        layers.ruled[name] = part
    elif any(value.requires_grad for value in part.parameters(recurse=False)):
        # Its forward may use the parameters of inner modules (as MultiheadAttention does).
        if _is_random(part):
            raise CannotTrace  # vmap would run it again, with other random numbers
        layers.others[name] = part
    else:
        for child, inner in part.named_children():
            _sort(inner, f"{name}.{child}" if name else child, layers)


def _is_random(part: nn.Module) -> bool:
    return any(
        isinstance(inner, nn.modules.dropout._DropoutNd) or getattr(inner, "dropout", 0)
        for inner in part.modules()
    )


@contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    """Switch off gradients of parameters, which would be sums over all units, and all writing in place."""
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


def trace_layers(
    module: nn.Module, loss_fn: LossFunction, layers: TracedLayers, page: GradientPage
) -> dict[str, LayerPass]:
    """Run the module forward and back, and return each layer's pass. Absent rows have slope 0."""
    visits: dict[str, LayerPass] = {}
    handles = []

    def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], Tensor]:
        def hook(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> Tensor:
            fits = isinstance(output, Tensor) and inputs and all(isinstance(i, Tensor) for i in inputs)
            if name in visits or not fits:
                raise CannotTrace  # called twice, or with inputs other than tensors
            visit = visits[name] = LayerPass(
                tuple(value.detach() for value in inputs), tuple(value._version for value in inputs)
            )
            if not output.requires_grad:
                output.requires_grad_(True)
            output.register_hook(lambda slope: _set(visit, slope))
            traced: Tensor = output
            return traced

        return hook

    try:
        for name, layer in (layers.ruled | layers.others).items():
            handles.append(layer.register_forward_hook(keep(name)))
        with _frozen(module), torch.enable_grad():
            losses = checked_losses(loss_fn(module(page.x), page.y), len(page.x))
            if losses.requires_grad:
                torch.autograd.backward(losses, page.present.to(losses.dtype))
    finally:
        for handle in handles:
            with suppress(KeyError):
                handle.remove()
    for visit in visits.values():
        if visit.versions != tuple(value._version for value in visit.inputs):
            raise CannotTrace  # an input was overwritten afterwards
    return visits


def _set(visit: LayerPass, slope: Tensor) -> None:
    visit.slopes = slope.detach()


def checked_losses(losses: Tensor, rows: int) -> Tensor:
    """Return the losses. Raise BadParameter if there is not one for each row."""
    if losses.shape != (rows,):
        raise BadParameter("loss_fn", "must give one loss for each row: use reduction='none'")
    return losses


def _named(module: nn.Module, trained: set[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the trained parameters, and everything that is not trained."""
    fixed: dict[str, Tensor] = dict(module.named_buffers())
    moving: dict[str, Tensor] = {}
    for name, value in module.named_parameters():
        (moving if name in trained else fixed)[name] = value.detach()
    return moving, fixed


def layer_gradients_by_vmap(
    layer: nn.Module, prefix: str, trained: set[str], visit: LayerPass, page: int
) -> list[ParameterGradients]:
    """Return the gradients of one layer, from its inputs and the slopes of its outputs."""
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
    return [StackedGradients.of(f"{prefix}{name}", rows, None, page) for name, rows in gradients.items()]


def module_gradients_by_vmap(
    module: nn.Module, loss_fn: LossFunction, trained: set[str], page: GradientPage
) -> list[ParameterGradients]:
    """Return the gradients of a whole module, row by row."""
    moving, fixed = _named(module, trained)

    def loss(values: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
        out = functional_call(module, {**fixed, **values}, (row[None],))
        return checked_losses(loss_fn(out, target[None]), 1)[0]

    with torch.enable_grad():
        gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(moving, page.x, page.y)
    return [StackedGradients.of(name, rows, page.present, page.units) for name, rows in gradients.items()]


OPACUS_IS_WRONG = "the rows' gradients by Opacus do not add up to the gradient. Use backend='own'"


class OpacusGradients:
    """The gradients of a module's rows, through hooks that Opacus puts on its layers."""

    def __init__(self, module: nn.Module, loss_fn: LossFunction) -> None:
        try:
            from opacus import grad_sample  # noqa: PLC0415 (an extra)
        except ImportError:
            raise MissingExtra("opacus", "Training with the gradients of Opacus") from None
        self._opacus, self._module, self._loss_fn = grad_sample, module, loss_fn
        _refuse_what_opacus_cannot(module)

    def parts(self, page: GradientPage) -> list[ParameterGradients]:
        """Return the gradients of a page."""
        named = self._after_a_pass(page).named_parameters()
        rows = {name: _rows(name, value, len(page.x)) for name, value in named if value.requires_grad}
        return [StackedGradients.of(name, rows.pop(name), page.present, page.units) for name in list(rows)]

    def _after_a_pass(self, page: GradientPage) -> nn.Module:
        """Return a copy of the module after one pass, with the gradients that Opacus left on it.

        The copy shares the module's numbers, and nothing else. The sum of all gradients, which torch
        computes anyway, and the rows that Opacus keeps are discarded with it.
        """
        copied = _copy(self._module)
        hooked = self._opacus.GradSampleModule(copied, loss_reduction="sum")
        for layer in hooked.iterate_submodules(copied):
            layer.training = True  # otherwise Opacus ignores it; dropout inside such a layer is refused
        with torch.enable_grad(), warnings.catch_warnings():
            # Intended: rows need no gradient of their own.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            losses = checked_losses(self._loss_fn(hooked(page.x), page.y), len(page.x))
            if losses.requires_grad:
                torch.autograd.backward(losses, page.present.to(losses.dtype))
        return copied


def _copy(module: nn.Module) -> nn.Module:
    """Copy a module, sharing its numbers and buffers.

    The copy does nothing in place, which hooks forbid.
    """
    shared: dict[int, Any] = {id(value): value for value in module.buffers()}
    for value in module.parameters():
        shared[id(value)] = nn.Parameter(value.detach(), requires_grad=value.requires_grad)
    copied = copy.deepcopy(module, shared)
    for part in copied.modules():
        if getattr(part, "inplace", False) is True:
            setattr(part, "inplace", False)  # noqa: B010 (mypy sees a submodule)
    return copied


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
                f"{where} has padding_idx, scale_grad_by_freq or sparse, which Opacus ignores. "
                "Use backend='own'",
            )
        if isinstance(part, nn.Embedding) and part.weight.device.type != "cpu":
            # A rehearsal may miss it: the order matters only if a row has a token three times.
            raise BadParameter(
                "module", f"{where} is on a GPU, where Opacus adds tokens in any order. Use backend='own'"
            )


def _rows(name: str, value: Tensor, rows: int) -> Tensor:
    """Return a parameter's gradient for each row; zeros if Opacus found none."""
    gradients = getattr(value, "grad_sample", None)
    if gradients is None:
        return value.new_zeros((rows, *value.shape), requires_grad=False)
    if not isinstance(gradients, Tensor) or gradients.shape != (rows, *value.shape):
        raise BadParameter(
            "module", f"{name}: Opacus does not find one gradient for each row. Use backend='own'"
        )
    return gradients.detach()
