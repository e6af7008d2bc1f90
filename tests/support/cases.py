"""Cases that only multiply parameters run in one loop of one test, instead of as thousands of tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from _pytest.mark.structures import ParameterSet

Test = Callable[..., None]


def each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each value of a parameter, or of several. Stacked, they give all combinations.

    Fixtures are made once for all cases: use it only where a case leaves nothing behind. A failure tells
    its case.
    """
    values = list(values)
    assert not any(isinstance(value, ParameterSet) for value in values), "marks are for parametrize"
    cases = [
        {names: value} if isinstance(names, str) else dict(zip(names, value, strict=True))
        for value in values
    ]
    assert cases

    def decorate(test: Test) -> Test:
        @wraps(test)
        def every_case(*args: Any, **fixtures: Any) -> None:
            for case in cases:
                try:
                    test(*args, **fixtures, **case)
                except BaseException as error:
                    error.add_note(f"in the case {case!r}"[:500])
                    raise

        given = inspect.signature(test)
        assert given.parameters.keys() >= cases[0].keys()
        left = [parameter for parameter in given.parameters.values() if parameter.name not in cases[0]]
        every_case.__signature__ = given.replace(parameters=left)  # type: ignore[attr-defined]
        del every_case.__wrapped__  # pytest would look for the fixtures of the test itself
        return every_case

    return decorate
