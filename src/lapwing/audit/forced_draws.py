"""The exact law of what a mechanism's own code draws: its primitives are replaced, and all paths run.

`copy_of` runs the source of a module once more, in a copy in which the primitives of `lapwing.core.noise`
are stand-ins. The module itself, which may release answers in the same process, is not touched.

Claim    `ForcedDraws.law` is the law of a computation, if the primitives follow theirs; and `Scales` has
         the scales that a computation hands to noise that has infinitely many values.
Because  each stand-in returns one of its outcomes and multiplies the probability of the path by that of
         the outcome. The computation runs once for each path of positive probability. A primitive without
         a stand-in raises `RealDraw`: a law with real draws in it would itself be random.
Test     tests/audit/test_forced_draws.py

So a rate, count, coin or scale that is wrong inside `sample` shows in exact laws. Mistakes inside of the
primitives do not: those show in draws.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec, module_from_spec
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.laws import Law, certain, dec, exp, precise
from lapwing.core import noise
from lapwing.core.exact import Number, Real, exact
from lapwing.errors import BadParameter

BITS = 256
MOST_PATHS = 100_000


_FIXED = {"exp_neg"}  # functions of `lapwing.core.noise` that draw nothing
_RUN_TWICE = 64  # paths that are run again: the same path must give the same


class RealDraw(Exception):
    """Real randomness inside of a computation whose law is enumerated."""


def _refusing(name: str) -> Callable[..., Any]:
    def refused(*_given: Any, **_named: Any) -> Any:
        raise RealDraw(f"`{name}` has no stand-in here, so that an exact law would be random")

    return refused


class _Refusing(ModuleType):
    """A stand-in for the module of primitives itself."""

    def __init__(self, replaced: dict[str, Callable[..., Any]]) -> None:
        super().__init__(noise.__name__)
        vars(self).update(_without_draws(replaced))


def _without_draws(replaced: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return all names of the primitives: with their stand-ins, or refused."""
    return {
        name: replaced.get(name, _refusing(name))
        if inspect.isfunction(member := getattr(noise, name)) and name not in _FIXED
        else member
        for name in noise.__all__
    }


def copy_of(module: ModuleType, replaced: dict[str, Callable[..., Any]]) -> Any:
    """Return a fresh copy of a module, in which primitives are stand-ins. Those without one are refused."""
    spec = find_spec(module.__name__)
    if spec is None or spec.loader is None:
        raise BadParameter("module", f"{module.__name__} has no source to copy")
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    primitives = _without_draws(replaced)
    for name, value in list(vars(copy).items()):
        if value is noise:
            setattr(copy, name, _Refusing(replaced))
        elif name in primitives and value is getattr(noise, name):
            setattr(copy, name, primitives[name])
        elif inspect.isfunction(value) and value.__module__ == noise.__name__:  # under another name
            setattr(copy, name, primitives.get(value.__name__, _refusing(name)))
    return copy


