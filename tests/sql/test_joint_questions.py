"""Questions whose numbers add up over members: bound alike, refused by name, exact in sum."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lapwing.core.gaussian import SummedGaussian
from lapwing.core.laplace import LaplaceShares, SummedLaplace
from lapwing.errors import BadValue
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import ONCE_PER_MEMBER, JointQuestion
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.pricing.noise_shares import deviation
from lapwing.sql.pricing.noise_widths import NoiseFamily, half_width, noise_scale
from lapwing.sql.question.bound_query import number_of_groups
from lapwing.sql.question.refusal import Refused
from support.joint import member, plain

PEOPLE = (range(0, 60), range(60, 90), range(90, 200))
FORMS = ("parquet", "csv", "duckdb")
HALF = Fraction(1, 2)
FINE = Fraction(1, 100)  # of noise: so fine that there is none
QUESTIONS = (
    "SELECT COUNT(*), SUM(stay), COUNT(DISTINCT patient_id) FROM visits",
    "SELECT ward, COUNT(*), SUM(cost) FROM visits WHERE stay > 3 GROUP BY ward",
    "SELECT ward, urgent, COUNT(*) FROM visits GROUP BY ward, urgent",
    "SELECT stay, COUNT(*) FROM visits GROUP BY stay",
    "SELECT AVG(stay), VAR_POP(cost), CORR(stay, cost) FROM visits",
    "SELECT ward, AVG(urgent) FROM visits GROUP BY ward",
    "SELECT COUNT(*) FILTER (WHERE urgent), SUM(stay * cost) FROM visits",
)


def test_members_vectors_add_up_to_that_of_all_rows(tmp_path: Path) -> None:
    with ExitStack() as opened:
        members = [
            opened.enter_context(member(tmp_path / form, people, form=form))
            for people, form in zip(PEOPLE, FORMS, strict=True)
        ]
        whole = opened.enter_context(member(tmp_path / "all", range(200)))
        for sql in QUESTIONS:
            vectors = [JointQuestion.of(one, sql).exact() for one in members]
            assert np.array_equal(np.sum(vectors, axis=0), JointQuestion.of(whole, sql).exact()), sql
            assert len(vectors[0]) == sum(block.length for block in JointQuestion.of(whole, sql).blocks)
            assert len({JointQuestion.of(one, sql).meaning for one in [*members, whole]}) == 1


PLAIN = (
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits GROUP BY ward ORDER BY ward",
    "SELECT ward, urgent, COUNT(*) AS n FROM visits GROUP BY ward, urgent ORDER BY ward, urgent",
    "SELECT ward, AVG(stay) AS m, VAR_POP(cost) AS v FROM visits GROUP BY ward ORDER BY ward",
    "SELECT ward, SUM(stay) AS s, AVG(CAST(urgent AS INTEGER)) AS u, AVG(cost) + 1 AS c, "
    "COUNT(DISTINCT patient_id) AS p FROM visits GROUP BY ward HAVING AVG(cost) > 0 ORDER BY ward",
    "SELECT COUNT(*) AS n FROM visits HAVING COUNT(*) > 10",
)


def test_without_noise_the_answer_is_that_of_the_plain_query(tmp_path: Path) -> None:
    with member(tmp_path, range(200)) as dataset:
        for sql in PLAIN:
            joint = JointQuestion.of(dataset, sql)
            noises = [SummedLaplace(FINE, 1, 1) for _ in joint.blocks]
            rows = joint.estimate(joint.exact(), noises, confidence=HALF)
            found = list(zip(*(column.values for column in rows.columns), strict=True))
            for one, other in zip(found, plain([range(200)], sql), strict=True):
                for a, b in zip(one, other, strict=True):
                    assert a == (pytest.approx(b, abs=1e-3) if isinstance(b, float) else b)


def test_totals_agree_with_their_cells(tmp_path: Path) -> None:
    with member(tmp_path, range(200)) as dataset:
        joint = JointQuestion.of(dataset, "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward)")
        assert [(block.label, block.length) for block in joint.blocks] == [
            ("rows by ward", 3),
            ("rows in total", 1),
        ]
        noisy = joint.exact() + np.array([5, -3, 2, 40])
        rows = joint.estimate(noisy, [SummedLaplace(Fraction(9), 2, 3)] * 2, confidence=HALF)
    values = rows.columns[1].values
    assert rows.agree
    assert values[:3].sum() == pytest.approx(values[3], abs=1e-5)


def test_one_part_is_paid_for_once_in_each_grouping(tmp_path: Path) -> None:
    with member(tmp_path, range(9)) as dataset:
        joint = JointQuestion.of(dataset, "SELECT ward, AVG(stay), COUNT(stay) FROM visits GROUP BY ward")
    rows, total = sorted(joint.blocks, key=lambda block: block.label)
    assert (rows.label, rows.length, rows.l1, rows.l2_squared) == ("known stay", 3, 2, 4)
    assert (total.l1, total.l2_squared) == (20, 400)  # two rows, each at most 10 from the middle


def test_a_pair_of_sums_is_one_block(tmp_path: Path) -> None:
    with member(tmp_path, range(9)) as dataset:
        joint = JointQuestion.of(dataset, "SELECT ward, AVG(stay) FROM visits GROUP BY ward")
        values = joint.exact()
    (block,) = joint.blocks
    assert (block.length, block.l1, block.l2_squared) == (6, 40, 1600)
    above, below = values[:3], values[3:]
    assert np.all((above + below) % 20 == 0)
    rows = joint.estimate(values, [SummedLaplace(Fraction(1, 100), 40, 2)], confidence=HALF)
    held = above + below > 0
    assert rows.columns[1].values[held] == pytest.approx((20 * above / (above + below))[held], abs=1e-3)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT name, COUNT(*) FROM visits GROUP BY name", "values of name are not declared"),
        ("SELECT ward, name, COUNT(*) FROM visits GROUP BY ward, name", "values of ward, name"),
        ("SELECT MEDIAN(stay) FROM visits", "no sums over members"),
        ("SELECT COUNT(*), MAX(stay) FROM visits", "no sums over members"),
        ("SELECT COUNT(DISTINCT stay) FROM visits", "COUNT\\(DISTINCT column\\) does not add up"),
        ("SELECT * FROM visits", "rows are never shown"),
        ("SELECT COUNT(*) FROM other", "there is no table"),
    ],
)
def test_what_does_not_add_up_is_refused_by_name(sql: str, words: str, tmp_path: Path) -> None:
    with member(tmp_path, range(9)) as dataset, pytest.raises(Refused, match=words):
        JointQuestion.of(dataset, sql)
    assert not list(tmp_path.glob("*.ledger"))


def test_people_count_once_at_each_member_and_the_answer_says_so(tmp_path: Path) -> None:
    with member(tmp_path, range(9)) as dataset:
        people = JointQuestion.of(dataset, "SELECT COUNT(DISTINCT patient_id) FROM visits")
        rows = JointQuestion.of(dataset, "SELECT COUNT(*) FROM visits")
    assert people.notes == (ONCE_PER_MEMBER,)
    assert rows.notes == ()


SQL = "SELECT ward, SUM(stay) FROM visits GROUP BY ward"
STAY = "low = 0\nhigh = 20"


def meaning(
    folder: Path, sql: str = SQL, *, edit: tuple[str, str] = ("", ""), form: str = "parquet"
) -> str:
    with member(folder, range(9), form=form) as dataset:
        path = dataset.policy.path
    if edit[0]:
        assert edit[0] in path.read_text()
        path.write_text(path.read_text().replace(*edit))
    with Dataset(load_policy(path), analyst="bob") as again:
        return JointQuestion.of(again, sql).meaning


@pytest.mark.parametrize(
    "edit",
    [
        ("epsilon = 10.0", "epsilon = 3.0"),
        ("step = 0.5", "step = 0.25"),  # of another column
        ('name = "visits"', 'name = "wards"'),
        ('[tables.visits.columns.name]\ntype = "text"', ""),
    ],
)
def test_what_is_a_members_own_affair_does_not_change_the_meaning(
    edit: tuple[str, str], tmp_path: Path
) -> None:
    alike = meaning(tmp_path / "a")
    assert meaning(tmp_path / "b", edit=edit, form="csv") == alike
    assert meaning(tmp_path / "c", SQL.lower().replace(" ", "  "), form="duckdb") == alike


@pytest.mark.parametrize(
    "edit",
    [
        (STAY, "low = 0\nhigh = 19"),
        (STAY, "low = 0\nhigh = 20\nstep = 2"),
        (STAY, "low = 0\nhigh = 20\nmissing = 3"),
        ('["A", "B", "C"]', '["A", "C", "B"]'),
        ("rows_per_unit = 2", "rows_per_unit = 3"),
    ],
)
def test_what_changes_the_numbers_changes_the_meaning(edit: tuple[str, str], tmp_path: Path) -> None:
    assert meaning(tmp_path / "a") != meaning(tmp_path / "b", edit=edit)


def test_another_question_means_something_else(tmp_path: Path) -> None:
    other = "SELECT ward, SUM(stay) FROM visits WHERE urgent GROUP BY ward"
    assert meaning(tmp_path / "a") != meaning(tmp_path / "b", other)


def test_numbers_and_noises_must_be_those_of_the_blocks(tmp_path: Path) -> None:
    with member(tmp_path, range(9)) as dataset:
        joint = JointQuestion.of(dataset, SQL)
    noise = SummedLaplace(Fraction(1), 1, 1)
    with pytest.raises(BadValue):
        joint.estimate(np.zeros(2, dtype=np.int64), [noise], confidence=HALF)
    with pytest.raises(BadValue):
        joint.estimate(np.zeros(3, dtype=np.int64), [noise, noise], confidence=HALF)


# Noise of several members where noise of one stands


def test_a_sums_deviation_and_width_are_its_own() -> None:
    noise = SummedLaplace(Fraction(30), 2, 3)
    assert deviation(noise) == noise.deviation
    assert half_width(noise, Fraction(19, 20)) == noise.spread(Fraction(19, 20))
    assert noise_scale(noise) == pytest.approx(math.sqrt(3) * 30)
    other = SummedGaussian(Fraction(10), 4)
    assert noise_scale(other) == deviation(other) == 20
    assert half_width(other, Fraction(19, 20)) == other.spread(Fraction(19, 20))


def beyond(scales: list[float], wholes: float, width: float) -> float:
    """P[|Σ noises| > width] for wide Laplace noises, from their characteristic function."""
    a = np.array(scales)
    far = 2 * (math.log(2e15) - wholes * float(np.log1p(-((a / a.max()) ** 2) / 4).sum())) * float(a.max())
    last = 1 / float(a.max())
    while wholes * np.log1p((a * last) ** 2).sum() < 30:
        last *= 1.3
    n = np.arange(1, min(math.ceil(last * far / math.pi), 10**6) + 1)
    u = n * (math.pi / far)
    phi = np.exp(-wholes * sum(np.log1p((one * u) ** 2) for one in a)) / n
    return 1 - width / far - 2 / math.pi * float((phi * np.sin(u * width)).sum())


@pytest.mark.parametrize("members", [(4, 5), (2, 3), (1, 3)])
@pytest.mark.parametrize("miss", [0.32, 0.1, 0.05, 0.01, 0.001])
def test_sums_of_members_noises_stay_within_the_width(members: tuple[int, int], miss: float) -> None:
    of, contributors = members
    level = 1 - Fraction(miss)
    for factors in ([1.0], [1.0, 0.3], [1.0, 0.7], [1.0, 1.0], [1.0, 0.5, 0.2], [1.0] * 5):
        noises = [SummedLaplace(Fraction(1000 * factor), of, contributors) for factor in factors]
        width = float(NoiseFamily.of(noises[0], level).width([noise_scale(noise) for noise in noises]))
        found = beyond([1000 * factor for factor in factors], contributors / of, width)
        assert miss / 20 < found <= miss * 1.001


@pytest.mark.parametrize("more", ["", ", COUNT(stay) AS n"])
@pytest.mark.parametrize("members", [(1, 1), (2, 3), (1, 3)])
def test_intervals_of_means_hold_as_often_as_they_say(
    members: tuple[int, int], more: str, tmp_path: Path
) -> None:
    """Of 2,000 groups 90 % should hold: fewer than 1,710 would be seen less than once in 1e9 (binomial).

    A mean alone is made of a pair of sums; beside its count, of a total around the middle and that count.
    """
    of, contributors = members
    with member(tmp_path, range(9)) as dataset:
        joint = JointQuestion.of(dataset, f"SELECT cost, AVG(stay) AS m{more} FROM visits GROUP BY cost")
    groups = number_of_groups(joint.question, 0)
    dice = np.random.default_rng(7)
    held = asked = 0
    for _ in range(10):
        n = dice.integers(50, 200, size=groups)
        total = dice.integers(-5, 6, size=groups) * n
        shares = [LaplaceShares.for_epsilon(HALF, l1=block.l1, of=of) for block in joint.blocks]
        exact = [total, n] if more else [np.concatenate([total + 10 * n, 10 * n - total])]
        noisy = [
            sum((share.sample(np.zeros_like(one)) for _ in range(contributors)), one)
            for share, one in zip(shares, exact, strict=True)
        ]
        noises = [share.total(contributors) for share in shares]
        rows = joint.estimate(np.concatenate(noisy), noises, confidence=Fraction(9, 10))
        low, high = rows.columns[1].low, rows.columns[1].high
        assert low is not None
        assert high is not None
        truth = 10 + total / n
        held += int(((low <= truth) & (truth <= high)).sum())
        asked += len(truth)
    assert asked >= 2000
    assert held / asked >= 0.855


def test_what_is_protected_and_public_rows_are_part_of_the_meaning(tmp_path: Path) -> None:
    public = '[tables.wards]\nsource = "wards.csv"\npublic = true\n'
    meanings = set()
    for number, floors in enumerate(((1, 2, 3), (1, 2, 4))):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows = "".join(f"{ward},{floor}\n" for ward, floor in zip("ABC", floors, strict=True))
        (folder / "wards.csv").write_text(f"ward,floor\n{rows}")
        with member(folder, range(4), more=public) as dataset:
            sql = "SELECT COUNT(*) FROM visits JOIN wards ON visits.ward = wards.ward WHERE floor > 2"
            meanings.add(JointQuestion.of(dataset, sql).meaning)
            count = JointQuestion.of(dataset, "SELECT COUNT(*) FROM visits")
            other = Dataset(replace(dataset.policy, protects="row"), analyst="ann")
            assert JointQuestion(other, count.question, count.name).meaning != count.meaning
    assert len(meanings) == 2


def test_all_blocks_that_a_question_reaches_are_charged(tmp_path: Path) -> None:
    sliced = '[blocks]\nby = "unit"\ncohorts = 4\n'
    with member(tmp_path, range(8), more=sliced) as dataset:
        JointQuestion.of(dataset, "SELECT COUNT(*) FROM visits").version()
        (target,) = JointQuestion.of(dataset, "SELECT COUNT(*) FROM visits").targets()
        assert target.everyone or len(target.blocks) == 4
