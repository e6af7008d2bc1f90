"""What a member brings: charged once and first, noised once, refused before anything is charged."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from lapwing.errors import Aborted, BadParameter, OverBudget
from lapwing.ledger import Ledger
from lapwing.mechanisms import GaussianShares, LaplaceShares, RandomizedResponse
from lapwing.parties.contribution import CONTRIBUTED, Contribution, Holding, LocalContribution
from lapwing.parties.planning.noises import loss_of
from lapwing.parties.protocols.field import FIELD
from lapwing.parties.protocols.protocol import Opened
from lapwing.parties.statistics import Statistic, statistic_of
from lapwing.parties.statistics.vector import Vector
from lapwing.privacy import Concentrated, LaplaceNoise, Pure, Relation, Repeated, Sum
from lapwing.query import custody
from lapwing.query.dataset import Dataset
from lapwing.query.policies.file import load
from lapwing.query.policies.policy import Policy, Source
from support.joint import gaussian, laplace, member, plain
from support.ledgers import Home, open_account, open_sliced
from support.postgres import server
from support.private_tables import policy_of, table_of, whole

RUN, OTHER_RUN, CONSORTIUM = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
HISTOGRAM = {"kind": "question", "sql": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"}
MEDIAN = {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "0.5"}
VECTOR = {"kind": "vector", "length": 3, "l1": 1, "l2_squared": 1, "labels": None}
Shares = Sequence[LaplaceShares] | Sequence[GaussianShares]


def contribution(
    statistic: Statistic, data: Dataset | Holding, shares: Shares | None = None, **more: Any
) -> Contribution:
    own = laplace(statistic, 1, of=2) if shares is None else shares
    chosen: dict[str, Any] = {"run": RUN, "loss": loss_of(own, statistic.stages), **more}
    return Contribution(statistic=statistic, data=data, shares=own, consortium=CONSORTIUM, **chosen)


def left(ledger: Ledger, label: str = "visits") -> Fraction:
    (block,) = ledger.blocks(label)
    return block.left(ledger.account(label).terms)


def entries(path: Path) -> int:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        count = int(connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0])
    connection.close()
    return count


def test_a_member_charges_its_ledger_once_and_brings_noised_numbers(tmp_path: Path) -> None:
    with member(tmp_path, range(3000)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)
        before = left(dataset.ledger)
        brings.check()
        assert left(dataset.ledger) == before
        value = brings(0, ())
        assert before - left(dataset.ledger) == 1
    counts = [
        row[0] for row in plain([range(3000)], "SELECT COUNT(*) FROM visits GROUP BY ward ORDER BY ward")
    ]
    # A share at scale 2: further than 100 off would come less than once in 1e20.
    assert np.abs(value - counts).max() < 100
    assert value.dtype == np.int64


def test_the_numbers_are_not_in_the_ledger_or_anything_printed(tmp_path: Path) -> None:
    with member(tmp_path, range(30_000)) as dataset:  # long numbers: none stands anywhere by chance
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset, [LaplaceShares.for_epsilon(10, l1=2, of=1)])
        value = brings(0, ())
        shown = re.sub(r"\b0x[0-9a-f]+", "", repr(brings) + str(statistic.spec))  # where objects lie
    with sqlite3.connect(tmp_path / "visits.ledger") as connection:
        stored = [row[0] for row in connection.execute("SELECT bytes FROM answers")]
    connection.close()
    assert stored == [CONTRIBUTED]
    assert all(number > 10_000 and str(number) not in shown for number in value.tolist())


def test_noise_is_never_drawn_twice_for_one_charge(tmp_path: Path) -> None:
    """After a crash the numbers are in the member's journal, or the run ends."""
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)
        brings(0, ())
        spent = left(dataset.ledger)
        with pytest.raises(Aborted, match="noise is drawn once"):
            brings(0, ())
        again = contribution(statistic, dataset)
        with pytest.raises(Aborted, match="charged before"):
            again(0, ())
        with pytest.raises(Aborted, match="charged before"):
            again.check()
        assert left(dataset.ledger) == spent


