"""A network in a pipeline: hidden layers as its file says, trained by DP-SGD (extra `learn`).

Claim    `fit` gives what is stored under its charge; the price is that of all steps, fixed before a row is
         read.
Because  the steps are done by `PrivateTrainer`, inside of `Purse.pay`; it is given rows whose numbers lie
         in -1 … 1, each made of its own row alone. What is stored are the trained numbers, as text: reading
         them runs no code.
Test     tests/learn/pipelines/test_network.py

Prediction needs no torch: see `forward`.

What a pipeline file says about a network: public, checked, and without torch.

What a network says about rows, in whole numbers: no row's answer depends on which others are asked.

Claim    the outputs for a row are a function of that row and of the network's numbers alone, bit for bit.
Because  what goes through a layer are whole numbers of steps; products and sums of them stay below 2^53,
         and are exact in floats, in any order; functions are looked up in tables. A product of floats may
         round by a row's place, and then a unit that is removed would change what others lose.
Test     tests/learn/pipelines/test_network.py::test_a_row_is_judged_by_itself
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import exact, whole
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter
from lapwing.learn.payer import AttemptPayer, Payer, PublicData
from lapwing.learn.trainers.columns import (
    ONE,
    Column,
    Real,
    Wholes,
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


Floats = NDArray[np.float64]
LayerWeights = tuple[Floats, Floats]
ACTIVATIONS = ("relu", "tanh", "sigmoid")
STEPS_IN_ONE = 1 << 15  # in 1
_MOST = 1 << 22  # so that what goes on lies within ±128
_WEIGHT = 1 << 18  # steps in the greatest weight of a layer
_EXACT = 1 << 53
_FAR = 8 * STEPS_IN_ONE  # from here on tanh is 1, to the step
_LARGEST = 2.0**40


class NetworkForward:
    """Layers of (weights, bias), with one function between them."""

    def __init__(self, layers: Sequence[LayerWeights], activation: str) -> None:
        self._activation = activation
        self._layers = [_in_steps(weights, bias) for weights, bias in layers]
        for at, (weights, _, _) in enumerate(self._layers):
            if weights.shape[0] * (STEPS_IN_ONE if at == 0 else _MOST) * _WEIGHT >= _EXACT:
                raise BadParameter("layers", "are too wide to be computed exactly")

    def outputs(self, rows: NDArray[np.int64]) -> Floats:
        """For rows in steps of 1 / ONE, from -1 to 1."""
        at = rows * float(STEPS_IN_ONE // ONE)
        for number, (weights, bias, step) in enumerate(self._layers):
            at = np.clip((at @ weights + bias) * step, -_LARGEST, _LARGEST)
            if number < len(self._layers) - 1:
                at = _activated(self._activation, np.clip(np.rint(at), -_MOST, _MOST))
        return at / STEPS_IN_ONE


def _in_steps(weights: Floats, bias: Floats) -> tuple[Floats, Floats, float]:
    """Transposed weights and bias in whole steps, and how much a step of the sum is: a power of two.

    Noise can lead anywhere, even where floats end: such a network is bad, and no error.
    """
    tame, shift = (np.clip(np.nan_to_num(one), -_LARGEST, _LARGEST) for one in (weights, bias))
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
    found: Floats = np.rint((np.tanh(at) if name == "tanh" else 0.5 + 0.5 * np.tanh(at / 2)) * STEPS_IN_ONE)
    return found


NETWORK_OPTIONS = (
    "layers", "activation", "clip", "rate", "batch", "steps", "learning_rate", "optimizer", "momentum",
    "unit_rows",
)  # fmt: skip
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
    """Hidden layers, and how they are trained. One of `rate` and `batch` is None: it follows."""

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
        """From the settings of a file. Raises `BadParameter`, which names the setting."""
        for name, write in REQUIRED_SETTINGS.items():
            if name not in settings:
                raise BadParameter(name, f"is missing. Write {write}")
        found = {name: checked_setting(name, value) for name, value in settings.items()}
        if ("rate" in found) is ("batch" in found):
            raise BadParameter("rate", "or batch must be there, and not both: the other follows")
        if "momentum" in found and found["optimizer"] != "sgd":
            raise BadParameter("momentum", 'belongs to optimizer = "sgd". Remove it')
        return cls(**{"rate": None, "batch": None, **found})

    def shapes(self, inputs: int, outputs: int) -> list[tuple[int, int]]:
        """(out, in) of each layer's weights."""
        shapes = [(out, into) for into, out in pairwise((inputs, *self.layers, outputs))]
        if sum(out * (into + 1) for out, into in shapes) > MOST_NUMBERS:
            raise BadParameter("layers", f"have more than {MOST_NUMBERS:,} numbers to learn")
        return shapes

    def sampled(self, size: int) -> tuple[Fraction, int]:
        """Each unit's chance to be in a step, and the public number of them that is expected."""
        if self.rate is not None:
            return self.rate, max(1, round(self.rate * size))
        assert self.batch is not None
        return min(Fraction(self.batch, size), Fraction(1)), self.batch


