"""What a member brings of arrays: charged to an account, and noised, or rows that randomize themselves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import Relation
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import Aborted, BadParameter, OverBudget
from lapwing.ledger import Ledger
from lapwing.parties.contribution import ChargedAccount, LocalContribution
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.protocols.secret_sharing import FIELD
from lapwing.parties.statistics import statistic_of
from lapwing.parties.statistics.statistic import VectorStatistic
from support.contributing import CONSORTIUM, HISTOGRAM, OTHER_RUN, RUN, VECTOR, contribution, left
from support.joint import gaussian, laplace, member
from support.ledgers import Home, open_account, open_sliced
from support.raised import named


def test_a_run_charges_all_blocks_of_a_sliced_account(home: Home) -> None:
    """An array says nothing about slices, so everyone is charged, those who will come later too."""
    ledger = home.create()
    open_sliced(ledger, 2, epsilon=3)
    statistic = statistic_of(VECTOR, [10, 2000, -5])
    contribution(statistic, ChargedAccount(ledger, "visits", "north"), laplace(statistic, 2))(0, ())
    ledger.open_blocks("visits", ["b2"])
    terms = ledger.account("visits").terms
    assert [block.left(terms) for block in ledger.blocks("visits")] == [1] * 4  # and "*"


def test_an_array_is_charged_to_an_account(home: Home) -> None:
    ledger = home.create()
    open_account(ledger, epsilon=3)
    statistic = statistic_of(VECTOR, [10, 2000, -5])
    brings = contribution(statistic, ChargedAccount(ledger, "visits", "north"), laplace(statistic, 2, of=3))
    brings.check()
    value = brings(0, ())
    assert left(ledger) == 1
    assert np.abs(value - [10, 2000, -5]).max() < 100
    again = contribution(statistic, ChargedAccount(ledger, "visits", "north"), laplace(statistic, 2, of=3))
    with pytest.raises(Aborted):
        again(0, ())
    fresh = contribution(
        statistic, ChargedAccount(ledger, "visits", "north"), laplace(statistic, 2, of=3), run=OTHER_RUN
    )
    with pytest.raises(OverBudget):
        fresh(0, ())
    assert left(ledger) == 1


def test_gaussian_shares_are_charged_by_their_divergence(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=3)
    statistic = statistic_of(VECTOR, [10, 2000, -5])
    shares = gaussian(statistic, Fraction(1, 100), of=2)
    value = contribution(statistic, ChargedAccount(ledger, "visits", "north"), shares)(0, ())
    assert np.abs(value - [10, 2000, -5]).max() < 100
    assert left(ledger) < 3


def test_numbers_are_clamped_before_noise_and_wrapped_after(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=1000)
    statistic = statistic_of(VECTOR, [1 << 60, -(1 << 60), 3])
    holding = ChargedAccount(ledger, "visits", "north")
    shares = [LaplaceShares.for_epsilon(300, l1=1, of=1)]
    assert contribution(statistic, holding, shares)(0, ()).tolist() == [1 << 52, -(1 << 52), 3]
    small = contribution(statistic, holding, shares, run=OTHER_RUN, largest=1000)
    assert small(0, ()).tolist() == [1000, -1000, 3]
    assert FIELD // 2 > 1 << 52


# The local model


def local(ledger: Ledger, values: Sequence[int], **more: Any) -> LocalContribution:
    chosen: dict[str, Any] = {
        "statistic": VectorStatistic(values, length=len(values), l1=1, l2_squared=1),
        "response": RandomizedResponse.for_epsilon(1, options=len(values)),
        "data": ChargedAccount(ledger, "visits", "north"),
        "run": RUN,
        **more,
    }
    return LocalContribution(consortium=CONSORTIUM, **chosen)


def test_every_row_randomizes_itself_and_their_number_is_kept(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=2, relation=Relation.REPLACE)
    tally = local(ledger, [3000, 0, 1000])(0, ())
    assert tally.sum() == 4000
    assert left(ledger) == 1
    # e/(e + 2) of 3,000 and 1/(e + 2) of 1,000: 1,940 ± 32; seven deviations are 225.
    assert abs(tally[0] - 1940) < 225
    assert tally[1] > 0
    again = local(ledger, [3000, 0, 1000])
    with pytest.raises(Aborted):
        again(0, ())


def test_nothing_is_read_before_the_charge_and_no_number_is_told_by_an_error(
    file_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=2, relation=Relation.REPLACE)
    read = VectorStatistic.exact
    seen: list[Fraction] = []

    def exact(self: VectorStatistic, stage: int, earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
        seen.append(left(ledger))
        return read(self, stage, earlier)

    monkeypatch.setattr(VectorStatistic, "exact", exact)
    brings = local(ledger, [1000, -2000, 3000])
    assert seen == []
    assert brings(0, ()).sum() == 4000  # fewer than 0 count as 0
    assert seen == [1]


def test_the_local_model_is_refused_where_it_would_tell_who_is_there(
    file_home: Home, tmp_path: Path
) -> None:
    ledger = file_home.create()
    open_account(ledger)
    with pytest.raises(BadParameter, match="replaced"):
        local(ledger, [1, 2, 3])
    open_account(ledger, "answers", relation=Relation.REPLACE)
    answers = ChargedAccount(ledger, "answers", "north")
    with pytest.raises(BadParameter, match="fills one"):
        local(
            ledger, [1, 2, 3], statistic=VectorStatistic([1, 2], length=2, l1=2, l2_squared=4), data=answers
        )
    with pytest.raises(BadParameter, check=named("response")):
        local(ledger, [1, 2, 3], response=RandomizedResponse.for_epsilon(1), data=answers)
    with member(tmp_path / "m", range(3)) as dataset, pytest.raises(BadParameter, match="added or removed"):
        local(ledger, [1, 2, 3], statistic=statistic_of(HISTOGRAM, dataset), data=dataset)
    assert left(ledger, "answers") == 1
