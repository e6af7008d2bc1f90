"""The wish file: every mistake with its line and what to write; and the consortium that is made of it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.parties.draft import found_consortium, plan_for, read_draft, require_same_meaning
from lapwing.parties.identity import MemberKeys
from lapwing.parties.statistics import statistic_of

GOOD = """\
[consortium]
name = "joint-wards"
question = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"
epsilon = 1.0
coalition = 1
losses = 0
people_at = 1
adversary = "unbounded"
[relay]
host = "north"
address = "127.0.0.1:7443"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "joint.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_short_file_is_enough(tmp_path: Path) -> None:
    file = read_draft(written(tmp_path, GOOD))
    assert file.name == "joint-wards"
    assert file.statistic == {
        "kind": "question",
        "sql": "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward",
    }
    assert (file.lobby_seconds, file.round_seconds) == (300, 60)
    wish = file.requirements(3)
    assert (float(wish.epsilon), float(wish.delta)) == (1.0, 0.0)
    assert (wish.protocol, wish.noise) == ("auto", "auto")


def test_everything_can_be_said(tmp_path: Path) -> None:
    text = GOOD.replace("[relay]", 'delta = 1e-6\nprotocol = "D"\nnoise = "laplace"\n[relay]')
    text = text.replace('"unbounded"', '"bounded"') + "[deadlines]\nlobby = 10\nround = 2\n"
    file = read_draft(written(tmp_path, text))
    assert (file.lobby_seconds, file.round_seconds) == (10, 2)
    assert file.requirements(4).delta == Fraction(1, 10**6)


def test_a_quorum_can_be_said_or_is_the_safest(tmp_path: Path) -> None:
    text = GOOD.replace("losses = 0", "losses = 1").replace("coalition = 1", "coalition = 2")
    assert read_draft(written(tmp_path, text)).requirements(5).quorum == "honest"
    said = text.replace("[relay]", 'quorum = "majority"\n[relay]')
    assert read_draft(written(tmp_path, said)).requirements(5).quorum == "majority"
    wrong = text.replace("[relay]", 'quorum = "all"\n[relay]')
    with pytest.raises(BadFile, match=r"consortium\.quorum"):
        read_draft(written(tmp_path, wrong))


def test_a_question_may_take_several_lines(tmp_path: Path) -> None:
    text = GOOD.replace(
        '"SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"',
        '"""\nSELECT ward, COUNT(*)\n  FROM visits\n  GROUP BY ward"""',
    )
    assert (
        read_draft(written(tmp_path, text)).statistic["sql"]
        == "SELECT ward, COUNT(*) FROM visits GROUP BY ward"
    )


@pytest.mark.parametrize(
    ("section", "spec"),
    [
        (
            '[regression]\ntable = "visits"\ny = "cost"\nx = ["age", "stay"]\n',
            {"kind": "regression", "table": "visits", "y": "cost", "x": ["age", "stay"]},
        ),
        (
            '[quantile]\ntable = "visits"\ncolumn = "stay"\nfraction = 0.5\n',
            {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "1/2"},
        ),
    ],
)
def test_other_statistics_have_tables_of_their_own(
    tmp_path: Path, section: str, spec: dict[str, object]
) -> None:
    lines = [line for line in GOOD.splitlines(keepends=True) if not line.startswith("question")]
    assert read_draft(written(tmp_path, "".join(lines) + section)).statistic == spec


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "joint-wards"\n', "", "consortium.name: is missing"),
        ('"joint-wards"', '"../wards"', ":2: consortium.name: becomes the name of a file"),
        ("epsilon = 1.0\n", "", "consortium.epsilon: is missing. Write epsilon = 1.0"),
        ("epsilon = 1.0", 'epsilon = "1.0"', ":4: consortium.epsilon: must be a number, not a text"),
        ("epsilon = 1.0", "epsilon = 0", ":4: consortium.epsilon: must be above 0"),
        ("epsilon = 1.0", "epsilon = 1.0\ndelta = 2", "consortium.delta: must lie in"),
        ("epsilon = 1.0", "epsilon = 1.0\nepsilom = 2", 'Did you mean "epsilon"?'),
        ("coalition = 1\n", "", "consortium.coalition: is missing"),
        ("coalition = 1", "coalition = -1", ":5: consortium.coalition: must lie between"),
        ("losses = 0\n", "", "consortium.losses: is missing"),
        ("people_at = 1\n", "", "consortium.people_at: is missing"),
        ("people_at = 1", "people_at = 1.5", "consortium.people_at: must be a whole number"),
        ('"unbounded"', '"unbouded"', 'Did you mean "unbounded"?'),
        ('"unbounded"', '"unbounded"\nprotocol = "E"', "consortium.protocol: must be"),
        ('"unbounded"', '"unbounded"\nnoise = "gaussian"', "needs delta"),
        ("[relay]", "[quantile]\n[relay]", "say only one of"),
        ('question = "', 'quetsion = "', 'Did you mean "question"?'),
        ('host = "north"', 'host = "North!"', "relay.host: a member's name has"),
        ('host = "north"\n', "", "relay.host: is missing"),
        (":7443", "", "relay.address: must be host:port"),
        ('[relay]\nhost = "north"\naddress = "127.0.0.1:7443"\n', "", "relay: is missing"),
        ("[relay]", "[deadlines]\nround = 0\n[relay]", "deadlines.round: must lie between"),
        ("[consortium]", "[consortum]", 'Did you mean "consortium"?'),
    ],
)
def test_every_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(BadFile) as caught:
        read_draft(path)
    assert any(told in mistake for mistake in caught.value.mistakes)
    assert all(str(path) in mistake for mistake in caught.value.mistakes)


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("epsilon = 1.0", "epsilon = 0").replace(":7443", ""))
    with pytest.raises(BadFile) as caught:
        read_draft(path)
    assert len(caught.value.mistakes) == 2


