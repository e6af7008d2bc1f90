"""Neural networks in a pipeline: declared hidden layers, trained by DP-SGD (extra `learn`).

Claim    `fit` returns what is stored under its charge; the price is that of all steps, fixed before a row
         is read.
Because  `PrivateTrainer` does the steps, inside `Payer.pay`. It gets rows whose numbers lie in -1 … 1, each
         computed from its own row alone. The trained numbers are stored as text: reading them runs no code.
Test     tests/learn/pipelines/test_network.py

Prediction needs no torch, and uses whole numbers:

Claim    the outputs for a row are a function of that row and of the network's numbers alone, bit for bit.
Because  the values between layers are whole numbers of steps; their products and sums stay below 2^53, and
         are exact in floats, in any order; activation functions are looked up in tables. A product of
         floats may round by a row's place, and then a removed unit would change the losses of others.
Test     tests/learn/pipelines/test_network.py::test_a_row_is_judged_by_itself
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from lapwing.core.exact import exact, whole
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter
from lapwing.learn.payer import Payer, PrepaidPayer, PublicData
from lapwing.learn.table_input import Cells, Floats, Wholes
from lapwing.learn.trainers.columns import (
    ONE,
    Column,
    Real,
    checked_classes,
    checked_columns,
    checked_table,
    class_codes,
    feature_matrix,
)
from lapwing.learn.trainers.whole_vectors import class_probabilities

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lapwing.learn.sgd import PrivateTrainer


LayerWeights = tuple[Floats, Floats]
ACTIVATIONS = ("relu", "tanh", "sigmoid")
STEPS_IN_ONE = 1 << 15  # in 1
_MOST = 1 << 22  # so that values between layers lie within ±128
_WEIGHT = 1 << 18  # steps in the greatest weight of a layer
_EXACT = 1 << 53
_FAR = 8 * STEPS_IN_ONE  # from here on tanh is 1, to the step
_LARGEST = 2.0**40


class NetworkForward:
    """Layers of (weights, bias) with one activation function between them, computed exactly."""

    def __init__(self, layers: Sequence[LayerWeights], activation: str) -> None:
        self._activation = activation
        self._layers = [_in_steps(weights, bias) for weights, bias in layers]
        for at, (weights, _, _) in enumerate(self._layers):
            if weights.shape[0] * (STEPS_IN_ONE if at == 0 else _MOST) * _WEIGHT >= _EXACT:
                raise BadParameter("layers", "are too wide to be computed exactly")

    def outputs(self, rows: Wholes) -> Floats:
        """Return the outputs for rows in steps of 1 / ONE, from -1 to 1."""
        at = rows * float(STEPS_IN_ONE // ONE)
        for number, (weights, bias, step) in enumerate(self._layers):
            at = np.clip((at @ weights + bias) * step, -_LARGEST, _LARGEST)
            if number < len(self._layers) - 1:
                at = _activated(self._activation, np.clip(np.rint(at), -_MOST, _MOST))
        return at / STEPS_IN_ONE


def _in_steps(weights: Floats, bias: Floats) -> tuple[Floats, Floats, float]:
    """Return transposed weights and bias in whole steps, and the size of a step of the sum, a power of two.

    Noise can lead to any numbers, even infinite ones: such a network is bad, but it is no error.
    """
    tame, shift = (np.clip(np.nan_to_num(numbers), -_LARGEST, _LARGEST) for numbers in (weights, bias))
    largest = max(float(np.abs(tame).max(initial=0)), float(np.abs(shift).max(initial=0)), 2.0**-40)
    step = 2.0 ** math.ceil(math.log2(largest)) / _WEIGHT
    return np.rint(tame.T / step), np.rint(shift / step * STEPS_IN_ONE), step


def _activated(name: str, at: Floats) -> Floats:
    if name == "relu":
        return np.maximum(at, 0.0)
    return _table(name)[np.clip(at, -_FAR, _FAR).astype(np.int64) + _FAR]


@lru_cache(maxsize=2)
def _table(name: str) -> Floats:
    at = np.arange(-_FAR, _FAR + 1) / STEPS_IN_ONE
    table: Floats = np.rint((np.tanh(at) if name == "tanh" else 0.5 + 0.5 * np.tanh(at / 2)) * STEPS_IN_ONE)
    return table


REQUIRED_SETTINGS = {
    "layers": "layers = [32, 16]: how wide the hidden layers are",
    "activation": 'activation = "relu"',
    "clip": "clip = 1.0: how long a unit's gradient may be",
    "steps": "steps = 300",
    "learning_rate": "learning_rate = 0.01",
    "optimizer": 'optimizer = "adam"',
}
OPTIMIZERS = ("sgd", "adam")
MOST_LAYERS, MOST_WIDTH, MOST_NUMBERS = 8, 4096, 1 << 20
MOST_STEPS, MOST_BATCH, MOST_ROWS = 1_000_000, 1 << 22, 1000
SMALLEST_CLIP, LARGEST_CLIP = Fraction(1, 10**6), Fraction(10**6)
LARGEST_RATE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Hidden layers, and how they are trained.

    One of `rate` and `batch` is None: it follows from the other.
    """

    layers: tuple[int, ...]
    activation: str
    clip: Fraction
    steps: int
    learning_rate: float
    optimizer: Literal["sgd", "adam"]
    rate: Fraction | None
    batch: int | None
    momentum: float = 0.0
    unit_rows: int = 1

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Read the settings of a file. Raise BadParameter with the name of a wrong setting."""
        for name, write in REQUIRED_SETTINGS.items():
            if name not in settings:
                raise BadParameter(name, f"is missing. Write {write}")
        checked = {name: checked_setting(name, value) for name, value in settings.items()}
        if ("rate" in checked) is ("batch" in checked):
            raise BadParameter("rate", "or batch must be there, and not both: the other follows")
        if "momentum" in checked and checked["optimizer"] != "sgd":
            raise BadParameter("momentum", 'belongs to optimizer = "sgd". Remove it')
        return cls(**{"rate": None, "batch": None, **checked})

    def shapes(self, inputs: int, outputs: int) -> list[tuple[int, int]]:
        """Return (out, in) of each layer's weights."""
        shapes = [(out, into) for into, out in pairwise((inputs, *self.layers, outputs))]
        if sum(out * (into + 1) for out, into in shapes) > MOST_NUMBERS:
            raise BadParameter("layers", f"have more than {MOST_NUMBERS:,} numbers to learn")
        return shapes

    def sampled(self, size: int) -> tuple[Fraction, int]:
        """Return each unit's probability to be in a step, and the public expected number of units in it."""
        if self.rate is not None:
            return self.rate, max(1, round(self.rate * size))
        assert self.batch is not None
        return min(Fraction(self.batch, size), Fraction(1)), self.batch