class ForcedDraws:
    """Stand-ins for the primitives with finitely many outcomes."""

    def __init__(self) -> None:
        self._planned: list[int] = []  # the outcomes that this run must take, by their places
        self._left: list[int] = []  # for each draw of this run, the outcomes that are not tried yet
        self._taken: list[int] = []
        self._probability = Decimal(1)

    @precise
    def law(self, run: Callable[[], Hashable]) -> Law:
        """Return the law of what `run` returns. It must be the same on the same path."""
        law: dict[Hashable, Decimal] = {}
        self._planned = []
        for number in range(MOST_PATHS):
            self._left, self._taken, self._probability = [], [], Decimal(1)
            outcome = run()
            if number < _RUN_TWICE:
                self._again(run, outcome)
            law[outcome] = law.get(outcome, Decimal(0)) + self._probability
            places = [place for place, left in enumerate(self._left) if left]
            if not places:
                return law
            self._planned = [*self._taken[: places[-1]], self._taken[places[-1]] + 1]
        raise BadParameter("run", f"has more than {MOST_PATHS:,} paths: too many to enumerate")

    def _again(self, run: Callable[[], Hashable], outcome: Hashable) -> None:
        """Run the same path again. Raise `RealDraw` if anything is another than before."""
        before = self._taken, self._left, self._probability
        self._planned = list(self._taken)
        self._left, self._taken, self._probability = [], [], Decimal(1)
        if run() != outcome or (self._taken, self._left, self._probability) != before:
            raise RealDraw("the same draws lead to another outcome: something else is random, too")

    @precise
    def _one_of(self, weights: Sequence[tuple[Any, Decimal]]) -> Any:
        """Return an outcome of positive probability: the planned one, or the first."""
        possible = [(outcome, weight) for outcome, weight in weights if weight > 0]
        step = len(self._taken)
        place = self._planned[step] if step < len(self._planned) else 0
        self._taken.append(place)
        self._left.append(len(possible) - 1 - place)
        self._probability *= possible[place][1]
        return possible[place][0]

    def _coins(self, probabilities: Sequence[Decimal]) -> NDArray[np.bool_]:
        return np.array([self._one_of([(False, 1 - p), (True, p)]) for p in probabilities], dtype=bool)

    def exponential_choice(
        self, scores: Any, rate: Number, size: int = 1, *, counts: Any = None
    ) -> NDArray[np.int64]:
        """Return indexes that are proportional to counts * exp(rate * score)."""
        law = _weights(
            tuple(Fraction(score) for score in np.asarray(scores).tolist()), exact(rate, "rate"),
            None if counts is None else tuple(np.asarray(counts).tolist()),
        )  # fmt: skip
        return np.array([self._one_of(law) for _ in range(size)], dtype=np.int64)

    def uniform_int(self, low: int, high: int, size: int) -> NDArray[np.int64]:
        """Return whole numbers low <= x < high, all equally likely."""
        each = dec(Fraction(1, int(high) - int(low)))
        law = [(value, each) for value in range(int(low), int(high))]
        return np.array([self._one_of(law) for _ in range(size)], dtype=np.int64)

    def bernoulli(self, probability: Number | Real, size: int) -> NDArray[np.bool_]:
        """Return coins with this probability."""
        p = certain(probability(BITS)) if callable(probability) else dec(exact(probability, "probability"))
        return self._coins([p] * size)

    def bernoulli_exp(self, x: Any, *, rate: Number = 1) -> NDArray[np.bool_]:
        """Return coins with probability exp(-rate * x)."""
        return self._coins([exp(-exact(rate, "rate") * Fraction(each)) for each in np.asarray(x).tolist()])

    @precise
    def bernoulli_near(
        self, approximate: NDArray[np.float64], error: float, exactly: Callable[[int], Real]
    ) -> NDArray[np.bool_]:
        """Return coins with probability exactly(i), or with a float that is off by more than `error`."""
        probabilities = []
        for place, near in enumerate(approximate.tolist()):
            p = certain(exactly(place)(BITS))
            probabilities.append(p if abs(Decimal(near) - p) <= Decimal(error) else Decimal(near))
        return self._coins(probabilities)

    def in_copy(self, module: ModuleType) -> Any:
        """Return a copy of a module that draws from these stand-ins."""
        names = ("exponential_choice", "uniform_int", "bernoulli", "bernoulli_exp", "bernoulli_near")
        return copy_of(module, {name: getattr(self, name) for name in names})


@lru_cache(maxsize=4096)
@precise
def _weights(
    scores: tuple[Fraction, ...], rate: Fraction, counts: tuple[int, ...] | None
) -> list[tuple[int, Decimal]]:
    best = max(scores)
    weights = [
        exp(rate * (score - best)) * (1 if counts is None else counts[i]) for i, score in enumerate(scores)
    ]
    whole = sum(weights)
    return [(i, weight / whole) for i, weight in enumerate(weights)]


@dataclass(slots=True)
class Scales:
    """Stand-ins for noise with infinitely many values: they add 0, and keep the scale of each call."""

    used: list[tuple[Fraction, int]] = field(default_factory=list)

    def _zeros(self, scale: Number, size: int, parties: int) -> NDArray[np.int64]:
        self.used += [(exact(scale, "scale"), parties)] * size
        return np.zeros(size, dtype=np.int64)

    def plain(self, scale: Number, size: int) -> NDArray[np.int64]:
        """Stand for `discrete_laplace` and `discrete_gaussian`."""
        return self._zeros(scale, size, 1)

    def share(self, scale: Number, size: int, *, parties: int) -> NDArray[np.int64]:
        """Stand for `polya_share`."""
        return self._zeros(scale, size, parties)

    def in_copy(self, module: ModuleType) -> Any:
        """Return a copy of a module that draws from these stand-ins."""
        return copy_of(
            module,
            {"discrete_laplace": self.plain, "discrete_gaussian": self.plain, "polya_share": self.share},
        )

    def of(self, run: Callable[[], Any]) -> tuple[list[tuple[Fraction, int]], Any]:
        """Return the scale (and number of parties) of each noise that `run` draws, and what it returns."""
        self.used.clear()
        result = run()
        return list(self.used), result

    def of_vector(self, run: Callable[[], NDArray[np.int64]]) -> tuple[list[Fraction], int, list[int]]:
        """Return the scale of each coordinate, the number of parties, and the values without noise."""
        used, result = self.of(run)
        values = [int(value) for value in result]
        if len(used) != len(values) or any(first[1] != second[1] for first, second in pairwise(used)):
            raise BadParameter("run", f"{len(values)} values have {len(used)} noises: each needs one")
        return [scale for scale, _ in used], used[0][1], values
