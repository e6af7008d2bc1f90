"""Private marginals are charged first, drawn once, and differ between neighbours as declared."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lapwing.core.losses import BoundedRange, GaussianNoise, Loss
from lapwing.errors import BadParameter
from lapwing.publish import methods
from lapwing.publish.measured.journal import Journal
from lapwing.publish.measured.private_marginals import PrivateMarginals, Record, Wholes
from lapwing.publish.models.domain import Domain
from lapwing.publish.models.marginal_source import GRID, Candidate, choosing_cost, measuring_cost

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))


def rows(count: int = 300, seed: int = 1) -> Wholes:
    draws = np.random.default_rng(seed)
    a = draws.integers(0, 2, count)
    return np.column_stack((a, (a + draws.integers(0, 2, count)) % 3, draws.integers(0, 4, count)))


def source(
    path: Path,
    table: Wholes,
    *,
    charge: Callable[[Loss], None] = lambda loss: None,
    budget: Fraction = Fraction(1, 2),
    record: Record | None = None,
    rows_per_unit: int = 2,
) -> PrivateMarginals:
    return PrivateMarginals(
        DOMAIN, lambda: table, rows_per_unit=rows_per_unit, budget=budget, charge=charge,
        journal=Journal(path, "run 1"), record=record,
    )  # fmt: skip


def test_each_step_is_charged_before_rows_are_read(tmp_path: Path) -> None:
    seen: list[str] = []

    def read() -> Wholes:
        seen.append("read")
        return rows()

    own = PrivateMarginals(
        DOMAIN, read, rows_per_unit=2, budget=Fraction(1), charge=lambda loss: seen.append(str(type(loss))),
        journal=Journal(tmp_path / "j", "run 1"),
    )  # fmt: skip
    own.measure(("a",), Fraction(10))
    assert seen == [str(GaussianNoise), "read"]


def test_losses_are_those_of_the_claim(tmp_path: Path) -> None:
    charged: list[Loss] = []
    own = source(tmp_path / "j", rows(), charge=charged.append)
    own.measure(("a", "b"), Fraction(10))
    own.choose(
        [Candidate(("a",), np.zeros(2, np.int64), 3), Candidate(("c",), np.zeros(4, np.int64))],
        Fraction(1, 4),
    )
    gaussian, choice = charged
    assert isinstance(gaussian, GaussianNoise)
    assert gaussian.concentrated.rho == measuring_cost(Fraction(10), 2) == Fraction(4, 200)
    assert isinstance(choice, BoundedRange)
    assert choice.epsilon == Fraction(1, 4)
    assert own.left == Fraction(1, 2) - Fraction(4, 200) - choosing_cost(Fraction(1, 4))


def test_a_step_beyond_the_budget_is_refused_uncharged(tmp_path: Path) -> None:
    charged: list[Loss] = []
    own = source(tmp_path / "j", rows(), charge=charged.append, budget=Fraction(1, 100))
    with pytest.raises(BadParameter, match="spent"):
        own.measure(("a",), Fraction(1))
    assert charged == []
    assert Journal(tmp_path / "j", "run 1").steps == []


@pytest.mark.parametrize("method", ["independent", "tree", "adaptive"])
def test_neighbours_move_every_input_by_at_most_what_is_declared(tmp_path: Path, method: str) -> None:
    """The same steps are replayed on a table without one unit's K = 2 rows."""
    table, inputs = rows(), dict[str, list[tuple[str, object]]]()
    for name, own in {"all": table, "without": table[2:]}.items():
        inputs[name] = []
        journal = tmp_path / name
        made = source(journal, own, record=_into(inputs[name]))
        if name == "without":
            _force(made, tmp_path / "all")
        getattr(methods, method)(made)
    assert len(inputs["all"]) == len(inputs["without"]) >= 3
    for (what, one), (other_what, other) in zip(inputs["all"], inputs["without"], strict=True):
        assert what == other_what
        moved = np.abs(np.asarray(one) - np.asarray(other))
        if what == "gaussian":
            assert moved.sum() <= 2
            assert (moved**2).sum() <= 4
        else:
            heaviest = 1 if method == "tree" else 6
            assert moved.max() <= GRID * 2 * heaviest


def _into(seen: list[tuple[str, object]]) -> Record:
    return lambda mechanism, values: seen.append((mechanism, values))


def _force(made: PrivateMarginals, path: Path) -> None:
    """Let every mechanism give the result of another run, so that all later steps are the same."""
    results = iter([step.result or {} for step in Journal(path, "run 1").steps])
    real = made._journal.end
    made._journal.end = lambda result: real(next(results))  # type: ignore[method-assign]


def test_a_run_that_was_killed_goes_on_and_loses_only_the_step_under_way(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    table, charged = rows(), list[Loss]()

    def dying(loss: Loss) -> None:
        charged.append(loss)
        if len(charged) == 5:
            raise Killed  # charged, and nothing drawn

    with pytest.raises(Killed):
        methods.tree(source(tmp_path / "j", table, charge=dying))
    before = [step.result for step in Journal(tmp_path / "j", "run 1").steps]
    assert before[-1] is None
    own = source(tmp_path / "j", table, charge=charged.append)
    done = methods.tree(own)
    steps = Journal(tmp_path / "j", "run 1").steps
    assert [step.result for step in steps[:5]] == before
    assert sum(step.rho for step in steps) <= own.budget
    assert len(charged) == len(steps)  # nothing that has a result was charged again
    again = methods.tree(source(tmp_path / "j", table, charge=lambda loss: pytest.fail("charged again")))
    for one, other in zip(done.marginals, again.marginals, strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)


def test_a_line_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    own = source(tmp_path / "j", rows())
    own.measure(("a",), Fraction(20))
    with open(tmp_path / "j", "ab") as file:
        file.write(b'{"step": {"meas')
    again = Journal(tmp_path / "j", "run 1")
    assert len(again.steps) == 1
    again.begin({"measure": ["b"], "sigma": "20"}, Fraction(1, 100))
    assert len(Journal(tmp_path / "j", "run 1").steps) == 2


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b'{"form":"lapwing synthesis 1","run":"run 2"}\n', b"no\n"]
)
def test_a_journal_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(BadParameter, match="journal"):
        Journal(tmp_path / "j", "run 1")


def test_an_empty_table_and_one_row_give_sound_releases(tmp_path: Path) -> None:
    for name, table in {"none": np.zeros((0, 3), np.int64), "one": rows(1)}.items():
        for method in ("independent", "tree", "adaptive"):
            own = source(tmp_path / f"{name}-{method}", table)
            assert methods.fit_measured(DOMAIN, getattr(methods, method)(own), {}).total >= 1
