"""Forecasts of budgets, from histories that are known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lapwing.server.data.forecast import Forecast, forecast_spending

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def _moments(*left: float, days: float = 10.0) -> list[tuple[datetime, float]]:
    """What was left, at equal distances until now."""
    return [(NOW - timedelta(days=days) * k, value) for k, value in enumerate(reversed(left))][::-1]


def test_even_spending_has_no_error() -> None:
    found = forecast_spending(_moments(*[10 - 0.5 * k for k in range(10)]), NOW)
    assert found is not None
    assert found.measured_days == 90
    assert found.days == pytest.approx(5.5 / 0.5 * 10)
    assert found.at_least == pytest.approx(110)
    assert found.at_most == pytest.approx(110)
    assert (
        found.words
        == "At the pace of the last 90 days the budget lasts about 4 months (4 months to 4 months)."
    )


def test_uneven_spending_widens_the_range_and_may_have_no_end() -> None:
    found = forecast_spending(_moments(10, 10, 10, 10, 10, 10, 10, 10, 10, 9), NOW)
    assert found is not None
    assert found.days is not None
    assert found.at_least < found.days == pytest.approx(810)
    assert found.at_most is None
    assert "or far longer" in found.words


def test_a_raise_is_no_negative_spending_and_nothing_spent_has_no_end() -> None:
    raised = forecast_spending(_moments(5, 4, 14, 13, 12, 11), NOW)
    assert raised is not None
    assert raised.days == pytest.approx(11 / (4 / 50))
    assert forecast_spending(_moments(5, 5, 5), NOW) == Forecast(None, 0.0, None, 20)


def test_a_short_history_has_no_forecast() -> None:
    assert forecast_spending([], NOW) is None
    assert forecast_spending(_moments(5, 4), NOW) is None
