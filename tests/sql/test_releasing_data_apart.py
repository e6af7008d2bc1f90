"""Data sets that share a ledger, with equal tables and columns: neither is told of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import Held, InProgress
from lapwing.ledger.gate import Gate
from lapwing.sql.dataset import Dataset
from lapwing.sql.earlier_answers import EarlierAnswers
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.pricing.request import QueryRequest
from lapwing.sql.reading.reader import Reader
from sql.conftest import POLICY, write_visits

COUNT = "SELECT COUNT(*) AS n FROM visits"
YEARS = {2023: range(1_000), 2024: range(9_000)}
Year = Callable[..., Dataset]


@pytest.fixture
def year(tmp_path: Path) -> Iterator[Year]:
    """Opens the data of a year; of each person two rows count."""
    with ExitStack() as stack:

        def opened(number: int, *, people: range | None = None) -> Dataset:
            path = tmp_path / f"{number}.toml"
            if not path.exists():
                write_visits(tmp_path, people or YEARS[number], f"{number}")
                text = POLICY.format(more='[ledger]\nurl = "all.ledger"\n')
                text = text.replace('name = "visits"', f'name = "{number}"')
                path.write_text(text.replace("visits*.parquet", f"{number}.parquet"))
            return stack.enter_context(Dataset(load_policy(path), analyst="ann"))

        yield opened


def asked_without(patch: pytest.MonkeyPatch) -> None:
    """Ask as questions were stored before the data set was noted."""
    own = EarlierAnswers.requests_about

    def unnamed(*about: Any) -> tuple[QueryRequest, ...]:
        return tuple(replace(one, data=0, form="") for one in own(*about)[:1])

    to_json = QueryRequest.to_json

    def as_then(self: QueryRequest) -> dict[str, Any]:
        found = to_json(self)
        assert found.pop("data") == 0
        assert found.pop("form") == ""
        return found

    release, find = Gate.release, Gate.find

    def released(self: Gate, plan: Any, *, key: str, shared: bool) -> Any:
        del shared
        return release(self, plan, key=key)

    def found(self: Gate, key: str, *, shared: bool = False) -> Any:
        del shared
        return find(self, key)

    patch.setattr(Gate, "release", released)
    patch.setattr(Gate, "find", found)

    def earlier(look: EarlierAnswers, request: QueryRequest, _: Any = None) -> Any:
        patch.setattr("lapwing.sql.policy_ledger.possible_data_sets", lambda *_: {0})
        used = look._gate.used_keys(request.first_keys)
        return look._stored(request, 0, used, shared=False)

    patch.setattr(EarlierAnswers, "requests_about", unnamed)
    patch.setattr(EarlierAnswers, "find", earlier)
    patch.setattr(QueryRequest, "to_json", as_then)


def first(answer: Any) -> float:
    return float(answer.columns[0].values[0])


# Case C2.
def test_each_is_answered_from_its_own_rows(year: Year) -> None:
    """Also at another price (which would be combined), for counts bought first, and for rows dropped."""
    ways: tuple[Callable[[Dataset], Any], ...] = (
        lambda own: own.ask(COUNT, epsilon=1),
        lambda own: own.ask(COUNT, epsilon="0.5", fresh=True),
        lambda own: own.two_stage("SELECT AVG(stay) FROM visits", within=1, first="0.6")[1],
        lambda own: own.search_bounds("visits", "hidden", epsilon=1, step=1)[2],
    )
    for ask in ways:
        small, large = ask(year(2023)), ask(year(2024))
        assert not large.is_replay
        assert small.of == large.of
        sizes = [max(answer.columns[-1].values) for answer in (small, large)]
        assert abs(sizes[0] - 2_000) < 200
        assert abs(sizes[1] - 18_000) < 200
    few, many = (year(number).truncated("visits", epsilon=1) for number in YEARS)
    assert abs(first(few) - 1_000) < 100
    assert abs(first(many) - 9_000) < 100
    assert f"About {first(many):,.0f} people" in year(2024).plan(COUNT, epsilon=1).bounds[0]


def test_what_one_failed_or_works_at_stops_only_that_one(
    year: Year, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = year(2023), year(2024)

    def fail(*_: Any) -> Any:
        with pytest.raises(InProgress):
            small.ask(COUNT, epsilon=1)
        patch.undo()
        assert abs(first(large.ask(COUNT, epsilon=1)) - 18_000) < 100
        raise ValueError

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "exact", fail)
        with pytest.raises(Held):
            small.ask(COUNT, epsilon=1)
    with pytest.raises(Held):
        small.ask(COUNT, epsilon=1)
    assert large.ask(COUNT, epsilon=1).is_replay


@pytest.mark.parametrize("later", [False, True])
def test_answers_stored_without_their_data_set_come_again(
    year: Year, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """At no charge, for the data set that alone can have made them; also if others came later."""
    own = year(2023)
    with monkeypatch.context() as patch:
        asked_without(patch)
        stored = own.ask(COUNT, epsilon=1)
        both = own.ask(COUNT, epsilon=2)
    if later:
        assert abs(first(year(2024).ask(COUNT, epsilon=1)) - 18_000) < 100
    again = own.ask(COUNT, epsilon=1)
    assert again.is_replay
    assert again.receipt == stored.receipt
    assert again.to_json()["columns"] == both.to_json()["columns"]
    assert own.ask(COUNT, epsilon=3).of == 3


@pytest.mark.parametrize("share", [False, True])
def test_answers_that_may_be_of_another_are_not_told(
    year: Year, monkeypatch: pytest.MonkeyPatch, share: bool
) -> None:
    """Both were there and spend from one account: it is unknown whose it is. With accounts of their own
    it is known."""
    small, large = year(2023), year(2024, people=range(9_000) if share else range(1_000, 10_000))
    small.ask("SELECT AVG(stay) FROM visits", epsilon=1)
    large.ask("SELECT AVG(stay) FROM visits", epsilon=1)
    with monkeypatch.context() as patch:
        asked_without(patch)
        small.ask(COUNT, epsilon=1)
        patch.setattr(Reader, "exact", lambda *_: 1 / 0)
        with pytest.raises(Held):
            small.ask("SELECT SUM(stay) AS x FROM visits", epsilon=1)
    answer = large.ask(COUNT, epsilon=1)
    assert not answer.is_replay
    assert (answer.of, abs(first(answer) - 18_000) < 100) == (1, True)
    assert small.ask(COUNT, epsilon=1).is_replay is not share
    with pytest.raises(Held):
        small.ask("SELECT SUM(stay) AS x FROM visits", epsilon=1)
    if share:  # it failed, and may be of this one
        with pytest.raises(Held):
            large.ask("SELECT SUM(stay) AS x FROM visits", epsilon=1)
    else:
        assert not large.ask("SELECT SUM(stay) AS x FROM visits", epsilon=1).is_replay
