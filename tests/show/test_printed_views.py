"""The printed view of a coalition has the probabilities that counting all values and coins gives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lapwing.audit import laws
from lapwing.audit.coalition_views import NOTHING_LOST, Basis, noise_law
from lapwing.errors import BadParameter
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.show.printed_views import ViewOfRun, exact_epsilon, view_of_run
from support.enumerated_views import Enumerated

EPSILON = Fraction(3, 4)


def counted(found: ViewOfRun, epsilon: Fraction) -> tuple[float, float]:
    """Return the probabilities of the view, by going through all honest values and coins."""
    setting, kind = found.setting, PROTOCOLS[found.letter]
    p, members = setting.modulus, setting.members
    plain = Basis(setting)
    plain.run(kind, setting, NOTHING_LOST)
    unknowns = [u for u, owners in enumerate(plain.owners) if not owners & found.coalition]
    given = {u: n for u, n in enumerate(found.chosen) if u not in unknowns}
    world = Enumerated(setting, unknowns, given)
    seen = world.seen(world.run(kind, setting, NOTHING_LOST), found.coalition)
    same = np.flatnonzero((seen == np.array(found.seen).reshape(-1, 1)).all(axis=0))
    law = [float(one) for one in noise_law(p, kind.honest(setting), epsilon)]
    coins = sum(u >= members for u in unknowns)
    both = []
    for more in (0, 1):
        total = 0.0
        for column in same:
            weight = 1.0
            for at, unknown in enumerate(unknowns):
                if unknown < members:
                    count = unknown + 1 + more * (unknown + 1 == found.changed)
                    weight *= law[(int(column) // p**at - count) % p]
            total += weight
        both.append(total / p**coins)
    return both[0], both[1]


@pytest.mark.parametrize(
    ("letter", "members", "coalition"),
    [
        ("A", 3, [1, 2]),
        ("A", 3, [2]),
        ("B", 2, [1]),
        ("B", 3, [1, 3]),
        ("B", 3, [2]),
        ("C", 3, [1]),
        ("C", 3, []),
        ("D", 2, [1]),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_counting_all_coins_gives_the_same_probabilities(
    letter: str, members: int, coalition: list[int], first: bool
) -> None:
    found = view_of_run(letter, members, coalition, EPSILON, first=first)
    assert found.view == pytest.approx(counted(found, EPSILON), rel=1e-9)
    assert found.outcomes[found.happened].first > 0


@pytest.mark.parametrize(
    ("letter", "members", "coalition"),
    [("A", 4, [1]), ("B", 4, [2, 3, 4]), ("C", 4, [3]), ("D", 3, [1, 2])],
)
def test_no_view_passes_epsilon(letter: str, members: int, coalition: list[int]) -> None:
    found = view_of_run(letter, members, coalition, EPSILON, first=True)
    assert sum(one.first for one in found.outcomes) == pytest.approx(1)
    assert sum(one.second for one in found.outcomes) == pytest.approx(1)
    assert 0.5 * float(EPSILON) < found.loss <= float(EPSILON)


@pytest.mark.parametrize(
    ("letter", "coalition", "told"),
    [
        ("A", [1], ("count of member 2", "count of member 3")),
        ("B", [1], ("sum of the counts of members 2 and 3",)),
        ("C", [], ("sum of the counts of members 1, 2 and 3",)),
        ("D", [1, 3], ("count of member 2",)),
    ],
)
def test_the_view_names_what_it_tells(letter: str, coalition: list[int], told: tuple[str, ...]) -> None:
    assert view_of_run(letter, 3, coalition, EPSILON, first=True).combinations == told


def test_a_protocol_that_cannot_serve_says_why() -> None:
    with pytest.raises(BadParameter, match="C cannot serve 3 members of whom 2 collude"):
        view_of_run("C", 3, [1, 2], EPSILON, first=True)


@pytest.mark.parametrize(
    ("letter", "planned", "colluding", "present", "of"),
    [
        ("A", 1, 3, 1, 1),
        ("B", 1, 1, 3, 3),
        ("B", 1, 2, 2, 3),
        ("B", 2, 3, 1, 2),
        ("C", 1, 2, 1, 3),  # two members have the points of a polynomial of degree 1
        ("D", 1, 2, 2, 3),
    ],
)
def test_the_exact_epsilon_is_that_of_the_noise_that_is_left(
    letter: str, planned: int, colluding: int, present: int, of: int
) -> None:
    """By the law of the noise shares, listed number by number by the auditor's own code."""
    law = laws.laplace_shares(1 / EPSILON, of, present)
    one, other = laws.shifted_pair(law, 1)
    worst = max(abs((one[k] / other[k]).ln()) for k in one if k in other and one[k] > 1e-9)
    found = exact_epsilon(letter, 4, planned, colluding, EPSILON)
    assert float(found) == pytest.approx(float(worst), rel=2e-3)
    assert float(found) >= float(worst) - 1e-9