def checked_setting(name: str, value: Any) -> Any:
    """A setting as it is used. Raises `BadParameter` with its name."""
    if name not in _CHECKS:
        raise BadParameter(name, "is no setting of a network")
    return _CHECKS[name](value, name)


def _layers(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) > MOST_LAYERS:
        raise BadParameter(name, f"must be up to {MOST_LAYERS} widths in brackets, such as [32, 16]")
    for one in value:
        if not isinstance(one, int) or isinstance(one, bool) or not 1 <= one <= MOST_WIDTH:
            raise BadParameter(name, f"must be whole numbers from 1 to {MOST_WIDTH:,}")
    return tuple(value)


def _word(choices: tuple[str, ...]) -> Callable[[Any, str], str]:
    def check(value: Any, name: str) -> str:
        if value not in choices:
            raise BadParameter(name, f"must be {', '.join(choices[:-1])} or {choices[-1]}")
        return str(value)

    return check


def _between(low: Fraction, high: Fraction, make: type[Fraction | float]) -> Callable[[Any, str], Any]:
    def check(value: Any, name: str) -> Fraction | float:
        number = exact(value, name)
        if not low <= number <= high:
            raise BadParameter(name, f"must lie between {float(low):g} and {float(high):g}")
        return make(number)

    return check


def _count(most: int) -> Callable[[Any, str], int]:
    def check(value: Any, name: str) -> int:
        number = whole(value, name, at_least=1)
        if number > most:
            raise BadParameter(name, f"must be at most {most:,}")
        return number

    return check


_CHECKS: Mapping[str, Callable[[Any, str], Any]] = {
    "layers": _layers,
    "activation": _word(ACTIVATIONS),
    "clip": _between(SMALLEST_CLIP, LARGEST_CLIP, Fraction),
    "rate": _between(Fraction(1, 10**9), Fraction(1), Fraction),
    "batch": _count(MOST_BATCH),
    "steps": _count(MOST_STEPS),
    "learning_rate": _between(Fraction(1, 10**9), Fraction(LARGEST_RATE), float),
    "optimizer": _word(OPTIMIZERS),
    "momentum": _between(Fraction(0), Fraction(999, 1000), float),
    "unit_rows": _count(MOST_ROWS),
}


MECHANISM = "network by DP-SGD"
_FLOATS = np.dtype("<f4")
_BEGINNING = 1  # of the numbers that training begins with: public, and the same in each attempt
_PAGE = 64  # units that are worked on at once
_NetworkFloats = NDArray[np.float64]


class Network:
    """Which class, or a number between declared bounds, by layers. One of `classes` and `target` is None.

    `size`: about how many units train, as declared.
    """

    def __init__(
        self,
        layout: NetworkSettings,
        *,
        epsilon: Fraction,
        delta: Fraction,
        columns: Sequence[Column],
        classes: Sequence[int] | None,
        target: Real | None,
        size: int,
        purse: Payer,
    ) -> None:
        self._layout, self._epsilon, self._delta, self._payer = layout, epsilon, delta, purse
        self._columns, self._classes, self._target = tuple(columns), classes, target
        self._size = size
        inputs = sum(column.width for column in self._columns)
        self._shapes = layout.shapes(inputs, 1 if classes is None else len(checked_classes(classes)))
        self._forward: NetworkForward | None = None

    def price(self, n_features: int) -> Loss:
        """What `fit` would cost. Looking is free, and tries that the layers can be trained here."""
        checked_columns(self._columns, n_features)
        return self._private(PublicData()).schedule.loss()

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Charge all steps, then do them."""
        rows = (self._rows(X) / ONE).astype(np.float32)
        truth: NDArray[Any]
        if self._target is None:
            assert self._classes is not None
            # An unknown class teaches the first one; pipelines leave such rows out.
            truth = np.maximum(class_codes(np.array(self._classes), np.asarray(y)), 0)
        else:
            truth = (self._target.features(np.asarray(y))[:, 0] / ONE).astype(np.float32)
        price, whose = self.price(len(self._columns)), self._payer.whose(units)

        def work() -> bytes:
            trainer = self._private(AttemptPayer(price))
            trainer.fit(rows, truth, None if whose is None else np.asarray(whose))
            return _stored(trainer.module)

        self.load(self._payer.pay(price, work, mechanism=MECHANISM, parameters={}).result)
        return self

    def load(self, stored: bytes) -> Self:
        """Take in what was learned before. It is read as numbers, and as nothing else."""
        wrong = BadParameter("model", "is none of this network's form")
        try:
            flat = np.frombuffer(base64.b64decode(json.loads(stored)["numbers"], validate=True), _FLOATS)
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise wrong from None
        if len(flat) != sum(out * (into + 1) for out, into in self._shapes):
            raise wrong
        found, at = [], 0
        for out, into in self._shapes:
            weights, bias = flat[at : at + out * into], flat[at + out * into : at + out * (into + 1)]
            found.append((weights.reshape(out, into).astype(np.float64), bias.astype(np.float64)))
            at += out * (into + 1)
        self._forward = NetworkForward(found, self._layout.activation)
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each row, or the expected number, within the declared bounds."""
        outputs = self._outputs(X)
        if self._target is not None:
            return self._target.value(np.clip(outputs[:, 0], -1, 1))
        found: NDArray[Any] = np.array(self._classes)[outputs.argmax(axis=1)]
        return found

    def predict_proba(self, X: Any) -> _NetworkFloats:  # noqa: N803
        """Estimated probabilities of the classes."""
        return class_probabilities(self._outputs(X))

    def _rows(self, X: Any) -> Wholes:  # noqa: N803
        """From -1 to 1, in steps of 1 / ONE."""
        table = checked_table(X)
        return feature_matrix(checked_columns(self._columns, table.shape[1]), table)

    def _outputs(self, X: Any) -> _NetworkFloats:  # noqa: N803
        if self._forward is None:
            raise BadParameter("model", "is not fitted yet")
        return self._forward.outputs(self._rows(X))

    # Training, by torch

    def _private(self, purse: Payer) -> PrivateTrainer:
        from lapwing.learn.sgd import PrivateTrainer  # noqa: PLC0415 (an extra)

        layout = self._layout
        module, loss_fn = self._module(), _class_losses if self._target is None else _squares
        rate, batch = layout.sampled(self._size)
        self._rehearse(module, loss_fn)
        return PrivateTrainer(
            module,
            loss_fn,
            epsilon=self._epsilon,
            delta=self._delta,
            clip=layout.clip,
            rate=rate,
            expected_batch=batch,
            payer=purse,
            learning_rate=layout.learning_rate,
            steps=layout.steps,
            unit_rows=layout.unit_rows,
            optimizer=layout.optimizer,
            momentum=layout.momentum,
            page=_PAGE,
        )

    def _rehearse(self, module: nn.Module, loss_fn: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Try the network now, since what fails later was charged."""
        import torch  # noqa: PLC0415 (an extra)

        from lapwing.learn.sgd import ClippedGradients  # noqa: PLC0415

        rows = torch.zeros((0, self._shapes[0][1]))
        truth = torch.zeros(0, dtype=torch.int64 if self._target is None else torch.float32)
        layout = self._layout
        ClippedGradients(
            module, loss_fn, clip=layout.clip, page=_PAGE, unit_rows=layout.unit_rows
        ).rehearse(rows, truth)

    def _module(self) -> nn.Module:
        import torch  # noqa: PLC0415 (an extra)
        from torch import nn  # noqa: PLC0415

        made = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[self._layout.activation]
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
    """All numbers, layer by layer (weights, then bias), as text."""
    flat = np.concatenate([value.detach().numpy().astype(_FLOATS).ravel() for value in module.parameters()])
    return json.dumps({"numbers": base64.b64encode(flat.tobytes()).decode()}).encode()
