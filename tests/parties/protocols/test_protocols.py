"""Every protocol through whole runs: the sum, who is in it, what stops it, and sizes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.parties.protocols.protocol import LARGEST_VALUE, OpenedSum, ProtocolStopped, Setting
from lapwing.parties.protocols.registry import NAMES, PROTOCOLS
from lapwing.parties.protocols.secret_sharing import FIELD, FreshCoins
from lapwing.parties.simulation import SimulatedRun, run_in_memory
from support.cases import each
from support.rehearsals import rehearsed, setting_of, values_of


def feared(letter: str, members: int) -> int:
    """A coalition that every protocol can hold against: a minority, and somebody if there are several."""
    if (letter, members) == ("C", 2):
        pytest.skip("of two members no minority can be feared")
    return min(max((members - 1) // 2, 1), members - 1)


def assert_opened(setting: Setting, rehearsal: SimulatedRun, contributors: tuple[int, ...]) -> None:
    opened = rehearsal.opened
    assert opened.contributors == contributors
    values = values_of(setting)
    assert opened.values.tolist() == sum(values[i] for i in contributors).tolist()  # type: ignore[union-attr]


@each("letter", PROTOCOLS)
@each("members", [1, 2, 3, 10])
def test_everybody_opens_the_sum(letter: str, members: int) -> None:
    setting = setting_of(members, feared(letter, members))
    rehearsal = rehearsed(letter, setting)
    assert_opened(setting, rehearsal, tuple(range(members)))
    assert all(isinstance(outcome, OpenedSum) for outcome in rehearsal.outcomes)


@each("letter", PROTOCOLS)
@each("members", [1, 2, 3, 10])
def test_traffic_is_what_is_posted(letter: str, members: int) -> None:
    setting = setting_of(members, feared(letter, members), length=7)
    planned = PROTOCOLS[letter].traffic(setting)
    for said, traffic in zip(rehearsed(letter, setting).rounds, planned, strict=True):
        assert len(said.posts) == members
        for post in said.posts.values():
            private = post.private or {}
            assert len(post.public) == traffic.public
            assert len(private) == traffic.recipients
            assert {len(part) for part in private.values()} <= {traffic.private}


@pytest.mark.parametrize("letter", PROTOCOLS)
def test_a_stranger_makes_the_same_sum_of_the_public_parts(letter: str) -> None:
    setting = setting_of(5, 1, 1)
    rehearsal = rehearsed(letter, setting, losses={3: 0})
    publics = [said.publics for said in rehearsal.rounds]
    observed = PROTOCOLS[letter].observe(setting, publics)
    assert observed is not None
    assert observed.values.tolist() == rehearsal.opened.values.tolist()
    assert observed.contributors == rehearsal.opened.contributors == (0, 1, 2, 4)
    assert PROTOCOLS[letter].observe(setting, publics[:-1]) is None
    with pytest.raises(ProtocolStopped, match="more rounds"):  # a relay may show rounds of another stage
        PROTOCOLS[letter].observe(setting, [*publics, publics[-1]])
    fewer = [*publics[:-1], {0: publics[-1][0]}]
    with pytest.raises(ProtocolStopped):
        PROTOCOLS[letter].observe(setting, fewer)


def test_an_impossible_setting_is_not_observed() -> None:
    with pytest.raises(BadParameter):
        PROTOCOLS["C"].observe(setting_of(2, 1), [])


@each(
    ("letter", "losses", "late", "contributors"),
    [
        ("A", {4: 0}, {}, (0, 1, 2, 3)),
        ("A", {}, {2: 0}, (0, 1, 3, 4)),
        ("A", {4: 1}, {}, (0, 1, 2, 3, 4)),
        ("A", {3: 1, 4: 0}, {}, (0, 1, 2, 3)),
        ("A", {}, {2: 1, 3: 1}, (0, 1, 2, 3, 4)),
        ("L", {4: 0}, {2: 1}, (0, 1, 2, 3)),
        ("B", {4: 0}, {}, (0, 1, 2, 3)),
        ("B", {}, {0: 0}, (1, 2, 3, 4)),
        ("C", {4: 0}, {}, (0, 1, 2, 3)),
        ("C", {4: 1}, {}, (0, 1, 2, 3, 4)),
        ("C", {3: 1, 4: 1}, {}, (0, 1, 2, 3, 4)),
        ("C", {2: 2, 3: 2, 4: 2}, {}, (0, 1, 2, 3, 4)),
        ("C", {2: 2, 3: 2, 4: 0}, {}, (0, 1, 2, 3)),
        ("C", {}, {0: 0, 1: 1}, (1, 2, 3, 4)),
        ("D", {4: 0}, {}, (0, 1, 2, 3)),
        ("D", {4: 1}, {}, (0, 1, 2, 3)),
        ("D", {4: 2}, {}, (0, 1, 2, 3)),
        ("D", {}, {0: 2}, (1, 2, 3, 4)),
        ("D", {4: 3}, {}, (0, 1, 2, 3, 4)),
        ("D", {3: 4, 4: 2}, {}, (0, 1, 2, 3)),
        ("D", {3: 4, 4: 4}, {}, (0, 1, 2, 3, 4)),
    ],
)
def test_losses_that_are_survived(
    letter: str, losses: dict[int, int], late: dict[int, int], contributors: tuple[int, ...]
) -> None:
    setting = setting_of(5, 1, 1)
    rehearsal = rehearsed(letter, setting, losses=losses, late=late)
    assert_opened(setting, rehearsal, contributors)
    for i, outcome in enumerate(rehearsal.outcomes):
        assert isinstance(outcome, ProtocolStopped if i in losses or i in late else OpenedSum)


@pytest.mark.parametrize(
    ("letter", "losses", "missing"),
    [
        ("A", {3: 0, 4: 0}, (3, 4)),
        ("A", {2: 1, 3: 1, 4: 1}, (2, 3, 4)),
        ("L", {3: 0, 4: 0}, (3, 4)),
        ("B", {3: 0, 4: 0}, (3, 4)),
        ("B", {4: 1}, (4,)),
        ("B", {2: 2}, (2,)),
        ("B", {1: 3}, (1,)),
        ("C", {3: 0, 4: 0}, (3, 4)),
        ("C", {2: 1, 3: 1, 4: 1}, (2, 3, 4)),
        ("C", {1: 2, 2: 2, 3: 2, 4: 2}, (1, 2, 3, 4)),
        ("D", {3: 0, 4: 0}, (3, 4)),
        ("D", {3: 0, 4: 1}, (3, 4)),
        ("D", {3: 2, 4: 1}, (3, 4)),
        ("D", {2: 3, 3: 3, 4: 3}, (2, 3, 4)),
        ("D", {2: 4, 3: 4, 4: 4}, (2, 3, 4)),
    ],
)
def test_more_losses_stop_everybody_and_are_named(
    letter: str, losses: dict[int, int], missing: tuple[int, ...]
) -> None:
    """M2: nothing is opened with less noise than planned."""
    rehearsal = rehearsed(letter, setting_of(5, 1, 1), losses=losses)
    for i, outcome in enumerate(rehearsal.outcomes):
        assert isinstance(outcome, ProtocolStopped)
        assert outcome.members == ((i,) if i in losses else missing)
    with pytest.raises(ProtocolStopped):
        _ = rehearsal.opened
    assert len(rehearsal.rounds) >= max(losses.values())


@pytest.mark.parametrize("letter", PROTOCOLS)
def test_no_two_sets_are_opened(letter: str) -> None:
    """A relay shows some members one post less, in every round and to all sets of members."""
    setting = setting_of(4, 1, 1)
    values = values_of(setting)
    for at, who in product(range(len(PROTOCOLS[letter].rounds)), product((False, True), repeat=4)):
        shown = {(at, i): {0, 1, 2} for i in range(3) if who[i]}
        done = run_in_memory(letter, setting, values, shown=shown)
        opened = {one.contributors for one in done.outcomes if isinstance(one, OpenedSum)}
        assert len(opened) <= 1, (at, who)


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_nothing_is_posted_after_a_stop(letter: str) -> None:
    rehearsal = rehearsed(letter, setting_of(3, 1), losses={0: 0})
    assert [len(said.posts) for said in rehearsal.rounds][1:] == [0] * (len(rehearsal.rounds) - 1)


@each(
    ("letter", "members", "coalition", "losses", "possible"),
    [
        ("A", 3, 2, 0, True),
        ("A", 3, 0, 1, True),
        ("A", 3, 0, 2, False),
        ("A", 1, 0, 0, True),
        ("B", 3, 2, 0, True),
        ("B", 1, 0, 0, True),
        ("B", 3, 1, 1, True),
        ("B", 3, 0, 0, False),
        ("B", 4, 1, 2, False),
        ("B", 5, 1, 3, False),
        ("C", 3, 1, 0, True),
        ("C", 3, 2, 0, False),
        ("C", 4, 2, 0, False),
        ("C", 1, 0, 0, True),
        ("C", 3, 0, 0, False),
        ("C", 4, 1, 2, False),
        ("D", 1, 0, 0, True),
        ("D", 3, 0, 0, False),
        ("D", 3, 2, 0, True),
        ("D", 3, 1, 1, True),
        ("D", 4, 1, 2, False),
        ("D", 5, 3, 1, True),
        ("L", 3, 2, 0, True),
        ("L", 2, 0, 1, False),
    ],
)
def test_impossible_settings_are_refused_with_a_reason(
    letter: str,
    members: int,
    coalition: int,
    losses: int,
    possible: bool,
) -> None:
    setting = setting_of(members, coalition, losses)
    why = PROTOCOLS[letter].refusal(setting)
    assert (why is None) is possible
    if members > 1 and not coalition and letter in "BCD":
        assert why is not None
        assert "from one another" in why
    if not possible:
        value = values_of(setting)[0]
        with pytest.raises(BadParameter):
            PROTOCOLS[letter](setting, 0, value, FreshCoins())


def test_noise_is_sized_for_the_honest_members_who_are_sure_to_be_in() -> None:
    setting = setting_of(7, 2, 1)
    assert {letter: kind.honest(setting) for letter, kind in PROTOCOLS.items()} == {
        "A": 1,
        "B": 4,
        "C": 4,
        "D": 4,
        "L": 1,
    }


def test_protocols_have_names() -> None:
    assert NAMES["A"] == "own noise"
    assert NAMES["D"] == "masked star"
    assert list(NAMES) == ["A", "B", "C", "D", "L"]


def test_sums_of_the_largest_values_fit() -> None:
    for members in (2, 127, 128, 1000):
        setting = setting_of(members)
        assert 0 < setting.largest <= LARGEST_VALUE
        assert members * setting.largest <= FIELD // 4
    assert setting_of(127).largest == LARGEST_VALUE
    setting = setting_of(3, 1)
    for sign, letter in product((-1, 1), "ABCD"):
        values = [np.full(4, sign * setting.largest) for _ in range(3)]
        assert (
            run_in_memory(letter, setting, values).opened.values.tolist()
            == [3 * sign * setting.largest] * 4
        )
