"""The excess δ at an ε of n shuffled reports: proven in balls, or near in floats for a search.

The excess is at most E(Z₁ + … + Z_n)₊ / n, Z independent with the values and masses of the pieces. A
wider law of three points, up, 0 and -down, makes that E(up·X - down·Y)₊ with (X, Y) multinomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, fmpq

from lapwing.exact import ball, lower, precision, upper
from lapwing.survey.shuffled.laws import Piece

_BITS = 160
_SMALL = Fraction(1, 1 << 20)  # the share of δ that cut-off tails may take


@dataclass(frozen=True, slots=True)
class _Walk:
    """S = up·X - down·Y, (X, Y) multinomial with n trials and the shares x, y. All exact."""

    n: int
    up: Fraction
    down: Fraction
    x: Fraction
    y: Fraction

    @property
    def both(self) -> Fraction:
        return self.x + self.y

    def ends(self, delta: Fraction) -> tuple[int, int]:
        """The numbers of clones C = X + Y to sum over; what is cut off is bounded apart."""
        mean, share = self.n * float(self.both), float(self.both)
        log = math.log(float(1 / (_SMALL * delta))) if delta > Fraction(1, 10**290) else 720.0
        reach = math.sqrt(2 * log * mean * (1 - share)) + log
        return max(1, math.floor(mean - reach)), min(self.n, math.ceil(mean + reach))


def _walk(law: Sequence[Piece], epsilon: Fraction, n: int) -> _Walk | None:
    """The law of three points that is wider, in the convex order, than the pieces'. None: no excess.

    Every value goes to 0 and the outermost point on its side, its mean kept. Rounding goes up: more
    weight above, less below.
    """
    with precision(_BITS):
        growth = ball(epsilon).exp()
        values = [ball(piece.one) - growth * ball(piece.other) for piece in law]
        highs, lows = [upper(value) for value in values], [lower(-value) for value in values]
        up = max(highs, default=Fraction(0))
        if up <= 0:
            return None
        down = max(upper(-value) for value in values)
        pairs = list(zip(law, highs, lows, strict=True))
        x = sum((ball(p.mass * high / up) for p, high, _ in pairs if high > 0), start=arb(0))
        y = sum((ball(p.mass * low / down) for p, high, low in pairs if high <= 0), start=arb(0))
        return _Walk(n, up, down, upper(x), lower(y))


def excess(law: Sequence[Piece], epsilon: Fraction, n: int, delta: Fraction) -> Fraction:
    """δ at ε, rounded up (cut off where tails are a millionth of `delta`, and the tails added)."""
    walk = _walk(law, epsilon, n)
    if walk is None:
        return Fraction(0)
    first, last = walk.ends(delta)
    with precision(_BITS):
        return upper(_summed(walk, first, last) + _tails(walk, first, last))


def _tails(walk: _Walk, first: int, last: int) -> arb:
    """What C < first and C > last can add: at most up·E[X; C out of reach] / n."""
    share, odds = ball(walk.both), ball(walk.both / (1 - walk.both))
    bound = arb(0)
    if first > 1:
        fall = arb(fmpq(first, walk.n - first + 1)) / odds  # of P[C = first - 1] over P[C = first]
        assert fall < 1, "below the mean, so probabilities fall"
        below = _weight(walk, first) * fall / (1 - fall)
        bound += below * arb(fmpq(first, walk.n))
    if last < walk.n:
        fall = arb(fmpq(walk.n - last, last + 1)) * odds
        assert fall < 1, "above the mean, so probabilities fall"
        above = _weight(walk, last) / (1 - fall)  # P[C >= last] bounds that of n - 1 trials, too
        bound += share * above
    return bound * ball(walk.up * walk.x / walk.both)


def _weight(walk: _Walk, count: int) -> arb:
    """P[X + Y = count]."""
    return _binomial(walk.n, count, walk.both)


def _binomial(n: int, k: int, share: Fraction) -> arb:
    ways = (arb(n + 1).lgamma() - arb(k + 1).lgamma() - arb(n - k + 1).lgamma()).exp()
    return ways * ball(share) ** k * ball(1 - share) ** (n - k)


def _summed(walk: _Walk, first: int, last: int) -> arb:
    """Σ P[C] E[(S)₊ | C] / n over first <= C <= last, by recursion in C.

    With q = x/(x+y), κ = down/(up+down) and t the least X with S > 0, there is a closed form:
    E[(X - κC)₊ | C] = t (1 - q) P[X = t] - (κ - q) C P[X >= t].
    """
    q, scale = walk.x / walk.both, walk.up + walk.down
    top, bottom = walk.down.numerator * scale.denominator, walk.down.denominator * scale.numerator
    hit, miss = ball(q), ball(1 - q)
    drift, odds = ball(walk.down / scale - q), ball(walk.both / (1 - walk.both))
    count, total = first, arb(0)
    at = top * count // bottom + 1
    weight, here = _weight(walk, count), _binomial(count, at, q)
    tail = _upper_tail(count, at, hit / miss, here)
    while True:
        total += weight * (at * miss * here - drift * count * tail)
        if count == last:
            return total * ball(scale) / walk.n
        tail += here * miss * at / (count - at + 1)
        here *= miss * (count + 1) / (count + 1 - at)
        weight *= odds * (walk.n - count) / (count + 1)
        count += 1
        if top * count // bottom + 1 > at:
            tail -= here
            here *= hit / miss * (count - at) / (at + 1)
            at += 1


def _upper_tail(n: int, first: int, odds: arb, here: arb) -> arb:
    """P[X >= first] from P[X = first], beyond the mode: terms, then a geometric bound."""
    total, term, x = here, here, first
    while x < n:
        fall = odds * (n - x) / (x + 1)
        term *= fall
        total += term
        x += 1
        if term < total * arb(2) ** -100 and fall < 1:
            return total + (term * fall / (1 - fall)).union(arb(0))
    return total


def near_excess(law: Sequence[Piece], epsilon: float, n: int, delta: Fraction) -> float:
    """δ at ε in floats, for the search only: the recursion of `_summed` as running sums."""
    walk = _walk(law, Fraction(epsilon), n)
    if walk is None:
        return 0.0
    first, last = walk.ends(delta)
    q, kappa, both = float(walk.x / walk.both), float(walk.down / (walk.up + walk.down)), float(walk.both)
    counts = np.arange(first, last + 1, dtype=np.float64)
    at = np.minimum(np.floor(kappa * counts) + 1, counts)
    c, t, moves = counts[:-1], at[:-1], np.diff(at) > 0
    with precision(64):
        start = float(_binomial(first, int(at[0]), Fraction(q)).log())
        weight = float(_weight(walk, first).log())
        tail = float(_upper_tail(first, int(at[0]), arb(q / (1 - q)), arb(1)))
    stay = np.log((1 - q) * (c + 1) / (c + 1 - t))
    move = np.where(moves, np.log(q / (1 - q) * np.maximum(c + 1 - t, 1) / (t + 1)), 0.0)
    here = np.exp(start + np.concatenate([[0.0], np.cumsum(stay + move)]))
    gain = here[:-1] * (1 - q) * t / (c - t + 1) - np.where(moves, here[:-1] * np.exp(stay), 0.0)
    tails = tail * here[0] + np.concatenate([[0.0], np.cumsum(gain)])
    grows = np.log(both / (1 - both) * (n - c) / (c + 1))
    weights = np.exp(weight + np.concatenate([[0.0], np.cumsum(grows)]))
    parts = weights * (at * (1 - q) * here - (kappa - q) * counts * tails)
    return float(parts.sum()) * float(walk.up + walk.down) / n
