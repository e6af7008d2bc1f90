"""A model file: an accepted model with all that is needed to use it, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.learn.features import Features
from lapwing.learn.pipelines.parts import TrainerPart
from lapwing.learn.pipelines.running import Outcome
from lapwing.learn.trainers.trainer import Trainer

_FORM = "lapwing model 1"


@dataclass(frozen=True, slots=True)
class Model:
    """An accepted model. `predict` takes values as people write them, by column."""

    pipeline: str
    features: Features
    trainer: Trainer

    def predict(self, values: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Numbers, or the names of classes."""
        rows = self.features.coded(values)
        if not len(rows):
            return []
        found: NDArray[Any] = np.asarray(self.trainer.predict(self.features.table(rows)))
        if not self.features.has_classes:
            return [float(one) for one in found]
        return [self.features.class_values[int(one)] for one in found]


def model_text(outcome: Outcome) -> str:
    """The model file of an accepted run."""
    done = outcome.accepted
    if done is None or done.model is None:
        raise BadParameter("model", "was not accepted: there is none")
    trainer = outcome.pipeline.trainer
    said = {
        "form": _FORM,
        "pipeline": outcome.pipeline.name,
        "run": outcome.run,
        "trainer": trainer.kind,
        "settings": dict(trainer.settings),
        "epsilon": str(done.epsilon),
        "delta": str(done.delta),
        "receipt": done.receipt.hash,
        "features": outcome.features.to_json(),
        "model": json.loads(done.model),
    }
    return json.dumps(said, indent=1, ensure_ascii=False, allow_nan=False)


def load_model(path: str | Path) -> Model:
    """The model in a file."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if found["form"] != _FORM:
            raise BadParameter("model", "is of another form")
        features = Features.from_json(found["features"])
        trainer = TrainerPart(str(found["trainer"]), dict(found["settings"])).loaded(
            features,
            epsilon=Fraction(found["epsilon"]),
            delta=Fraction(found["delta"]),
            model=json.dumps(found["model"]).encode(),
        )
    except OSError as error:
        raise BadParameter("model", f"{path} cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError):
        raise BadParameter("model", f"{path} is no model file") from None
    return Model(str(found["pipeline"]), features, trainer)
