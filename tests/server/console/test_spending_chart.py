"""The picture of spending is well-formed at any length of history, and has a range for its forecast."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from xml.etree import ElementTree

import pytest

from lapwing.server.console.charts import LOOKS
from lapwing.server.console.spending_chart import spending_chart
from lapwing.server.data.forecast import Forecast
from lapwing.server.data.spending import PastSpending, Payment

NOW = datetime(2026, 11, 17, tzinfo=UTC)


def _spending(days: int) -> PastSpending:
    times = [NOW - timedelta(days=days), NOW - timedelta(days=days / 2)]
    payments = (Payment(times[0], 0, Fraction(1, 2)), Payment(times[1], 1, Fraction(1, 4)))
    counted = ((times[0], 0.5), (times[1], 0.7))
    return PastSpending(("<mira>", "jonas"), (), payments, 0, counted, Fraction(3))


def _texts(picture: bytes) -> list[str]:
    root = ElementTree.fromstring(picture)
    assert all("style" not in element.attrib for element in root.iter())
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("days", [0, 1, 30, 200, 4000])
@pytest.mark.parametrize("forecast", [None, Forecast(90.0, 60.0, 140.0, 90), Forecast(9e4, 30.0, None, 90)])
def test_it_names_people_prices_and_the_budget(look: str, days: int, forecast: Forecast | None) -> None:
    texts = _texts(spending_chart(_spending(days), forecast, NOW, LOOKS[look], title="<t>"))
    assert {"<mira>, ε 0.5", "jonas, ε 0.25", "budget for life, ε 3", "counts: ε 0.7"} <= set(texts)
    assert any("used up about" in text for text in texts) == (forecast is not None)


def test_the_range_of_the_forecast_is_drawn_where_it_ends() -> None:
    texts = _texts(
        spending_chart(_spending(200), Forecast(90.0, 60.0, 110.0, 90), NOW, LOOKS["light"], title="t")
    )
    assert "used up about Feb 2027" in texts
    assert _texts(spending_chart(PastSpending(cap=Fraction(1)), None, NOW, LOOKS["light"], title="t"))
