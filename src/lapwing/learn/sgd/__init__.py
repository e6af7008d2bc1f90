"""DP-SGD: deep models trained privately, with gradients clipped in one backward pass (extra `learn`)."""

from __future__ import annotations

from lapwing.errors import MissingExtra

try:
    from lapwing.learn.sgd.clipped import ClippedGradients
    from lapwing.learn.sgd.price import Schedule, schedule
    from lapwing.learn.sgd.sensitivity import Sensitivity
    from lapwing.learn.sgd.trainer import PrivateTrainer
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtra("learn", "Training a torch module privately") from None

__all__ = ["ClippedGradients", "PrivateTrainer", "Schedule", "Sensitivity", "schedule"]
