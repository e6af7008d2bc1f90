"""The ε of a survey whose reports are shuffled: privacy amplification, never understated.

The promise needs three things that no arithmetic can check, and every caller must say so: a shuffler
removes order, sender and time; the adversary sees only the multiset of reports; and at least n of
them, the respondent's own among them, are honest. Reports of liars hide nobody, so n does not count them.

The argument is in docs/arguments/shuffle.md. In short: whatever the pair of answers and the data of
the others, the excess δ at ε is at most E(Z₁ + … + Z_n)₊ / n for independent Z of a known law, with the
values and masses of the pieces. A law that is wider in the convex order is on the safe side. All laws end
as one with three points, up, 0 and -down, which makes it E(up·X - down·Y)₊ with (X, Y) multinomial. The
excess is proven in balls; a search uses floats that are near it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, fmpq

from lapwing.core.exact import Number, ball, exact, exp_up, halve, lower, precision, round_up, upper, whole
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomizers.randomizer import PartedRandomizer, Randomizer, TwoLevel


@dataclass(frozen=True, slots=True)
class BlanketPiece:
    """Messages that one answer sends `first` times as often as the blanket, and another `second` times.

    `mass` is the probability of these messages in the blanket part of an honest report.
    """

    first: Fraction
    second: Fraction
    mass: Fraction


PairLaw = tuple[BlanketPiece, ...]


def general_law(epsilon0: Fraction) -> PairLaw:
    """Return the law of any ε₀-private randomizer: two pieces of mass 1 / (e^ε₀ + 1)."""
    ratio = exp_up(epsilon0)
    return _opposite(ratio, 1 / (ratio + 1))


def _opposite(ratio: Fraction, mass: Fraction) -> PairLaw:
    return BlanketPiece(ratio, Fraction(1), mass), BlanketPiece(Fraction(1), ratio, mass)


def two_level_law(randomizer: TwoLevel) -> PairLaw:
    """Return the law of two answers of a randomizer with two levels that share the fewest messages."""
    share, both, rare = randomizer.share, randomizer.both, randomizer.unlikely
    return (
        *_opposite(randomizer.ratio, rare * (share - both)),
        BlanketPiece(randomizer.ratio, randomizer.ratio, rare * both),
        BlanketPiece(Fraction(1), Fraction(1), rare * (1 - 2 * share + both)),
    )


def mixture_law(parts: Sequence[tuple[Fraction, Randomizer]]) -> PairLaw | None:
    """Return the law of drawing one of the randomizers, with these chances, where it is seen which one.

    None where the law of a part is not known.
    """
    pieces: list[BlanketPiece] = []
    for chance, part in parts:
        law = law_of(part)
        if law is None:
            return None
        pieces += [BlanketPiece(p.first, p.second, chance * p.mass) for p in law]
    return tuple(pieces)


def law_of(randomizer: Randomizer) -> PairLaw | None:
    """Return the worst pieces of a randomizer, or None where only the general law is known.

    Bits and unary messages have many pieces, and the general law is near theirs: they give None. Duchi's
    method has the law of a choice among the ends: random rounding to an end reveals no more than that.
    """
    match randomizer:
        case TwoLevel():
            return two_level_law(randomizer)
        case PartedRandomizer():
            return mixture_law(
                [(randomizer.chance(first), part) for first, part in randomizer.parts.items()]
            )
        case _:
            return None


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
        """Return the first and last C = X + Y to sum over. `_tails` bounds the rest."""
        mean, share = self.n * float(self.both), float(self.both)
        log = math.log(float(1 / (_SMALL * delta))) if delta > Fraction(1, 10**290) else 720.0
        reach = math.sqrt(2 * log * mean * (1 - share)) + log
        return max(1, math.floor(mean - reach)), min(self.n, math.ceil(mean + reach))


def _walk(law: Sequence[BlanketPiece], epsilon: Fraction, n: int) -> _Walk | None:
    """Return the law of three points that is wider, in the convex order, than the pieces'. None: no excess.

    Every value moves to 0 and the outermost point on its side, with the same mean. Rounding goes up: more
    weight above, less below.
    """
    with precision(_BITS):
        growth = ball(epsilon).exp()
        values = [ball(piece.first) - growth * ball(piece.second) for piece in law]
        highs, lows = [upper(value) for value in values], [lower(-value) for value in values]
        up = max(highs, default=Fraction(0))
        if up <= 0:
            return None
        down = max(upper(-value) for value in values)
        pairs = list(zip(law, highs, lows, strict=True))
        x = sum((ball(p.mass * high / up) for p, high, _ in pairs if high > 0), start=arb(0))
        y = sum((ball(p.mass * low / down) for p, high, low in pairs if high <= 0), start=arb(0))
        return _Walk(n, up, down, upper(x), lower(y))


def excess(law: Sequence[BlanketPiece], epsilon: Fraction, n: int, delta: Fraction) -> Fraction:
    """Return δ at ε, rounded up. Tails of a millionth of `delta` are cut off, and their bound is added."""
    walk = _walk(law, epsilon, n)
    if walk is None:
        return Fraction(0)
    first, last = walk.ends(delta)
    with precision(_BITS):
        return upper(_summed(walk, first, last) + _tails(walk, first, last))


def _tails(walk: _Walk, first: int, last: int) -> arb:
    """Return a bound of the part of C < first and C > last: up·E[X; C outside] / n."""
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
    """Return P[X + Y = count]."""
    return _binomial(walk.n, count, walk.both)


def _binomial(n: int, k: int, share: Fraction) -> arb:
    ways = (arb(n + 1).lgamma() - arb(k + 1).lgamma() - arb(n - k + 1).lgamma()).exp()
    return ways * ball(share) ** k * ball(1 - share) ** (n - k)


def _summed(walk: _Walk, first: int, last: int) -> arb:
    """Return Σ P[C] E[(S)₊ | C] / n over first <= C <= last, by recursion in C.

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
    """Return P[X >= first] from P[X = first], beyond the mode: terms, then a geometric bound."""
    total, term, x = here, here, first
    while x < n:
        fall = odds * (n - x) / (x + 1)
        term *= fall
        total += term
        x += 1
        if term < total * arb(2) ** -100 and fall < 1:
            return total + (term * fall / (1 - fall)).union(arb(0))
    return total


