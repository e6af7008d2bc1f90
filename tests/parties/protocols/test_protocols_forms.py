"""Every protocol, message by message: what has another form is refused, and posts are fresh and silent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from lapwing.audit.coalition_views import view
from lapwing.errors import BadParameter
from lapwing.parties.protocols.protocol import Heard, Ints, Post, Protocol, ProtocolStopped, Setting
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.protocols.secret_sharing import FreshCoins
from lapwing.parties.simulation import run_in_memory
from support.cases import each
from support.rehearsals import rehearsed, setting_of, values_of


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
        with pytest.raises(ProtocolStopped) as stop:
            protocols[0].hear(at, heard)
        assert stop.value.members == (2,)
        with pytest.raises(ProtocolStopped):
            protocols[0].post(at + 1)


@each(("letter", "at"), [("B", 1), ("C", 0), ("D", 1)])
@each("bad", [None, b"", *BAD])
def test_a_private_part_of_another_form_is_refused_by_the_number_of_its_sender(
    letter: str, at: int, bad: bytes | None
) -> None:
    protocols = members_of(letter, setting_of(3, 1, length=5))
    posts = play(protocols, at)
    with pytest.raises(ProtocolStopped) as stop:
        protocols[0].hear(at, heard_by(0, posts) | {1: Heard(b"", bad)})
    assert stop.value.members == (1,)


@pytest.mark.parametrize(("letter", "at"), [("C", 2), ("D", 4)])
def test_a_point_off_the_polynomial_stops_and_names_who_may_have_spoilt_it(letter: str, at: int) -> None:
    setting = setting_of(5, 1)
    protocols = members_of(letter, setting)
    posts = play(protocols, at)
    wrong = bytes([posts[3].public[0] ^ 1]) + posts[3].public[1:]
    protocols[0].hear(at, heard_by(0, posts) | {3: Heard(wrong)})
    with pytest.raises(ProtocolStopped) as stop:
        _ = protocols[0].opened
    assert stop.value.members == (3,)


def test_a_key_of_low_order_is_refused_by_the_number_of_its_sender() -> None:
    protocols = members_of("D", setting_of(3, 1))
    posts = play(protocols, 0)
    for p in protocols[:2]:
        p.hear(0, heard_by(p.me, posts) | {2: Heard(bytes(32))})
    protocols[2].hear(0, heard_by(2, posts))
    seeds = {p.me: p.post(1) for p in protocols}
    with pytest.raises(ProtocolStopped) as stop:
        protocols[0].hear(1, heard_by(0, seeds))
    assert stop.value.members == (2,)


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_who_has_missed_a_round_is_out(letter: str) -> None:
    setting = setting_of(5, 1, 1)
    protocols = members_of(letter, setting)
    first = {p.me: p.post(0) for p in protocols}
    for p in protocols[:4]:
        p.hear(0, {i: h for i, h in heard_by(p.me, first).items() if i != 4})
    with pytest.raises(ProtocolStopped) as missed:
        protocols[4].hear(0, {i: h for i, h in heard_by(4, first).items() if i != 4})
    assert missed.value.members == (4,)
    posts = {p.me: p.post(1) for p in protocols[:4]}
    with pytest.raises(ProtocolStopped) as stranger:
        protocols[0].hear(1, heard_by(0, posts) | {4: Heard()})
    assert stranger.value.members == (4,)


@pytest.mark.parametrize("letter", PROTOCOLS)
def test_a_member_posts_and_hears_once_in_each_round(letter: str) -> None:
    protocols = members_of(letter, setting_of(3, 1))
    one = protocols[0]
    with pytest.raises(ProtocolStopped):
        one.hear(0, {})
    posts = play(protocols, 0)
    with pytest.raises(ProtocolStopped):
        one.post(0)
    with pytest.raises(ProtocolStopped):
        one.post(1)
    with pytest.raises(ProtocolStopped):
        _ = one.opened
    one.hear(0, heard_by(0, posts))
    with pytest.raises(ProtocolStopped):
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
        run_in_memory("A", setting_of(3), [value])


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
    said = [{seen.content for seen in view(run, range(3)) if len(seen.content) > 0} for run in runs]
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
        said = run_in_memory("D", setting, [np.zeros(4, dtype=np.int64)] * 2, coins=coins)
        return said.rounds[2].posts[0].public

    assert masked(bytes(32)) != masked(bytes(31) + b"\x01")


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_no_post_has_a_value_in_the_clear(letter: str) -> None:
    setting = setting_of(3, 1)
    values = [np.full(4, 1_234_567 + i) for i in range(3)]
    for seen in view(run_in_memory(letter, setting, values), range(3)):
        for i in range(3):
            assert (1_234_567 + i).to_bytes(8, "little") not in seen.content
