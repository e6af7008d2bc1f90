"""Events of dp-accounting, read as losses.

Claim    the loss of an event bounds what its mechanism reveals, for the relation that was stated.
Because  each kind is read as the loss of the mechanism that dp-accounting defines it as. Kinds for which we
         have no bound are refused by name, also inside others.
Test     tests/core/test_dp_events.py, beside the accountants of dp-accounting and closed forms
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.core.composition import StatedLoss, compose, poisson_sampled, repeated
from lapwing.core.exact import log_up
from lapwing.core.losses import ZERO, Concentrated, GaussianNoise, LaplaceNoise, Loss, Pure, Relation
from lapwing.errors import BadParameter, MissingExtra

_DEEPEST = 50
_GRID = 1 << 20  # so fine that discrete noise has the distribution of continuous noise
_LEAST_SIGMA = 64  # in steps of that grid: beyond it, distributions are those of rounded continuous noise


def _library() -> Any:
    try:
        from dp_accounting import dp_event  # noqa: PLC0415 (an extra)
    except ImportError:
        raise MissingExtra("pld", "Reading events of dp-accounting") from None
    return dp_event


class _Reader:
    """Reads events about one relation. Each method is named for the kind that it reads."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self._depth = 0
        library = _library()
        kinds = [name for name in vars(_Reader) if name.endswith("DpEvent")]
        # A subclass may say something else: only the classes themselves are known.
        self._methods = {getattr(library, name, None): getattr(self, name) for name in kinds}

    def read(self, event: Any) -> StatedLoss:
        """Return the loss of an event, or raise BadParameter with the name of its kind."""
        method = self._methods.get(type(event))
        if method is None:
            name = type(event).__name__
            why = f"{name} has no loss here. State a loss that you can argue for, and compose it"
            raise BadParameter("event", why)
        if self._depth == _DEEPEST:
            raise BadParameter("event", f"is made of events within events, more than {_DEEPEST} deep")
        self._depth += 1
        read: Loss | StatedLoss = method(event)
        self._depth -= 1
        return compose(read, relation=self._relation)

    def NoOpDpEvent(self, _: Any) -> Loss:  # noqa: N802
        return Pure(ZERO)

    def GaussianDpEvent(self, event: Any) -> Loss:  # noqa: N802
        """Return the loss of continuous Gaussian noise, as noise on a fine grid: its ρ is the same."""
        multiplier = _number(event, "noise_multiplier")
        if multiplier * _GRID <= _LEAST_SIGMA:
            return Concentrated(1 / (2 * multiplier**2))
        return GaussianNoise(multiplier * _GRID, Fraction(_GRID**2), 1)

    def LaplaceDpEvent(self, event: Any) -> Loss:  # noqa: N802
        return Pure(1 / _number(event, "noise_multiplier"))

    def DiscreteLaplaceDpEvent(self, event: Any) -> Loss:  # noqa: N802
        return LaplaceNoise(1 / _number(event, "noise_parameter"), _count(event, "sensitivity"))

    def RandomizedResponseDpEvent(self, event: Any) -> Loss:  # noqa: N802
        """Return the loss of a report that is uniform with probability p: ln((k - (k-1) p) / p)."""
        if self._relation is not Relation.REPLACE:
            raise BadParameter("relation", f"{type(event).__name__} is about REPLACE: an answer changes")
        noise, options = _number(event, "noise_parameter"), _count(event, "num_buckets")
        if noise > 1 or options < 1:
            why = f"{type(event).__name__} needs a probability, and at least one bucket"
            raise BadParameter("event", why)
        return Pure(log_up((options - (options - 1) * noise) / noise))

    def ZCDpEvent(self, event: Any) -> Loss:  # noqa: N802
        if event.xi != 0:
            raise BadParameter("event", f"{type(event).__name__} has a loss here only if xi = 0")
        return Concentrated(_number(event, "rho", from_0=True))

    def SelfComposedDpEvent(self, event: Any) -> Loss | StatedLoss:  # noqa: N802
        part, count = self.read(event.event), _count(event, "count")
        return repeated(part, count) if count else Pure(ZERO)

    def ComposedDpEvent(self, event: Any) -> StatedLoss:  # noqa: N802
        return compose(*map(self.read, event.events))

    def PoissonSampledDpEvent(self, event: Any) -> Loss | StatedLoss:  # noqa: N802
        if self._relation is not Relation.ADD_REMOVE:
            raise BadParameter("relation", f"{type(event).__name__} has a loss here for ADD_REMOVE only")
        rate, part = _number(event, "sampling_probability", from_0=True), self.read(event.event)
        return poisson_sampled(part, rate=rate, relation=self._relation) if rate else Pure(ZERO)


def _number(event: Any, name: str, *, from_0: bool = False) -> Fraction:
    """Return a parameter of an event, a float as it is, or raise BadParameter if it promises nothing."""
    try:
        value = getattr(event, name)
        if isinstance(value, str | bool):
            raise TypeError
        number = Fraction(value.item() if isinstance(value, np.generic) else value)
    except (AttributeError, TypeError, ValueError, OverflowError):  # also NaN and infinity
        number = Fraction(-1)
    if number < 0 or (number == 0 and not from_0):
        wanted = "at least 0" if from_0 else "above 0"
        raise BadParameter("event", f"{type(event).__name__} needs a finite {name} {wanted}")
    return number


def _count(event: Any, name: str) -> int:
    number = _number(event, name, from_0=True)
    if number.denominator != 1:
        raise BadParameter("event", f"{type(event).__name__} needs a whole number as {name}")
    return int(number)


def from_dp_event(event: object, *, relation: Relation) -> StatedLoss:
    """Return the loss of a `DpEvent` of dp-accounting (extra `pld`): of what the event says, no more.

    Args:
        event: An event of `dp_accounting`: Gaussian, Laplace, discrete Laplace, randomized response, zCDP;
            composed, self-composed and Poisson-sampled ones of these; or none.
        relation: The relation of neighbours that the event is about.

    Returns:
        The loss, about that relation. The event is taken at its word: whether a program really drew this
        noise is not known here.

    Raises:
        BadParameter: If an event is of another kind (named in the text), has a parameter that promises
            nothing, or does not hold for the relation.
        MissingExtra: If dp-accounting is not installed.

    Example:
        >>> from dp_accounting import dp_event
        >>> from lapwing import losses
        >>> event = dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(10), 5)
        >>> losses.from_dp_event(event, relation=losses.Relation.ADD_REMOVE).epsilon(delta=0)
        Fraction(1, 2)
    """
    if not isinstance(relation, Relation):
        raise BadParameter("relation", "must be a Relation")
    return _Reader(relation).read(event)