def approximate_excess(law: Sequence[BlanketPiece], epsilon: float, n: int, delta: Fraction) -> float:
    """Return δ at ε in floats, for the search only: the recursion of `_summed` as running sums."""
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


ASSUMES = (
    "An anonymising shuffler removes order, sender and time; only the unordered reports are seen; "
    "and at least this many reports are honest."
)
_MOST_REPORTS = 10**9  # more reports never reveal more, so the bound for this many holds
_DIGITS = 10**9  # ε is rounded up to a whole number of these parts


def shuffled_epsilon(
    epsilon0: Number, n: int, delta: Number, randomizer: Randomizer | Sequence[Randomizer] | None = None
) -> Fraction:
    """Return an ε such that n honest reports, shuffled, are (ε, δ)-private for replacing one answer sheet.

    Claim    holds for all ε₀-private randomizers; rounded up; never above ε₀.
    Because  docs/arguments/shuffle.md
    Test     tests/survey/test_shuffled.py::test_the_bound_is_never_below_the_truth_for_few_reports

    With the `randomizer` in use, its exact blanket may give less; otherwise the general bound holds.

    Args:
        epsilon0: The local ε₀ of each report.
        n: The number of honest reports.
        delta: δ, strictly between 0 and 1.
        randomizer: The randomizer in use, or several of which a respondent draws one at random; None: any.

    Returns:
        The shuffled ε, rounded up and at most ε₀.

    Raises:
        BadParameter: A number is out of its range, or a randomizer loses more than ε₀.

    Example:
        >>> float(shuffled_epsilon(1, 10_000, "1e-6")) < 0.1
        True
    """
    local = checked_epsilon(epsilon0)
    reports = min(whole(n, "n", at_least=1), _MOST_REPORTS)
    allowed = exact(delta, "delta")
    if not 0 < allowed < 1:
        raise BadParameter("delta", "must lie strictly between 0 and 1")
    laws = [general_law(local)]
    if randomizer is not None:
        parts = list(randomizer) if isinstance(randomizer, Sequence) else [randomizer]
        if any(part.loss.epsilon > local for part in parts):
            raise BadParameter("randomizer", "loses more than epsilon0")
        own = mixture_law([(Fraction(1, len(parts)), part) for part in parts]) if parts else None
        laws += [own] if own is not None else []
    return min(_least_epsilon(law, local, reports, allowed) for law in laws)


def _least_epsilon(law: PairLaw, local: Fraction, n: int, delta: Fraction) -> Fraction:
    def seems_enough(epsilon: float) -> bool:
        return not approximate_excess(law, epsilon, n, delta) > float(delta)

    _, high = halve(seems_enough, 0.0, float(local), times=48)
    step = Fraction(1, _DIGITS)
    tried = Fraction(round_up(Fraction(high), _DIGITS), _DIGITS) + step
    while tried < local:
        if excess(law, tried, n, delta) <= delta:
            return tried
        step *= 8
        tried += step
    return local
