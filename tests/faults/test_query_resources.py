"""No choice of rows makes an engine fail where others do not: what could grow is refused by its text.

Predicates that nobody, one row and everybody passes are put into the same questions. All are refused with
the same words, or all are answered, by an engine with little memory and disk, in similar time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lapwing.engines.engine import MEGABYTE, EngineFailed, EngineLimits
from lapwing.sql.dataset import Dataset
from lapwing.sql.question.bind import bind
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.reader import Reader
from support.growing_texts import GROWING, grown
from support.hospital import ENGINES, Hospital, policy_for
from support.private_tables import KEY

PREDICATES = ("stay > 55", "stay = 50", "stay >= 0")  # nobody, one row, everybody
PEOPLE, LETTERS, LONGEST = 4_000, 300, 1 << 20
LITTLE = {  # PostgreSQL sorts with a 32nd of the memory, and then on disk
    "duckdb": EngineLimits(memory=500 * MEGABYTE, temporary=MEGABYTE, threads=2),
    "postgres": EngineLimits(memory=500 * MEGABYTE, temporary=500 * MEGABYTE, threads=2),
}
MOST_TIMES, LEAST_SECONDS = 30, 5.0
# No engine keeps a result for the next question, so what a question costs for its rows, it costs each time.
# What other programs cost is not there each time: the least of a few times is nearest to the rows' cost.
RETRIES = 2


def hospital(people: int) -> Hospital:
    """Somebody has a text as long as is read, and it is this one that passes alone."""
    random = Random(people)
    usual = {"ward": "A", "cost": 1.0, "admitted": None, "urgent": True}
    rows = {}
    for n in range(people):
        name = "é" * (LONGEST // 2) if n == 0 else f"{n} " + "ab" * random.randrange(LETTERS)
        rows[f"p{n}"] = [{**usual, "who": f"p{n}", "stay": 5 if n else 50, "name": name}]
    return Hospital(rows, {})


@pytest.fixture(scope="module", params=ENGINES[:2])  # refusals are the same on all
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    folder = tmp_path_factory.mktemp("resources")
    with Dataset(policy_for(hospital(20), request.param, folder), analyst="ann") as opened:
        opened.prepare()
        yield opened


@pytest.mark.parametrize("named", GROWING)
def test_what_would_grow_is_refused_before_the_charge_whoever_passes(dataset: Dataset, named: str) -> None:
    complaints = set()
    for predicate in PREDICATES:
        begun = time.thread_time()
        with pytest.raises(Refused) as refused:
            dataset.ask(GROWING[named](predicate), epsilon="0.1")
        assert time.thread_time() - begun < 2
        complaints.add(refused.value.construct)
    assert len(complaints) == 1
    [block] = dataset.ledger.blocks(dataset.policy.name)
    assert not any(block.spent)


class Asked:
    """An engine with little memory, and how long it takes."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.policy = replace(policy_for(hospital(PEOPLE), engine, folder), limits=LITTLE[engine])
        prepare(self.policy, KEY)
        self.reader = Reader.open(self.policy, KEY, {})
        assert self.reader.is_prepared

    def seconds(self, sql: str) -> float | str:
        """Of an answer, or why it is refused. An engine that fails fails the test."""
        try:
            question = bind(sql, Catalog(self.policy))
        except Refused as refused:
            return refused.construct
        begun = time.perf_counter()
        try:
            self.reader.exact(question)
        except EngineFailed as failure:
            pytest.fail(f"{failure.__context__!r}: {sql}"[:3000])
        return time.perf_counter() - begun


@pytest.fixture(scope="module", params=ENGINES[:2])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    found = Asked(request.param, tmp_path_factory.mktemp("little"))
    yield found
    found.reader.close()


def is_alike(times: list[float]) -> bool:
    """Whether one row and everybody's take about as long as nobody's."""
    nobody, one, everybody = times
    return max(one, everybody) < max(MOST_TIMES * nobody, LEAST_SECONDS)


def run(engine: Asked, count: int, seed: int) -> None:
    refused = 0
    for number in range(count):
        texts = [grown(Random(seed * 10**6 + number), predicate) for predicate in PREDICATES]
        found = [engine.seconds(text) for text in texts]
        complaints = {one for one in found if isinstance(one, str)}
        if complaints:
            assert len(complaints) == 1, texts[0]
            assert all(isinstance(one, str) for one in found), texts[0]
            refused += 1
            continue
        times = [float(seconds) for seconds in found]
        for _ in range(RETRIES):
            if not is_alike(times):
                again = [float(engine.seconds(text)) for text in texts]
                times = [min(pair) for pair in zip(times, again, strict=True)]
        assert is_alike(times), f"{times} s: {texts[0]}"
    assert count // 20 <= refused <= 19 * count // 20


def test_a_few_questions_need_alike_whoever_passes(engine: Asked) -> None:
    run(engine, 20, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_questions_need_alike_whoever_passes(engine: Asked, seed: int) -> None:
    run(engine, 100, seed=100 + seed)
