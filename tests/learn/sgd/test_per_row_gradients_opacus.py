"""With Opacus' gradients of rows, clipping, noise and accounting are still Lapwing's own."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from opacus.grad_sample import GradSampleModule
from opacus.layers import DPLSTM
from torch import Tensor, nn

from lapwing.core.losses import Loss, Relation
from lapwing.errors import BadParameter, MissingExtra
from lapwing.learn.payer import EACH_ROW, LedgerPayer, PaidResult, Payer, PublicData
from lapwing.learn.sgd import ClippedGradients, GradientSensitivity, PrivateTrainer
from lapwing.learn.sgd.private_trainer import module_to_bytes
from lapwing.ledger import Ledger, Unit
from lapwing.ledger.gate import Gate
from lapwing.ledger.spending import Target
from learn.sgd.made import MODULES, clipped_sum, losses
from learn.sgd.test_sgd_neighbours import SIZES, Sums, check, grid_of, product
from learn.sgd.test_sgd_opacus import OWN
from support.slowly import first, slow

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "learning.md"


class Recurrent(nn.Module):
    """Opacus' own recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.over_time, self.head = DPLSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.over_time(x)[0][:, -1])
        return found


REFUSED = {"embedding", "attention", "reflecting conv"}
TAKEN = {name: made for name, made in MODULES.items() if name not in REFUSED} | OWN
TAKEN["recurrent"] = (Recurrent, lambda rows: torch.randn(rows, 6, 4))
NO_TARGETS = torch.zeros(0, dtype=torch.int64)


def through_opacus(module: nn.Module, **other: Any) -> ClippedGradients:
    return ClippedGradients(module, other.pop("loss_fn", losses), backend="opacus", **other)


@pytest.mark.parametrize("unit_rows", [slow(1), 2])
@pytest.mark.parametrize("name", first(8, TAKEN))
def test_clipped_sums_are_those_of_our_own_way(name: str, unit_rows: int) -> None:
    torch.manual_seed(13)
    make, rows = TAKEN[name]
    module, x = make(), rows(19 * unit_rows)
    y = torch.randint(0, 3, (len(x),))
    found: list[tuple[dict[str, Tensor], Tensor]] = []
    for gradients in (
        ClippedGradients(module, losses, clip=0.25, page=16, unit_rows=unit_rows),
        through_opacus(module, clip=0.25, page=16, unit_rows=unit_rows),
    ):
        gradients.rehearse(x[:0], y[:0])
        found.append(clipped_sum(gradients, x, y))
    (ours, our_norms), (theirs, their_norms) = found
    assert (our_norms > 0.25).any()
    torch.testing.assert_close(their_norms, our_norms, rtol=1e-5, atol=1e-6)
    assert list(ours) == list(theirs)
    for key, value in ours.items():
        torch.testing.assert_close(theirs[key], value, rtol=1e-4, atol=1e-6)


def test_nothing_of_opacus_stays_on_the_module() -> None:
    """Above all no rows, and no sum of gradients that is neither clipped nor noisy."""
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(5, 3)).eval()
    before = copy.deepcopy([vars(part) for part in module.modules()])
    gradients = through_opacus(module, clip=1, page=16)
    gradients.rehearse(torch.zeros(0, 4), NO_TARGETS)
    clipped_sum(gradients, torch.randn(6, 4), torch.randint(0, 3, (6,)))
    for part, old in zip(module.modules(), before, strict=True):
        assert vars(part).keys() == old.keys()
        assert part.training == old["training"]
        assert not part._forward_hooks
        assert not part._backward_hooks
    for value in module.parameters():
        assert value.grad is None
        assert not hasattr(value, "grad_sample")
    assert module[1].inplace


@pytest.mark.parametrize("name", first(8, TAKEN))
def test_removing_a_unit_of_two_rows_moves_within_the_price(name: str) -> None:
    torch.manual_seed(14)
    make, rows = TAKEN[name]
    x = rows(38)
    y = torch.randint(0, 3, (len(x),))
    gradients = through_opacus(make(), clip=0.25, page=16, unit_rows=2)
    gradients.rehearse(x[:0], y[:0])
    sums = Sums(gradients, grid_of(gradients, 0.25, 20), x, y)
    assert check(sums, 19, [0, 15, 16]) > 0.5