def checked_setting(name: str, value: Any) -> Any:
    """Return a setting as it is used. Raise BadParameter with its name if it is wrong."""
    if name not in _CHECKS:
        raise BadParameter(name, "is no setting of a network")
    return _CHECKS[name](value, name)


def _layers(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) > MOST_LAYERS:
        raise BadParameter(name, f"must be up to {MOST_LAYERS} widths in brackets, such as [32, 16]")
    for width in value:
        if not isinstance(width, int) or isinstance(width, bool) or not 1 <= width <= MOST_WIDTH:
            raise BadParameter(name, f"must be whole numbers from 1 to {MOST_WIDTH:,}")
    return tuple(value)


def _word(choices: tuple[str, ...], value: Any, name: str) -> str:
    if value not in choices:
        raise BadParameter(name, f"must be {', '.join(choices[:-1])} or {choices[-1]}")
    return str(value)


def _between(low: Fraction, high: Fraction, value: Any, name: str) -> Fraction:
    number = exact(value, name)
    if not low <= number <= high:
        raise BadParameter(name, f"must lie between {float(low):g} and {float(high):g}")
    return number


def _float_between(low: Fraction, high: Fraction, value: Any, name: str) -> float:
    return float(_between(low, high, value, name))


def _count(most: int, value: Any, name: str) -> int:
    number = whole(value, name, at_least=1)
    if number > most:
        raise BadParameter(name, f"must be at most {most:,}")
    return number


_CHECKS: Mapping[str, Callable[[Any, str], Any]] = {
    "layers": _layers,
    "activation": partial(_word, ACTIVATIONS),
    "clip": partial(_between, SMALLEST_CLIP, LARGEST_CLIP),
    "rate": partial(_between, Fraction(1, 10**9), Fraction(1)),
    "batch": partial(_count, MOST_BATCH),
    "steps": partial(_count, MOST_STEPS),
    "learning_rate": partial(_float_between, Fraction(1, 10**9), Fraction(LARGEST_RATE)),
    "optimizer": partial(_word, OPTIMIZERS),
    "momentum": partial(_float_between, Fraction(0), Fraction(999, 1000)),
    "unit_rows": partial(_count, MOST_ROWS),
}
NETWORK_OPTIONS = tuple(_CHECKS)


MECHANISM = "network by DP-SGD"
_FLOATS = np.dtype("<f4")
_BEGINNING = 1  # seed of the initial numbers: public, and the same in each attempt
_PAGE = 64  # units that are processed at once


