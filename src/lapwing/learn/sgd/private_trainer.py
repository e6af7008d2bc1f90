"""Trains a torch module privately: noisy sums of clipped gradients on Poisson samples of units.

Claim    what `fit` gives is private at the loss that it charges, before it reads a row.
Because  each step adds exact discrete Gaussian noise to whole numbers that one unit moves by at most
         `Sensitivity.distance`; the steps are fixed before the first, so that they end at the target ε; and
         what is divided by is a public number, never the size of the sample.
Test     tests/learn/sgd/test_trainer.py, tests/learn/sgd/test_neighbours.py, tests/learn/sgd/test_broken.py

A model's numbers as bytes: the same numbers give the same bytes. And an iterate, to go on from.

What is saved of a run was paid for when the run began. Noise and its source are never saved: whoever goes
on from an iterate draws fresh coins, and pays again for every step that is done again.
"""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lapwing.core.exact import Number, whole
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter, BadValue
from lapwing.learn.payer import Payer
from lapwing.learn.sgd import sensitivity
from lapwing.learn.sgd.clipping import Backend, ClippedGradients
from lapwing.learn.sgd.per_row_gradients import LossFunction
from lapwing.learn.sgd.randomness import (
    CompensatedSum,
    SampledRows,
    StepNoise,
    UnitIndex,
    draw_place_kinds,
    fresh_randomness,
    lay_out_pages,
    release_noisy_sum,
)
from lapwing.learn.sgd.sensitivity import GradientSensitivity, StepSchedule, step_schedule
from lapwing.ledger import Receipt

_MAGIC = b"lapwing model 1\n"
_KINDS = {torch.float32: "<f4", torch.float64: "<f8"}


def module_to_bytes(module: nn.Module) -> bytes:
    """The trained parameters, one after the other, after a line that says which they are."""
    named = module.named_parameters()
    values = {name: value.detach().cpu() for name, value in named if value.requires_grad}
    header = [[name, _KINDS[value.dtype], list(value.shape)] for name, value in values.items()]
    body = b"".join(value.numpy().astype(_KINDS[value.dtype]).tobytes() for value in values.values())
    return _MAGIC + json.dumps(header, separators=(",", ":")).encode() + b"\n" + body


