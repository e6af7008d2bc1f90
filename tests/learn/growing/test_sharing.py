"""Who may spend what: first come, equal shares, unlock. No rule lets a block lose more than it may."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadFile, BadParameter, OverBudget
from lapwing.learn.growing import Sharing
from lapwing.learn.growing.sharing import load_sharing, share_label
from lapwing.privacy import Pure
from learn.growing.conftest import Opens
from learn.growing.test_stream import spend

HALF, QUARTER, TENTH = Pure(Fraction(1, 2)), Pure(Fraction(1, 4)), Pure(Fraction(1, 10))
EQUAL = '[sharing]\nrule = "equal shares"\npipelines = ["one", "two"]\n'
UNLOCK = '[sharing]\nrule = "unlock"\nversions = 4\n'


def test_without_a_file_whoever_comes_first_spends(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(through="2025-01")
    spend(stream, ["2025-01"], Pure(Fraction(1)), "one")
    assert stream.sharing == Sharing()
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


def test_a_budget_unlocks_with_versions(stream_at: Opens) -> None:
    stream = stream_at(sharing=UNLOCK)
    stream.append(through="2025-01")
    assert stream.choose_blocks(1, loss=HALF, pipeline="one") == []
    assert stream.choose_blocks(1, loss=QUARTER, pipeline="one") == ["2025-01"]
    spend(stream, ["2025-01"], QUARTER)
    assert stream.choose_blocks(1, loss=TENTH, pipeline="one") == []
    stream.append(through="2025-02")
    assert stream.choose_blocks(2, loss=QUARTER, pipeline="one") == ["2025-02", "2025-01"]
    for _ in range(3):
        stream.append()
    assert stream.choose_blocks(2, loss=Pure(Fraction(1)), pipeline="one") == ["2025-02"]
    assert stream.choose_blocks(2, loss=Pure(Fraction(3, 4)), pipeline="one") == ["2025-02", "2025-01"]


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
        ('[sharing]\nrule = "first come"\nversions = 3\n', "where the rule is"),
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
        load_sharing(policy)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "bad",
    [{"rule": "x"}, {"pipelines": ("a",)}, {"rule": "unlock"}, {"versions": 3}, {"rule": "equal shares"}],
)
def test_a_rule_that_exists_is_valid(bad: dict[str, object]) -> None:
    with pytest.raises(BadParameter):
        Sharing(**bad)  # type: ignore[arg-type]
