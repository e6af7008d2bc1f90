"""Prices in words: an ε and a δ where there are such, otherwise what kind of bound it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

from lapwing.errors import BadParameter
from lapwing.ledger.entry import Costs, text_of
from lapwing.privacy import Concentrated, GaussianNoise, Loss, Repeated, SampledGaussian, Sum, Worst
from lapwing.privacy.charge import DELTA, DELTA_UNIT, EPSILON, EPSILON_UNIT
from lapwing.privacy.describe import from_description

NAMED = 3  # so many parts of a sum are named, the others counted


def in_words(loss: dict[str, Any], costs: Costs, epsilon: Fraction) -> str:
    """The price of a described loss that was charged at these costs to an account of this ε. Rounded up."""
    text = text_of(loss)
    if '"FixedRun"' not in text:
        return _of_text(text)
    # Such a run is dear to price again; its costs say ε and δ, unless they only say "too much".
    if costs[EPSILON] > epsilon * EPSILON_UNIT:
        return "a fixed run, by its Rényi bound"
    pair = (Fraction(costs[EPSILON], EPSILON_UNIT), Fraction(costs[DELTA], DELTA_UNIT))
    return f"{pair_text(*pair)} as one run"


@dataclass(frozen=True, slots=True)
class Price:
    """A price in words, and the numbers in it that can be added up: ε with δ, or ρ."""

    words: str
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None


def price_of(loss: dict[str, Any], costs: Costs, epsilon: Fraction) -> Price:
    """The price of a described loss, as `in_words` says it."""
    words, text = in_words(loss, costs, epsilon), text_of(loss)
    if '"FixedRun"' not in text:
        return replace(_numbers_of(text), words=words)
    if costs[EPSILON] > epsilon * EPSILON_UNIT:
        return Price(words)
    return Price(words, Fraction(costs[EPSILON], EPSILON_UNIT), Fraction(costs[DELTA], DELTA_UNIT))


@lru_cache(maxsize=4096)
def _numbers_of(text: str) -> Price:
    try:
        loss = from_description(json.loads(text))
    except BadParameter:
        return Price("")
    if loss.pure is not None:
        return Price("", loss.pure, loss.delta0)
    return Price("", rho=_rho(loss), delta=loss.delta0)


@lru_cache(maxsize=4096)
def _of_text(text: str) -> str:
    try:
        return _of(from_description(json.loads(text)))
    except BadParameter:
        return "of a kind unknown here"


def _of(loss: Loss) -> str:
    if loss.pure is not None:
        return pair_text(loss.pure, loss.delta0)
    rho = _rho(loss)
    if rho is not None:
        return f"ρ {short_up(rho)} (zCDP)"
    match loss:
        case SampledGaussian(rate, noise):
            return f"Rényi of Gaussian σ {short_up(noise.sigma)} on a sample of {short_up(100 * rate)} %"
        case Repeated(each, count):
            return f"{count:,} × {_of(each)}"
        case Sum(parts) | Worst(parts):
            words = [_of(part) for part in parts[:NAMED]]
            if len(parts) > NAMED:
                words.append(f"{len(parts) - NAMED} more")
            return " + ".join(words) if isinstance(loss, Sum) else f"the worst of {', '.join(words)}"
    return "by its Rényi bound"


def _rho(loss: Loss) -> Fraction | None:
    match loss:
        case Concentrated(rho):
            return rho
        case GaussianNoise():
            return loss.concentrated.rho
        case Repeated(each, count):
            once = _rho(each)
            return None if once is None else count * once
        case Sum(parts) | Worst(parts):
            known = [found for part in parts if (found := _rho(part)) is not None]
            if len(known) == len(parts) and known:
                return sum(known, Fraction(0)) if isinstance(loss, Sum) else max(known)
    return None


def short_up(value: Fraction) -> str:
    """Six digits, rounded up: for what was spent or promised."""
    return _short(value, ROUND_CEILING, 6)


def short_down(value: Fraction) -> str:
    """Four digits, rounded down: for what is left."""
    return _short(value, ROUND_FLOOR, 4)


def _short(value: Fraction, rounding: str, digits: int) -> str:
    if not value:
        return "0"
    with localcontext(prec=digits, rounding=rounding):
        number = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
    power = number.adjusted()
    return f"{number:f}" if -5 < power < 7 else f"{number.scaleb(-power):f}e{power}"


def pair_text(epsilon: Fraction, delta: Fraction) -> str:
    """ε, and δ if there is one, rounded up."""
    return f"ε {short_up(epsilon)}" + (f", δ {short_up(delta)}" if delta else "")
