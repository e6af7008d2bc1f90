"""What ruins a network and what does not: digits, a network of two layers, ε = 3, δ = 1e-5.

    python -m benchmarks.learn_network [--runs 5] [--epsilon 3]

Noise on the weights: nobody knows how far one person can move a trained network, so each weight is cut to
-1 … 1, and all of them may move by all of it. *Per weight* is what is left if each weight is thought of
alone: it promises nothing about a network of 2,410 weights, and shows that even then little is left.

DP-SGD puts the noise on sums of clipped gradients instead. Private selection puts none on the network at
all: it tells which of several is best. *Of networks made elsewhere*: sixteen that were trained on 300 rows,
taken to be public, with learning rates of all sizes; the private rows only choose. *Of DP-SGD runs*: random
repetition over learning rates, in one charge.

Learning rates were chosen once by hand on these data; what is printed is no estimate for other data. Before
the table: what repetition costs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.query_data import Figures, heading
from lapwing.core.budget import Terms
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Loss
from lapwing.learn.payer import Payer, PublicData
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns, Repetition
from lapwing.learn.search import CORRECT, RandomRuns, Search, SearchStrategy, selection_mechanism_for
from lapwing.learn.sgd import PrivateTrainer

DELTA = Fraction(1, 10**5)
MILLIONTH = Fraction(1, 10**6)
TRAINING, PUBLIC = 1257, 300
HIDDEN, STEP = 32, 1 << 10
Rows = NDArray[np.float32]
Labels = NDArray[np.int64]
Split = tuple[Rows, Labels, Rows, Labels]


def digits() -> Split:
    """70 % to train, in a new order each time."""
    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng().permutation(len(rows))
    x, y = (rows[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    return x[:TRAINING], y[:TRAINING], x[TRAINING:], y[TRAINING:]


def network() -> nn.Sequential:
    """64 pixels, 32 units, 10 digits."""
    return nn.Sequential(nn.Linear(64, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 10))


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """One for each row."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def right(module: nn.Module, rows: Rows, labels: Labels) -> float:
    """The share that is named right."""
    with torch.no_grad():
        return float((module(torch.from_numpy(rows)).argmax(1).numpy() == labels).mean())


def trained(rows: Rows, labels: Labels, *, rate: float = 0.01, steps: int = 300) -> nn.Sequential:
    """Without any privacy."""
    module = network()
    optimizer = torch.optim.Adam(module.parameters(), lr=rate, weight_decay=1e-4)
    x, y = torch.from_numpy(rows), torch.from_numpy(labels)
    for _ in range(steps):
        optimizer.zero_grad()
        losses(module(x), y).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return module


def clean(split: Split, _: Fraction) -> float:
    """The network as it is."""
    return right(trained(*split[:2]), *split[2:])


def noise_on_weights(split: Split, epsilon: Fraction, *, per_weight: bool = False) -> float:
    """Train, cut every weight to -1 … 1, and add Laplace noise on a grid of 1 / STEP."""
    module = trained(*split[:2])
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    whole = np.rint(np.clip(weights, -1, 1) * STEP).astype(np.int64)
    mechanism = Laplace.for_epsilon(epsilon, l1=2 * STEP * (1 if per_weight else len(whole)))
    noisy = mechanism.sample(whole) / STEP
    nn.utils.vector_to_parameters(torch.from_numpy(noisy).float(), module.parameters())
    return right(module, *split[2:])


