"""The trainer charges first, ends at its ε, resumes with fresh randomness and a new charge, and learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import Loss, Relation
from lapwing.errors import BadParameter, BadValue, OverBudget
from lapwing.learn.payer import EACH_ROW, LedgerPayer, PaidResult, Payer, PublicData
from lapwing.learn.sgd import PrivateTrainer, clipping, randomness
from lapwing.learn.sgd.private_trainer import module_to_bytes
from lapwing.learn.sgd.randomness import UnitIndex, release_noisy_sum
from lapwing.ledger import Ledger, Unit
from lapwing.ledger.gate import Gate
from lapwing.ledger.spending import Target
from learn.sgd.made import ByPlace, losses

DELTA = Fraction(1, 10**5)


class Recording(Payer):
    """Remembers what was paid."""

    def __init__(self, relation: Relation = Relation.ADD_REMOVE) -> None:
        self.paid: list[Loss] = []
        self.relation = relation

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> PaidResult:
        self.paid.append(loss)
        return PaidResult(run(), None)


def module_of() -> nn.Module:
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def trainer_of(payer: Payer, module: nn.Module | None = None, **other: Any) -> PrivateTrainer:
    chosen: dict[str, Any] = {
        "epsilon": 1, "delta": DELTA, "clip": 1, "rate": "0.2", "expected_batch": 10, "steps": 6,
        "learning_rate": 0.5, "page": 16, **other,
    }  # fmt: skip
    return PrivateTrainer(module or module_of(), losses, payer=payer, **chosen)


_COINS = torch.Generator().manual_seed(10)
X, Y = torch.randn(50, 4, generator=_COINS), torch.randint(0, 3, (50,), generator=_COINS)


def test_the_steps_are_paid_at_once_and_all_of_them_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    payer = Recording()
    trainer = trainer_of(payer)
    done: list[int] = []

    def counted(*given: Any, divided_by: int) -> Tensor:
        done.append(len(payer.paid))
        return release_noisy_sum(*given, divided_by=divided_by)

    monkeypatch.setattr("lapwing.learn.sgd.randomness.release_noisy_sum", counted)
    before = module_to_bytes(trainer.module)
    trainer.fit(X, Y, EACH_ROW)
    assert done == [1] * 6
    (loss,) = payer.paid
    assert isinstance(loss, FixedRun)
    assert loss.steps[0][1] == 6
    assert loss.pair[0] <= 1
    assert module_to_bytes(trainer.module) != before


def test_noise_is_fresh_each_time() -> None:
    models = {module_to_bytes(trainer_of(PublicData()).fit(X, Y).module) for _ in range(3)}
    assert len(models) == 3


def test_an_empty_batch_is_a_step_of_noise_alone() -> None:
    module = module_of()
    before = [value.detach().clone() for value in module.parameters()]
    trainer_of(PublicData(), module).fit(X[:0], Y[:0])  # nobody is there, so every sample is empty
    assert all((value != old).all() for value, old in zip(module.parameters(), before, strict=True))


def test_going_on_from_an_iterate_is_paid_again_and_draws_fresh_coins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer = Recording()
    where: dict[str, Any] = {"save_to": tmp_path / "iterate", "save_every": 2, "momentum": 0.5}
    trainer = trainer_of(payer, **where)
    steps: list[int] = []

    def breaks(*given: Any, divided_by: int) -> Tensor:
        steps.append(1)
        if len(steps) == 4:
            raise RuntimeError("killed")
        return release_noisy_sum(*given, divided_by=divided_by)

    with monkeypatch.context() as patched:
        patched.setattr("lapwing.learn.sgd.randomness.release_noisy_sum", breaks)
        with pytest.raises(RuntimeError, match="killed"):
            trainer.fit(X, Y, EACH_ROW)
    again = trainer_of(payer, **where).fit(X, Y, EACH_ROW, resume=True)
    first, second = payer.paid
    assert isinstance(first, FixedRun)
    assert isinstance(second, FixedRun)
    assert first.steps[0][1] == 6
    assert second.steps[0][1] == 4  # two were saved; the third, lost, is done and paid again
    saved = (tmp_path / "iterate").read_bytes()
    assert module_to_bytes(again.module)[-40:] in saved
    finished = trainer_of(payer, **where)
    with pytest.raises(BadParameter, match="all steps were done"):
        finished.fit(X, Y, EACH_ROW, resume=True)
    assert len(payer.paid) == 2


def test_an_iterate_of_another_run_is_refused(tmp_path: Path) -> None:
    where: dict[str, Any] = {"save_to": tmp_path / "iterate", "save_every": 2}
    trainer_of(PublicData(), **where).fit(X, Y)
    other = trainer_of(PublicData(), **where, clip=2)
    with pytest.raises(BadParameter, match="other parameters"):
        other.fit(X, Y, resume=True)
    elsewhere = trainer_of(PublicData(), save_to=tmp_path / "nothing")
    with pytest.raises(BadParameter, match="no checkpoint"):
        elsewhere.fit(X, Y, resume=True)


def ledger_payer(ledger: Ledger, key: str | None) -> LedgerPayer:
    return LedgerPayer(
        Gate(ledger, principal="builder"), targets=(Target("visits"),), unit=Unit.PERSON,
        relation=Relation.ADD_REMOVE, request=b"a model", key=key,
    )  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "visits.ledger")
    made.open_account("visits", epsilon="1.5", delta="1e-3", unit=Unit.PERSON, relation=Relation.ADD_REMOVE)
    return made


def test_the_same_key_gives_the_same_model_and_no_budget_no_look(ledger: Ledger) -> None:
    first = trainer_of(ledger_payer(ledger, "one")).fit(X, Y, EACH_ROW)
    second = trainer_of(ledger_payer(ledger, "one")).fit(X, Y, EACH_ROW)
    assert module_to_bytes(first.module) == module_to_bytes(second.module)
    assert first.receipt is not None
    module = module_of()
    before = module_to_bytes(module)
    dear = trainer_of(ledger_payer(ledger, None), module, epsilon=2)
    with pytest.raises(OverBudget):
        dear.fit(X, Y, EACH_ROW)
    assert module_to_bytes(module) == before


def test_who_is_protected_must_be_said_for_accounts_of_persons(ledger: Ledger) -> None:
    trainer = trainer_of(ledger_payer(ledger, None))
    with pytest.raises(BadParameter, match="units: must give the unit of each row"):
        trainer.fit(X, Y)


@pytest.mark.parametrize("bad", [3, 99, -1])
def test_a_row_for_which_the_module_fails_does_not_end_the_work(ledger: Ledger, bad: int) -> None:
    """A target out of range is an error in torch: whoever has it is left out, and nobody hears of it."""
    trainer = trainer_of(ledger_payer(ledger, None), rate=1)
    wrong = Y.clone()
    wrong[7] = bad
    assert trainer.fit(X, wrong, EACH_ROW).receipt is not None


# Case A1.
def test_shuffled_batches_are_refused() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=10, shuffle=True)
    trainer = trainer_of(PublicData())
    with pytest.raises(BadParameter, match="shuffled batches of a loader have another price"):
        trainer.fit(loader, Y)  # type: ignore[arg-type]


def test_only_adding_and_removing_is_priced() -> None:
    payer = Recording(Relation.REPLACE)
    with pytest.raises(BadParameter, match="add or remove"):
        trainer_of(payer)


def test_data_of_the_wrong_form_is_refused_before_the_charge() -> None:
    payer = Recording()
    trainer = trainer_of(payer)
    wrong: list[tuple[Tensor, Any]] = [
        (Y[:9], EACH_ROW),
        (Y, np.zeros(9, dtype=np.int64)),
        (Y, np.zeros(50)),
    ]
    for y, units in wrong:
        with pytest.raises(BadValue):
            trainer.fit(X, y, units)
    with pytest.raises(BadParameter, match="such rows"):
        trainer.fit(torch.randn(50, 7), Y, EACH_ROW)
    assert payer.paid == []


def test_an_empty_sample_is_a_sum_of_nothing_after_whatever_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(PublicData(), rate=1)
    gradients = trainer._gradients()
    people = UnitIndex(len(X), None)
    assert trainer._sum(gradients, X, Y, people).any()
    monkeypatch.setattr(UnitIndex, "sample", lambda _, rate, rows: np.zeros((0, rows), dtype=np.int64))
    assert not trainer._sum(gradients, X, Y, people).any()


def test_no_module_sees_a_sum_in_its_gradients() -> None:
    """Its sum is made where the last step's released numbers were: nobody may still look there."""
    seen: list[bool] = []

    class Looking(nn.Module):
        def __init__(self, at: nn.Module) -> None:
            super().__init__()
            self.at = [at]  # in a list, it is no part of this module

        def forward(self, x: Tensor) -> Tensor:
            seen.append(any(value.grad is not None for value in self.at[0].parameters()))
            return x

    linear = nn.Linear(4, 3)
    trainer = trainer_of(PublicData(), nn.Sequential(Looking(linear), linear), rate=1)
    trainer.fit(X, Y, EACH_ROW)
    assert len(seen) > 12
    assert not any(seen)


