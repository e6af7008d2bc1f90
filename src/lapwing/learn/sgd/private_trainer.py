"""Private training of a torch module: noisy sums of clipped gradients on Poisson samples of units.

Claim    the result of `fit` is private at the loss that it charges, before it reads a row.
Because  each step adds exact discrete Gaussian noise to whole numbers that one unit moves by at most
         `GradientSensitivity.distance`; the steps are fixed before the first, so that they end at the
         target ε; and the divisor is a public number, never the size of the sample.
Test     tests/learn/sgd/test_private_trainer.py, tests/learn/sgd/test_sgd_neighbours.py,
         tests/learn/sgd/test_private_trainer_broken.py

A checkpoint of a run was paid for when the run began. Noise and its source are never saved: a resumed run
draws fresh randomness, and pays again for every step that is done again.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lapwing.canonical_json import canonical_json
from lapwing.core.exact import Number, whole
from lapwing.errors import BadParameter, BadValue
from lapwing.learn.payer import Payer, require_add_remove
from lapwing.learn.sgd import randomness, sensitivity
from lapwing.learn.sgd.clipping import Backend, ClippedGradients
from lapwing.learn.sgd.per_row_gradients import LossFunction
from lapwing.learn.sgd.sensitivity import GradientSensitivity, StepSchedule, step_schedule
from lapwing.ledger import Receipt
from lapwing.storage.private_file import PUBLIC, replaced_private_file

_MAGIC = b"lapwing model 1\n"
_KINDS = {torch.float32: "<f4", torch.float64: "<f8"}


def module_to_bytes(module: nn.Module) -> bytes:
    """Return the trained parameters as canonical bytes, after a line with their names and shapes."""
    trained, header = _trained(module)
    numbers = [value.detach().cpu().numpy().astype(_KINDS[value.dtype]) for value in trained]
    body = b"".join(array.tobytes() for array in numbers)
    return _MAGIC + canonical_json(header).encode() + b"\n" + body


def _trained(module: nn.Module) -> tuple[list[nn.Parameter], list[list[Any]]]:
    """Return the trained parameters, and the name, type and shape of each."""
    named = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
    header = [[name, _KINDS[value.dtype], list(value.shape)] for name, value in named]
    return [value for _, value in named], header


def load_module_bytes(module: nn.Module, stored: bytes) -> None:
    """Load stored numbers into a module of the same form."""
    line, _, body = stored.removeprefix(_MAGIC).partition(b"\n")
    trained, expected = _trained(module)
    if not stored.startswith(_MAGIC) or json.loads(line) != expected:
        raise BadParameter("module", "is not of the form of the stored model")
    start = 0
    with torch.no_grad():
        for value in trained:
            kind = np.dtype(_KINDS[value.dtype])
            numbers = np.frombuffer(body, kind, value.numel(), start).reshape(tuple(value.shape))
            value.copy_(torch.from_numpy(numbers.copy()))
            start += value.numel() * kind.itemsize


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` steps: the numbers of the module and the optimizer, without noise."""

    step: int
    run: dict[str, str]
    model: bytes
    optimizer: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write the file completely or not at all."""
        fields = {
            "step": self.step,
            "run": canonical_json(self.run, spaces=True),
            "model": torch.frombuffer(bytearray(self.model), dtype=torch.uint8),
            "optimizer": self.optimizer,
        }
        with replaced_private_file(path, mode=PUBLIC) as file:
            torch.save(fields, file)

    @classmethod
    def load(cls, path: Path, *, run: dict[str, str]) -> Checkpoint:
        """Read a checkpoint of a run with the same public parameters."""
        try:
            fields: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise BadParameter("save_to", "has no checkpoint to continue from") from None
        if json.loads(fields["run"]) != run:
            raise BadParameter("save_to", "holds a checkpoint of a run with other parameters")
        model: Tensor = fields["model"]
        return cls(int(fields["step"]), run, model.numpy().tobytes(), fields["optimizer"])


Data = Tensor | NDArray[Any]
_AGAIN = frozenset(
    4**k for k in range(1, 16)
)  # the numbers of steps after which the module is rehearsed again


class PrivateTrainer:
    """DP-SGD for a torch module. Neighbours add or remove one unit.

    Args:
        module: The module to train, on its device.
        loss_fn: A function of outputs and targets that returns one loss for each row.
        epsilon: The target ε.
        delta: The target δ.
        clip: The greatest norm of a unit's gradient.
        rate: The probability with which each unit is in a step.
        expected_batch: The public number by which sums are divided: about rate times the number of units
            that you expect, not the number that there is.
        payer: The payer that is charged, or `PublicData()`.
        learning_rate: The learning rate.
        steps: The number of steps; None if it follows from `noise`.
        noise: The noise, in multiples of the distance by which one unit can move a sum; None if it follows
            from `steps`.
        unit_rows: The number of rows of a unit that are drawn in each step, and added up before clipping.
        optimizer: "sgd" or "adam".
        momentum: The momentum of "sgd".
        page: The number of units that are processed at once; times `unit_rows`, a multiple of 16.
        save_to: The file of checkpoints; None for no checkpoints.
        save_every: The number of steps between checkpoints.
        backend: The library that computes the gradients of rows: "own", or "opacus" (extra `opacus`).
            Everything that privacy rests on stays here.
        tokens: If given, rows with whole numbers outside 0 to tokens - 1 do not count. Declare it on a GPU,
            where one such row may end the process.
        classes: The same for targets outside 0 to classes - 1.

    Raises:
        BadParameter: If a parameter is wrong, or the module cannot be trained privately.

    Example:
        ```python
        import torch

        from lapwing.learn import PrivateTrainer, PublicData

        trainer = PrivateTrainer(
            torch.nn.Linear(2, 1),
            lambda outputs, targets: (outputs[:, 0] - targets).square(),
            epsilon=1, delta="1e-6", clip=1, rate="1/10", expected_batch=64, steps=10, learning_rate=0.1,
            payer=PublicData(),
        )
        trainer.fit(torch.randn(640, 2), torch.randn(640))
        ```
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
        payer: Payer,
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
        require_add_remove(payer)
        self.module, self._loss_fn, self._payer = module, loss_fn, payer
        self._page, self._unit_rows = page, unit_rows
        self._backend, self._tokens, self._classes = backend, tokens, classes
        self._clipped = partial(
            ClippedGradients, clip=clip, page=page, unit_rows=unit_rows, backend=backend,
            tokens=tokens, classes=classes,
        )  # fmt: skip
        self.sensitivity = GradientSensitivity.of(
            clip, parameters=self._gradients().size, page=page, expected_batch=expected_batch
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
            raise BadParameter("save_to", "must name the file of checkpoints")
        self.receipt: Receipt | None = None

    def fit(
        self,
        X: Data,  # noqa: N803 (scikit-learn's name)
        y: Data,
        units: Any = None,
        *,
        resume: bool = False,
    ) -> PrivateTrainer:
        """Charge the steps, then do them. Afterwards the module holds the new numbers.

        If the work fails after the charge, it stays charged.

        Args:
            X: All rows, as an array or a tensor.
            y: The targets, one for each row.
            units: The unit of each row, in whole numbers; None if the account protects rows.
            resume: Whether to continue from the last checkpoint. The remaining steps are charged again, as
                other work under another key.

        Returns:
            This trainer.

        Raises:
            BadParameter: If the module cannot be trained privately, or there is no checkpoint to continue
                from.
            BadValue: If X and y differ in their numbers of rows.
        """
        rows, targets = _tensor(X, "X"), _tensor(y, "y")
        if len(rows) != len(targets):
            raise BadValue("X and y must have as many rows")
        unit_index = randomness.UnitIndex(len(rows), self._payer.checked_units(units))
        begun = None
        if resume:
            if self._save_to is None:
                raise BadParameter("save_to", "must name the file of the checkpoint")
            begun = Checkpoint.load(self._save_to, run=self._public())
        done = begun.step if begun else 0
        if done >= self.schedule.steps:
            raise BadParameter("resume", "is not possible: all steps were done")
        at_work = copy.copy(self)  # state that a module or a loss keeps is discarded with the copy
        at_work.module, at_work._loss_fn = copy.deepcopy((self.module, self._loss_fn))
        if begun is not None:
            load_module_bytes(at_work.module, begun.model)
        gradients = at_work._gradients()
        gradients.rehearse(*_form(rows, targets, at_work.module))
        paid = self._payer.pay(
            self.schedule.loss(done=done),
            lambda: at_work._train(gradients, rows, targets, unit_index, begun),
            mechanism="dp-sgd",
            parameters={**self._public(), "from step": done},
        )
        load_module_bytes(self.module, paid.result)
        self.receipt = paid.receipt
        return self

    def rehearse(self, X: Data, y: Data) -> None:  # noqa: N803
        """Try the module on made-up rows of the form of X and y, which may be empty. Nothing is charged.

        Args:
            X: Rows: only their form is used.
            y: Targets: only their form is used.

        Raises:
            BadParameter: If the module cannot be trained privately.
        """
        module, loss_fn = copy.deepcopy((self.module, self._loss_fn))  # their own state is discarded
        self._clipped(module, loss_fn).rehearse(*_form(_tensor(X, "X"), _tensor(y, "y"), module))

    def _train(
        self,
        gradients: ClippedGradients,
        rows: Tensor,
        targets: Tensor,
        unit_index: randomness.UnitIndex,
        begun: Checkpoint | None,
    ) -> bytes:
        module, form = self.module, _form(rows, targets, self.module)
        kind, learning_rate, momentum = self._optimizer
        optimizer: torch.optim.Optimizer
        if kind == "adam":
            optimizer = torch.optim.Adam(gradients.trained, lr=learning_rate)
        else:
            optimizer = torch.optim.SGD(gradients.trained, lr=learning_rate, momentum=momentum)
        if begun is not None:
            optimizer.load_state_dict(begun.optimizer)
        counts = None
        if self._tokens is not None or self._classes is not None:
            counts = _within(rows, self._tokens) & _within(targets, self._classes)
        mechanism = self.schedule.sensitivity.mechanism(self.schedule.noise)
        first = begun.step if begun else 0
        noise = randomness.StepNoise(mechanism, steps=self.schedule.steps - first)
        with randomness.fresh_randomness(_device(module)) as reseed:
            for step in range(first, self.schedule.steps):
                if (step - first) in _AGAIN:  # it depends on released numbers alone, so it may fail
                    gradients.rehearse_again(*form, step=step)
                reseed()
                sums = self._sum(gradients, rows, targets, unit_index, counts)
                noisy = randomness.release_noisy_sum(sums, self.sensitivity, noise, divided_by=self._batch)
                # From here on everything is computed from released numbers.
                for value, part in zip(gradients.trained, gradients.views(noisy).values(), strict=True):
                    value.grad = part.view_as(value).to(value.dtype)
                optimizer.step()
                for value in gradients.trained:  # it may share memory with the next sum
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
        unit_index: randomness.UnitIndex,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Return one step's sum, of a fresh sample. It is private, and gets noise next."""

        def add(pages: randomness.SampledRows, into: Tensor) -> None:
            """Overwrite `into` with the sum of these pages."""
            if not len(pages):
                into.zero_()
            for number, page in enumerate(pages):
                places = torch.from_numpy(page.reshape(-1))
                present = places >= 0
                if counts is not None:
                    present &= counts[places]  # a place of -1 is empty already
                x, y = (_gathered(values, places, present).to(into.device) for values in (rows, targets))
                gradients.add_page(x, y, present.to(into.device), into, is_first=not number)

        sampled = unit_index.sample(self.schedule.rate, self._unit_rows)
        kind = randomness.draw_place_kinds(len(sampled), self._page, gradients.kinds)
        pages = randomness.lay_out_pages(sampled, kind, self._page, gradients.kinds)
        single = self.sensitivity.is_single(len(sampled), len(pages))
        sums = gradients.reused_sum(single=single)
        if not self.sensitivity.is_many(len(sampled), len(pages)):
            add(pages, sums)
            return sums
        # Very many units are added a few at a time, with compensation for rounding.
        total, few = randomness.CompensatedSum(sums.zero_()), min(self._page, sensitivity.FEW)
        for start in range(0, len(sampled), few):
            some = slice(start, start + few)
            pages = randomness.lay_out_pages(sampled[some], kind[some], self._page, gradients.kinds)
            add(pages, total.next())
        return total.sum(self.sensitivity)

    def _gradients(self) -> ClippedGradients:
        return self._clipped(self.module, self._loss_fn)

    def _public(self) -> dict[str, str]:
        """Return the public parameters of the run, as texts. Nothing in them depends on data."""
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
    """Return the rows at these places, and zeros for empty places."""
    gathered = values.new_zeros((len(places), *values.shape[1:]))
    gathered[present] = values[places[present]]
    return gathered


def _form(rows: Tensor, targets: Tensor, module: nn.Module) -> tuple[Tensor, Tensor]:
    """Return empty tensors of the same form: no row is looked at."""
    return rows[:0].to(_device(module)), targets[:0].to(_device(module))


def _within(values: Tensor, below: int | None) -> Tensor:
    """Return the rows that hold only declared whole numbers. Each row is judged by itself."""
    if below is None:
        return torch.ones(len(values), dtype=torch.bool)
    return ((values >= 0) & (values < below)).reshape(len(values), -1).all(1).cpu()


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _tensor(data: Data, name: str) -> Tensor:
    if isinstance(data, Tensor):
        tensor = data.detach()
    elif isinstance(data, np.ndarray) and data.dtype.kind in "iufb":
        tensor = torch.from_numpy(data)
    else:
        raise BadParameter(
            name,
            "must be an array or a tensor of all rows. Batches are drawn here, each unit on its own coin: "
            "shuffled batches of a loader have another price",
        )
    if not tensor.ndim:
        raise BadParameter(name, "must have at least one dimension, the rows")
    return tensor
