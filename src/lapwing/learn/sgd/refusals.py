"""What cannot be trained privately, named before anything is charged."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from lapwing.errors import BadParameter

_DTYPES = (torch.float32, torch.float64)


def refuse_unfit(module: nn.Module) -> None:
    """Refuse what mixes units or keeps statistics of them, by its name."""
    for name, part in module.named_modules():
        where = f"{name or 'the module'} ({type(part).__name__})"
        if isinstance(part, _BatchNorm) and (part.training or part.running_mean is None):
            raise BadParameter(
                "module",
                f"{where} mixes the units of a batch, so that none can be clipped alone. "
                "Use GroupNorm or LayerNorm instead",
            )
        if isinstance(part, _InstanceNorm) and part.track_running_stats and part.training:
            raise BadParameter("module", f"{where} keeps running statistics of private data, unpaid")
        if isinstance(part, nn.Embedding) and part.max_norm is not None:
            raise BadParameter("module", f"{where} with max_norm rewrites lines that private data names")
    trained = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
    if not trained:
        raise BadParameter("module", "has no parameter to train")
    if any(value.dtype not in _DTYPES for _, value in trained):
        raise BadParameter("module", "must be of float32 or float64: shorter floats err too much")
    if len({(value.device, value.dtype) for _, value in trained}) > 1:
        raise BadParameter("module", "must be on one device and of one type of float")


def refuse_short_floats() -> None:
    """Refuse settings under which products of floats lose digits: their error is part of the price."""
    if torch.get_float32_matmul_precision() != "highest":
        raise BadParameter("torch", "must multiply in full: set_float32_matmul_precision('highest')")
    if torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu"):
        raise BadParameter("torch", "must not autocast while it trains privately")
