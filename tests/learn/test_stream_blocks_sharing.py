"""The rules of sharing: first come, equal shares, unlock. No rule lets a block lose more than it may."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from lapwing.core.losses import Pure
from lapwing.errors import BadFile, BadParameter, OverBudget
from lapwing.learn.stream import Stream
from lapwing.learn.stream_blocks import SharingRule, load_sharing_rule, share_label
from learn.test_stream import spend
from support.ride_streams import ARRIVALS, Opens, write_rides

HALF, QUARTER, TENTH = Pure(Fraction(1, 2)), Pure(Fraction(1, 4)), Pure(Fraction(1, 10))
EQUAL = '[sharing]\nrule = "equal shares"\npipelines = ["one", "two"]\n'
UNLOCK = '[sharing]\nrule = "unlock"\nversions = 4\n'


def test_without_a_file_whoever_comes_first_spends(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(through="2025-01")
    spend(stream, ["2025-01"], Pure(Fraction(1)), "one")
    assert stream.sharing == SharingRule()
    assert stream.choose_blocks(1, loss=TENTH, pipeline="two") == []


def test_an_equal_share_is_left_to_the_other(stream_at: Opens) -> None:
    stream = stream_at(sharing=EQUAL)
    stream.append(through="2025-02")
    spend(stream, ["2025-02"], HALF, "one")
    assert stream.choose_blocks(2, loss=TENTH, pipeline="one") == ["2025-01"]
    assert stream.choose_blocks(2, loss=HALF, pipeline="two") == ["2025-02", "2025-01"]
    with pytest.raises(OverBudget, match="share of one"):
        spend(stream, ["2025-02"], TENTH, "one")
    spend(stream, ["2025-02"], HALF, "two")
    assert stream.choose_blocks(2, loss=TENTH, pipeline="two") == ["2025-01"]
    left = {block.label: float(block.left) for block in stream.status().blocks}
    assert left["2025-02"] == 0
    mine = {block.label: float(block.left) for block in stream.status(pipeline="one").blocks}
    assert mine["2025-01"] == 0.5
    assert stream.ledger.verify().findings == ()


def test_who_has_no_share_spends_nothing(stream_at: Opens) -> None:
    stream = stream_at(sharing=EQUAL)
    stream.append(through="2025-01")
    with pytest.raises(BadParameter, match="no share"):
        stream.choose_blocks(1, loss=TENTH, pipeline="three")


def test_a_share_is_for_life(stream_at: Opens) -> None:
    stream = stream_at(sharing=EQUAL)
    stream.append(through="2025-01")
    spend(stream, ["2025-01"], TENTH, "one")
    stream.close()
    other = stream_at(sharing=EQUAL.replace('"two"', '"two", "three"'))
    with pytest.raises(BadParameter, match="for life"):
        other.choose_blocks(1, loss=TENTH, pipeline="one")
    assert share_label(other.policy, "one") == "rides: share of one"


def test_adding_a_pipeline_has_a_way_out(stream_at: Opens) -> None:
    stream = stream_at(sharing=EQUAL)
    stream.append(through="2025-01")
    spend(stream, ["2025-01"], TENTH, "one")
    stream.close()
    three = EQUAL.replace('"two"', '"two", "three"')
    other = stream_at(sharing=three)
    with pytest.raises(BadParameter, match="shares = 2 beside the list"):
        other.choose_blocks(1, loss=TENTH, pipeline="one")
    other.close()
    again = stream_at(sharing=f"{three}shares = 2\n")
    spend(again, ["2025-01"], Pure(Fraction(2, 5)), "one")
    spend(again, ["2025-01"], HALF, "three")
    with pytest.raises(OverBudget):  # the stream's account bounds them all
        spend(again, ["2025-01"], TENTH, "two")


def test_a_share_goes_by_the_pipelines_name_and_not_by_who_trains_it(stream_at: Opens) -> None:
    """What docs/arguments/growing.md says plainly. Names of analysts are no proof of who they are."""
    stream = stream_at(sharing=EQUAL)
    stream.append(through="2025-01")
    spend(stream, ["2025-01"], HALF, "one")
    stream.dataset.analyst = "mallory"
    with pytest.raises(OverBudget, match="share of one"):
        spend(stream, ["2025-01"], TENTH, "one")


def test_plain_questions_pass_the_rules_by_and_not_the_account(stream_at: Opens) -> None:
    stream = stream_at(sharing=UNLOCK)
    stream.append(through="2025-01")
    question = "SELECT COUNT(*) FROM rides WHERE day < '2025-02-01'"
    stream.dataset.ask(question, epsilon="0.9")
    with pytest.raises(OverBudget):
        stream.dataset.ask(question, epsilon="0.2", fresh=True)


def test_looking_at_a_share_opens_nothing(stream_at: Opens) -> None:
    stream = stream_at(sharing=EQUAL.replace('"two"', '"two", "three"'))
    stream.append(through="2025-01")
    before = [account.label for account in stream.ledger.accounts()]
    third = stream.status(pipeline="one").blocks[0]
    assert third.epsilon == Fraction(1, 3)
    assert Fraction(3, 10) < third.left < Fraction(1, 3)
    assert third.is_untouched
    assert stream.choose_blocks(1, loss=Pure(Fraction(3, 10)), pipeline="one") == ["2025-01"]
    assert stream.choose_blocks(1, loss=HALF, pipeline="one") == []
    assert [account.label for account in stream.ledger.accounts()] == before
    spend(stream, ["2025-01"], TENTH, "one")
    found = {block.label: block for block in stream.status(pipeline="one").blocks}
    assert not found["2025-01"].is_untouched
    assert found["2025-02"].is_untouched


def test_a_share_that_lacks_newer_blocks_can_pay_in_them(stream_at: Opens, tmp_path: Path) -> None:
    stream = stream_at(blocks=ARRIVALS, sharing=EQUAL)
    stream.append(today=date(2025, 1, 5))
    spend(stream, ["2025-01"], HALF, "one")
    stream.append(write_rides(tmp_path / "new.parquet", 2, range(300, 400)), today=date(2025, 2, 5))
    assert stream.choose_blocks(2, loss=HALF, pipeline="one") == ["2025-02"]
    assert {float(block.left) for block in stream.status(pipeline="one").blocks} == {0.0, 0.5}
    spend(stream, ["2025-02"], HALF, "one")


def test_a_budget_unlocks_with_appends_that_bring_files(stream_at: Opens, tmp_path: Path) -> None:
    stream = stream_at(sharing=UNLOCK)
    stream.append(through="2025-01")
    assert stream.choose_blocks(1, loss=HALF, pipeline="one") == []
    assert stream.choose_blocks(1, loss=QUARTER, pipeline="one") == ["2025-01"]
    spend(stream, ["2025-01"], QUARTER)
    assert stream.choose_blocks(1, loss=TENTH, pipeline="one") == []
    for day in range(1, 10):  # nothing new comes in, and nothing unlocks
        stream.append(through="2025-01", today=date(2025, 2, day))
    stream.dataset.prepare()
    assert stream.choose_blocks(1, loss=TENTH, pipeline="one") == []
    stream.append(write_rides(tmp_path / "2.parquet", 2, range(50)), through="2025-02")
    assert stream.choose_blocks(2, loss=QUARTER, pipeline="one") == ["2025-02", "2025-01"]
    for month in (3, 4, 5):
        stream.append(write_rides(tmp_path / f"{month}.parquet", month, range(50)))
    assert stream.choose_blocks(2, loss=Pure(Fraction(1)), pipeline="one") == ["2025-02"]
    assert stream.choose_blocks(2, loss=Pure(Fraction(3, 4)), pipeline="one") == ["2025-02", "2025-01"]


def test_where_the_source_is_no_file_an_append_counts_once_a_day(stream_at: Opens, tmp_path: Path) -> None:
    stream_at().close()
    with duckdb.connect(str(tmp_path / "rides.duckdb")) as source:
        source.execute(f"CREATE TABLE rides AS FROM '{tmp_path}/rides/*.parquet'")
    text = (tmp_path / "rides.toml").read_text()
    (tmp_path / "rides.toml").write_text(
        text.replace('source = "rides/*.parquet"', 'source = "rides.duckdb"')
    )
    (tmp_path / "rides.stream.toml").write_text(UNLOCK)
    with Stream.open(tmp_path / "rides.toml", analyst="ann") as stream:
        for day, unlocked in ((1, 0.25), (1, 0.25), (2, 0.5), (1, 0.5), (2, 0.5), (3, 0.75)):
            stream.append(through="2025-01", today=date(2025, 1, day))
            assert next(float(one.unlocked) for one in stream.status().blocks) == unlocked


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "sharing: is missing"),
        ("[sharing]\n", "rule: is missing"),
        ('[sharing]\nrule = "first"\n', 'must be "first come"'),
        ('[sharing]\nrule = "equal shares"\n', "pipelines: is missing"),
        ('[sharing]\nrule = "equal shares"\npipelines = "one"\n', "list of names"),
        ('[sharing]\nrule = "equal shares"\npipelines = []\n', "list of names"),
        ('[sharing]\nrule = "equal shares"\npipelines = ["a", "a"]\n', "different names"),
        ('[sharing]\nrule = "unlock"\n', "versions: is missing"),
        ('[sharing]\nrule = "unlock"\nversions = 0\n', "must lie between"),
        ('[sharing]\nrule = "first come"\nversions = 3\n', "the rule"),
        ('[sharing]\nrule = "first come"\nshares = 3\n', "the rule"),
        ('[sharing]\nrule = "first come"\nspeed = 3\n', "unknown key"),
        ("[sharing\n", "not TOML"),
    ],
)  # fmt: skip
def test_mistakes_in_the_file_are_told_with_their_lines(
    text: str, why: str, stream_at: Opens, tmp_path: Path
) -> None:
    policy = stream_at().policy
    (tmp_path / "rides.stream.toml").write_text(text)
    with pytest.raises(BadFile, match=r"rides\.stream\.toml:\d") as error:
        load_sharing_rule(policy)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"rule": "x"},
        {"pipelines": ("a",)},
        {"rule": "unlock"},
        {"versions": 3},
        {"rule": "equal shares"},
        {"shares": 2},
    ],
)
def test_a_rule_that_exists_is_valid(bad: dict[str, object]) -> None:
    with pytest.raises(BadParameter):
        SharingRule(**bad)  # type: ignore[arg-type]