@pytest.mark.parametrize("clip", [1e-6, 1.0, 1e6])
def test_whatever_the_gradients_are(clip: float) -> None:
    torch.manual_seed(15)
    gradients = through_opacus(nn.Linear(20, 10), loss_fn=product, clip=clip, page=16)
    units = 2 * len(SIZES)
    x, y = torch.randn(units, 20), torch.randn(units, 10)
    y = y / (y.norm(dim=1) * torch.sqrt(x.square().sum(1) + 1))[:, None]
    y = (y.double() * torch.tensor(SIZES * 2, dtype=torch.float64)[:, None] * clip).float()
    sums = Sums(gradients, grid_of(gradients, clip, units), x, y)
    assert check(sums, units, list(range(units))) > 0.9


Rule = Callable[[nn.Linear, list[Tensor], Tensor], dict[nn.Parameter, Tensor]]


def rule_of(change: Callable[[Tensor], Tensor]) -> Rule:
    """Opacus' rule for a linear layer, changed."""
    right: Rule = GradSampleModule.GRAD_SAMPLERS[nn.Linear]
    return lambda *given: {value: change(rows) for value, rows in right(*given).items()}


def test_a_wrong_rule_of_opacus_is_found_and_moves_no_more_than_is_priced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(16)
    wrong = rule_of(lambda rows: 1000 * rows.roll(1, dims=1))
    monkeypatch.setitem(GradSampleModule.GRAD_SAMPLERS, nn.Linear, wrong)
    gradients = through_opacus(nn.Linear(6, 3), clip=1, page=16)
    with pytest.raises(BadParameter, match="weight: the rows' gradients by Opacus do not add up"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)
    x, y = torch.randn(20, 6), torch.randint(0, 3, (20,))
    assert check(Sums(gradients, grid_of(gradients, 1, 20), x, y), 20, [0, 7, 19]) > 0.9


