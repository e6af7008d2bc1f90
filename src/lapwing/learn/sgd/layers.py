"""The layers whose gradients follow from what went in and the slope of what came out: one backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from lapwing.learn.sgd.parts import Ghost, Outer, Part, Scattered, Stacked, wide

# Written out, a weight's gradients of a page take at most so many floats; else ghost norms are used.
MOST_WRITTEN = 1 << 25
# Pairs of times cost time² · (in + out); writing out costs in · out. So much more may it be.
WRITING = 16


def _by_unit(tensor: Tensor, page: int) -> Tensor:
    """(rows, ..., width) as (unit, all rows and times of the unit, width)."""
    return tensor.reshape(page, -1, tensor.shape[-1])


def _weights(name: str, inputs: Tensor, slopes: Tensor) -> Part:
    """Σ over times of slope inputᵀ, by the cheapest of three ways."""
    (page, times, out), width = slopes.shape, inputs.shape[2]
    if times == 1:
        return Outer(name, inputs[:, 0], slopes[:, 0])
    if width * out > min(WRITING * times * (width + out), MOST_WRITTEN // page):
        return Ghost(name, inputs, slopes)
    return Stacked(name, torch.bmm(slopes.mT, inputs).flatten(1))


def _linear(layer: nn.Linear, inputs: Tensor, slopes: Tensor, page: int) -> dict[str, Part]:
    a, b = _by_unit(inputs, page), _by_unit(slopes, page)
    parts: dict[str, Part] = {"weight": _weights("weight", a, b)}
    if layer.bias is not None:
        parts["bias"] = Stacked("bias", b.sum(1) if b.shape[1] > 1 else b[:, 0])
    return parts


def _conv(layer: nn.Conv2d, inputs: Tensor, slopes: Tensor, page: int) -> dict[str, Part]:
    padding = layer.padding
    assert not isinstance(padding, str)  # `takes` sends these elsewhere
    patches = functional.unfold(
        inputs, layer.kernel_size, dilation=layer.dilation, padding=padding, stride=layer.stride
    )  # row, in · kernel, place
    groups, rows = layer.groups, len(inputs)
    b = slopes.reshape(rows * groups, layer.out_channels // groups, -1)
    a = patches.reshape(rows * groups, -1, b.shape[2])
    each = torch.bmm(b, a.mT).reshape(page, rows // page, -1)
    parts: dict[str, Part] = {"weight": Stacked("weight", _added(each))}
    if layer.bias is not None:
        parts["bias"] = Stacked("bias", _added(slopes.flatten(2).sum(2).reshape(page, rows // page, -1)))
    return parts


def _embedding(layer: nn.Embedding, inputs: Tensor, slopes: Tensor, page: int) -> dict[str, Part]:
    tokens, b = inputs.reshape(page, -1), _by_unit(slopes, page)
    scattered = Scattered.of("weight", tokens, b, layer.num_embeddings, layer.padding_idx)
    return {"weight": scattered}


def _layer_norm(layer: nn.LayerNorm, inputs: Tensor, slopes: Tensor, page: int) -> dict[str, Part]:
    normed = functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    width = layer.weight.numel()
    b = slopes.reshape(page, -1, width)
    parts: dict[str, Part] = {"weight": Stacked("weight", (b * normed.reshape(page, -1, width)).sum(1))}
    if layer.bias is not None:
        parts["bias"] = Stacked("bias", b.sum(1))
    return parts


def _group_norm(layer: nn.GroupNorm, inputs: Tensor, slopes: Tensor, page: int) -> dict[str, Part]:
    normed = functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
    shape = (page, len(inputs) // page, layer.num_channels)
    weight = (slopes * normed).flatten(2).sum(2).reshape(shape)
    bias = slopes.flatten(2).sum(2).reshape(shape)
    return {"weight": Stacked("weight", _added(weight)), "bias": Stacked("bias", _added(bias))}


def _added(rows: Tensor) -> Tensor:
    """(unit, row, value) added over the unit's rows."""
    return rows[:, 0] if rows.shape[1] == 1 else rows.sum(1)


Rule = Callable[..., dict[str, Part]]
RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
}


def takes(layer: nn.Module) -> bool:
    """Whether the layer has a rule here, as it is set."""
    if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return False
    if isinstance(layer, nn.Embedding) and (layer.scale_grad_by_freq or layer.sparse):
        return False
    return type(layer) in RULES


def parts_of(layer: nn.Module, prefix: str, inputs: Tensor, slopes: Tensor, page: int) -> list[Part]:
    """The layer's parts, under the full names of their parameters."""
    found = RULES[type(layer)](layer, wide(inputs), wide(slopes), page)
    for name, part in found.items():
        part.name = f"{prefix}{name}"
    return list(found.values())
