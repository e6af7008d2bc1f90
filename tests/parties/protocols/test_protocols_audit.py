"""The auditor attacks whole runs: what a coalition and the relay saw, on neighbouring counts.

Small domains are compared exactly in tests/parties/protocols/test_protocols_views.py; here are runs over
the real field with real coins, one
cell of a long vector for each draw. Every verdict is wrong with probability at most `ERROR`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.audit import Case, attack
from lapwing.audit.attack import Draw
from lapwing.audit.coalition_views import view
from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.parties.protocols.protocol import Setting
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.simulation import SimulatedRun, run_in_memory

ERROR = 1e-9
DRAWS = 24_000
MEMBERS = 3
SPY = 2  # the coalition; member 0's count is 0 or 1


def told(run: SimulatedRun, spied: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each cell: the sum without the spy's own number, and two bits of all that member 0 said to it.

    A run whose messages carried anything of member 0's number beside the sum would show here.
    """
    rest = np.clip(run.opened.values - spied, -9, 9)
    bits = np.zeros_like(rest)
    for seen in view(run, [SPY]):
        said = np.frombuffer(seen.content, dtype=np.uint8)
        if seen.sender == 0 and len(said) == 8 * len(rest):
            # Of every element one bit that is near the top and one near the bottom, whatever the order.
            each = said.reshape(len(rest), 8).astype(np.int64)
            bits ^= (each[:, 0] & 1) << 1 | (each[:, 7] & 1)
    return np.stack([rest, bits], axis=1)


def runs(letter: str, shares: LaplaceShares | GaussianShares, count: int) -> Draw:
    """Whole runs of a protocol by three members, one of them a spy."""

    def draw(size: int) -> NDArray[np.int64]:
        counts = [np.full(size, value, dtype=np.int64) for value in (count, 5, 7)]
        noised = [shares.sample(each) for each in counts]
        run = run_in_memory(letter, Setting(MEMBERS, 1, 0, size), noised)
        return told(run, noised[SPY])

    return draw


def verdict(letter: str, shares: LaplaceShares | GaussianShares, delta: Fraction) -> bool:
    case = Case(letter, type(shares), Fraction(1), delta, runs(letter, shares, 0), runs(letter, shares, 1))
    return attack(case, draws=DRAWS, error=ERROR).holds


def honest(letter: str) -> int:
    return PROTOCOLS[letter].honest(Setting(MEMBERS, 1, 0, 1))


@pytest.mark.parametrize("letter", ["A", "B", "C", "D"])
def test_no_claim_about_a_run_is_contradicted(letter: str) -> None:
    shares = LaplaceShares.for_epsilon(1, l1=1, of=honest(letter))
    assert verdict(letter, shares, Fraction(0))


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_gaussian_noise_in_shares_is_not_contradicted(letter: str) -> None:
    delta = Fraction(1, 100)
    shares = GaussianShares.for_budget(1, delta, l2_squared=1, dimension=DRAWS, of=honest(letter))
    assert verdict(letter, shares, delta)


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_M4_noise_sized_for_all_members_is_caught(letter: str) -> None:
    """The spy subtracts its share, and what is left is two thirds of a noise: ε is 1.39, not 1."""
    shares = LaplaceShares.for_epsilon(1, l1=1, of=MEMBERS)
    assert 1.38 < shares.loss_with(2) < 1.4
    assert not verdict(letter, shares, Fraction(0))


def test_shares_that_everybody_sees_are_caught() -> None:
    """Who hides alone needs a whole noise: protocol A with a share of two."""
    shares = LaplaceShares.for_epsilon(1, l1=1, of=2)

    def alone(count: int) -> Draw:
        return lambda size: shares.sample(np.full(size, count))

    case = Case("A with shares", LaplaceShares, Fraction(1), Fraction(0), alone(0), alone(1))
    assert not attack(case, draws=DRAWS, error=ERROR).holds


def test_a_message_that_tells_more_than_the_sum_is_caught() -> None:
    """Were member 0's noised number itself on the line, the auditor would see it."""
    shares = LaplaceShares.for_epsilon(1, l1=1, of=2)

    def leaking(count: int) -> Draw:
        def draw(size: int) -> NDArray[np.int64]:
            mine = shares.sample(np.full(size, count))
            both = mine + shares.sample(np.zeros(size, dtype=np.int64))
            return np.stack([np.clip(both, -9, 9), np.clip(mine, -1, 2)], axis=1)

        return draw

    case = Case("leaking", LaplaceShares, Fraction(1), Fraction(0), leaking(0), leaking(1))
    assert not attack(case, draws=DRAWS, error=ERROR).holds


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["A", "B", "C", "D"])
@pytest.mark.parametrize("members", [3, 5])
def test_no_claim_about_longer_runs_is_contradicted(letter: str, members: int) -> None:
    setting = Setting(members, (members - 1) // 2, 0, 1)
    shares = LaplaceShares.for_epsilon(1, l1=1, of=PROTOCOLS[letter].honest(setting))
    spies = range(members - setting.coalition, members)

    def draws(count: int) -> Draw:
        def draw(size: int) -> NDArray[np.int64]:
            zeros = np.zeros(size, dtype=np.int64)
            noised = [shares.sample(zeros + (count if i == 0 else i)) for i in range(members)]
            run = run_in_memory(letter, Setting(members, setting.coalition, 0, size), noised)
            left: NDArray[np.int64] = run.opened.values - np.sum([noised[i] for i in spies], axis=0)
            return left

        return draw

    case = Case(letter, LaplaceShares, Fraction(1), Fraction(0), draws(0), draws(1))
    assert attack(case, draws=1_000_000, error=ERROR).holds
