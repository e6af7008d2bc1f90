"""DP-SGD: deep models trained privately, with gradients clipped in one backward pass (extra `learn`)."""

from __future__ import annotations

from lapwing.errors import MissingExtra

try:
    from lapwing.learn.sgd.clipping import ClippedGradients
    from lapwing.learn.sgd.private_trainer import PrivateTrainer
    from lapwing.learn.sgd.sensitivity import GradientSensitivity, StepSchedule, step_schedule
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtra("learn", "Training a torch module privately") from None

__all__ = ["ClippedGradients", "PrivateTrainer", "StepSchedule", "GradientSensitivity", "step_schedule"]