@pytest.mark.parametrize(("members", "told"), [(1, "coalition"), (0, "members")])
def test_what_does_not_fit_the_members_is_a_mistake_at_its_line(
    tmp_path: Path, members: int, told: str
) -> None:
    file = read_draft(written(tmp_path, GOOD))
    with pytest.raises(BadFile, match=told):
        file.requirements(members)


def test_there_is_a_file_or_a_hint_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="lapwing party example"):
        read_draft(tmp_path / "none.toml")


def test_a_consortium_is_made_of_a_wish_and_cards_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = read_draft(written(tmp_path, GOOD))
    keys = [MemberKeys.create(name, tmp_path / name) for name in ("south", "north", "east")]
    vector = {"kind": "vector", "length": 4, "l1": 1, "l2_squared": 1, "labels": list("abcd")}
    statistic = statistic_of(vector, None)
    cards = [one.card for one in keys]
    made = found_consortium(file, cards, statistic)
    assert made.names == ("east", "north", "south")
    assert made.digest == found_consortium(file, cards[::-1], statistic).digest
    assert made.host.name == "north"
    assert made.plan == plan_for(file, 3, statistic)
    require_same_meaning(made, statistic)
    other = statistic_of({**vector, "l1": 2, "l2_squared": 4}, None)
    with pytest.raises(BadParameter, match="mean the same"):
        require_same_meaning(made, other)
    with monkeypatch.context() as patched:  # noise is sized for these blocks, whatever a digest says
        patched.setattr(type(other), "meaning", statistic.meaning)
        with pytest.raises(BadParameter, match="other blocks"):
            require_same_meaning(made, other)
    with pytest.raises(BadParameter, match="several are called south"):
        found_consortium(file, [*cards, cards[0]], statistic)
    with pytest.raises(BadFile, match="north is none of east, south"):
        found_consortium(file, [cards[0], cards[2]], statistic)
    west = MemberKeys.create("west", tmp_path / "west").card
    with pytest.raises(BadFile, match="none of"):
        found_consortium(file, cards, statistic, relay=west)


def test_the_relay_may_be_somebody_else(tmp_path: Path) -> None:
    file = read_draft(written(tmp_path, GOOD.replace('host = "north"', 'host = "hub"')))
    cards = [MemberKeys.create(name, tmp_path / name).card for name in ("south", "north", "east", "hub")]
    vector = {"kind": "vector", "length": 4, "l1": 1, "l2_squared": 1, "labels": list("abcd")}
    made = found_consortium(file, cards[:3], statistic_of(vector, None), relay=cards[3])
    assert made.host.name == "hub"
    assert "hub" not in made.names