class PrivateNetwork(BaseEstimator):  # type: ignore[misc]
    """DP-SGD in the manner of scikit-learn: what a search needs."""

    def __init__(self, *, epsilon: Fraction, rate: float, payer: Payer) -> None:
        self.epsilon, self.rate, self.payer = epsilon, rate, payer

    def _trainer(self) -> PrivateTrainer:
        return PrivateTrainer(
            network(),
            losses,
            epsilon=self.epsilon,
            delta=DELTA,
            clip=1,
            rate="0.2",
            expected_batch=TRAINING // 5,
            payer=self.payer,
            learning_rate=self.rate,
            noise=_noise(self.epsilon),
            momentum=0.5,
        )

    def price(self, n_features: int) -> Loss:
        """What a run costs."""
        return self._trainer().schedule.loss()

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803
        """Train. Each row is a unit of its own."""
        trainer = self._trainer().fit(X, y)
        self.module_ = trainer.module
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The likeliest digit."""
        with torch.no_grad():
            return self.module_(torch.from_numpy(np.asarray(X))).argmax(1).numpy()


@lru_cache
def _noise(epsilon: Fraction) -> Fraction:
    """That allows about 150 steps."""
    trainer = PrivateTrainer(
        network(),
        losses,
        epsilon=epsilon,
        delta=DELTA,
        clip=1,
        rate="0.2",
        expected_batch=TRAINING // 5,
        payer=PublicData(),
        learning_rate=1.0,
        steps=150,
    )
    return trainer.schedule.noise


def dp_sgd(split: Split, epsilon: Fraction) -> float:
    """One run."""
    model = PrivateNetwork(epsilon=epsilon, rate=1.0, payer=PublicData()).fit(*split[:2])
    return right(model.module_, *split[2:])


def chosen(split: Split, epsilon: Fraction) -> float:
    """Sixteen networks of public rows, and a choice by the private ones."""
    x, y = split[:2]
    networks = [
        trained(x[:PUBLIC], y[:PUBLIC], rate=rate, steps=steps)
        for rate in (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)
        for steps in (20, 100)
    ]
    scores = [round(right(one, x[PUBLIC:], y[PUBLIC:]) * (len(x) - PUBLIC)) for one in networks]
    choice = selection_mechanism_for(
        epsilon, sensitivity=CORRECT.sensitivity, candidates=len(networks), terms=Terms.of(epsilon, DELTA)
    )
    return right(networks[choice.sample(scores)], *split[2:])


def searched(split: Split, epsilon: Fraction) -> float:
    """DP-SGD at learning rates from far too small to far too large, repeated at random."""
    way: SearchStrategy = RandomRuns(PoissonRuns(Fraction(5)), noise=20, delta=DELTA, padded=False)
    base = PrivateNetwork(epsilon=_base(epsilon), rate=1.0, payer=PublicData())
    candidates = [{"rate": rate} for rate in (0.01, 0.3, 1.0, 3.0)]
    search = Search(base, candidates, strategy=way, score_by=CORRECT, payer=PublicData())
    paid = search.price(64).pure
    assert paid is not None
    assert paid <= epsilon, float(paid)
    search.fit(*split[:2], tests=np.arange(TRAINING) % 6 == 0)
    return right(search.best_estimator_.module_, *split[2:])


@lru_cache
def _base(epsilon: Fraction) -> Fraction:
    """What one run may cost, if the search is to cost ε."""
    way = RandomRuns(PoissonRuns(Fraction(5)), noise=20, delta=DELTA, padded=False)
    low, high = epsilon / 10, epsilon
    for _ in range(6):
        middle = ((low + high) / 2).limit_denominator(1000)
        price = way.price([PrivateNetwork(epsilon=middle, rate=1.0, payer=PublicData()).price(64)], CORRECT)
        assert price.pure is not None
        low, high = (middle, high) if price.pure <= epsilon else (low, middle)
    return low


def repetition(figures: Figures) -> None:
    """A Gaussian base at (1, 1e-6), ten runs: composed, and the best of a random number."""
    heading("Ten runs of a Gaussian base at ε = 1, δ = 1e-6: ε of the whole at δ = 1e-6")
    base = Gaussian.for_budget(1, MILLIONTH, l2_squared=1 << 40, dimension=1).loss
    composed = float(FixedRun.of((base, 10), delta=MILLIONTH).pair[0])
    figures.within("all ten told (composed)", composed, 3.4, 3.6, "")
    laws = {
        f"best of K, η = {eta}": NegativeBinomialRuns.with_mean(10, eta=eta) for eta in ("-0.5", "0", "1")
    }
    for name, runs in [*laws.items(), ("best of K, Poisson", PoissonRuns(Fraction(10)))]:
        told = [Repetition(base, runs, MILLIONTH, padded) for padded in (False, True)]
        detail = f"padded to {told[1].most} runs: {float(told[1].loss.epsilon):.3f}"
        figures.within(name, float(told[0].loss.epsilon), 1.55, 2.2, detail)


WAYS: list[tuple[str, Callable[[Split, Fraction], float], float, float]] = [
    ("clean", clean, 0.955, 1),
    ("Laplace noise on the weights", noise_on_weights, 0, 0.2),
    ("... per weight (promises nothing)", lambda s, e: noise_on_weights(s, e, per_weight=True), 0, 1),
    ("DP-SGD", dp_sgd, 0.8, 1),
    ("choice of networks made elsewhere", chosen, 0.8, 1),
    ("best of random DP-SGD runs", searched, 0.6, 1),
]


def main() -> int:
    """Print all figures, and whether they are as wanted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(3))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    figures = Figures(asked.runs)
    repetition(figures)
    heading(f"Digits at ε = {float(asked.epsilon):g}: test accuracy, mean of {asked.runs} runs")
    for name, way, low, high in WAYS:
        found = [way(digits(), asked.epsilon) for _ in range(asked.runs)]
        figures.within(
            name, statistics.mean(found), low, high, f"from {min(found):.3f} to {max(found):.3f}"
        )
    return 1 if figures.missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
