"""A network in a pipeline: hidden layers as its file says, trained by DP-SGD (extra `learn`).

Claim    `fit` gives what is stored under its charge; the price is that of all steps, fixed before a row is
         read.
Because  the steps are done by `PrivateTrainer`, inside of `Purse.pay`; it is given rows whose numbers lie
         in -1 … 1, each made of its own row alone. What is stored are the trained numbers, as text: reading
         them runs no code.
Test     tests/learn/pipelines/test_network.py

Prediction needs no torch: see `forward`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.learn.pipelines.forward import Forward
from lapwing.learn.pipelines.layout import Layout
from lapwing.learn.pipelines.purses import Inside
from lapwing.learn.purse import PublicData, Purse
from lapwing.learn.trainers.columns import (
    ONE,
    Column,
    Real,
    Wholes,
    classes_of,
    columns_of,
    features,
    labels,
    table_of,
)
from lapwing.learn.trainers.errors import likely
from lapwing.privacy import Loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lapwing.learn.sgd import PrivateTrainer

MECHANISM = "network by DP-SGD"
_FLOATS = np.dtype("<f4")
_BEGINNING = 1  # of the numbers that training begins with: public, and the same in each attempt
_PAGE = 64  # units that are worked on at once
Floats = NDArray[np.float64]


class Network:
    """Which class, or a number between declared bounds, by layers. One of `classes` and `target` is None.

    `size`: about how many units train, as declared.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        epsilon: Fraction,
        delta: Fraction,
        columns: Sequence[Column],
        classes: Sequence[int] | None,
        target: Real | None,
        size: int,
        purse: Purse,
    ) -> None:
        self._layout, self._epsilon, self._delta, self._purse = layout, epsilon, delta, purse
        self._columns, self._classes, self._target = tuple(columns), classes, target
        self._size = size
        inputs = sum(column.width for column in self._columns)
        self._shapes = layout.shapes(inputs, 1 if classes is None else len(classes_of(classes)))
        self._forward: Forward | None = None

    def price(self, n_features: int) -> Loss:
        """What `fit` would cost. Looking is free, and tries that the layers can be trained here."""
        columns_of(self._columns, n_features)
        return self._private(PublicData()).schedule.loss()

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Charge all steps, then do them."""
        rows = (self._rows(X) / ONE).astype(np.float32)
        truth: NDArray[Any]
        if self._target is None:
            assert self._classes is not None
            # An unknown class teaches the first one; pipelines leave such rows out.
            truth = np.maximum(labels(np.array(self._classes), np.asarray(y)), 0)
        else:
            truth = (self._target.features(np.asarray(y))[:, 0] / ONE).astype(np.float32)
        price, whose = self.price(len(self._columns)), self._purse.whose(units)

        def work() -> bytes:
            trainer = self._private(Inside(price))
            trainer.fit(rows, truth, None if whose is None else np.asarray(whose))
            return _stored(trainer.module)

        self.load(self._purse.pay(price, work, mechanism=MECHANISM, parameters={}).result)
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
        self._forward = Forward(found, self._layout.activation)
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each row, or the expected number, within the declared bounds."""
        outputs = self._outputs(X)
        if self._target is not None:
            return self._target.value(np.clip(outputs[:, 0], -1, 1))
        found: NDArray[Any] = np.array(self._classes)[outputs.argmax(axis=1)]
        return found

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Estimated probabilities of the classes."""
        return likely(self._outputs(X))

    def _rows(self, X: Any) -> Wholes:  # noqa: N803
        """From -1 to 1, in steps of 1 / ONE."""
        table = table_of(X)
        return features(columns_of(self._columns, table.shape[1]), table)

    def _outputs(self, X: Any) -> Floats:  # noqa: N803
        if self._forward is None:
            raise BadParameter("model", "is not fitted yet")
        return self._forward.outputs(self._rows(X))

    # Training, by torch

    def _private(self, purse: Purse) -> PrivateTrainer:
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
            purse=purse,
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
