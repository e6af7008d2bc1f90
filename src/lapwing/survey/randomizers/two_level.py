"""The one proof behind almost every randomizer here.

Every answer v favours a set A(v) of messages, all of one size |A|, out of |Y| messages. With T chances in
2^48 a uniform message of A(v) is sent, else a uniform one of the rest.

Claim    a message is at most T (|Y| - |A|) / ((2^48 - T) |A|) times likelier for one answer than another.
Because  any message has one of two probabilities, T / (2^48 |A|) or (2^48 - T) / (2^48 (|Y| - |A|)),
         whatever the answer; the first is the greater; the claim is their ratio.
Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one

T is the greatest whole number for which that ratio is at most e^ε: proven by balls, never by floats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction

from lapwing.errors import BadParameter
from lapwing.exact import Number, ball, log_up, lower, precision, settle, whole
from lapwing.privacy import Pure
from lapwing.privacy.loss import checked_epsilon

ODDS = 1 << 48
_BITS, _MOST_BITS = 192, 1 << 14


def within(ratio: Fraction, epsilon: Fraction) -> bool:
    """Whether ratio <= e^epsilon. (Equal only for epsilon = 0: e to a rational power is not rational.)"""
    bits = _BITS
    while bits <= _MOST_BITS:
        with precision(bits):
            most, found = ball(epsilon).exp(), ball(ratio)
            if found <= most:
                return True
            if found > most:
                return False
        bits *= 2
    return False  # closer than 16,000 bits can tell: the safe answer


def ratio_of(favoured: int, share: Fraction) -> Fraction:
    """The claimed ratio, where share = |A| / |Y|."""
    return favoured * (1 - share) / ((ODDS - favoured) * share)


def favour(epsilon: Fraction, share: Fraction) -> int:
    """The greatest T with a ratio of at most e^epsilon, where share = |A| / |Y|."""
    with precision(_BITS):
        odds = ball(1 / share - 1) * ball(-epsilon).exp()
        favoured = min(int(lower(ODDS / (1 + odds))), ODDS - 1)
    while favoured + 1 < ODDS and within(ratio_of(favoured + 1, share), epsilon):
        favoured += 1
    if favoured <= share * ODDS:
        raise BadParameter("epsilon", "is so small here that coins of 48 bits cannot favour any message")
    return favoured


def loss_within(ratio: Fraction, epsilon: Fraction | None) -> Pure:
    """The loss of a greatest ratio: what was asked for, if that was said and holds, else ln of it."""
    if epsilon is None:
        return Pure(log_up(ratio))
    return Pure(epsilon)


def check_stated(ratio: Fraction, epsilon: Number | None) -> Fraction | None:
    """ε as it was asked for, or None. It must not be below what the coins really cost."""
    if epsilon is None:
        return None
    stated = checked_epsilon(epsilon)
    if not within(ratio, stated):
        raise BadParameter("epsilon", "is below what these coins cost")
    return stated


class TwoLevel(ABC):
    """What the randomizers with two levels share: the odds, the check of them, and the loss.

    `epsilon` is what was asked for. It is no part of a recipe: a device computes the loss from T.
    """

    __slots__ = ()
    favoured: int
    epsilon: Fraction | None

    @property
    @abstractmethod
    def share(self) -> Fraction:
        """|A| / |Y|."""

    def _settle_odds(self) -> None:
        """Check T and ε, once the sizes are known to be good."""
        settle(self, favoured=whole(self.favoured, "favoured", at_least=1))
        if not self.share * ODDS < self.favoured < ODDS:
            raise BadParameter("favoured", "must be likelier than by chance, and below 2^48")
        settle(self, epsilon=check_stated(self.ratio, self.epsilon))

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return ratio_of(self.favoured, self.share)

    @property
    def loss(self) -> Pure:
        """What a message reveals: the ε that was asked for, or ln(ratio) rounded up."""
        return loss_within(self.ratio, self.epsilon)

    @property
    def truth(self) -> Fraction:
        """The probability of a favoured message."""
        return Fraction(self.favoured, ODDS)

    @property
    def likely(self) -> Fraction:
        """The probability of each favoured message, times |Y|."""
        return self.truth / self.share

    @property
    def unlikely(self) -> Fraction:
        """The probability of each other message, times |Y|."""
        return (1 - self.truth) / (1 - self.share)
