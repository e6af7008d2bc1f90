"""A hook on all mechanisms, for the auditor: an observer sees each input, and may decide the output.

Claim    without an observer, a mechanism's output is exactly that of its own sampler.
Because  `observed` then calls the sampler with what it was given. An observer is set for one context (one
         thread) by `observing`, and is gone when its block ends, also by an error.
Test     tests/core/test_observed.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

# Called with the mechanism, its inputs by name, and a function that draws the output. Returns the output.
Observer = Callable[[Any, dict[str, Any], Callable[[], Any]], Any]
_OBSERVER: ContextVar[Observer | None] = ContextVar("lapwing_observer", default=None)
Mechanism = TypeVar("Mechanism")
Output = TypeVar("Output")
Inputs = ParamSpec("Inputs")


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Show all mechanisms that run in this block, in this thread, to the observer."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def observed_call(mechanism: Any, draw: Callable[[], Output], **inputs: Any) -> Output:
    """Return the output of `draw`, or what the observer of this context decides."""
    observer = _OBSERVER.get()
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
        observer = _OBSERVER.get()
        if observer is None:
            return sample(mechanism, *args, **kwargs)
        inputs = {**dict(zip(names, args, strict=False)), **kwargs}
        return cast(Output, observer(mechanism, inputs, lambda: sample(mechanism, *args, **kwargs)))

    vars(sampled)["is_observed"] = True
    return sampled


def is_observed() -> bool:
    """Return whether this context has an observer."""
    return _OBSERVER.get() is not None
