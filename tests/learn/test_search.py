"""A search is charged once, before it reads a row, and gives what is stored under its charge."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone  # type: ignore[import-untyped]
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

from lapwing.core.losses import Relation
from lapwing.core.selection import Exponential, PermuteAndFlip
from lapwing.errors import BadParameter, BadValue, OverBudget, WorkEnded
from lapwing.learn.payer import EACH_ROW, LedgerPayer, PublicData
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns
from lapwing.learn.search import CORRECT, EveryCandidate, RandomRuns, Search, SearchStrategy
from lapwing.learn.trainers import LogisticRegression, Real
from lapwing.ledger import Ledger, Unit
from lapwing.ledger.gate import Gate
from lapwing.ledger.spending import Target
from support.raised import named
from support.toy_trainers import Constant

SURE = EveryCandidate(Exponential(Fraction(100), Fraction(1, 2)))
OFTEN = RandomRuns(PoissonRuns(Fraction(10)), noise=5, delta="1e-8", padded=True)
VERY_OFTEN = RandomRuns(PoissonRuns(Fraction(66)), noise=2, delta="1e-8", padded=False)
ROWS = np.arange(400, dtype=float).reshape(200, 2)
ANSWERS = np.repeat([1, 2, 2, 2], 50)
TESTS = np.arange(200) % 2 == 0
CANDIDATES = [{"answer": 1}, {"answer": 2}, {"answer": 3}]


@pytest.fixture(autouse=True)
def forget() -> None:
    Constant.seen.clear()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "visits.ledger")
    made.open_account("visits", epsilon=5, delta="1e-6", unit=Unit.PERSON, relation=Relation.ADD_REMOVE)
    return made


def payer_of(
    ledger: Ledger, key: str | None = None, relation: Relation = Relation.ADD_REMOVE
) -> LedgerPayer:
    gate = Gate(ledger, principal="builder")
    return LedgerPayer(
        gate, targets=(Target("visits"),), unit=Unit.PERSON, relation=relation, request=b"search", key=key
    )


def search_of(way: SearchStrategy, payer: Any = None, **parameters: Any) -> Search:
    return Search(
        Constant(payer=PublicData(), **parameters),
        CANDIDATES,
        strategy=way,
        score_by=CORRECT,
        payer=PublicData() if payer is None else payer,
    )


def charges(ledger: Ledger) -> tuple[int, ...]:
    return tuple(ledger.blocks("visits")[0].spent)


@pytest.mark.parametrize("way", [SURE, VERY_OFTEN])
def test_it_finds_a_good_candidate(way: SearchStrategy) -> None:
    """False-alarm rate below 1e-9: that none of Poisson(66) runs tries the best of three."""
    found = search_of(way).fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    assert found.best_params_ == {"answer": 2}
    assert found.predict(ROWS[:3]).tolist() == [2, 2, 2]


def test_it_is_one_charge_of_the_price_that_was_shown(ledger: Ledger) -> None:
    search = search_of(OFTEN, payer_of(ledger))
    account = ledger.account("visits")
    priced = account.terms.price(search.price(2))
    search.fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    assert charges(ledger) == account.terms.after(account.terms.nothing_spent, priced)
    assert search.receipt_ is not None


def test_the_same_key_gives_the_same_winner_and_trains_nothing(ledger: Ledger) -> None:
    first = search_of(OFTEN, payer_of(ledger, "search 1")).fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    spent, trained = charges(ledger), len(Constant.seen)
    again = search_of(OFTEN, payer_of(ledger, "search 1")).fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    assert (again.best_params_, again.noisy_score_) == (first.best_params_, first.noisy_score_)
    assert (charges(ledger), len(Constant.seen)) == (spent, trained)


def test_a_ledger_pays_for_padded_runs_only(ledger: Ledger) -> None:
    """It keeps when a search began and ended, which would tell how many runs there were."""
    timed = RandomRuns(PoissonRuns(Fraction(10)), noise=5, delta="1e-8", padded=False)
    search = search_of(timed, payer_of(ledger))
    with pytest.raises(BadParameter, match="padded"):
        search.fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    assert charges(ledger) == ledger.account("visits").terms.nothing_spent


def test_over_budget_trains_nothing(ledger: Ledger) -> None:
    dear = EveryCandidate(Exponential(Fraction(900), Fraction(1, 2)))
    search = search_of(dear, payer_of(ledger))
    with pytest.raises(OverBudget):
        search.fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    assert not Constant.seen


@pytest.mark.parametrize("parameters", [{"fails": True}, {"greed": 4}])
def test_what_fails_stays_charged_and_says_nothing(ledger: Ledger, parameters: dict[str, Any]) -> None:
    """Also a trainer that asks for more than its price."""
    search = search_of(OFTEN, payer_of(ledger), **parameters)
    with pytest.raises(WorkEnded) as error:
        search.fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    assert "4711" not in str(error.value)
    assert charges(ledger) != ledger.account("visits").terms.nothing_spent
    assert not hasattr(search, "best_estimator_")


def test_nothing_of_the_runs_is_kept(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither how many there were, nor losers: the fitted search has the winner alone."""
    search = search_of(OFTEN, payer_of(ledger)).fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    fitted = {name for name in vars(search) if name.endswith("_")}
    assert fitted == {
        "best_estimator_", "best_index_", "best_params_", "noisy_score_", "receipt_",
    }  # fmt: skip
    assert capsys.readouterr() == ("", "")


