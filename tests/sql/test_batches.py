"""Several questions as one release: one price, one charge, all answers or none."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from lapwing import losses
from lapwing.core.budget import Terms
from lapwing.core.gaussian import Gaussian
from lapwing.errors import BadParameter, Held, InProgress, LapwingError, OverBudget
from lapwing.ledger import Gate
from lapwing.ledger.request_log import each_request
from lapwing.sql.answering.answers import Answer
from lapwing.sql.answering.stored_answers import stored_question
from lapwing.sql.batches import MOST_QUESTIONS
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.pricing.combined_widths import half_widths
from lapwing.sql.question.refusal import Refused
from lapwing.sql.reading.reader import Reader
from sql.conftest import write_visits
from support.askers import die_in_a_batch
from support.forking import forked
from support.raised import named
from support.reached import reaching

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"
SUM = "SELECT SUM(stay) AS s FROM visits"
WARDS = "SELECT ward, COUNT(*) AS n, AVG(stay) AS a FROM visits GROUP BY ward"
NAMES = "SELECT name, COUNT(*) FROM visits GROUP BY name"
MEDIAN = "SELECT MEDIAN(stay) AS m FROM visits"
DASHBOARD = [COUNT, SUM, WARDS, MEDIAN]


def spent(dataset: Dataset, block: str = "") -> float:
    """ε that was spent on a block, else on the one that has spent most."""
    found = [one.spent[1] for one in dataset.ledger.blocks("visits") if block in ("", one.label)]
    return max(found) / 10**9


def charges(dataset: Dataset) -> int:
    rows = dataset.ledger.store.read(lambda tx: tx.rows("SELECT body FROM entries"))
    return sum(b'"kind":"charge"' in bytes(body) for (body,) in rows)


def numbers(answers: list[Answer]) -> list[Any]:
    return [np.asarray(column.values).tolist() for answer in answers for column in answer.columns]


def test_a_batch_is_one_charge_with_one_receipt(opened: Open) -> None:
    dataset = opened()
    batch = dataset.batch(DASHBOARD, epsilon="0.8")
    assert batch.cost.epsilon == Fraction("0.8")
    answers = batch.release()
    assert [next(iter(answer.to_arrow().column_names)) for answer in answers] == ["n", "s", "ward", "m"]
    assert len({answer.receipt.position for answer in answers if answer.receipt}) == 1
    assert not any(answer.is_replay for answer in answers)
    assert charges(dataset) == 1
    assert abs(spent(dataset) - 0.8) < 1e-8
    [entry] = (one for one in requests(dataset))
    assert entry == "; ".join(plan.request.sql for plan in batch.plans)


def requests(dataset: Dataset) -> list[str | None]:
    found: list[str | None] = []
    each_request(dataset.ledger, lambda one: found.append(one.question), words_of=stored_question)
    return found


def test_the_same_batch_again_and_each_question_alone_cost_nothing(opened: Open) -> None:
    dataset = opened()
    first = dataset.batch(DASHBOARD, epsilon="0.8").release()
    for questions in (DASHBOARD, DASHBOARD[::-1], DASHBOARD[1:3]):
        batch = opened(rewrite=False).batch([(sql, {"epsilon": "0.2"}) for sql in questions])
        assert batch.charged == ()
        assert batch.cost.epsilon == 0
        again = batch.release()
        assert all(answer.is_replay for answer in again)
        assert numbers(again) == numbers([first[DASHBOARD.index(sql)] for sql in questions])
    alone = [dataset.ask(sql, epsilon="0.2") for sql in DASHBOARD]
    assert numbers(alone) == numbers(first)
    assert charges(dataset) == 1
    assert dataset.plan(COUNT, epsilon="0.3").before  # the next release is combined with it
    assert dataset.ask(COUNT, epsilon="0.3").of == 2


def test_what_was_released_alone_is_not_paid_again_in_a_batch(opened: Open) -> None:
    dataset = opened()
    before = dataset.ask(COUNT, epsilon="0.2")
    batch = dataset.batch([COUNT, SUM], epsilon="0.4")
    assert batch.charged == (1,)
    assert batch.cost.epsilon == Fraction("0.2")
    counted, summed = batch.release()
    assert numbers([counted]) == numbers([before])
    assert (counted.is_replay, summed.is_replay) == (True, False)
    assert abs(spent(dataset) - 0.4) < 1e-8


def test_a_question_that_stands_there_twice_is_paid_once_under_both_names(opened: Open) -> None:
    dataset = opened()
    batch = dataset.batch([(COUNT, {"epsilon": 1}), (COUNT.replace("AS n", "AS people"), {"epsilon": 1})])
    assert batch.charged == (0,)
    assert batch.cost.epsilon == 1
    one, other = batch.release()
    assert numbers([one]) == numbers([other])
    assert other.columns[0].name == "people"
    assert spent(dataset) == 1


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_price_is_that_of_the_composition(opened: Open, noise: str) -> None:
    """In every filter of the ledger; and never more than the prices of the questions together."""
    dataset = opened()
    options = {"noise": noise, "delta": "1e-8", "epsilon": "0.1"}
    batch = dataset.batch([(sql, options) for sql in [*DASHBOARD, NAMES]])
    composed = losses.compose(*(plan.shares.loss for plan in batch.plans))
    terms = Terms.of(10, "1e-6")
    singles = [terms.price(plan.shares.loss).costs for plan in batch.plans]
    price = terms.price(batch.loss).costs
    assert price == terms.price(composed.loss).costs
    assert all(one <= sum(some) for one, some in zip(price, zip(*singles, strict=True), strict=True))
    assert batch.cost.delta == sum(plan.cost.delta for plan in batch.plans)
    assert batch.cost.epsilon == min(Fraction(1, 2), composed.epsilon(delta=batch.cost.delta))
    batch.release()
    [block] = dataset.ledger.blocks("visits")
    assert block.spent == terms.after(terms.nothing_spent, terms.price(composed.loss))


def test_gaussian_noise_is_cheaper_together(opened: Open) -> None:
    options = {"noise": "gaussian", "epsilon": "0.1", "delta": "1e-8"}
    batch = opened().batch([(f"{COUNT} WHERE stay > {n}", options) for n in range(8)])
    assert Fraction("0.2") < batch.cost.epsilon < Fraction("0.4")  # instead of 0.8


def test_weights_divide_the_price_exactly(opened: Open) -> None:
    dataset = opened()
    batch = dataset.batch([COUNT, SUM, WARDS], epsilon=1, delta="3e-7", weights=["0.5", 1, "1.5"])
    assert [plan.shares.epsilon for plan in batch.plans] == [Fraction(1, 6), Fraction(1, 3), Fraction(1, 2)]
    assert [plan.request.delta for plan in batch.plans] == [Fraction(n, 2 * 10**7) for n in (1, 2, 3)]
    priced = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.3) COUNT(*) AS n FROM visits"
    mixed = dataset.batch([priced, (SUM, {"within": 200})])
    assert mixed.plans[0].cost.epsilon == Fraction("0.3")
    assert mixed.plans[1].why


@pytest.mark.parametrize(
    ("questions", "options", "name"),
    [
        ([], {}, "questions"),
        ([COUNT] * (MOST_QUESTIONS + 1), {"epsilon": 1}, "questions"),
        ([(COUNT,)], {"epsilon": 1}, "questions"),
        ([(COUNT, {"fresh": True})], {"epsilon": 1}, "questions"),
        ([(COUNT, {"epsilon": 1})], {"epsilon": 1}, "epsilon"),
        ([COUNT, SUM], {"weights": [1, 1]}, "epsilon"),
        ([COUNT, SUM], {"delta": 0}, "epsilon"),
        ([COUNT, SUM], {"epsilon": 1, "weights": [1]}, "weights"),
        ([COUNT, SUM], {"epsilon": 1, "weights": [1, 0]}, "weights"),
        ([COUNT, SUM], {"epsilon": 1, "delta": "x"}, "delta"),
        ([COUNT, SUM], {}, "epsilon"),
        ([COUNT, SUM], {"epsilon": 0}, "epsilon"),
    ],
)
def test_what_is_no_batch_is_refused(
    opened: Open, questions: list[Any], options: dict[str, Any], name: str
) -> None:
    with pytest.raises(BadParameter, check=named(name)):
        opened().batch(questions, **options)


def test_one_question_that_cannot_be_asked_refuses_all(opened: Open) -> None:
    dataset = opened()
    with pytest.raises(Refused):
        dataset.batch([COUNT, "SELECT * FROM visits"], epsilon=1)
    with pytest.raises(OverBudget):
        dataset.batch(DASHBOARD, epsilon=11).release()
    assert charges(dataset) == 0


def test_a_batch_costs_at_least_the_least_of_each_question(opened: Open) -> None:
    with pytest.raises(BadParameter, check=named("epsilon")):
        opened(more="least_epsilon = 0.1\n").batch([COUNT, SUM], epsilon="0.1")


def test_all_blocks_that_any_question_reaches_pay_the_whole(opened: Open) -> None:
    dataset = opened(more='[blocks]\nby = "unit"\ncohorts = 4\n')
    batch = dataset.batch([f"{COUNT} WHERE cohort = 1", f"{SUM} WHERE cohort IN (1, 2)"], epsilon=1)
    assert batch.blocks == ("1", "2")
    batch.release()
    assert [spent(dataset, block) for block in "0123"] == [0, 1, 1, 0]
    with pytest.raises(BadParameter, check=named("WHERE")):
        dataset.batch([COUNT, f"{SUM} WHERE cohort = 1 AND cohort = 2"], epsilon=1).release()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_one_person_more_moves_a_mixed_batch_by_its_price(opened: Open, tmp_path: Path, noise: str) -> None:
    """Bounds and choices of rows differ. The loss is computed anew, from what reaches the mechanisms."""
    dataset, reached = opened(), []
    base = {"noise": noise, "delta": "1e-8", "epsilon": 1}
    asked = [
        (f"{COUNT} WHERE stay > 3", {**base, "where_first": True}),
        (SUM, {**base, "rows": 1, "epsilon": "0.3"}),
        (f"{SUM} WHERE stay > 5", {**base, "rows": 1, "where_first": True}),
        (COUNT, base),
    ]
    for people in (range(307), range(308)):  # the last one has the largest value
        for path in tmp_path.glob("visits*.parquet"):
            path.unlink()
        write_visits(tmp_path, people)
        dataset.prepare()
        batch = dataset.batch(asked)
        with reaching() as calls:
            batch.release()
        reached.append(calls)
    epsilon, squares = Fraction(0), 0.0
    for one, other in zip(*reached, strict=True):
        moved = [abs(a - b) for a, b in zip(one.values, other.values, strict=True)]
        if isinstance(one.mechanism, Gaussian):
            squares += float(Fraction(sum(m * m for m in moved)) / one.mechanism.sigma**2)
        else:
            epsilon += Fraction(sum(moved)) / one.mechanism.scale
    price = float(batch.cost.epsilon)
    if noise == "laplace":
        assert epsilon == batch.cost.epsilon  # nothing is left: a charge of less would be wrong
        return
    far, below = math.sqrt(squares), NormalDist().cdf  # the exact δ of normal noise
    delta = below(far / 2 - price / far) - math.exp(price) * below(-far / 2 - price / far)
    assert batch.cost.delta / 10 < delta < batch.cost.delta


def test_a_batch_is_charged_to_the_quota_as_well(opened: Open) -> None:
    dataset = opened(more="[analysts]\nann = {epsilon = 1, delta = 1e-7}\n")
    dataset.batch([COUNT, SUM], epsilon="0.75").release()
    quota = dataset.left().quota
    assert quota is not None
    assert (quota.epsilon, dataset.left().epsilon) == (Fraction("0.25"), Fraction("9.25"))
    with pytest.raises(OverBudget):
        dataset.batch([MEDIAN, WARDS], epsilon="0.3").release()
    assert charges(dataset) == 1


@pytest.mark.parametrize("turned", [False, True])
def test_a_batch_is_padded_if_any_question_reads_the_source(
    opened: Open, monkeypatch: pytest.MonkeyPatch, turned: bool
) -> None:
    """A question with `where_first` chooses rows anew, of all that a person has."""
    dataset, padded, gate = opened(), [], Curator.gate

    def watched(self: Curator, *args: Any) -> Gate:
        padded.append(gate(self, *args).pads)
        return gate(self, *args)

    dataset.curator.pads = False
    dataset.prepare()
    monkeypatch.setattr(Curator, "gate", watched)
    dataset.batch([COUNT, SUM], epsilon=1).release()
    assert set(padded) == {False}
    padded.clear()
    anew = (f"{COUNT} WHERE stay > 2", {"where_first": True})
    asked = [anew, MEDIAN] if turned else [MEDIAN, anew]
    dataset.batch(asked, epsilon=1).release()
    assert set(padded) == {True}


def test_no_person_moves_a_batch_by_more_than_its_loss(opened: Open, tmp_path: Path) -> None:
    """What reaches the mechanisms, with one person more: the sum of all distances over their scales."""
    dataset, reached = opened(), []
    for people in (range(300), range(301)):
        for path in tmp_path.glob("visits*.parquet"):
            path.unlink()
        write_visits(tmp_path, people)
        dataset.prepare()
        with reaching() as calls:
            dataset.batch([COUNT, SUM, WARDS], epsilon=1).release()
        reached.append(calls)
    moved = sum(
        (
            Fraction(sum(abs(a - b) for a, b in zip(one.values, other.values, strict=True)))
            / one.mechanism.scale
        )
        for one, other in zip(*reached, strict=True)
    )
    assert 0 < moved <= 1


def test_a_batch_that_failed_is_held_as_a_whole(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, exact, read = opened(), Reader.exact, []

    def failing(self: Reader, question: Any) -> Any:
        read.append(question)
        if len(read) == 2:
            raise ValueError
        return exact(self, question)

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "exact", failing)
        with pytest.raises(Held) as held:
            dataset.batch([COUNT, SUM], epsilon=1).release()
    with pytest.raises(Held):
        dataset.batch([COUNT, SUM], epsilon=1).release()
    assert (charges(dataset), spent(dataset)) == (1, 1)
    assert not dataset.ask(COUNT, epsilon="0.5").is_replay  # no answer of it was kept
    dataset.clear_hold(held.value.position)
    counted, summed = dataset.batch([COUNT, SUM], epsilon=1).release()
    assert (counted.is_replay, summed.is_replay) == (True, False)
    assert spent(dataset) == 2


def test_a_process_that_dies_leaves_a_charge_and_no_answer(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.prepare()
    dying = forked(die_in_a_batch, tmp_path / "visits.toml", [COUNT, SUM], "1")
    dying.start()
    dying.join()
    assert dying.exitcode == 9
    with pytest.raises(Held) as held:
        dataset.batch([COUNT, SUM], epsilon=1).release()
    assert (charges(dataset), spent(dataset)) == (1, 1)
    dataset.clear_hold(held.value.position)
    assert dataset.batch([COUNT, SUM], epsilon=1).release()
    assert spent(dataset) == 2


def test_many_threads_with_one_batch_are_charged_once(opened: Open) -> None:
    dataset = opened()
    dataset.prepare()
    others = [
        dataset.batch([MEDIAN], epsilon=1),
        *[dataset.batch([COUNT, SUM], epsilon=1) for _ in range(5)],
    ]
    found: list[list[Answer] | LapwingError] = []

    def release(index: int) -> None:
        try:
            found.append(others[index].release())
        except InProgress as error:
            found.append(error)

    threads = [threading.Thread(target=release, args=(index,)) for index in range(len(others))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert charges(dataset) == 2
    assert spent(dataset) == 2
    got = [numbers(one) for one in found if isinstance(one, list) and len(one) == 2]
    assert got
    assert all(one == got[0] for one in got)


def test_others_see_a_batch_where_the_policy_shares_answers(opened: Open) -> None:
    quotas = "[analysts.ann]\nepsilon = 2\ndelta = 1e-7\n[analysts.ben]\nepsilon = 2\ndelta = 1e-7\n"
    ann = opened(more=quotas)
    ann.batch([COUNT, SUM], epsilon=1).release()
    ben = opened(rewrite=False, analyst="ben")
    assert not ben.ask(COUNT, epsilon="0.5").is_replay
    assert not any(answer.is_replay for answer in ben.batch([SUM], epsilon="0.5").release())


def test_everybody_sees_a_batch_without_quotas(opened: Open) -> None:
    opened().batch([COUNT, SUM], epsilon=1).release()
    ben = opened(rewrite=False, analyst="ben")
    assert ben.ask(COUNT, epsilon="0.5").is_replay
    assert ben.batch([COUNT, SUM], epsilon=1).charged == ()


def test_a_batch_never_charges_more_than_its_plan_says(opened: Open, tmp_path: Path) -> None:
    """What was stored then belongs to the version of that time."""
    dataset = opened()
    dataset.ask(COUNT, epsilon="0.5")
    batch = dataset.batch([COUNT, SUM], epsilon=1)
    assert batch.cost.epsilon == Fraction("0.5")
    write_visits(tmp_path, range(300, 400), "visits_new")
    dataset.prepare()
    with pytest.raises(BadParameter, check=named("batch")):
        batch.release()
    assert charges(dataset) == 1
    assert dataset.batch([COUNT, SUM], epsilon=1).cost.epsilon == 1


def test_each_answer_of_a_batch_is_found_by_its_receipt_and_place(opened: Open) -> None:
    dataset = opened()
    again = [(COUNT, {"epsilon": "0.1"}), (SUM, {"epsilon": 1}), (COUNT, {"epsilon": 1})]
    answers = dataset.batch(again).release()
    position = answers[0].receipt.position if answers[0].receipt else 0
    level = Fraction(95, 100)
    found = [dataset.session.stored(position, level, place=place) for place in range(4)]
    assert found[3] is None
    for place, one in enumerate(found[:3]):
        assert one is not None
        assert one[0] == dataset.plan(again[place][0], epsilon=1).request.sql
        assert one[1].cost == answers[place].cost
        if place == 1:
            assert numbers([one[1]]) == numbers([answers[place]])
    alone = dataset.ask(MEDIAN, epsilon=1)
    assert alone.receipt is not None
    assert dataset.session.stored(alone.receipt.position, level) is not None
    assert dataset.session.stored(alone.receipt.position, level, place=1) is None


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_prices_of_one_question_in_a_batch_are_combined_as_if_asked_in_turn(
    opened: Open, noise: str
) -> None:
    """So all means that are ever shown are of one sequence of releases: their misses add up to 2η."""
    dataset = opened()
    dataset.ask(COUNT, epsilon="0.3", noise=noise)
    prices = ["0.31", "0.9", "0.32"]
    batch = dataset.batch(
        [*((COUNT, {"epsilon": one, "noise": noise}) for one in prices), (SUM, {"epsilon": 1})]
    )
    answers = batch.release()
    assert [answer.of for answer in answers] == [2, 3, 4, 1]
    known = list(batch.plans[0].before)
    for place, (plan, answer) in enumerate(zip(batch.plans, answers[:3], strict=False)):
        known.append(plan.shares)
        [column] = answer.columns
        assert column.high is not None
        half = column.high[0] - column.values[0]
        assert half == pytest.approx(half_widths(known, plan.confidence)["n"])
        assert half <= half_widths([*plan.before, plan.shares], plan.confidence)["n"] * (1 + 1e-12)
        found = dataset.session.stored(answer.receipt.position, plan.confidence, place=place)
        assert found is not None
        assert (found[1].to_json()["columns"], found[1].of) == (answer.to_json()["columns"], answer.of)


def test_a_batch_of_an_earlier_version_is_only_repeated(opened: Open, tmp_path: Path) -> None:
    """So whoever fixes the version before a release may repeat it after a lost connection."""
    dataset = opened()
    batch = dataset.batch([COUNT, SUM], epsilon=1)
    first = batch.release(version=dataset.version())
    write_visits(tmp_path, range(300, 400), "visits_new")
    dataset.prepare()
    assert numbers(batch.release(version=1)) == numbers(first)
    with pytest.raises(BadParameter, check=named("plan")):
        dataset.batch([MEDIAN], epsilon=1).release(version=1)
    assert charges(dataset) == 1


def test_a_batch_is_shown_and_tried_for_nothing(opened: Open) -> None:
    dataset = opened()
    batch = dataset.batch([COUNT, COUNT, WARDS], epsilon="0.3")
    assert str(batch).startswith("3 questions cost ε 0.2 together, as one charge. 1 of them cost nothing")
    assert batch.to_json()["cost"] == {"epsilon": 0.2, "delta": 0.0}
    assert [answer.is_fake for answer in batch.dry_run()] == [True] * 3
    assert not dataset.curator.has_ledger


def test_batches_of_one_version_are_numbered(opened: Open) -> None:
    dataset = opened()
    for n in range(4):
        dataset.batch([f"{COUNT} WHERE stay > {n}", f"{SUM} WHERE stay > {n}"], epsilon=1).release()
    gate, version = Gate(dataset.ledger, principal="ann"), dataset.version()
    found = [gate.find(f"batch 1 {version}:{n}", shared=True) for n in range(5)]
    assert [one is not None for one in found] == [True] * 4 + [False]
    assert dataset.ask(f"{SUM} WHERE stay > 2", epsilon="0.5").is_replay
    assert dataset.ask(f"{COUNT} WHERE stay > 0", epsilon="0.5").is_replay