@dataclass(eq=False, repr=False)
class Network:
    """A network that predicts a class, or a number between declared bounds.

    One of `classes` and `target` is None.

    `size` is the declared approximate number of training units.
    """

    settings: NetworkSettings
    _: KW_ONLY
    epsilon: Fraction
    delta: Fraction
    columns: Sequence[Column]
    classes: Sequence[int] | None
    target: Real | None
    size: int
    payer: Payer

    def __post_init__(self) -> None:
        outputs = 1 if self.classes is None else len(checked_classes(self.classes))
        self._shapes = self.settings.shapes(sum(column.width for column in self.columns), outputs)
        self._forward: NetworkForward | None = None

    def price(self, n_features: int) -> Loss:
        """Return the loss of `fit`. Looking is free, and checks that the layers can be trained here."""
        checked_columns(self.columns, n_features)
        trainer = self._private(PublicData())
        # Tried now: a failure after the charge stays charged.
        truth = np.zeros(0, np.int64 if self.target is None else np.float32)
        trainer.rehearse(np.zeros((0, self._shapes[0][1]), np.float32), truth)
        return trainer.schedule.loss()

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Charge all steps, then do them."""
        rows = (self._rows(X) / ONE).astype(np.float32)
        truth: Cells
        if self.target is None:
            assert self.classes is not None
            # An unknown class counts as the first one; pipelines leave such rows out.
            truth = np.maximum(class_codes(np.array(self.classes), np.asarray(y)), 0)
        else:
            truth = (self.target.features(np.asarray(y))[:, 0] / ONE).astype(np.float32)
        price, unit_of_row = self.price(len(self.columns)), self.payer.checked_units(units)

        def work() -> bytes:
            trainer = self._private(PrepaidPayer(price))
            trainer.fit(rows, truth, None if unit_of_row is None else np.asarray(unit_of_row))
            return _stored(trainer.module)

        self.load(self.payer.pay(price, work, mechanism=MECHANISM, parameters={}).result)
        return self

    def load(self, stored: bytes) -> Self:
        """Load stored numbers. Nothing but numbers is read."""
        wrong = BadParameter("model", "is none of this network's form")
        try:
            flat = np.frombuffer(base64.b64decode(json.loads(stored)["numbers"], validate=True), _FLOATS)
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise wrong from None
        sizes = [size for out, into in self._shapes for size in (out * into, out)]  # weights, then bias
        if len(flat) != sum(sizes):
            raise wrong
        parts = iter(np.split(flat.astype(np.float64), np.cumsum(sizes)[:-1]))
        layers = [(next(parts).reshape(out, into), next(parts)) for out, into in self._shapes]
        self._forward = NetworkForward(layers, self.settings.activation)
        return self

    def predict(self, X: Any) -> Cells:  # noqa: N803
        """Return the most probable class of each row, or the expected number within its bounds."""
        outputs = self._outputs(X)
        if self.target is not None:
            return self.target.value(np.clip(outputs[:, 0], -1, 1))
        classes: Cells = np.array(self.classes)[outputs.argmax(axis=1)]
        return classes

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return estimated probabilities of the classes."""
        return class_probabilities(self._outputs(X))

    def _rows(self, X: Any) -> Wholes:  # noqa: N803
        """Scale rows to -1 … 1, in steps of 1 / ONE."""
        return feature_matrix(self.columns, checked_table(X))

    def _outputs(self, X: Any) -> Floats:  # noqa: N803
        if self._forward is None:
            raise BadParameter("model", "is not fitted yet")
        return self._forward.outputs(self._rows(X))

    # Training, by torch

    def _private(self, payer: Payer) -> PrivateTrainer:
        from lapwing.learn.sgd import PrivateTrainer  # noqa: PLC0415 (an extra)

        settings = self.settings
        rate, batch = settings.sampled(self.size)
        return PrivateTrainer(
            self._module(), _class_losses if self.target is None else _squares,
            epsilon=self.epsilon, delta=self.delta, payer=payer,
            clip=settings.clip, rate=rate, expected_batch=batch, unit_rows=settings.unit_rows, page=_PAGE,
            steps=settings.steps, learning_rate=settings.learning_rate, optimizer=settings.optimizer,
            momentum=settings.momentum,
        )  # fmt: skip

    def _module(self) -> nn.Module:
        import torch  # noqa: PLC0415 (an extra)
        from torch import nn  # noqa: PLC0415

        made = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[self.settings.activation]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_BEGINNING)
            parts: list[nn.Module] = []
            for out, into in self._shapes:
                parts += [made()] if parts else []
                parts.append(nn.Linear(into, out))
        return nn.Sequential(*parts)


def _class_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    from torch.nn import functional  # noqa: PLC0415 (an extra)

    return functional.cross_entropy(outputs, targets, reduction="none")


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square()


def _stored(module: nn.Module) -> bytes:
    """Return all numbers, layer by layer (weights, then bias), as text."""
    flat = np.concatenate([value.detach().numpy().astype(_FLOATS).ravel() for value in module.parameters()])
    return json.dumps({"numbers": base64.b64encode(flat.tobytes()).decode()}).encode()
