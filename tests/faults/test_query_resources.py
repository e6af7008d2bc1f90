"""No choice of rows makes an engine fail where others do not: what could grow is refused by its text."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lapwing.query.binding.refused import Refused
from lapwing.query.dataset import Dataset
from support.growing_texts import GROWING
from support.hospital import ENGINES, Hospital, policy_for

NOBODY, SOMEBODY, EVERYBODY = "stay > 55", "stay = 50", "stay >= 0"


def hospital(people: int = 20) -> Hospital:
    usual = {"ward": "A", "cost": 1.0, "admitted": None, "urgent": True, "name": "n"}
    rows = {f"p{n}": [{**usual, "who": f"p{n}", "stay": 50 if n == 0 else 5}] for n in range(people)}
    return Hospital(rows, {})


@pytest.fixture(scope="module", params=ENGINES[:2])  # refusals are the same on all
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    folder = tmp_path_factory.mktemp("resources")
    with Dataset(policy_for(hospital(), request.param, folder), analyst="ann") as opened:
        opened.prepare()
        yield opened


@pytest.mark.parametrize("grown", GROWING)
def test_what_would_grow_is_refused_before_the_charge_whoever_passes(dataset: Dataset, grown: str) -> None:
    complaints = set()
    for predicate in (NOBODY, SOMEBODY, EVERYBODY):
        begun = time.perf_counter()
        with pytest.raises(Refused) as refused:
            dataset.ask(GROWING[grown](predicate), epsilon="0.000001")
        assert time.perf_counter() - begun < 1.5
        complaints.add(refused.value.construct)
    assert len(complaints) == 1
    [block] = dataset.ledger.blocks(dataset.policy.name)
    assert not any(block.spent)
