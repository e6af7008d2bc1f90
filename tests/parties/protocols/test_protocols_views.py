"""What a coalition sees, exactly: for every protocol, coalition, loss, late post and lie of the relay.

No sampling. Inputs are neighbours if one honest member's value moves by 1. Noise shares are sized at ε = 1
for the honest members that the protocol guarantees, and taken modulo a small prime, which tells less than
whole numbers would; so losses lie below 1, and bounds are proven in balls.
How: src/lapwing/audit/coalition_views.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from random import Random

import numpy as np
import pytest
from flint import arb

from lapwing.audit.coalition_views import (
    HONEST_RELAY,
    NOTHING_LOST,
    Basis,
    Chosen,
    Schedule,
    coalitions,
    leaked,
    worst_loss,
)
from lapwing.core.laplace import LaplaceShares
from lapwing.parties.protocols.masked_sum import MASKED, UNMASK, MaskedSum
from lapwing.parties.protocols.protocol import OpenedSum, Post, Protocol, ProtocolStopped, Publics, Setting
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.protocols.secret_sharing import Elements
from lapwing.parties.protocols.share_dealing import AdditiveSharing, ShamirSharing
from lapwing.parties.simulation import SimulatedRun
from support.enumerated_views import all_schedules, enumerated_loss
from support.slowly import slow

Shape = tuple[int, int, int, int]  # members, coalition, losses, modulus
SMALL = [
    ("A", (2, 1, 0, 3)),
    ("A", (3, 2, 0, 5)),
    ("A", (3, 1, 1, 5)),
    ("B", (2, 1, 0, 3)),
    ("B", (3, 1, 0, 5)),
    ("B", (3, 2, 0, 5)),
    ("B", (3, 1, 1, 5)),
    ("C", (3, 1, 0, 5)),
    ("C", (3, 1, 1, 5)),
    ("D", (2, 1, 0, 3)),
    ("D", (3, 1, 1, 5)),
]
LARGER = [
    ("A", (4, 3, 0, 5)),
    ("B", (4, 1, 1, 5)),
    ("B", (4, 3, 0, 5)),
    ("C", (4, 1, 0, 5)),
    ("C", (4, 1, 1, 5)),
    ("D", (3, 1, 0, 5)),
    ("D", (3, 2, 0, 5)),
]


def setting_of(members: int, coalition: int, losses: int, modulus: int) -> Setting:
    return Setting(members=members, coalition=coalition, losses=losses, length=1, modulus=modulus)


def worst(
    protocol: type[Protocol], setting: Setting, schedules: Iterable[Schedule], *, shares: int | None = None
) -> arb:
    """Over all coalitions and these schedules. Members add 1/shares of a noise, as planned if not given."""
    found = arb(0)
    for schedule in schedules:
        world = Basis(setting)
        rehearsal = world.run(protocol, setting, schedule)
        for coalition in coalitions(setting):
            rows = leaked(world, rehearsal, coalition)
            found = max(found, worst_loss(rows, setting.modulus, shares or protocol.honest(setting)))
    return found


def every_schedule(protocol: type[Protocol], setting: Setting) -> Iterator[Schedule]:
    return all_schedules(setting.members, len(protocol.rounds))


@pytest.mark.parametrize(("letter", "shape"), SMALL)
def test_no_view_tells_more_than_epsilon(letter: str, shape: Shape) -> None:
    setting = setting_of(*shape)
    protocol = PROTOCOLS[letter]
    assert worst(protocol, setting, every_schedule(protocol, setting)) < 1


@pytest.mark.slow
@pytest.mark.parametrize(("letter", "shape"), LARGER)
def test_no_view_of_more_members_tells_more_than_epsilon(letter: str, shape: Shape) -> None:
    setting = setting_of(*shape)
    protocol = PROTOCOLS[letter]
    assert worst(protocol, setting, every_schedule(protocol, setting)) < 1


@pytest.mark.slow
def test_no_view_of_the_masked_star_with_four_members_tells_more_than_epsilon() -> None:
    """2,000 of the 14,641 schedules, drawn by a fixed generator."""
    setting = setting_of(4, 1, 1, 5)
    schedules = Random(6).sample(list(every_schedule(MaskedSum, setting)), 2_000)
    assert worst(MaskedSum, setting, schedules) < 1


@pytest.mark.parametrize(
    ("letter", "members", "coalition", "losses"), [("B", 3, 1, 0), ("C", 3, 1, 1), slow("D", 3, 1, 1)]
)
def test_a_view_tells_one_sum_over_enough_honest_members_or_nothing(
    letter: str, members: int, coalition: int, losses: int
) -> None:
    setting = setting_of(members, coalition, losses, 5)
    protocol = PROTOCOLS[letter]
    for schedule in every_schedule(protocol, setting):
        world = Basis(setting)
        rehearsal = world.run(protocol, setting, schedule)
        for adversary in coalitions(setting):
            rows = leaked(world, rehearsal, adversary)
            assert len(rows) <= 1
            for row in rows:
                assert set(row) <= {0, 1}
                assert sum(row) >= len(row) - losses
            earlier = SimulatedRun(rehearsal.outcomes, rehearsal.rounds[:-1])
            assert leaked(world, earlier, adversary) == (), "so losses may be chosen by what was seen"
        if any(isinstance(outcome, OpenedSum) for outcome in rehearsal.outcomes):
            assert leaked(world, rehearsal, frozenset()), "what was opened is in the view"


@pytest.mark.parametrize(
    ("letter", "shape", "schedule"),
    [
        ("A", (2, 1, 0, 3), NOTHING_LOST),
        ("B", (2, 1, 0, 3), NOTHING_LOST),
        ("B", (3, 1, 0, 3), NOTHING_LOST),
        ("B", (3, 1, 1, 3), Schedule({2: 0}, {}, HONEST_RELAY)),
        ("B", (3, 1, 0, 3), Schedule({}, {2: 3}, HONEST_RELAY)),
        ("B", (3, 2, 0, 3), Schedule({}, {0: 1}, HONEST_RELAY)),
        ("C", (3, 1, 0, 5), NOTHING_LOST),
        ("C", (3, 1, 1, 5), Schedule({1: 1}, {2: 0}, HONEST_RELAY)),
        ("C", (3, 1, 1, 5), Schedule({}, {2: 2}, HONEST_RELAY)),
        ("D", (2, 1, 0, 3), NOTHING_LOST),
        ("D", (2, 1, 0, 3), Schedule({}, {1: 2}, HONEST_RELAY)),
        ("D", (2, 1, 0, 3), Schedule({0: 4}, {}, HONEST_RELAY)),
    ],
)
def test_counting_all_coins_agrees(letter: str, shape: Shape, schedule: Schedule) -> None:
    """Views counted over all values and all coins, with whatever the coalition's own coins are."""
    setting = setting_of(*shape)
    protocol = PROTOCOLS[letter]
    world = Basis(setting)
    rehearsal = world.run(protocol, setting, schedule)
    for adversary in coalitions(setting):
        rows = leaked(world, rehearsal, adversary)
        algebra = worst_loss(rows, setting.modulus, protocol.honest(setting))
        hidden = sum(not owners & adversary for owners in world.owners)
        if setting.modulus**hidden > 100_000:
            continue
        given = {u: 1 + u % 2 for u in range(len(world.owners))} if adversary else {}
        counted, looked_at = enumerated_loss(protocol, setting, schedule, adversary, given=given)
        assert looked_at == setting.modulus**hidden
        assert abs(counted - algebra) < 1e-30
        assert counted < 1


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_messages_are_linear_in_values_and_coins(letter: str) -> None:
    """The map from one run at unit vectors predicts every number of runs at random points."""
    setting = setting_of(4, 1, 1, 7)
    generator = np.random.default_rng(6)
    for schedule in (NOTHING_LOST, Schedule({3: 3}, {2: len(PROTOCOLS[letter].rounds) // 2}, HONEST_RELAY)):
        world = Basis(setting)
        basis = world.run(PROTOCOLS[letter], setting, schedule)
        unknowns = len(world.owners)
        points: Elements = generator.integers(0, 7, (unknowns, 50)).astype(np.uint64)
        other = Chosen(setting, points)
        rehearsal = other.run(PROTOCOLS[letter], setting, schedule)
        everybody = range(setting.members)
        linear = world.seen(basis, everybody)[:, :unknowns]
        assert len(linear) >= 12
        expected = linear @ points.astype(np.int64) % 7
        assert np.array_equal(other.seen(rehearsal, everybody), expected)


# A relay that lies


def lies(setting: Setting, rounds: Sequence[int]) -> Iterator[Schedule]:
    """In these rounds every member is shown any posts with its own among them."""
    places = list(product(rounds, range(setting.members)))
    choices = [_subsets_with(i, setting.members) for _, i in places]
    for chosen in product(*choices):
        yield Schedule({}, {}, dict(zip(places, chosen, strict=True)))


def _subsets_with(member: int, members: int) -> list[Collection[int]]:
    others = [i for i in range(members) if i != member]
    sizes = (combinations(others, size) for size in range(members))
    return [{member, *some} for some in chain.from_iterable(sizes)]


def some_lies(setting: Setting, rounds: int, count: int) -> Iterator[Schedule]:
    """In all rounds, drawn by a fixed generator; half of the places are shown the truth."""
    random = Random(14)
    for _ in range(count):
        shown: dict[tuple[int, int], Collection[int]] = {}
        for at in range(rounds):
            for i in range(setting.members):
                if random.random() < 0.5:
                    shown[at, i] = random.choice(_subsets_with(i, setting.members))
        yield Schedule({}, {}, shown)


@pytest.mark.parametrize("letter", ["A", "B", "C", "D"])
def test_a_lying_relay_learns_no_more(letter: str) -> None:
    setting = setting_of(3, 1, 1, 5)
    protocol = PROTOCOLS[letter]
    each = chain.from_iterable(lies(setting, [at]) for at in range(len(protocol.rounds)))
    assert worst(protocol, setting, each) < 1
    assert worst(protocol, setting, some_lies(setting, len(protocol.rounds), 150)) < 1


@pytest.mark.parametrize("letter", ["A", "B", "C", "D"])
def test_a_lying_relay_among_four_members_learns_no_more(letter: str) -> None:
    """Here sets of three and of four members could both be opened, if members let it happen."""
    setting = setting_of(4, 1, 1, 5)
    protocol = PROTOCOLS[letter]
    assert worst(protocol, setting, some_lies(setting, len(protocol.rounds), 40)) < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("letter", "rounds"), [("B", (0, 1)), ("B", (1, 2)), ("C", (0, 1)), ("D", (1, 2)), ("D", (2, 3))]
)
def test_no_two_rounds_of_lies_tell_more(letter: str, rounds: tuple[int, int]) -> None:
    setting = setting_of(3, 1, 1, 5)
    assert worst(PROTOCOLS[letter], setting, lies(setting, rounds)) < 1


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_many_lies_among_four_members_tell_no_more(letter: str) -> None:
    setting = setting_of(4, 1, 1, 5)
    protocol = PROTOCOLS[letter]
    assert worst(protocol, setting, some_lies(setting, len(protocol.rounds), 3_000)) < 1


# Members that sign two agreements, together with a relay that lies


LIARS = frozenset({0, 1})


def signing_twice(
    letter: str, *, honest_quorum: bool, shown: Mapping[tuple[int, int], Collection[int]]
) -> arb:
    """What two of five learn who sign whatever anybody needs to go on. One loss is planned, so g = 2."""
    setting = Setting(members=5, coalition=2, losses=1, length=1, modulus=7, honest_quorum=honest_quorum)
    protocol, world = PROTOCOLS[letter], Basis(setting)
    rehearsal = world.run(protocol, setting, Schedule({}, {}, shown, LIARS))
    return worst_loss(leaked(world, rehearsal, LIARS), 7, protocol.honest(setting))


@pytest.mark.parametrize(("letter", "at"), [("C", "deal"), ("D", "masked")])
def test_two_signed_agreements_isolate_a_member_unless_the_quorum_has_an_honest_one_in_common(
    letter: str, at: str
) -> None:
    """Members 3 and 4 agree on a set without member 2, which agrees on one with it. The difference of the
    two sums is its value with half a noise: ε 1.68 instead of 1, and here, modulo 7, a little less."""
    number = PROTOCOLS[letter].rounds.index(at)
    shown = {(number, i): {0, 1, 3, 4} for i in (3, 4)}
    assert signing_twice(letter, honest_quorum=False, shown=shown) > 1.3
    assert signing_twice(letter, honest_quorum=True, shown=shown) < 1
    assert round(float(LaplaceShares.for_epsilon(1, l1=1, of=2).loss_with(1)), 2) == 1.68


@pytest.mark.parametrize("letter", ["A", "B", "C", "D"])
def test_no_lies_to_an_honest_quorum_tell_more(letter: str) -> None:
    """In any rounds, to any honest members; drawn by a fixed generator."""
    setting = setting_of(5, 2, 1, 7)
    for schedule in some_lies(setting, len(PROTOCOLS[letter].rounds), 60 if letter != "D" else 15):
        shown = {(at, i): {*LIARS, *who} for (at, i), who in schedule.shown.items() if i not in LIARS}
        assert signing_twice(letter, honest_quorum=True, shown=shown) < 1


# The tests above would notice


class NoRules(Protocol):
    """Posts whatever it can, however few have shared their noise and whoever has agreed."""

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        """Whoever is there is enough."""

    @classmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        raise ProtocolStopped("only the view matters here")


class CarelessAdditive(NoRules, AdditiveSharing): ...


class CarelessShamir(NoRules, ShamirSharing): ...


class CarelessMasked(NoRules, MaskedSum):
    """Needs no more pieces than a coalition and one member have, too."""

    @classmethod
    def threshold(cls, setting: Setting) -> int:
        return setting.coalition + 1


@pytest.mark.parametrize(
    ("right", "careless"),
    [(AdditiveSharing, CarelessAdditive), (ShamirSharing, CarelessShamir), (MaskedSum, CarelessMasked)],
)
def test_a_sum_with_too_few_shares_of_noise_would_be_noticed(
    right: type[Protocol], careless: type[Protocol]
) -> None:
    setting = setting_of(3, 1, 0, 5)
    fewer = Schedule({2: 0}, {}, HONEST_RELAY)
    assert worst(right, setting, [fewer]) == 0, "stops, and nothing was opened"
    assert worst(careless, setting, [fewer]) > 1.3


@pytest.mark.parametrize("protocol", [AdditiveSharing, ShamirSharing, MaskedSum])
def test_noise_sized_for_all_members_instead_of_the_honest_ones_would_be_noticed(
    protocol: type[Protocol],
) -> None:
    """M4: a coalition knows its own shares of the noise, and subtracts them."""
    setting = setting_of(3, 1, 0, 5)
    assert worst(protocol, setting, [NOTHING_LOST], shares=2) < 1
    assert worst(protocol, setting, [NOTHING_LOST], shares=3) > 1


class BothSecrets(MaskedSum):
    """Gives back whatever it holds."""

    def _post(self, number: int) -> Post:
        if number != UNMASK:
            return super()._post(number)
        return Post(b"".join(self.field.to_bytes(held) for held in self._held.values()))


class NoSelfMask(MaskedSum):
    """Masks of pairs only: enough, if nobody was ever late."""

    def _masked(self) -> Elements:
        own = self.masks.expand(self._seed, self.setting.modulus, self.setting.length)
        return self.field.subtract(super()._masked(), own)


LATE_VALUE = Schedule({}, {2: MASKED}, HONEST_RELAY)


@pytest.mark.parametrize("broken", [BothSecrets, NoSelfMask])
def test_a_late_value_under_one_mask_would_be_noticed(broken: type[MaskedSum]) -> None:
    """Member 2 is late with its masked value; the others need its mask key to open their sum."""
    setting = setting_of(4, 1, 1, 5)
    assert worst(MaskedSum, setting, [LATE_VALUE]) < 1
    assert worst(broken, setting, [LATE_VALUE]) > 1.3


def test_self_masks_matter_only_for_who_is_late() -> None:
    setting = setting_of(4, 1, 1, 5)
    assert worst(NoSelfMask, setting, [NOTHING_LOST, Schedule({2: MASKED}, {}, HONEST_RELAY)]) < 1


def two_sets(protocol: type[Protocol], at: str) -> Schedule:
    """Member 1 is shown the posts of all but member 3; the others are shown all."""
    shown: Mapping[tuple[int, int], Collection[int]] = {(protocol.rounds.index(at), 1): {0, 1, 2}}
    return Schedule({}, {}, shown)


@pytest.mark.parametrize(
    ("right", "careless", "at"),
    [(ShamirSharing, CarelessShamir, "deal"), (MaskedSum, CarelessMasked, "masked")],
)
def test_answers_for_two_sets_would_be_noticed(
    right: type[Protocol], careless: type[Protocol], at: str
) -> None:
    """The difference of two opened sums is one member's value, with half a noise."""
    setting = setting_of(4, 1, 1, 5)
    assert worst(right, setting, [two_sets(right, at)]) < 1
    assert worst(careless, setting, [two_sets(careless, at)]) > 1.3
