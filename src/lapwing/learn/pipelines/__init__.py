"""Pipelines: train, validate, and try again with more until a model is shown to be good, or hopeless."""

from __future__ import annotations

from lapwing.learn.pipelines.attempt import Attempted
from lapwing.learn.pipelines.calibration import CalibrationPart
from lapwing.learn.pipelines.card import card_of, card_text
from lapwing.learn.pipelines.file import load_pipeline
from lapwing.learn.pipelines.model import Model, load_model
from lapwing.learn.pipelines.outputs import write_outputs
from lapwing.learn.pipelines.parts import TrainerPart, ValidatorPart
from lapwing.learn.pipelines.pipeline import Pipeline
from lapwing.learn.pipelines.running import End, Event, Outcome, train
from lapwing.learn.pipelines.schedule import Schedule, Strategy, Try
from lapwing.learn.pipelines.tracking import log_to_mlflow

__all__ = [
    "Attempted",
    "CalibrationPart",
    "End",
    "Event",
    "Model",
    "Outcome",
    "Pipeline",
    "Schedule",
    "Strategy",
    "TrainerPart",
    "Try",
    "ValidatorPart",
    "card_of",
    "card_text",
    "load_model",
    "load_pipeline",
    "log_to_mlflow",
    "train",
    "write_outputs",
]
