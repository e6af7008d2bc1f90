"""Plans that make a budget last: three fields that agree, and never more than what is left."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest

from lapwing.errors import BadParameter
from lapwing.server.data.forecast import Forecast
from lapwing.server.data.lasting import MONTH, Pace, TypicalCount, lasting, pace_of, proposed_quotas
from lapwing.server.data.spending import PastSpending, Payment
from support.served import COUNT, STEWARD, Served

NOW = datetime(2026, 11, 17, tzinfo=UTC)
TODAY = NOW.date()
PACE = Pace(Fraction(11, 10), Fraction(2, 5), Fraction(2), 90)


@pytest.fixture
def count(visits: Served) -> TypicalCount:
    return TypicalCount(visits.sets.require(STEWARD, "visits").curator, COUNT)


@pytest.mark.parametrize(("leads", "text"), [("until", "2027-09"), ("monthly", "0.11"), ("within", "260")])
def test_all_months_together_pay_no_more_than_what_is_left(
    count: TypicalCount, leads: str, text: str
) -> None:
    found = lasting(PACE, count, leads, text, TODAY)
    end = found.until.replace(day=1)
    assert Fraction((end - TODAY).days) / MONTH * found.monthly <= PACE.left
    assert found.price * PACE.questions <= found.monthly
    assert found.within is not None
    assert count.within(found.price) == found.within


def test_the_fields_follow_each_other(count: TypicalCount) -> None:
    found = lasting(PACE, count, "until", "2027-09", TODAY)
    assert found.until == date(2027, 9, 1)
    assert found.monthly == Fraction("0.1052")  # of 318 days
    assert found.price == Fraction("0.0526")
    assert lasting(PACE, count, "monthly", "0.1052", TODAY).until == found.until
    again = lasting(PACE, count, "within", "150", TODAY)
    assert again.within is not None
    assert again.within <= 150
    assert lasting(PACE, count, "within", "1000", TODAY).until > found.until


@pytest.mark.parametrize(
    ("leads", "text"),
    [("until", "2026-10"), ("until", "9999-01"), ("until", "soon"), ("until", "2027-13"), ("monthly", "0"),
     ("monthly", "1/0"), ("monthly", "0.0001"), ("within", "-1"), ("within", "x")],
)  # fmt: skip
def test_what_is_no_plan_is_refused_by_its_field(count: TypicalCount, leads: str, text: str) -> None:
    with pytest.raises(BadParameter, match=leads):
        lasting(PACE, count, leads, text, TODAY)


def test_the_pace_is_that_of_the_forecast() -> None:
    paid = tuple(Payment(NOW - timedelta(days=days), 0, Fraction(1, 5)) for days in (100, 80, 40, 1))
    spending = PastSpending(("ann", "bob"), (("ann", Fraction(3, 5)), ("bob", Fraction(1, 5))), paid)
    found = pace_of(Fraction(1), Forecast(60.0, 50.0, None, 90), spending, NOW)
    assert found is not None
    assert found.questions == 3 * MONTH / 90
    assert found.monthly == MONTH / 60
    assert proposed_quotas(found, spending) == (("ann", Fraction(3, 4)), ("bob", Fraction(1, 4)))
    assert pace_of(Fraction(1), None, spending, NOW) is None
    assert pace_of(Fraction(1), Forecast(None, 0.0, None, 90), spending, NOW) is None
    assert pace_of(Fraction(0), Forecast(60.0, 50.0, None, 90), spending, NOW) is None
    assert pace_of(Fraction(1), Forecast(60.0, 50.0, None, 90), PastSpending(), NOW) is None
