"""Quick trainers that record the rows that they were given."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]

from lapwing.core.losses import GaussianNoise, Loss
from lapwing.learn.payer import Payer

TRAIN_LOSS = GaussianNoise(Fraction(100), Fraction(1), 1)


class Constant(BaseEstimator):  # type: ignore[misc]
    """Always predicts `answer`. Its price is a parameter; it learns nothing."""

    seen: ClassVar[list[NDArray[Any]]] = []

    def __init__(self, *, payer: Payer, answer: int = 0, greed: int = 1, fails: bool = False) -> None:
        self.payer, self.answer, self.greed, self.fails = payer, answer, greed, fails

    def price(self, n_features: int) -> Loss:
        return TRAIN_LOSS

    def fit(self, X: NDArray[Any], y: NDArray[Any], units: Any = None) -> Self:  # noqa: N803
        loss = GaussianNoise(Fraction(100), Fraction(self.greed), 1)

        def run() -> bytes:
            if self.fails:
                raise ValueError("row 17 says 4711")
            Constant.seen.append(X)
            return str(self.answer).encode()

        self.model_ = int(self.payer.pay(loss, run, mechanism="constant", parameters={}).result)
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:  # noqa: N803
        return np.full(len(X), self.model_)
