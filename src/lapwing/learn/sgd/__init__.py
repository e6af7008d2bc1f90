"""DP-SGD: private training of torch modules, with gradients clipped unit by unit (extra `learn`)."""

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

__all__ = ["ClippedGradients", "GradientSensitivity", "PrivateTrainer", "StepSchedule", "step_schedule"]
