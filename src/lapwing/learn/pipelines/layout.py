"""What a pipeline file says about a network: public, checked, and without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, Self

from lapwing.errors import BadParameter
from lapwing.exact import exact, whole
from lapwing.learn.pipelines.forward import ACTIVATIONS

OPTIONS = (
    "layers", "activation", "clip", "rate", "batch", "steps", "learning_rate", "optimizer", "momentum",
    "unit_rows",
)  # fmt: skip
NEEDED = {
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
class Layout:
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
        for name, write in NEEDED.items():
            if name not in settings:
                raise BadParameter(name, f"is missing. Write {write}")
        found = {name: checked(name, value) for name, value in settings.items()}
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


def checked(name: str, value: Any) -> Any:
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
