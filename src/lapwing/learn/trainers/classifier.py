"""What trainers of classes share: a few scores for each row, of which all else is made.

Claim    what is predicted for a row is a function of the model and that row, bit for bit.
Because  scores are (each trainer says why), and so is `likely`.
Test     tests/learn/trainers/test_alone.py
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, Self

from numpy.typing import NDArray

from lapwing.learn.trainers.columns import classes_of
from lapwing.learn.trainers.errors import likely
from lapwing.learn.trainers.shape import Floats
from lapwing.learn.trainers.trainer import ClassifierMixin, Trainer


class Classifier(ClassifierMixin, Trainer):  # type: ignore[misc]
    """Which class, of those that were declared."""

    classes: Sequence[Hashable]
    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803
        """Train. One row of each unit is drawn; without `units`, each row must be one (see `Trainer`)."""
        self._fit(X, y, units)
        self.classes_ = classes_of(self.classes)
        return self

    @abstractmethod
    def _scores(self, X: Any) -> Floats:  # noqa: N803
        """One score for each class, or a single one for the second of two."""

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Estimated probabilities of the classes."""
        return likely(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each row."""
        scores = self._scores(X)
        likeliest = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        found: NDArray[Any] = self.classes_[likeliest]
        return found


class ScoredClassifier(Classifier):
    """One that shows its scores."""

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Scores: of the second class if there are two, else of each."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores
