"""Facts 5 and 14: what members who trust only themselves can have, between the curator and the local model.

The exact view tests of all protocols are in tests/parties/protocols/test_protocols_views.py. Fact 5 for
surveys, with its exact
posterior bound, is in test_local_model.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from flint import arb

from lapwing.audit.coalition_views import NOTHING_LOST, Basis, coalitions, leaked, noise_law, worst_loss
from lapwing.core.exact import log_up
from lapwing.core.laplace import Laplace, LaplaceShares
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.parties.protocols.protocol import Setting
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.simulation import run_in_memory
from support.cases import each
from support.enumerated_views import all_schedules
from support.streams import SeededStream

REPEATS = 2_000  # cells of one run, each with noise of its own


def setting_of(
    members: int, coalition: int, *, losses: int = 0, length: int = 1, modulus: int = 0
) -> Setting:
    plain = Setting(members=members, coalition=coalition, losses=losses, length=length)
    if not modulus:
        return plain
    return Setting(members=members, coalition=coalition, losses=losses, length=length, modulus=modulus)


def deviation(epsilon: float) -> float:
    """Of one discrete Laplace noise: the root of V = 2q / (1 - q)^2."""
    q = math.exp(-epsilon)
    return math.sqrt(2 * q) / (1 - q)


# 14


@each("members", [1, 2, 3])
def test_fact_14_every_view_of_all_but_one_member_is_epsilon_private(members: int) -> None:
    """m = 1 is the curator: the view of the relay alone. Else t = m - 1, for all who allow it."""
    setting = setting_of(members, members - 1, modulus=5)
    for letter, protocol in PROTOCOLS.items():
        if protocol.refusal(setting) is not None or (members == 1 and letter == "D"):
            continue  # a member alone has nobody to share a mask with
        schedules = all_schedules(members, len(protocol.rounds)) if members < 3 else [NOTHING_LOST]
        for schedule in schedules:
            world = Basis(setting)
            rehearsal = world.run(protocol, setting, schedule)
            for coalition in coalitions(setting):
                rows = leaked(world, rehearsal, coalition)
                assert worst_loss(rows, setting.modulus, protocol.honest(setting)) < 1


def test_fact_14_one_member_is_the_curator() -> None:
    """Its noise is one whole discrete Laplace noise, whatever the protocol."""
    setting = setting_of(1, 0)
    assert {protocol.honest(setting) for protocol in PROTOCOLS.values()} == {1}
    shares = LaplaceShares.for_epsilon(1, l1=1, of=1)
    curator = Laplace.for_epsilon(1, l1=1)
    assert (shares.scale, shares.loss) == (curator.scale, curator.loss)


def test_fact_14_the_noise_of_the_honest_members_is_one_whole_noise_without_the_coalitions_help() -> None:
    """Shares of g honest members, convolved: exactly the law of one discrete Laplace, modulo 5."""
    whole = noise_law(5, 1)
    for honest in (1, 2, 3, 4):
        share = noise_law(5, honest)
        total = share
        for _ in range(honest - 1):
            total = tuple(sum((total[j] * share[(n - j) % 5] for j in range(5)), arb(0)) for n in range(5))
        assert all(abs(float(a - b)) < 1e-14 for a, b in zip(total, whole, strict=True))


@each("epsilon", [Fraction(1, 2), Fraction(1), log_up(3)])
def test_fact_14_as_many_members_as_rows_are_the_local_model(epsilon: Fraction) -> None:
    """All others together see a row's randomized report, and reports at its two answers are within e^ε."""
    response = RandomizedResponse.for_epsilon(epsilon)
    truth = response.truth_probability()(64)
    assert abs(float((truth / (1 - truth)).log()) - float(epsilon)) < 1e-12
    setting = setting_of(4, 3, modulus=5)
    world = Basis(setting)
    rehearsal = world.run(PROTOCOLS["L"], setting, NOTHING_LOST)
    for coalition in coalitions(setting):
        honest = setting.members - len(coalition)
        own = tuple(tuple(int(i == j) for j in range(honest)) for i in range(honest))
        assert leaked(world, rehearsal, coalition) == own, "just the reports, each for itself"


@each(
    ("letter", "members", "coalition", "losses", "expected"),
    [
        ("A", 1, 0, 0, 1.357),
        ("A", 10, 9, 0, 4.29),
        ("B", 3, 1, 0, 1.66),
        ("B", 10, 9, 0, 4.29),
        ("C", 3, 1, 0, 1.66),
        ("C", 10, 4, 0, 1.75),
        ("D", 10, 4, 0, 1.75),
        ("D", 10, 4, 2, 2.15),
    ],
)
def test_fact_14_the_error_is_that_of_the_noise_for_the_honest_members(
    letter: str, members: int, coalition: int, losses: int, expected: float
) -> None:
    """V m / g, g the honest members who are sure to be in; at t = m - 1 cryptography buys nothing."""
    honest = PROTOCOLS[letter].honest(setting_of(members, coalition, losses=losses))
    assert deviation(1) * math.sqrt(members / honest) == pytest.approx(expected, abs=0.005)
    if coalition == members - 1:
        assert honest == PROTOCOLS["A"].honest(setting_of(members, coalition)) == 1


def errors(
    letter: str, members: int, coalition: int, *, count: int = 0
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Of real runs at ε = 1, one in each cell: every member has `count` rows."""
    setting = setting_of(members, coalition, length=REPEATS)
    noise = LaplaceShares.for_epsilon(1, l1=1, of=PROTOCOLS[letter].honest(setting))
    values = [noise.sample(np.full(REPEATS, count)) for _ in range(members)]
    return run_in_memory(letter, setting, values).opened.values - members * count


@pytest.mark.parametrize(
    ("letter", "members", "coalition"), [("A", 3, 2), ("B", 3, 1), ("C", 10, 4), ("D", 10, 4)]
)
def test_fact_14_runs_have_that_error(
    letter: str, members: int, coalition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root mean square over 2,000 runs, kurtosis at most 6: 7 standard errors are below 0.18 of it."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(14))
    found = float(np.sqrt(np.mean(errors(letter, members, coalition, count=1000) ** 2.0)))
    honest = PROTOCOLS[letter].honest(setting_of(members, coalition))
    assert found == pytest.approx(deviation(1) * math.sqrt(members / honest), rel=0.18)


# 5


@each("people", [1, 2, 4])
def test_fact_5_whoever_sees_local_reports_is_left_with_this_much_doubt(people: int) -> None:
    """Fair coins as truths, reports at ln 3: the best estimate of the count has a variance of n 3/16.

    Exactly, over all truths and reports. ε-private reports leave each truth a posterior within
    [1/(e^ε+1), e^ε/(e^ε+1)], so n e^ε/(e^ε+1)^2 at least; for a share, an error of Ω(1/√n).
    """
    truth = Fraction(3, 4)
    left = Fraction(0)
    for reports in product((0, 1), repeat=people):
        chances: dict[int, Fraction] = {}
        for truths in product((0, 1), repeat=people):
            chance = math.prod(
                (truth if t == r else 1 - truth for t, r in zip(truths, reports, strict=True)),
                start=Fraction(1, 2**people),
            )
            chances[sum(truths)] = chances.get(sum(truths), Fraction(0)) + chance
        total = sum(chances.values(), Fraction(0))
        mean = sum((count * chance for count, chance in chances.items()), Fraction(0)) / total
        left += sum((chance * (count - mean) ** 2 for count, chance in chances.items()), Fraction(0))
    assert left == people * Fraction(3, 16)


def slope(sizes: Sequence[int], found: Sequence[float]) -> float:
    """How errors fall with n: the exponent of the best power law."""
    return float(np.polyfit(np.log(sizes), np.log(found), 1)[0])


def test_fact_5_errors_of_real_runs_fall_like_the_root_locally_and_like_n_for_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """False alarm about 1e-11 each: a slope has a standard error of 0.016, the bounds are seven of them."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(5))
    response = RandomizedResponse.for_epsilon(1)
    truth = float(response.truth_probability()(64))
    sizes = (21, 60, 201)
    local: list[float] = []
    multiparty: list[float] = []
    curator: list[float] = []
    for n in sizes:
        rows = np.arange(n) % 2
        # m = n: each row is a member, and posts its own report.
        reports = [response.sample(np.full(REPEATS, row)) for row in rows]
        yes = run_in_memory("L", setting_of(n, n - 1, length=REPEATS), reports).opened.values
        counts = (yes - n * (1 - truth)) / (2 * truth - 1)
        local.append(float(np.sqrt(np.mean((counts - rows.sum()) ** 2))) / n)
        for found, letter, members, coalition in ((multiparty, "C", 3, 1), (curator, "A", 1, 0)):
            off = errors(letter, members, coalition, count=n // members)
            found.append(float(np.sqrt(np.mean(off**2.0))) / n)
    assert slope(sizes, local) == pytest.approx(-0.5, abs=0.11)
    assert slope(sizes, multiparty) == pytest.approx(-1, abs=0.11)
    assert slope(sizes, curator) == pytest.approx(-1, abs=0.11)
    least = [math.sqrt(truth * (1 - truth) / n) for n in sizes]
    assert all(error > bound for error, bound in zip(local, least, strict=True)), "never below the bound"
    assert all(b < c < a for a, b, c in zip(local, curator, multiparty, strict=True))
