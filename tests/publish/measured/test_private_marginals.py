"""Private marginals are charged first, drawn once, and differ between neighbours as declared."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import BoundedRange, GaussianNoise, Loss
from lapwing.core.selection import Exponential
from lapwing.errors import BadParameter, WorkEnded
from lapwing.publish import methods
from lapwing.publish.measured.journal import Journal
from lapwing.publish.measured.private_marginals import (
    GRID,
    Candidate,
    PrivateMarginals,
    Wholes,
    choosing_cost,
    measuring_cost,
    step_loss,
)
from lapwing.publish.models.domain import Domain
from support.reached import Reached, reaching

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
    rows_per_unit: int = 2,
) -> PrivateMarginals:
    return PrivateMarginals(
        DOMAIN, lambda: table, rows_per_unit=rows_per_unit, budget=budget, charge=charge, fail=_no_failure,
        journal=Journal(path, "run 1"),
    )  # fmt: skip


def _no_failure() -> None:
    pytest.fail("a step failed")


def test_each_step_is_charged_before_rows_are_read(tmp_path: Path) -> None:
    seen: list[str] = []

    def read() -> Wholes:
        seen.append("read")
        return rows()

    own = PrivateMarginals(
        DOMAIN, read, rows_per_unit=2, budget=Fraction(1), charge=lambda loss: seen.append(str(type(loss))),
        fail=_no_failure, journal=Journal(tmp_path / "j", "run 1"),
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
    table, inputs = rows(), dict[str, list[Reached]]()
    for name, own in {"all": table, "without": table[2:]}.items():
        made = source(tmp_path / name, own)
        if name == "without":
            _force(made, tmp_path / "all")
        with reaching() as inputs[name]:
            getattr(methods, method)(made)
    assert len(inputs["all"]) == len(inputs["without"]) >= 3
    for one, other in zip(inputs["all"], inputs["without"], strict=True):
        assert one.mechanism == other.mechanism
        moved = np.abs(np.array(one.values) - other.values)
        if isinstance(one.mechanism, Gaussian):
            assert moved.sum() <= 2
            assert (moved**2).sum() <= 4
        else:
            heaviest = 1 if method == "tree" else 3  # three columns: each is in one marginal of three
            assert one.mechanism.sensitivity == GRID * 2 * heaviest
            assert moved.max() <= GRID * 2 * heaviest


@pytest.mark.parametrize("mechanism", ["gaussian", "exponential"])
@pytest.mark.parametrize("failing", ["read", "draw"])
def test_a_failure_after_the_charge_ends_the_release_and_tells_nothing(
    tmp_path: Path, mechanism: str, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def broken(*_: object) -> Wholes:
        raise RuntimeError("cannot read the age of Alice Smith")

    if failing == "draw":
        monkeypatch.setattr(Gaussian if mechanism == "gaussian" else Exponential, "sample", broken)
    own = PrivateMarginals(
        DOMAIN, broken if failing == "read" else rows, rows_per_unit=2, budget=Fraction(1),
        charge=lambda _: seen.append("charged"), fail=lambda: seen.append("failed"),
        journal=Journal(tmp_path / "j", "run 1"),
    )  # fmt: skip
    steps: dict[str, Callable[[], object]] = {
        "gaussian": lambda: own.measure(("a",), Fraction(10)),
        "exponential": lambda: own.choose([Candidate(("a",), np.zeros(2, np.int64))], Fraction(1, 4)),
    }
    with pytest.raises(WorkEnded) as told:
        steps[mechanism]()
    assert seen == ["charged", "failed"]
    assert "Alice" not in "".join(traceback.format_exception(told.value))


def test_an_interruption_loses_one_step_and_does_not_end_the_release(tmp_path: Path) -> None:
    def interrupted() -> Wholes:
        raise KeyboardInterrupt

    own = PrivateMarginals(
        DOMAIN, interrupted, rows_per_unit=2, budget=Fraction(1), charge=lambda _: None, fail=_no_failure,
        journal=Journal(tmp_path / "j", "run 1"),
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        own.measure(("a",), Fraction(10))
    assert source(tmp_path / "j", rows()).left == Fraction(1, 2) - measuring_cost(Fraction(10), 2)


def test_a_step_of_a_journal_has_the_loss_that_was_charged(tmp_path: Path) -> None:
    charged: list[Loss] = []
    methods.tree(source(tmp_path / "j", rows(), charge=charged.append))
    steps = Journal(tmp_path / "j", "run 1").steps
    assert [step_loss(DOMAIN, 2, step) for step in steps] == charged
    for changed in (
        replace(steps[0], rho=Fraction(0)),
        replace(steps[0], step={"measure": ["a"], "sigma": "1"}),
        replace(steps[0], step={"measure": ["z"], "sigma": steps[0].step["sigma"]}),
        replace(steps[0], result={"counts": [1]}),
        replace(steps[0], result={"counts": [1, "x"]}),
        replace(steps[3], result={"chosen": ["a", "z"]}),
        replace(steps[3], step={"choose": 3}),
    ):
        with pytest.raises(ValueError, match="no step"):
            step_loss(DOMAIN, 2, changed)


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


def test_an_empty_table_and_one_row_give_sound_releases(tmp_path: Path) -> None:
    for name, table in {"none": np.zeros((0, 3), np.int64), "one": rows(1)}.items():
        for method in ("independent", "tree", "adaptive"):
            own = source(tmp_path / f"{name}-{method}", table)
            assert methods.fit_measured(DOMAIN, getattr(methods, method)(own), {}).total >= 1
