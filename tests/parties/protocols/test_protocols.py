"""Every protocol through whole runs: the sum, who is in it, what stops it, sizes, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.parties.protocols import (
    FIELD,
    LARGEST_VALUE,
    NAMES,
    PROTOCOLS,
    FreshCoins,
    Heard,
    Opened,
    Post,
    Protocol,
    Setting,
    Stop,
)
from lapwing.parties.protocols.protocol import Ints
from lapwing.parties.protocols.rehearsal import Rehearsal, rehearse


def setting_of(members: int, coalition: int = 0, losses: int = 0, length: int = 4) -> Setting:
    return Setting(members=members, coalition=coalition, losses=losses, length=length)


def feared(letter: str, members: int) -> int:
    """A coalition that every protocol can hold against: a minority, and somebody if there are several."""
    if (letter, members) == ("C", 2):
        pytest.skip("of two members no minority can be feared")
    return min(max((members - 1) // 2, 1), members - 1)


def values_of(setting: Setting) -> list[Ints]:
    generator = np.random.default_rng(setting.members)
    return [generator.integers(-1000, 1000, setting.length) for _ in range(setting.members)]


def rehearsed(
    letter: str,
    setting: Setting,
    *,
    losses: Mapping[int, int] | None = None,
    late: Mapping[int, int] | None = None,
) -> Rehearsal:
    return rehearse(letter, setting, values_of(setting), losses=losses or {}, late=late or {})


def assert_opened(setting: Setting, rehearsal: Rehearsal, contributors: tuple[int, ...]) -> None:
    opened = rehearsal.opened
    assert opened.contributors == contributors
    values = values_of(setting)
    assert opened.values.tolist() == sum(values[i] for i in contributors).tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("letter", PROTOCOLS)
@pytest.mark.parametrize("members", [1, 2, 3, 10])
def test_everybody_opens_the_sum(letter: str, members: int) -> None:
    setting = setting_of(members, feared(letter, members))
    rehearsal = rehearsed(letter, setting)
    assert_opened(setting, rehearsal, tuple(range(members)))
    assert all(isinstance(outcome, Opened) for outcome in rehearsal.outcomes)


@pytest.mark.parametrize("letter", PROTOCOLS)
@pytest.mark.parametrize("members", [1, 2, 3, 10])
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
    assert observed.values.tolist() == rehearsal.opened.values.tolist()
    assert observed.contributors == rehearsal.opened.contributors == (0, 1, 2, 4)
    with pytest.raises(Stop):
        PROTOCOLS[letter].observe(setting, publics[:-1])
    fewer = [*publics[:-1], {0: publics[-1][0]}]
    with pytest.raises(Stop):
        PROTOCOLS[letter].observe(setting, fewer)


def test_an_impossible_setting_is_not_observed() -> None:
    with pytest.raises(BadParameter):
        PROTOCOLS["C"].observe(setting_of(2, 1), [])


@pytest.mark.parametrize(
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
        assert isinstance(outcome, Stop if i in losses or i in late else Opened)


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
        assert isinstance(outcome, Stop)
        assert outcome.members == ((i,) if i in losses else missing)
    with pytest.raises(Stop):
        _ = rehearsal.opened
    assert len(rehearsal.rounds) >= max(losses.values())


@pytest.mark.parametrize("letter", PROTOCOLS)
def test_no_two_sets_are_opened(letter: str) -> None:
    """A relay shows some members one post less, in every round and to all sets of members."""
    setting = setting_of(4, 1, 1)
    values = values_of(setting)
    for at, who in product(range(len(PROTOCOLS[letter].rounds)), product((False, True), repeat=4)):
        shown = {(at, i): {0, 1, 2} for i in range(3) if who[i]}
        done = rehearse(letter, setting, values, shown=shown)
        opened = {one.contributors for one in done.outcomes if isinstance(one, Opened)}
        assert len(opened) <= 1, (at, who)


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_nothing_is_posted_after_a_stop(letter: str) -> None:
    rehearsal = rehearsed(letter, setting_of(3, 1), losses={0: 0})
    assert [len(said.posts) for said in rehearsal.rounds][1:] == [0] * (len(rehearsal.rounds) - 1)


@pytest.mark.parametrize(
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
        assert rehearse(letter, setting, values).opened.values.tolist() == [3 * sign * setting.largest] * 4


# Form


def play(protocols: list[Protocol], until: int) -> dict[int, Post]:
    """All rounds before `until` as they should be; then the posts of that round, not yet heard."""
    for number in range(until + 1):
        posts = {p.me: p.post(number) for p in protocols}
        if number < until:
            for p in protocols:
                p.hear(number, heard_by(p.me, posts))
    return posts


def heard_by(recipient: int, posts: Mapping[int, Post]) -> dict[int, Heard]:
    return {i: Heard(post.public, (post.private or {}).get(recipient)) for i, post in posts.items()}


def members_of(letter: str, setting: Setting) -> list[Protocol]:
    values = values_of(setting)
    return [PROTOCOLS[letter](setting, i, values[i], FreshCoins()) for i in range(setting.members)]


ROUNDS = [(letter, at) for letter, kind in PROTOCOLS.items() for at in range(len(kind.rounds))]
BAD = [b"x", bytes(32), b"\xff" * 32, bytes(33), b"\xff" * 120, bytes(10_000)]


@pytest.mark.parametrize(("letter", "at"), ROUNDS)
def test_a_public_part_of_another_form_is_refused_by_the_number_of_its_sender(letter: str, at: int) -> None:
    setting = setting_of(3, 1, length=5)
    size = PROTOCOLS[letter].traffic(setting)[at].public
    key = (letter, at) == ("D", 0)  # any 32 bytes are a key; such of low order are refused later
    for bad in (b"", *BAD, b"\xff" * size if not key else b""):
        if len(bad) == size and (key or not size):
            continue
        protocols = members_of(letter, setting)
        posts = play(protocols, at)
        heard = heard_by(0, posts) | {2: Heard(bad, (posts[2].private or {}).get(0))}
        with pytest.raises(Stop) as stop:
            protocols[0].hear(at, heard)
        assert stop.value.members == (2,)
        with pytest.raises(Stop):
            protocols[0].post(at + 1)


@pytest.mark.parametrize(("letter", "at"), [("B", 1), ("C", 0), ("D", 1)])
@pytest.mark.parametrize("bad", [None, b"", *BAD])
def test_a_private_part_of_another_form_is_refused_by_the_number_of_its_sender(
    letter: str, at: int, bad: bytes | None
) -> None:
    protocols = members_of(letter, setting_of(3, 1, length=5))
    posts = play(protocols, at)
    with pytest.raises(Stop) as stop:
        protocols[0].hear(at, heard_by(0, posts) | {1: Heard(b"", bad)})
    assert stop.value.members == (1,)


@pytest.mark.parametrize(("letter", "at"), [("C", 2), ("D", 4)])
def test_a_point_off_the_polynomial_stops_and_names_who_may_have_spoilt_it(letter: str, at: int) -> None:
    setting = setting_of(5, 1)
    protocols = members_of(letter, setting)
    posts = play(protocols, at)
    wrong = bytes([posts[3].public[0] ^ 1]) + posts[3].public[1:]
    protocols[0].hear(at, heard_by(0, posts) | {3: Heard(wrong)})
    with pytest.raises(Stop) as stop:
        _ = protocols[0].opened
    assert stop.value.members == (3,)


def test_a_key_of_low_order_is_refused_by_the_number_of_its_sender() -> None:
    protocols = members_of("D", setting_of(3, 1))
    posts = play(protocols, 0)
    for p in protocols[:2]:
        p.hear(0, heard_by(p.me, posts) | {2: Heard(bytes(32))})
    protocols[2].hear(0, heard_by(2, posts))
    seeds = {p.me: p.post(1) for p in protocols}
    with pytest.raises(Stop) as stop:
        protocols[0].hear(1, heard_by(0, seeds))
    assert stop.value.members == (2,)


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_who_has_missed_a_round_is_out(letter: str) -> None:
    setting = setting_of(5, 1, 1)
    protocols = members_of(letter, setting)
    first = {p.me: p.post(0) for p in protocols}
    for p in protocols[:4]:
        p.hear(0, {i: h for i, h in heard_by(p.me, first).items() if i != 4})
    with pytest.raises(Stop) as missed:
        protocols[4].hear(0, {i: h for i, h in heard_by(4, first).items() if i != 4})
    assert missed.value.members == (4,)
    posts = {p.me: p.post(1) for p in protocols[:4]}
    with pytest.raises(Stop) as stranger:
        protocols[0].hear(1, heard_by(0, posts) | {4: Heard()})
    assert stranger.value.members == (4,)


@pytest.mark.parametrize("letter", PROTOCOLS)
def test_a_member_posts_and_hears_once_in_each_round(letter: str) -> None:
    protocols = members_of(letter, setting_of(3, 1))
    one = protocols[0]
    with pytest.raises(Stop):
        one.hear(0, {})
    posts = play(protocols, 0)
    with pytest.raises(Stop):
        one.post(0)
    with pytest.raises(Stop):
        one.post(1)
    with pytest.raises(Stop):
        _ = one.opened
    one.hear(0, heard_by(0, posts))
    with pytest.raises(Stop):
        one.hear(0, heard_by(0, posts))


@pytest.mark.parametrize(
    "value", [np.zeros(3, dtype=np.int64), np.zeros((4, 1), dtype=np.int64), np.zeros(4, dtype=np.float64)]
)
def test_values_of_another_form_are_refused(value: Ints) -> None:
    with pytest.raises(BadParameter):
        PROTOCOLS["A"](setting_of(3), 0, value, FreshCoins())


def test_members_of_other_numbers_are_refused() -> None:
    value = np.zeros(4, dtype=np.int64)
    with pytest.raises(BadParameter):
        PROTOCOLS["A"](setting_of(3), 3, value, FreshCoins())
    with pytest.raises(BadParameter):
        rehearse("A", setting_of(3), [value])


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": 0},
        {"members": 1001},
        {"coalition": 3},
        {"coalition": -1},
        {"losses": 3},
        {"coalition": 2, "losses": 1},
        {"length": 0},
        {"modulus": 4},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    fields = {"members": 3, "coalition": 0, "losses": 0, "length": 1} | wrong
    with pytest.raises(BadParameter):
        Setting(**fields)  # type: ignore[arg-type]


# Fresh, and silent


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_masks_and_shares_are_fresh_each_run(letter: str) -> None:
    setting = setting_of(3, 1)
    runs = [rehearsed(letter, setting) for _ in range(2)]
    said = [{seen.content for seen in run.view(range(3)) if len(seen.content) > 0} for run in runs]
    assert said[0]
    assert not said[0] & said[1]


def test_masks_of_another_run_or_stage_differ_even_with_the_same_keys() -> None:
    class Repeating(FreshCoins):
        """What must never be: the same secrets twice."""

        def secret(self) -> bytes:
            return bytes(range(32))

    def masked(run: bytes) -> bytes:
        setting = Setting(members=2, coalition=1, losses=0, length=4, run=run)
        coins = [Repeating(), Repeating()]
        said = rehearse("D", setting, [np.zeros(4, dtype=np.int64)] * 2, coins=coins)
        return said.rounds[2].posts[0].public

    assert masked(bytes(32)) != masked(bytes(31) + b"\x01")


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_no_post_has_a_value_in_the_clear(letter: str) -> None:
    setting = setting_of(3, 1)
    values = [np.full(4, 1_234_567 + i) for i in range(3)]
    for seen in rehearse(letter, setting, values).view(range(3)):
        for i in range(3):
            assert (1_234_567 + i).to_bytes(8, "little") not in seen.content
