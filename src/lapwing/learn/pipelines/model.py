"""A model file: an accepted model with all that is needed to use it, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import exact
from lapwing.learn.features import Features
from lapwing.learn.pipelines.parts import Learner, TrainerPart
from lapwing.learn.pipelines.running import Outcome

_FORM = "lapwing model 1"
MOST_BYTES = 1 << 26
_WRONG = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    AssertionError,
)


@dataclass(frozen=True, slots=True)
class Model:
    """An accepted model. `predict` takes values as people write them, by column."""

    pipeline: str
    features: Features
    trainer: Learner

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
    if done is None or done.model is None or done.features is None or outcome.pipeline.trainer.is_statistic:
        raise BadParameter("model", "was not accepted: there is none")
    trainer = outcome.pipeline.trainer
    said = {
        "form": _FORM,
        "pipeline": outcome.pipeline.name,
        "run": outcome.run,
        "trainer": trainer.kind,
        "settings": trainer.plain,
        "epsilon": str(done.epsilon),
        "delta": str(done.delta),
        "receipt": done.receipt.hash,
        "features": done.features,  # as it was stored: what was accepted is not made of today's policy
        "model": json.loads(done.model),
    }
    return json.dumps(said, indent=1, ensure_ascii=False, allow_nan=False)


def load_model(path: str | Path) -> Model:
    """The model in a file. Reading it runs no code and takes bounded time; raises `BadParameter`."""
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise BadParameter("model", f"{path} is longer than {MOST_BYTES >> 20} MiB")
        return _model(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise BadParameter("model", f"{path} cannot be read ({error.strerror})") from None
    except BadParameter as error:
        own = error.why if error.name == "model" else f"{error.name} {error.why}"
        raise BadParameter("model", own) from None
    except _WRONG:
        raise BadParameter("model", f"{path} is no model file") from None


def _model(found: Any) -> Model:
    if found["form"] != _FORM:
        raise BadParameter("model", f"is of another form than {_FORM!r}: use another version")
    features = Features.from_json(found["features"])
    trainer = TrainerPart(str(found["trainer"]), dict(found["settings"])).loaded(
        features,
        epsilon=exact(found["epsilon"], "epsilon"),
        delta=exact(found["delta"], "delta"),
        model=json.dumps(found["model"]).encode(),
    )
    model = Model(str(found["pipeline"]), features, trainer)
    model.predict({column.name: [None] for column in features.columns})  # numbers may not fit together
    return model