def test_a_rule_of_opacus_that_mixes_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows still add up to the gradient, but are not each row's own."""
    mixing = rule_of(lambda rows: rows + 0.25 * (rows.mean(0) - rows))
    monkeypatch.setitem(GradSampleModule.GRAD_SAMPLERS, nn.Linear, mixing)
    gradients = through_opacus(nn.Linear(6, 3), clip=1, page=16)
    with pytest.raises(BadParameter, match="mixes the rows"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


class Flattened(nn.Module):
    """Times become rows: Opacus takes them for rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x.reshape(-1, 6)).reshape(len(x), -1)
        return found


class InHalf(nn.Module):
    """A layer is called twice, and one call counts: Opacus waits for the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.layer(2 * x)
        found: Tensor = self.layer(x)
        return found


class Dropping(nn.Module):
    """Dropout inside a layer, which Opacus runs a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(12))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x * self.scale, 0.5, self.training)


def fixed_norm() -> nn.Module:
    module = nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    module[1].eval()
    return module


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: nn.Embedding(12, 3, padding_idx=7), "padding_idx"),
        (lambda: nn.Embedding(12, 3, scale_grad_by_freq=True), "scale_grad_by_freq"),
        (lambda: nn.Embedding(12, 3, device="meta"), "in any order"),
        (fixed_norm, r"1 \(BatchNorm1d\) has buffers"),
    ],
)
def test_what_opacus_cannot_do_is_refused_at_once(make: Callable[[], nn.Module], says: str) -> None:
    module = make()
    with pytest.raises(BadParameter, match=says):
        through_opacus(module, clip=1)


@pytest.mark.parametrize(
    ("make", "form", "says"),
    [
        (MODULES["reflecting conv"][0], (2, 5, 5), "0.weight: the rows' gradients by Opacus do not add up"),
        (Flattened, (2, 6), "layer.weight: Opacus does not find one gradient for each row"),
        (InHalf, (12,), "layer.weight: the rows' gradients by Opacus do not add up"),
        (Dropping, (12,), "cannot be taken unit by unit"),
        (lambda: Dropping().eval(), (12,), "scale: the rows' gradients by Opacus do not add up"),
    ],
)
def test_what_opacus_gets_wrong_is_found_on_made_up_rows(
    make: Callable[[], nn.Module], form: tuple[int, ...], says: str
) -> None:
    gradients = through_opacus(make(), clip=1, page=16)
    with pytest.raises(BadParameter, match=says):
        gradients.rehearse(torch.zeros(0, *form), NO_TARGETS)


class Recording(Payer):
    """Remembers the parameters that the receipt would name."""

    relation = Relation.ADD_REMOVE

    def __init__(self) -> None:
        self.named: list[Mapping[str, str | int]] = []

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> PaidResult:
        self.named.append(parameters)
        return PaidResult(run(), None)


def trainer_of(payer: Payer, **other: Any) -> PrivateTrainer:
    torch.manual_seed(17)
    chosen: dict[str, Any] = {
        "epsilon": 1, "delta": Fraction(1, 10**5), "clip": 1, "rate": "0.2", "expected_batch": 10,
        "steps": 4, "learning_rate": 0.5, "page": 16, "backend": "opacus", **other,
    }  # fmt: skip
    return PrivateTrainer(
        nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), losses, payer=payer, **chosen
    )


_COINS = torch.Generator().manual_seed(18)
X, Y = torch.randn(50, 4, generator=_COINS), torch.randint(0, 3, (50,), generator=_COINS)


def test_the_receipt_names_the_backend(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "visits.ledger")
    ledger.open_account("visits", epsilon=2, delta="1e-3", unit=Unit.PERSON, relation=Relation.ADD_REMOVE)
    payer = LedgerPayer(
        Gate(ledger, principal="builder"), targets=(Target("visits"),), unit=Unit.PERSON,
        relation=Relation.ADD_REMOVE, request=b"a model",
    )  # fmt: skip
    trainer = trainer_of(payer)
    before = module_to_bytes(trainer.module)
    receipt = trainer.fit(X, Y, EACH_ROW).receipt
    assert receipt is not None
    assert receipt.record["parameters"]["backend"] == "opacus"
    assert module_to_bytes(trainer.module) != before


def test_the_price_is_that_of_our_own_way_and_says_who_found_gradients() -> None:
    payer = Recording()
    theirs, ours = trainer_of(payer), trainer_of(payer, backend="own")
    assert theirs.schedule == ours.schedule
    theirs.fit(X, Y, EACH_ROW)
    ours.fit(X, Y, EACH_ROW)
    assert [named["backend"] for named in payer.named] == ["opacus", "own"]


def test_a_run_goes_on_with_the_backend_that_it_began_with(tmp_path: Path) -> None:
    where: dict[str, Any] = {"save_to": tmp_path / "iterate", "save_every": 3}
    trainer_of(PublicData(), **where).fit(X, Y)
    trainer_of(PublicData(), **where).fit(X, Y, resume=True)
    other = trainer_of(PublicData(), **where, backend="own")
    with pytest.raises(BadParameter, match="other parameters"):
        other.fit(X, Y, resume=True)


def test_a_backend_of_another_name_is_refused() -> None:
    payer = PublicData()
    with pytest.raises(BadParameter, match="backend: must be own or opacus"):
        trainer_of(payer, backend="jax")


def test_without_opacus_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    payer = PublicData()
    with pytest.raises(MissingExtra, match=r"pip install 'lapwing\[opacus\]'"):
        trainer_of(payer)
    trainer_of(payer, backend="own").fit(X, Y)


def test_the_guide_is_true() -> None:
    section = GUIDE.read_text().split("## Networks, and Opacus")[1].split("\n## ")[0]
    block = re.search(r"^```py\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert block
    said: dict[str, Any] = {}
    exec(block[1], said)
    assert isinstance(said["trainer"].sensitivity, GradientSensitivity)
    assert float(said["trainer"].schedule.epsilon()) <= 1