def load_module_bytes(module: nn.Module, stored: bytes) -> None:
    """Put stored numbers into a module of the same form."""
    line, _, body = stored.removeprefix(_MAGIC).partition(b"\n")
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    expected = [[name, _KINDS[value.dtype], list(value.shape)] for name, value in trained.items()]
    if not stored.startswith(_MAGIC) or json.loads(line) != expected:
        raise BadParameter("module", "is not of the form of the stored model")
    start = 0
    with torch.no_grad():
        for value in trained.values():
            kind = np.dtype(_KINDS[value.dtype])
            numbers = np.frombuffer(body, kind, value.numel(), start).reshape(tuple(value.shape))
            value.copy_(torch.from_numpy(numbers.copy()))
            start += value.numel() * kind.itemsize


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stood after `step` steps: its numbers and its optimizer's, no noise."""

    step: int
    run: dict[str, str]
    model: bytes
    optimizer: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        beside = path.with_name(path.name + ".new")
        with beside.open("wb") as file:
            torch.save(
                {
                    "step": self.step,
                    "run": json.dumps(self.run, sort_keys=True),
                    "model": torch.frombuffer(bytearray(self.model), dtype=torch.uint8),
                    "optimizer": self.optimizer,
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @classmethod
    def load(cls, path: Path, *, run: dict[str, str]) -> Checkpoint:
        """Read what `save` wrote, of a run with the same public parameters."""
        try:
            found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise BadParameter("save_to", "has no saved iterate to go on from") from None
        if json.loads(found["run"]) != run:
            raise BadParameter("save_to", "holds an iterate of a run with other parameters")
        model: Tensor = found["model"]
        return cls(int(found["step"]), run, model.numpy().tobytes(), found["optimizer"])


Data = Tensor | NDArray[Any]
_AGAIN = frozenset(4**k for k in range(1, 16))  # after so many steps the module is rehearsed again


class PrivateTrainer:
    """DP-SGD. Neighbours add or remove one unit.

    `epsilon` and `delta` are the target; of `steps` and `noise` (in multiples of what one unit can move)
    one is given, and the other follows. `rate` is each unit's chance to be in a step, `expected_batch` the
    public number that sums are divided by: about rate times the units that you expect, not those there are.
    Of a unit's rows, up to `unit_rows` are drawn in each step and added up before clipping.

    `loss_fn(outputs, targets)` gives one loss for each row. `page` and `save_*` are about speed and safety:
    units that are worked on at once (times `unit_rows` a multiple of 16), where iterates are kept, and how
    often. `backend` says who finds the gradients of rows: with "opacus", Opacus (extra `opacus`); all that
    privacy rests on stays here.

    With `tokens` and `classes`, rows with whole numbers outside 0 to tokens - 1, or targets outside 0 to
    classes - 1, do not count. Declare them on a GPU, where one such row may end the process.
    """

    def __init__(
        self,
        module: nn.Module,
        loss_fn: LossFunction,
        *,
        epsilon: Number,
        delta: Number,
        clip: Number,
        rate: Number,
        expected_batch: int,
        purse: Payer,
        learning_rate: float,
        steps: int | None = None,
        noise: Number | None = None,
        unit_rows: int = 1,
        optimizer: Literal["sgd", "adam"] = "sgd",
        momentum: float = 0.0,
        page: int = 64,
        save_to: Path | None = None,
        save_every: int = 0,
        backend: Backend = "own",
        tokens: int | None = None,
        classes: int | None = None,
    ) -> None:
        if purse.relation is not Relation.ADD_REMOVE:
            raise BadParameter("purse", "must pay for adding or removing a unit: so are samples priced")
        self.module, self._loss_fn, self._payer = module, loss_fn, purse
        self._clip, self._page, self._unit_rows = clip, page, unit_rows
        self._backend: Backend = backend
        self._tokens, self._classes = tokens, classes
        gradients = self._gradients(module)
        self.sensitivity = GradientSensitivity.of(
            clip, parameters=gradients.size, page=page, expected_batch=expected_batch
        )
        self.schedule: StepSchedule = step_schedule(
            self.sensitivity, epsilon=epsilon, delta=delta, rate=rate, steps=steps, noise=noise
        )
        self._batch = whole(expected_batch, "expected_batch", at_least=1)
        self._optimizer = (optimizer, float(learning_rate), float(momentum))
        if optimizer not in ("sgd", "adam"):
            raise BadParameter("optimizer", "must be sgd or adam")
        self._save_to, self._save_every = save_to, whole(save_every, "save_every")
        if save_to is None and save_every:
            raise BadParameter("save_to", "must say where iterates are kept")
        self.receipt: Receipt | None = None

    def fit(
        self,
        X: Data,  # noqa: N803 (scikit-learn's name)
        y: Data,
        units: Any = None,
        *,
        resume: bool = False,
    ) -> PrivateTrainer:
        """Charge the steps, then do them. With `resume`, from the last saved iterate: they are paid anew.

        `units` says whose row each is, in whole numbers. It may be left out where rows are protected.
        The module holds the new numbers afterwards. What fails after the charge stays charged: going on is
        other work, under another key.
        """
        rows, targets = _tensor(X, "X"), _tensor(y, "y")
        if len(rows) != len(targets):
            raise BadValue("X and y must have as many rows")
        people = UnitIndex(len(rows), self._payer.whose(units))
        begun = None
        if resume:
            if self._save_to is None:
                raise BadParameter("save_to", "must say where the iterate is")
            begun = Checkpoint.load(self._save_to, run=self._public())
        done = begun.step if begun else 0
        if done >= self.schedule.steps:
            raise BadParameter("resume", "all steps were done: there is nothing to go on with")
        at_work = copy.copy(self)  # what a module or a loss remembers stays with a copy, and ends with it
        at_work.module, at_work._loss_fn = copy.deepcopy((self.module, self._loss_fn))
        if begun is not None:
            load_module_bytes(at_work.module, begun.model)
        gradients = at_work._gradients(at_work.module)
        gradients.rehearse(*_form(rows, targets, at_work.module))
        paid = self._payer.pay(
            self.schedule.loss(done=done),
            lambda: at_work._train(gradients, rows, targets, people, begun),
            mechanism="dp-sgd",
            parameters={**self._public(), "from step": done},
        )
        load_module_bytes(self.module, paid.result)
        self.receipt = paid.receipt
        return self

    def _train(
        self,
        gradients: ClippedGradients,
        rows: Tensor,
        targets: Tensor,
        people: UnitIndex,
        begun: Checkpoint | None,
    ) -> bytes:
        module, form = self.module, _form(rows, targets, self.module)
        optimizer = self._make_optimizer(module)
        if begun is not None:
            optimizer.load_state_dict(begun.optimizer)
        counts = None
        if self._tokens is not None or self._classes is not None:
            counts = _within(rows, self._tokens) & _within(targets, self._classes)
        mechanism = self.schedule.sensitivity.mechanism(self.schedule.noise)
        first = begun.step if begun else 0
        noise = StepNoise(mechanism, steps=self.schedule.steps - first)
        with fresh_randomness(_device(module)) as throw_anew:
            for step in range(first, self.schedule.steps):
                if (step - first) in _AGAIN:  # decided from released numbers: it may fail
                    gradients.rehearse_again(*form, step=step)
                throw_anew()
                sums = self._sum(gradients, rows, targets, people, counts)
                noisy = release_noisy_sum(sums, self.sensitivity, noise, divided_by=self._batch)
                # From here on everything is made of released numbers.
                for value, part in zip(gradients.trained, gradients.views(noisy).values(), strict=True):
                    value.grad = part.view_as(value).to(value.dtype)
                optimizer.step()
                for value in gradients.trained:  # it may be the memory in which the next sum is made
                    value.grad = None
                if self._save_every and (step + 1) % self._save_every == 0:
                    assert self._save_to is not None
                    now = Checkpoint(
                        step + 1, self._public(), module_to_bytes(module), optimizer.state_dict()
                    )
                    now.save(self._save_to)
        return module_to_bytes(module)

    def _sum(
        self,
        gradients: ClippedGradients,
        rows: Tensor,
        targets: Tensor,
        people: UnitIndex,
        counts: Tensor | None = None,
    ) -> Tensor:
        """One step's sum, of a fresh sample. Private: it gets noise next."""
        sampled = people.sample(self.schedule.rate, self._unit_rows)
        kind = draw_place_kinds(len(sampled), self._page, gradients.kinds)
        pages = lay_out_pages(sampled, kind, self._page, gradients.kinds)
        single = self.sensitivity.is_single(len(sampled), len(pages))
        sums = gradients.room(single=single)
        if not self.sensitivity.is_many(len(sampled), len(pages)):
            self._add(gradients, pages, sums, rows=rows, targets=targets, counts=counts)
            return sums
        # Very many are added with care: a few at a time, what is lost in adding is kept.
        total, few = CompensatedSum(sums.zero_()), min(self._page, sensitivity.FEW)
        for start in range(0, len(sampled), few):
            some = slice(start, start + few)
            pages = lay_out_pages(sampled[some], kind[some], self._page, gradients.kinds)
            self._add(gradients, pages, total.next(), rows=rows, targets=targets, counts=counts)
        return total.sum(self.sensitivity)

    def _add(
        self,
        gradients: ClippedGradients,
        pages: SampledRows,
        into: Tensor,
        *,
        rows: Tensor,
        targets: Tensor,
        counts: Tensor | None,
    ) -> None:
        """Overwrite `into` with the sum of these pages."""
        if not len(pages):
            into.zero_()
        for number, page in enumerate(pages):
            places = torch.from_numpy(page.reshape(-1))
            present = places >= 0
            if counts is not None:
                present &= counts[places]  # a place of -1 is absent already
            x, y = (_gathered(values, places, present).to(into.device) for values in (rows, targets))
            gradients.add_page(x, y, present.to(into.device), into, is_first=not number)

    def _gradients(self, module: nn.Module) -> ClippedGradients:
        return ClippedGradients(
            module,
            self._loss_fn,
            clip=self._clip,
            page=self._page,
            unit_rows=self._unit_rows,
            backend=self._backend,
            tokens=self._tokens,
            classes=self._classes,
        )

    def _make_optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        name, rate, momentum = self._optimizer
        trained = [value for value in module.parameters() if value.requires_grad]
        if name == "adam":
            return torch.optim.Adam(trained, lr=rate)
        return torch.optim.SGD(trained, lr=rate, momentum=momentum)

    def _public(self) -> dict[str, str]:
        """What the run is, in words: nothing in here depends on data."""
        plan, name = self.schedule, type(self.module).__name__
        optimizer, learning_rate, momentum = self._optimizer
        return {
            "module": f"{name} of {plan.sensitivity.parameters} numbers",
            "clip": str(plan.sensitivity.clip),
            "rate": str(plan.rate),
            "noise": str(plan.noise),
            "steps": str(plan.steps),
            "expected batch": str(self._batch),
            "unit rows": str(self._unit_rows),
            "page": str(self._page),
            "backend": self._backend,
            "optimizer": f"{optimizer}, rate {learning_rate}, momentum {momentum}",
            **({} if self._tokens is None else {"tokens": str(self._tokens)}),
            **({} if self._classes is None else {"classes": str(self._classes)}),
        }

    def __repr__(self) -> str:
        plan = self.schedule
        return f"PrivateTrainer({plan.steps} steps, rate {plan.rate}, noise {plan.noise})"


def _gathered(values: Tensor, places: Tensor, present: Tensor) -> Tensor:
    """The rows at these places; zeros where nobody is."""
    found = values.new_zeros((len(places), *values.shape[1:]))
    found[present] = values[places[present]]
    return found


def _form(rows: Tensor, targets: Tensor, module: nn.Module) -> tuple[Tensor, Tensor]:
    """No rows at all: only their form is looked at."""
    return rows[:0].to(_device(module)), targets[:0].to(_device(module))


def _within(values: Tensor, below: int | None) -> Tensor:
    """Which rows hold declared whole numbers alone: each row's own affair."""
    if below is None:
        return torch.ones(len(values), dtype=torch.bool)
    return ((values >= 0) & (values < below)).reshape(len(values), -1).all(1).cpu()


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _tensor(data: Data, name: str) -> Tensor:
    if isinstance(data, Tensor):
        found = data.detach()
    elif isinstance(data, np.ndarray) and data.dtype.kind in "iufb":
        found = torch.from_numpy(data)
    else:
        raise BadParameter(
            name,
            "must be an array or a tensor of all rows. Batches are drawn here, each unit on its own coin: "
            "shuffled batches of a loader have another price",
        )
    if not found.ndim:
        raise BadParameter(name, "must have a row for each row of a unit")
    return found