def test_another_run_is_another_charge(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        before = left(dataset.ledger)
        contribution(statistic, dataset)(0, ())
        contribution(statistic, dataset, run=OTHER_RUN)(0, ())
        assert before - left(dataset.ledger) == 2


def test_the_same_run_for_another_request_ends(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        contribution(statistic_of(HISTOGRAM, dataset), dataset)(0, ())
        other = statistic_of({**HISTOGRAM, "sql": "SELECT COUNT(*) FROM visits"}, dataset)
        brings = contribution(other, dataset)
        with pytest.raises(Aborted, match="another request"):
            brings(0, ())


def test_stages_are_charged_together_and_read_one_by_one(tmp_path: Path) -> None:
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        brings = contribution(statistic, dataset)
        before = left(dataset.ledger)
        found: list[Opened] = []
        for stage in range(statistic.stages):
            found.append(Opened(brings(stage, found), (0,)))
            assert before - left(dataset.ledger) == 1
        assert len(found) == 5
        with pytest.raises(BadParameter, match="stage"):
            brings(5, found)
        with pytest.raises(BadParameter, match="stage"):
            brings(2, found[:1])


def test_after_a_crash_later_stages_go_on_if_the_run_was_charged(tmp_path: Path) -> None:
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        later = contribution(statistic, dataset)
        found = [Opened(np.array([150, 150]), (0,))]
        with pytest.raises(Aborted, match="not charged"):
            later(1, found)
        assert left(dataset.ledger) == 10
        contribution(statistic, dataset)(0, ())
        assert len(contribution(statistic, dataset)(1, found)) == 2
        assert left(dataset.ledger) == 9


def test_a_later_stage_is_drawn_once_whoever_asks_for_it(tmp_path: Path) -> None:
    """Two draws of one stage would average the noise: the ledger knows each stage, not only the run."""
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        contribution(statistic, dataset)(0, ())
        found = [Opened(np.array([150, 150]), (0,))]
        contribution(statistic, dataset)(1, found)
        spent, count = left(dataset.ledger), entries(tmp_path / "visits.ledger")
        for earlier in (found, [Opened(np.array([9, 291]), (0,))]):
            again = contribution(statistic, dataset)
            with pytest.raises(Aborted, match="charged before"):
                again(1, earlier)
        assert entries(tmp_path / "visits.ledger") == count
        other = contribution(statistic, dataset)
        other(2, found * 2)
        assert left(dataset.ledger) == spent
    with Dataset(load(tmp_path / "visits.toml"), analyst="ann") as dataset:
        after = contribution(statistic_of(MEDIAN, dataset), dataset)
        with pytest.raises(Aborted, match="charged before"):
            after(1, found)


def test_later_stages_are_marked_where_nothing_is_left(tmp_path: Path) -> None:
    with member(tmp_path, range(300), epsilon=1) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        brings = contribution(statistic, dataset)
        found: list[Opened] = []
        for stage in range(statistic.stages):
            found.append(Opened(brings(stage, found), (0,)))
            assert left(dataset.ledger) == 0


def test_data_that_changes_while_it_is_read_is_not_noised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New rows may be about people who were not charged, so that numbers with them go nowhere."""
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)
        read = statistic.exact

        def exact(stage: int, earlier: Sequence[Opened]) -> NDArray[np.int64]:
            values = read(stage, earlier)
            dataset.prepare()
            return values

        monkeypatch.setattr(statistic, "exact", exact)
        monkeypatch.setattr(LaplaceShares, "sample", lambda *_: pytest.fail("noise was drawn"))
        with pytest.raises(Aborted, match="could not be read"):
            brings(0, ())
        assert left(dataset.ledger) == 9


def test_data_that_changed_since_the_charge_is_not_read(tmp_path: Path) -> None:
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        brings = contribution(statistic, dataset)
        brings(0, ())
        dataset.prepare()  # one version more, also without new rows
        with pytest.raises(Aborted, match="other data"):
            brings(1, [Opened(np.array([1, 2]), (0,))])
        member(tmp_path, range(400)).close()
        with pytest.raises(Aborted, match="changed on the way"):
            brings(1, [Opened(np.array([1, 2]), (0,))])
        fresh = contribution(statistic, dataset, run=OTHER_RUN)
        with pytest.raises(BadParameter, match="lapwing prepare"):
            fresh(0, ())


def test_what_fails_after_the_charge_says_nothing_and_stays_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)

        def fail(_stage: int, _earlier: Sequence[Opened]) -> NDArray[np.int64]:
            raise ValueError("patient 17 is odd")

        before = left(dataset.ledger)
        monkeypatch.setattr(statistic, "exact", fail)
        with pytest.raises(Aborted) as caught:
            brings(0, ())
        assert "17" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert before - left(dataset.ledger) == 1
        monkeypatch.undo()
        again = contribution(statistic, dataset)
        with pytest.raises(Aborted, match="could not be read"):
            again(0, ())


def test_over_budget_is_refused_and_nothing_is_read_or_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(tmp_path, range(30), epsilon=0.5) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        monkeypatch.setattr(statistic, "exact", lambda *_: pytest.fail("rows were read"))
        brings = contribution(statistic, dataset)
        with pytest.raises(OverBudget):
            brings.check()
        count = entries(tmp_path / "visits.ledger")
        with pytest.raises(OverBudget):
            brings(0, ())
        assert entries(tmp_path / "visits.ledger") == count
        assert left(dataset.ledger) == Fraction(1, 2)


def test_a_quota_is_charged_as_well(tmp_path: Path) -> None:
    more = '[analysts."ann"]\nepsilon = 1.5\ndelta = 1e-7\n'
    with member(tmp_path, range(30), more=more) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        contribution(statistic, dataset)(0, ())
        assert left(dataset.ledger, custody.quota_label(dataset.policy, "ann")) == Fraction(1, 2)
        brings = contribution(statistic, dataset, run=OTHER_RUN)
        with pytest.raises(OverBudget):
            brings(0, ())


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_does_not_cover_the_numbers_is_refused_at_birth(noise: str, tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        shares: Any = laplace(statistic, 1) if noise == "laplace" else gaussian(statistic, 1)
        contribution(statistic, dataset, shares)
        narrow: Any = (
            LaplaceShares.for_epsilon(1, l1=1, of=1)
            if noise == "laplace"
            else GaussianShares.for_rho(1, l2_squared=1, dimension=3, of=1)
        )
        for bad, words in (([], "one for each"), (shares * 2, "one for each"), ([narrow], "do not cover")):
            with pytest.raises(BadParameter, match=words):
                contribution(statistic, dataset, bad, loss=Pure(Fraction(9)))
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, shares, loss=Pure(Fraction(1, 2)))
        with pytest.raises(BadParameter, match="run"):
            contribution(statistic, dataset, run="run")
        with pytest.raises(BadParameter, match="largest"):
            contribution(statistic, dataset, largest=0)
    assert not (tmp_path / "visits.ledger").exists()


def test_a_charge_may_be_more_than_the_noise_reveals(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        contribution(statistic, dataset, loss=LaplaceNoise(Fraction(1), 2))
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, loss=LaplaceNoise(Fraction(3), 2))


def test_no_pure_charge_covers_gaussian_noise(tmp_path: Path) -> None:
    """It is (ε, δ)-private for no δ = 0, whatever ε is charged: only ρ pays for it."""
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        shares = gaussian(statistic, Fraction(1, 100))
        (rho,) = [share.loss.rho for share in shares]
        for enough in (Concentrated(rho), Concentrated(2 * rho), Repeated(Concentrated(rho), 2)):
            contribution(statistic, dataset, shares, loss=enough)
        for bad in (Pure(Fraction(900)), LaplaceNoise(Fraction(1), 900), Concentrated(rho * 99 / 100)):
            with pytest.raises(BadParameter, match="less than"):
                contribution(statistic, dataset, shares, loss=bad)
        two = Sum((Concentrated(rho / 2), Pure(Fraction(9))))
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, shares, loss=two)


def test_no_rho_covers_pure_noise(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, loss=Concentrated(Fraction(900)))


def test_stages_are_in_the_loss(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        shares = laplace(statistic, 1)
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, shares, loss=loss_of(shares, 4))


def test_a_data_set_is_charged_for_its_own_statistic_only(tmp_path: Path) -> None:
    with member(tmp_path / "a", range(3)) as north, member(tmp_path / "b", range(3)) as south:
        statistic = statistic_of(HISTOGRAM, north)
        with pytest.raises(BadParameter, match="bound to"):
            contribution(statistic, south)
        with pytest.raises(BadParameter, match="own accounts"):
            contribution(statistic, Holding(north.ledger, "visits", "ann"))
        with pytest.raises(BadParameter, match="bound to"):
            contribution(statistic_of(VECTOR, [1, 2, 3]), north)


def test_postgres_rows_are_charged_and_read(tmp_path: Path) -> None:
    with Dataset(postgres_policy(tmp_path), analyst="ann") as dataset:
        spec = {"kind": "question", "sql": "SELECT COUNT(*), SUM(stay) FROM visits"}
        statistic = statistic_of(spec, dataset)
        value = contribution(statistic, dataset, laplace(statistic, 100))(0, ())
        assert left(dataset.ledger, "clinic") == 0
    assert np.abs(value - [50, 500]).max() < 60


def postgres_policy(folder: Path) -> Policy:
    schema = f"joint_{uuid4().hex[:8]}"
    with psycopg.connect(server()) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(
            f"CREATE TABLE {schema}.visits AS SELECT n AS who, 900 AS stay FROM generate_series(1, 50) t(n)"
        )
    table = replace(
        table_of("", {"stay": whole(0, 10)}, rows=1),
        source=Source("postgres", server(), f"{schema}.visits", "postgres"),
    )
    made = policy_of(folder, table)
    return replace(made, epsilon=Fraction(100), delta=Fraction(1, 10**6), ledger=str(folder / "c.ledger"))


# Every block gets its noise

BLOCKS = {
    "kind": "question",
    "sql": "SELECT ward, COUNT(*), SUM(stay), SUM(cost) FROM visits GROUP BY ward",
}
DRAWS = 400


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_every_cell_of_every_block_has_the_noise_of_its_own_block(noise: str, tmp_path: Path) -> None:
    """The mean of 1,200 squares is off by √(5 / 1,200) of the variance with Laplace noise, √(2 / 1,200)
    with Gaussian: bounds are at more than seven of these."""
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(BLOCKS, dataset)
        assert [block.length for block in statistic.blocks] == [3, 3, 3]
        assert len({block.l1 for block in statistic.blocks}) == 3
        shares: Any = laplace(statistic, 1) if noise == "laplace" else gaussian(statistic, Fraction(1, 10))
        brings = contribution(statistic, dataset, shares)
        values = statistic.exact(0, ())
        drawn = np.array([brings._noised(values) for _ in range(DRAWS)]) - values
    for cells, share in zip(np.split(drawn, 3, axis=1), shares, strict=True):
        variance = share.total(1).deviation ** 2
        assert np.abs(cells).max(axis=0).min() > 0
        assert abs((cells.astype(float) ** 2).mean() / variance - 1) < (0.5 if noise == "laplace" else 0.33)
    for a in range(9):
        for b in range(a):
            assert not np.array_equal(drawn[:, a], drawn[:, b])


def test_a_run_charges_all_blocks_of_a_sliced_account(home: Home) -> None:
    """An array says nothing about slices, so everyone is charged, those who will come later too."""
    ledger = home.create()
    open_sliced(ledger, 2, epsilon=3)
    statistic = statistic_of(VECTOR, [10, 2000, -5])
    contribution(statistic, Holding(ledger, "visits", "north"), laplace(statistic, 2))(0, ())
    ledger.open_blocks("visits", ["b2"])
    terms = ledger.account("visits").terms
    assert [block.left(terms) for block in ledger.blocks("visits")] == [1] * 4  # and "*"


# Arrays


def test_an_array_is_charged_to_an_account(home: Home) -> None:
    ledger = home.create()
    open_account(ledger, epsilon=3)
    statistic = statistic_of(VECTOR, [10, 2000, -5])
    brings = contribution(statistic, Holding(ledger, "visits", "north"), laplace(statistic, 2, of=3))
    brings.check()
    value = brings(0, ())
    assert left(ledger) == 1
    assert np.abs(value - [10, 2000, -5]).max() < 100
    again = contribution(statistic, Holding(ledger, "visits", "north"), laplace(statistic, 2, of=3))
    with pytest.raises(Aborted):
        again(0, ())
    fresh = contribution(
        statistic, Holding(ledger, "visits", "north"), laplace(statistic, 2, of=3), run=OTHER_RUN
    )
    with pytest.raises(OverBudget):
        fresh(0, ())
    assert left(ledger) == 1


def test_gaussian_shares_are_charged_by_their_divergence(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=3)
    statistic = statistic_of(VECTOR, [10, 2000, -5])
    shares = gaussian(statistic, Fraction(1, 100), of=2)
    value = contribution(statistic, Holding(ledger, "visits", "north"), shares)(0, ())
    assert np.abs(value - [10, 2000, -5]).max() < 100
    assert left(ledger) < 3


def test_numbers_are_clamped_before_noise_and_wrapped_after(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=1000)
    statistic = statistic_of(VECTOR, [1 << 60, -(1 << 60), 3])
    holding = Holding(ledger, "visits", "north")
    shares = [LaplaceShares.for_epsilon(300, l1=1, of=1)]
    assert contribution(statistic, holding, shares)(0, ()).tolist() == [1 << 52, -(1 << 52), 3]
    small = contribution(statistic, holding, shares, run=OTHER_RUN, largest=1000)
    assert small(0, ()).tolist() == [1000, -1000, 3]
    assert FIELD // 2 > 1 << 52


# The local model


def local(ledger: Ledger, values: Sequence[int], **more: Any) -> LocalContribution:
    chosen: dict[str, Any] = {
        "statistic": Vector(values, length=len(values), l1=1, l2_squared=1),
        "response": RandomizedResponse.for_epsilon(1, options=len(values)),
        "data": Holding(ledger, "visits", "north"),
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
    read = Vector.exact
    seen: list[Fraction] = []

    def exact(self: Vector, stage: int, earlier: Sequence[Opened]) -> NDArray[np.int64]:
        seen.append(left(ledger))
        return read(self, stage, earlier)

    monkeypatch.setattr(Vector, "exact", exact)
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
    answers = Holding(ledger, "answers", "north")
    with pytest.raises(BadParameter, match="fills one"):
        local(ledger, [1, 2, 3], statistic=Vector([1, 2], length=2, l1=2, l2_squared=4), data=answers)
    with pytest.raises(BadParameter, match="one option"):
        local(ledger, [1, 2, 3], response=RandomizedResponse.for_epsilon(1), data=answers)
    with member(tmp_path / "m", range(3)) as dataset, pytest.raises(BadParameter, match="added or removed"):
        local(ledger, [1, 2, 3], statistic=statistic_of(HISTOGRAM, dataset), data=dataset)
    assert left(ledger, "answers") == 1