def test_each_unit_is_worked_on_at_a_place_of_its_own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn anew in each step, of as many pages as that takes. Else floats that go by place are others'."""
    module = nn.Sequential(ByPlace(last=True), nn.Linear(4, 3))
    trainer = trainer_of(PublicData(), module, rate=1, page=32)
    gradients = trainer._gradients()
    gradients.rehearse(X[:0], Y[:0])
    assert gradients.kinds == 32
    drawn: list[Any] = []
    seen: list[dict[int, int]] = []
    draw, on_page = randomness.draw_place_kinds, clipping.ClippedGradients.add_page

    def draws(*given: int) -> Any:
        drawn.append(draw(*given))
        seen.append({})
        return drawn[-1]

    def look(self: Any, x: Tensor, y: Tensor, present: Tensor, *given: Any, **named: Any) -> Tensor:
        for place in present.nonzero().flatten().tolist():
            (unit,) = (x[place] == X).all(1).nonzero().flatten().tolist()
            seen[-1][unit] = place
        return on_page(self, x, y, present, *given, **named)

    monkeypatch.setattr("lapwing.learn.sgd.randomness.draw_place_kinds", draws)
    monkeypatch.setattr(clipping.ClippedGradients, "add_page", look)
    for _ in range(2):
        trainer._sum(gradients, X, Y, UnitIndex(50, None))
        assert seen[-1] == dict(enumerate(drawn[-1].tolist()))
    assert seen[0] != seen[1]  # equal with probability 32^-50


def test_units_of_several_rows_are_summed_before_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit with fifty equal rows moves the sum by no more than the clip."""
    trainer = trainer_of(PublicData(), rate=1, unit_rows=50, page=8)
    seen: list[float] = []
    on_page = clipping.ClippedGradients.add_page

    def look(self: clipping.ClippedGradients, *given: Tensor, is_first: bool) -> Tensor:
        norms = on_page(self, *given, is_first=is_first)
        seen.append(float(given[-1].double().norm()))
        return norms

    monkeypatch.setattr(clipping.ClippedGradients, "add_page", look)
    trainer.fit(X[:1].repeat(50, 1), Y[:1].repeat(50), np.zeros(50, dtype=np.int64))
    assert seen
    assert all(0.9 < length <= 1 + 1e-4 for length in seen)


def test_nothing_private_is_printed() -> None:
    assert repr(trainer_of(PublicData())).startswith("PrivateTrainer(6 steps, rate 1/5, noise")


@pytest.mark.slow
def test_it_learns_digits() -> None:
    x, y = load_digits(return_X_y=True)
    rows = torch.tensor(x / 16, dtype=torch.float32)
    targets = torch.tensor(y)
    torch.manual_seed(9)
    module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    trainer_of(
        PublicData(),
        module,
        epsilon=3,
        rate="0.1",
        expected_batch=140,
        steps=150,
        learning_rate=2.0,
        page=64,
    ).fit(rows[:1400], targets[:1400])
    right = (module(rows[1400:]).argmax(1) == targets[1400:]).float().mean()
    assert float(right) > 0.75
