"""A hook on all mechanisms, for the auditor: an observer sees each input, and may decide the output.

Claim    without an observer, a mechanism's output is exactly that of its own sampler. No charged release is
         observed by mistake.
Because  `observed` then calls the sampler with what it was given. An observer is set for one context (one
         thread) by `observing`, and is gone when its block ends, also by an error, also for tasks that
         were started inside. The ledger's gate refuses to charge while there is an observer, unless it was
         set for that (tests do so).
Test     tests/core/test_observed.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from lapwing.errors import BadParameter

# Called with the mechanism, its inputs by name, and a function that draws the output. Returns the output.
Observer = Callable[[Any, dict[str, Any], Callable[[], Any]], Any]


@dataclass(slots=True)
class _Holder:
    """The observer of a context. It is emptied when its block ends."""

    observer: Observer | None
    during_charges: bool


_HOLDER: ContextVar[_Holder | None] = ContextVar("lapwing_observer", default=None)
Mechanism = TypeVar("Mechanism")
Output = TypeVar("Output")
Inputs = ParamSpec("Inputs")


@contextmanager
def observing(observer: Observer, *, during_charges: bool = False) -> Iterator[None]:
    """Show all mechanisms that run in this block, in this thread, to the observer.

    Args:
        observer: Sees each call and returns its output.
        during_charges: Whether releases that are charged may be observed, too: for tests only.
    """
    holder = _Holder(observer, during_charges)
    token = _HOLDER.set(holder)
    try:
        yield
    finally:
        holder.observer = None
        _HOLDER.reset(token)


def _current() -> Observer | None:
    holder = _HOLDER.get()
    return None if holder is None else holder.observer


def require_unobserved() -> None:
    """Raise BadParameter if an observer would see, or decide, a release that is charged."""
    holder = _HOLDER.get()
    if holder is not None and holder.observer is not None and not holder.during_charges:
        raise BadParameter(
            "observer",
            "a charged release is never observed: end the `observing` block first, or audit generated data",
        )


def observed_call(mechanism: Any, draw: Callable[[], Output], **inputs: Any) -> Output:
    """Return the output of `draw`, or what the observer of this context decides."""
    observer = _current()
    return draw() if observer is None else cast(Output, observer(mechanism, inputs, draw))


def observed(
    sample: Callable[Concatenate[Mechanism, Inputs], Output],
) -> Callable[Concatenate[Mechanism, Inputs], Output]:
    """Decorate the method of a mechanism that reads private values: observers see its arguments.

    The method has the attribute `is_observed`, by which the auditor finds all mechanisms.
    """
    names = sample.__code__.co_varnames[1:]

    @wraps(sample)
    def sampled(mechanism: Mechanism, /, *args: Inputs.args, **kwargs: Inputs.kwargs) -> Output:
        observer = _current()
        if observer is None:
            return sample(mechanism, *args, **kwargs)
        inputs = {**dict(zip(names, args, strict=False)), **kwargs}
        return cast(Output, observer(mechanism, inputs, lambda: sample(mechanism, *args, **kwargs)))

    vars(sampled)["is_observed"] = True
    return sampled


def is_observed() -> bool:
    """Return whether this context has an observer."""
    return _current() is not None
