"""What other prices would buy: each offer is true when it is taken."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadParameter, OverBudget
from lapwing.sql.batches import BatchPlan
from lapwing.sql.dataset import Dataset
from lapwing.sql.next_prices import how_many_more, price_choices, sharpening
from lapwing.sql.releasing import SessionPlan
from sql.conftest import write_visits

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n, SUM(stay) AS s FROM visits"
PRICES = ["0.01", "0.05", "0.1", "0.2", "0.5"]
QUOTA = "[analysts.ann]\nepsilon = 1\ndelta = 1e-7\n"
COHORTS = '[blocks]\nby = "unit"\ncohorts = 2\n'


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_is_offered_narrows_as_it_says(opened: Open, noise: str) -> None:
    dataset = opened()
    assert sharpening(dataset.plan(COUNT, epsilon="0.1", noise=noise), PRICES) == []  # nothing to sharpen
    dataset.ask(COUNT, epsilon="0.1", noise=noise)
    plan = dataset.plan(COUNT, epsilon="0.2", noise=noise)
    offers = sharpening(plan, PRICES)
    assert [float(one.epsilon) for one in offers] == [0.1, 0.2, 0.5]
    assert [one.fresh for one in offers] == [True, False, False]
    assert offers[0].now == {name: one.half for name, one in dataset.plan(
        COUNT, epsilon="0.1", noise=noise).spread.items()}  # fmt: skip
    for offer in offers:
        assert all(offer.then[name] < offer.now[name] for name in offer.now)
        assert sharpening(plan, [offer.epsilon]) == [offer]
    taken = offers[1]
    answer = dataset.ask(COUNT, epsilon=taken.epsilon, noise=noise, fresh=taken.fresh)
    for column in answer.columns:
        assert column.high is not None
        assert float(column.high[0] - column.values[0]) == pytest.approx(taken.then[column.name])


def test_only_what_is_combined_is_sharpened(opened: Open) -> None:
    dataset = opened(more="least_epsilon = 0.15\n")
    for sql in ("SELECT AVG(stay) FROM visits", "SELECT MEDIAN(stay) FROM visits"):
        dataset.ask(sql, epsilon="0.5")
        assert sharpening(dataset.plan(sql, epsilon="0.5"), PRICES) == []
    count = "SELECT COUNT(*) AS n FROM visits"
    dataset.ask(count, epsilon="0.2")
    offers = sharpening(dataset.plan(count, epsilon="0.2"), PRICES)
    assert [float(one.epsilon) for one in offers] == [0.2, 0.5]  # less is not sold
    with pytest.raises(BadParameter):
        sharpening(dataset.plan(count, epsilon="0.2"), ["-1"])


@pytest.mark.parametrize(
    ("more", "sql", "options"),
    [
        ("", COUNT, {"epsilon": "0.7"}),
        ("", "SELECT name, COUNT(*) FROM visits GROUP BY name", {"epsilon": "0.7", "delta": "7e-9"}),
        ("", COUNT, {"epsilon": 4, "noise": "gaussian"}),
        (QUOTA, COUNT, {"epsilon": "0.3"}),
        (COHORTS, f"{COUNT} WHERE cohort = 1", {"epsilon": 3}),
    ],
)
def test_as_many_more_are_admitted_and_then_none(
    opened: Open, more: str, sql: str, options: dict[str, Any]
) -> None:
    dataset = opened(more=more)
    promised = how_many_more(dataset.plan(sql, **options))  # before there is a ledger
    assert not dataset.curator.has_ledger
    if more == COHORTS:  # the other block does not matter
        dataset.ask(COUNT.replace("AS n", "AS m") + " WHERE cohort = 0", epsilon=9)
    assert 2 <= how_many_more(dataset.plan(sql, **options)) == promised < 40
    for left in range(promised, 0, -1):
        plan = dataset.plan(sql, **options)
        assert how_many_more(plan) == left
        plan.release(fresh=True)
    plan = dataset.plan(sql, **options)
    assert how_many_more(plan) == 0
    with pytest.raises(OverBudget):
        plan.release(fresh=True)


def test_batches_are_counted_too(opened: Open, tmp_path: Path) -> None:
    dataset = opened()

    def batch(n: int) -> BatchPlan:
        return dataset.batch([f"{COUNT} WHERE stay > {n}", "SELECT MEDIAN(stay) FROM visits"], epsilon=3)

    assert how_many_more(batch(0)) == 3
    for n in range(3):
        write_visits(tmp_path, range(300, 301 + n), "visits_new")
        dataset.prepare(again=True)
        assert how_many_more(batch(n)) == 3 - n
        batch(n).release()
    dataset.prepare(again=True)
    assert how_many_more(batch(4)) == 0


def test_a_price_says_its_error_and_its_odds(opened: Open) -> None:
    plan: SessionPlan = opened().plan(COUNT, epsilon=1)
    dear, cheap = price_choices(plan, [1, "0.1"])
    assert dear.spread == plan.spread
    assert cheap.cost.epsilon == Fraction(1, 10)
    assert cheap.cost.delta == 0
    assert cheap.spread["n"].half == pytest.approx(10 * (dear.spread["n"].half or 0), rel=0.1)
    assert {name: round(float(one), 3) for name, one in cheap.at_most.items()} == {
        "that you took part": 0.525, "that something is true of you": 0.55,
    }  # fmt: skip
    assert "from 50 % to at most 55" in cheap.odds[1]
    assert price_choices(plan, ["1e-9"]) == []  # its noise would not fit