def test_a_choice_among_all_tells_no_score() -> None:
    assert search_of(SURE).fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS).noisy_score_ is None


def test_units_that_test_do_not_train() -> None:
    """A unit with rows on both sides counts as one that tests."""
    units = np.repeat(np.arange(50), 4)
    tests = np.zeros(200, dtype=bool)
    tests[:40:4] = True  # one row of each of the first ten units
    search_of(SURE).fit(ROWS, ANSWERS, units=units, tests=tests)
    for table in Constant.seen:
        assert table[:, 0].tolist() == ROWS[40:, 0].tolist()


def test_one_row_of_each_testing_unit_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def total(_: Any, __: Any, rows: NDArray[Any], truth: NDArray[Any]) -> int:
        seen.append(len(rows))
        return 0

    monkeypatch.setattr("lapwing.learn.search.Score.total", total)
    units = np.repeat(np.arange(50), 4)
    search_of(SURE).fit(ROWS, ANSWERS, units=units, tests=units < 20)
    assert seen == [20, 20, 20]


def test_no_run_finds_no_model() -> None:
    never = RandomRuns(PoissonRuns(Fraction(1, 10**6)), noise=5, delta="1e-8", padded=False)
    search = search_of(never).fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)
    assert search.best_estimator_ is None
    with pytest.raises(BadParameter, match="found no model"):
        search.predict(ROWS)


def test_copies_and_pickles(ledger: Ledger) -> None:
    search = search_of(SURE, payer_of(ledger))
    assert clone(search).payer is search.payer
    again = pickle.loads(pickle.dumps(search_of(SURE).fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)))
    assert again.predict(ROWS[:1]).tolist() == [2]
    revived = pickle.loads(pickle.dumps(search))
    with pytest.raises(BadParameter, check=named("payer")):
        revived.fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)


@pytest.mark.parametrize(
    "change",
    [
        {"candidates": []},
        {"candidates": [{"payer": PublicData()}]},
        {"strategy": "all"},
        {"score_by": None},
        {"payer": None},
    ],
)
def test_bad_parameters_are_refused_before_anything_is_charged(change: dict[str, Any]) -> None:
    search = search_of(SURE).set_params(**change)
    with pytest.raises(BadParameter):
        search.fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)


@pytest.mark.parametrize(
    "change",
    [{"y": ANSWERS[:3]}, {"units": ROWS[:, 0]}, {"units": [1]}, {"tests": TESTS[:3]}, {"tests": ANSWERS}],
)
def test_bad_forms_are_refused_before_anything_is_charged(ledger: Ledger, change: dict[str, Any]) -> None:
    given = {"X": ROWS, "y": ANSWERS, "units": EACH_ROW, "tests": TESTS} | change
    search = search_of(SURE, payer_of(ledger))
    with pytest.raises(BadValue):
        search.fit(**given)
    assert charges(ledger) == ledger.account("visits").terms.nothing_spent


def test_only_adding_or_removing_a_unit_is_priced(ledger: Ledger) -> None:
    search = search_of(SURE, payer_of(ledger, relation=Relation.REPLACE))
    with pytest.raises(BadParameter, match="add or remove"):
        search.fit(ROWS, ANSWERS, EACH_ROW, tests=TESTS)


@pytest.mark.slow
@pytest.mark.parametrize("private", [True, False])
def test_it_searches_with_a_real_trainer(private: bool) -> None:
    """Digits: of two paces, one far too slow."""
    rows, truth = load_digits(return_X_y=True)
    base = LogisticRegression(
        epsilon=3, delta="1e-7", columns=Real(0, 16), classes=range(10), size=1600, payer=PublicData()
    )
    ways: dict[bool, SearchStrategy] = {
        True: RandomRuns(NegativeBinomialRuns.with_mean(3, eta=1), noise=20, delta="1e-7", padded=False),
        False: EveryCandidate(PermuteAndFlip(Fraction(1), Fraction(1, 2))),
    }
    candidates = [{"steps": 4, "pace": 8.0}, {"steps": 20, "pace": 16.0}]
    search = Search(base, candidates, strategy=ways[private], score_by=CORRECT, payer=PublicData())
    tests = np.arange(len(rows)) % 12 == 0
    search.fit(rows, truth, tests=tests)
    assert search.best_estimator_.score(rows[tests], truth[tests]) > 0.4


def test_an_account_about_persons_wants_to_know_whose_rows_they_are(ledger: Ledger) -> None:
    search = search_of(SURE, payer_of(ledger))
    with pytest.raises(BadParameter, match="units=EACH_ROW"):
        search.fit(ROWS, ANSWERS, tests=TESTS)
    assert charges(ledger) == ledger.account("visits").terms.nothing_spent


def test_one_text_among_the_answers_changes_no_other() -> None:
    """As one array, all answers would be texts, and nobody's would be right."""
    answers = [*ANSWERS.tolist(), "?"]
    table, tests = [*ROWS.tolist(), [None, "x"]], np.append(TESTS, False)
    for _ in range(20):  # where nobody is right, the choice is by chance
        assert search_of(SURE).fit(table, answers, tests=tests).best_params_ == {"answer": 2}


@pytest.mark.parametrize("tests", [TESTS.tolist(), TESTS.astype(int), TESTS[:, None]])
def test_who_tests_is_said_by_an_array_of_truths(tests: Any) -> None:
    search = search_of(SURE)
    with pytest.raises(BadValue, match="tests"):
        search.fit(ROWS, ANSWERS, tests=tests)
