"""Spending over time: the prices of the ledger's requests, each once, by whoever paid them."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise

from lapwing.ledger.request_log import ANSWERED, LoggedRequest, LogLine, PriceInWords
from lapwing.server.data.spending import MOST_PEOPLE, payments_of
from support.served import ANN, BOB, STEWARD, Served, asked


def _request(number: int, who: str, day: int, epsilon: str | None) -> LoggedRequest:
    price = PriceInWords("some", None if epsilon is None else Fraction(epsilon))
    return LoggedRequest(
        LogLine(number, f"2026-05-{day:02}T08:00:00", "charge", who), ANSWERED, price, None
    )


def test_sums_are_those_of_the_ledger_and_an_analyst_sees_own_ones(visits: Served) -> None:
    assert visits.records.spending(ANN, "visits").counted == ()
    visits.released(ANN, asked(epsilon="0.5"))
    visits.released(BOB, asked(epsilon="0.25"))
    both = visits.records.spending(STEWARD, "visits")
    assert dict(zip(both.people, both.totals, strict=True)) == {
        "ann": Fraction(1, 2),
        "bob": Fraction(1, 4),
    }
    assert visits.records.spending(STEWARD, "visits") is both
    own = visits.records.spending(BOB, "visits")
    assert (own.people, own.totals) == (("bob",), (Fraction(1, 4),))
    assert own.counted == both.counted
    assert both.cap == 10
    assert 0.74 < both.spent <= 10 - float(visits.records.budget(ANN, "visits").least.epsilon) + 1e-6
    assert all(one <= other for (_, one), (_, other) in pairwise(both.counted))


def test_those_who_paid_least_are_one_series() -> None:
    requests = [_request(k, f"p{k}", k + 1, f"{k + 1}/10") for k in range(MOST_PEOPLE + 2)]
    people, everybody, payments, others = payments_of([*requests, _request(99, "p0", 30, None)], None)
    assert people == ("p5", "p4", "p3", "3 others")
    assert others == 1
    assert everybody[-1] == ("p0", Fraction(1, 10))
    assert sum(one.epsilon for one in payments if one.person == 3) == Fraction(1 + 2 + 3, 10)
    assert payments[0].time == datetime(2026, 5, 1, 8, tzinfo=UTC)
    assert payments_of(requests, "p2")[0] == ("p2",)


def test_months_have_the_prices_of_their_days(visits: Served) -> None:
    visits.released(ANN, asked(epsilon="0.5"))
    found = visits.records.spending(STEWARD, "visits")
    [month] = found.months
    assert month.first == datetime.now(UTC).date().replace(day=1)
    assert (month.prices, month.counted) == ((Fraction(1, 2),), found.spent)
