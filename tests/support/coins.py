"""Walking through everything that coins can do: every branch, with its exact probability."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

from lapwing.survey.randomize import CoinSource
from lapwing.survey.randomizers import ODDS, Recipe

Step = tuple[str, int, int]  # ("odds", T, 0 or 1) or ("below", N, which)
Law = dict[bytes, Fraction]


class TooDeep(Exception):
    """A branch wants more coins than the walk allows."""


class Explorer:
    """Coins that fall as they are told to, and the first way where they are not."""

    def __init__(self, told: list[int], most: int | None) -> None:
        self.told, self.most = told, most
        self.path: list[Step] = []

    def odds(self, of: int) -> bool:
        return bool(self._next("odds", of))

    def below(self, bound: int) -> int:
        return self._next("below", bound)

    def _next(self, kind: str, size: int) -> int:
        if self.most is not None and len(self.path) == self.most:
            raise TooDeep
        at = len(self.path)
        fell = self.told[at] if at < len(self.told) else 0
        self.path.append((kind, size, fell))
        return fell


def leaves(
    play: Callable[[CoinSource], bytes], most: int | None = None
) -> Iterator[tuple[list[Step], bytes | None]]:
    """Every path of coins with its message; None where it wants more than `most` coins."""
    told: list[int] | None = []
    while told is not None:
        explorer = Explorer(told, most)
        try:
            message: bytes | None = play(explorer)
        except TooDeep:
            message = None
        yield explorer.path, message
        told = following(explorer.path)


def following(path: list[Step]) -> list[int] | None:
    """The next way for coins to fall, in order; None after the last."""
    fell = [each for _, _, each in path]
    for at in reversed(range(len(path))):
        kind, size, last = path[at]
        if last + 1 < (2 if kind == "odds" else size):
            return [*fell[:at], last + 1]
    return None


def weight(path: Iterable[Step]) -> Fraction:
    """The probability that coins fall like this."""
    product = Fraction(1)
    for kind, size, fell in path:
        if kind == "below":
            product /= size
        else:
            product *= Fraction(size if fell else ODDS - size, ODDS)
    return product


def law_of(found: Iterable[tuple[list[Step], bytes | None]]) -> Law:
    """The exact law of the messages. Where a round is thrown again, rounds are alike:

    so each message's share of the accepted first rounds is its probability, for each first coin.
    """
    mass: dict[int, dict[bytes, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    first: dict[int, Fraction] = {}
    for path, message in found:
        start = path[0][2]
        first[start] = weight(path[:1])
        if message is not None:
            mass[start][message] += weight(path[1:])
    law: dict[bytes, Fraction] = defaultdict(Fraction)
    for start, each in mass.items():
        accepted = sum(each.values(), Fraction(0))
        for message, share in each.items():
            law[message] += first[start] * share / accepted
    return dict(law)


def most_coins(recipe: Recipe, *, rounds: int = 1) -> int | None:
    """How many coins the walk may use, for the one kind that may throw again for ever."""
    return 1 + rounds * int(recipe["dimension"]) if recipe["kind"] == "projective" else None


WINDOW: dict[str, Any] = {
    "kind": "window",
    "steps": 3,
    "stride": 2,
    "width": 3,
    "none": 1,
    "favoured": 7 << 45,
}
DUCHI: dict[str, Any] = {"kind": "duchi", "steps": 3, "none": 1, "favoured": (1 << 47) + 12345}
SMALL: tuple[dict[str, Any], ...] = (
    {"kind": "choice", "options": 2, "favoured": 3 << 46},
    {"kind": "choice", "options": 5, "favoured": (1 << 46) + 1},
    {"kind": "subset", "options": 5, "chosen": 2, "favoured": (1 << 47) + 99},
    {"kind": "subset", "options": 6, "chosen": 3, "favoured": 5 << 45},
    {"kind": "subset", "options": 9, "chosen": 1, "favoured": 1 << 46},
    {"kind": "hadamard", "bits": 3, "options": 7, "favoured": 5 << 45},
    {"kind": "hadamard", "bits": 4, "options": 9, "favoured": (1 << 47) + 1},
    {"kind": "projective", "prime": 2, "dimension": 3, "options": 7, "favoured": 1 << 47},
    {"kind": "projective", "prime": 3, "dimension": 3, "options": 10, "favoured": (1 << 47) + 3},
    {"kind": "projective", "prime": 5, "dimension": 2, "options": 6, "favoured": 1 << 46},
    {"kind": "bits", "options": 3, "favoured": 5 << 45},
    {"kind": "unary", "options": 4, "one": 1 << 47, "zero": 1 << 46},
    WINDOW,
    {"kind": "window", "steps": 5, "stride": 1, "width": 4, "none": 0, "favoured": 3 << 46},
    DUCHI,
    {"kind": "duchi", "steps": 4, "none": 0, "favoured": 3 << 46},
    {"kind": "hybrid", "odds": 3 << 46, "window": WINDOW, "duchi": DUCHI},
    {
        "kind": "prefixes",
        "letters": 2,
        "levels": [1, 2],
        "inner": [
            {"kind": "subset", "options": 32, "chosen": 1, "favoured": 1 << 44},
            {"kind": "hadamard", "bits": 11, "options": 1024, "favoured": 3 << 46},
        ],
    },
)
