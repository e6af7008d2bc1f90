"""What cannot be trained privately, named before anything is charged."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
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


# Torch's newer names of the same setting. Convolutions on a GPU are set by us, while they run.
_PRECISIONS = ("", "cuda.matmul", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn", "mkldnn")


def _precision(path: str) -> str:
    place: Any = torch.backends
    for name in path.split(".") if path else ():
        place = getattr(place, name, None)
    return str(getattr(place, "fp32_precision", "none"))


def refuse_short_floats() -> None:
    """Refuse settings under which products of floats lose digits: their error is part of the price."""
    for path in _PRECISIONS:
        if _precision(path) not in ("none", "ieee"):
            where = ".".join(part for part in ("torch.backends", path, "fp32_precision") if part)
            raise BadParameter("torch", f"must multiply in full: set {where} to 'ieee'")
    try:
        in_full = torch.get_float32_matmul_precision() == "highest"
        _ = torch.backends.cudnn.allow_tf32  # set by us, while a page is worked on: it must be askable
    except RuntimeError:  # torch does not answer where its older and newer settings are mixed
        raise BadParameter(
            "torch",
            "has older and newer settings of precision mixed up: set all fp32_precision of torch.backends "
            "to 'ieee', and none of set_float32_matmul_precision and allow_tf32",
        ) from None
    if not in_full:
        raise BadParameter("torch", "must multiply in full: set_float32_matmul_precision('highest')")
    if torch.backends.cuda.matmul.allow_fp16_accumulation:
        raise BadParameter(
            "torch", "must add in full: no torch.backends.cuda.matmul.allow_fp16_accumulation"
        )
    if torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu"):
        raise BadParameter("torch", "must not autocast while it trains privately")


class Kept:
    """The buffers of a module and its loss, as they were: what they remember of rows was not paid for."""

    def __init__(self, module: nn.Module, loss_fn: Any) -> None:
        holders = [("module", module)]
        whose = loss_fn if isinstance(loss_fn, nn.Module) else getattr(loss_fn, "__self__", None)
        if isinstance(whose, nn.Module) and whose is not module:
            holders.append(("loss_fn", whose))
        self._before = [
            (holder, name, value, value.clone())
            for holder, part in holders
            for name, value in part.named_buffers()
        ]

    def refuse_changes(self) -> None:
        """Put back what changed, and refuse whoever changed it."""
        changed = [
            (holder, name) for holder, name, now, before in self._before if not _put_back(now, before)
        ]
        for holder, name in changed:
            raise BadParameter(holder, f"its buffer {name} keeps statistics of private data, unpaid")


def _put_back(now: Tensor, before: Tensor) -> bool:
    if torch.equal(now.nan_to_num(), before.nan_to_num()):
        return True
    with torch.no_grad():
        now.copy_(before)
    return False
