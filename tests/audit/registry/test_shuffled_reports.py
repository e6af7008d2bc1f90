"""The audit of shuffled reports passes, and sees small mistakes in the bound."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.registry import shuffled_reports
from lapwing.audit.registry.shuffled_reports import shuffled_case
from lapwing.survey.shuffled import shuffled_epsilon


def holds(*, thorough: bool) -> bool:
    return shuffled_case().stages[Stage.EXACT](StageBudget(is_thorough=thorough)).holds


def test_the_stated_epsilon_holds() -> None:
    assert holds(thorough=True)


@pytest.mark.parametrize(
    "broken",
    [
        lambda right, epsilon0, n, delta, *more: right(epsilon0, n + 1, delta, *more),
        lambda right, epsilon0, n, delta, *more: right(epsilon0, n, 2 * delta, *more),
        lambda right, *numbers: right(*numbers) - Fraction(1, 1000),
    ],
    ids=["a report too many", "twice δ", "ε less a thousandth"],
)
def test_a_small_mistake_is_seen(monkeypatch: pytest.MonkeyPatch, broken: Callable[..., Fraction]) -> None:
    right = shuffled_epsilon
    monkeypatch.setattr(shuffled_reports, "shuffled_epsilon", lambda *numbers: broken(right, *numbers))
    assert not holds(thorough=False)
