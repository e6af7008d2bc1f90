"""A rehearsal on made-up rows, before anything is charged: is each row's gradient its own, and right?

Claim    a module that passes gave, at this page's shape and for the rows tried, the same floats for a unit
         bit for bit at all places of one kind and for all other units in the page, nothing for absent
         units, and units' gradients that add up to the gradient that torch finds itself.
Because  exactly this is tried: units of many sizes at other places of their kind; single units and many
         replaced by long ones, by zeros, by absent ones, by one another; a weighted sum beside torch's. A
         place at which floats differ is no error: then there are more kinds of places, in the end one each.
Test     tests/learn/sgd/test_rehearsal.py, tests/learn/sgd/test_clipping_refusals.py

It is a trial, not a proof. docs/arguments/dp_sgd.md says what is assumed. Modules that cannot be trained
privately are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from lapwing.errors import BadParameter, LapwingError
from lapwing.learn.sgd.per_row_gradients import CannotTrace, GradientPage, LossFunction, checked_losses
from lapwing.learn.sgd.randomness import fixed_randomness, without_dropout
from lapwing.learn.sgd.unit_gradients import ParameterGradients

# The number of rows of a page is a multiple of this: the remainder of a matrix goes through other code.
# Rows this many places apart begin alike within 64 bytes, the longest vector of a processor.
TILE = 16
_LONG = 1000
_USUAL = 1.0
_SIZES = (_USUAL, 0.0, 1e-3, 1e-2, 0.1, 10.0, 100.0, 1e3)
_SIZES_AGAIN = (0.1, 10.0)  # while training
# Most units change by more than this share of their length at another place: no rounding explains that.
_OF_PLACE = 1 / 16
# A parameter's units must add up to torch's own gradient: to this share of their lengths, and to this share
# of all parameters' (a gradient that is 0 but for rounding agrees with nothing).
_OFF, _OFF_OF_ALL = 1e-3, 1e-6


@dataclass(frozen=True)
class RowForm:
    """The form of rows: only the shape and type of `x` and `y` are used.

    Made-up whole numbers are below a bound.
    """

    x: Tensor
    y: Tensor
    x_below: int = 2
    y_below: int = 2
    is_share: bool = False  # made-up float targets lie between 0 and 1

    def rows(self, count: int) -> tuple[Tensor, Tensor]:
        """Make up rows of this form."""
        y = _made_up(self.y, count, self.y_below)
        share = self.is_share and y.is_floating_point()
        return _made_up(self.x, count, self.x_below), (y.sigmoid() if share else y)


def _made_up(like: Tensor, rows: int, below: int) -> Tensor:
    shape = (rows, *like.shape[1:])
    if like.dtype.is_floating_point:
        return torch.randn(shape, dtype=like.dtype, device=like.device)
    return torch.randint(0, below, shape, device=like.device).to(like.dtype)


@dataclass(frozen=True)
class GradientRehearsal:
    """One gradient method of a module, tried on made-up rows. `seed` decides which rows."""

    module: nn.Module
    loss_fn: LossFunction
    trained: Mapping[str, Tensor]
    parts: Callable[[GradientPage], list[ParameterGradients]]
    units: int
    unit_rows: int
    form: RowForm
    seed: int
    drops_in_sums: bool  # whether torch is compared under the same dropout
    wrong: str  # the error message for a parameter whose gradients do not add up

    def full(self) -> int:
        """Do all trials, and return the number of kinds of places: place p is of kind p % kinds.

        Raises BadParameter if the module is unfit, and CannotTrace if only this gradient method fails.
        """
        with fixed_randomness(self.form.x.device, self.seed):
            self._check_empty_page()
            self._check_mixing(brief=False)
            kinds = self._kinds(1, _SIZES)
            self._check_sums()
        return kinds

    def brief(self, kinds: int) -> int:
        """Do a few trials again, with the module's present numbers. `kinds` is the result of `full`."""
        with fixed_randomness(self.form.x.device, self.seed):
            self._check_mixing(brief=True)
            return self._kinds(kinds, _SIZES_AGAIN)

    @property
    def _rows(self) -> int:
        return self.units * self.unit_rows

    def _tried(self, x: Tensor, y: Tensor, present: Tensor | None = None) -> list[ParameterGradients]:
        """Return the gradients of a page (`present`: a mask of units), always with the same randomness."""
        if present is None:
            present = torch.ones(self.units, dtype=torch.bool, device=x.device)
        page = GradientPage(x, y, present.repeat_interleave(self.unit_rows), self.units)
        with fixed_randomness(x.device, self.seed):
            return _explained(lambda: self.parts(page))

    def _floats(self, parts: list[ParameterGradients]) -> list[Tensor]:
        """Return all floats of a page, one line for each unit."""
        floats = []
        for part in parts:
            floats += [each.reshape(self.units, -1).nan_to_num() for each in part.floats()]
            floats.append(part.squares().reshape(self.units, 1).nan_to_num())
        return floats

    def _check_empty_page(self) -> None:
        x, y = self.form.rows(self._rows)
        present = torch.zeros(self.units, dtype=torch.bool, device=x.device)
        self._refuse_absent(self._tried(torch.zeros_like(x), torch.zeros_like(y), present), present)

    def _refuse_absent(self, parts: list[ParameterGradients], present: Tensor) -> None:
        for part in parts:
            squares = part.squares()[~present]
            if ((squares != 0) & squares.isfinite()).any():  # a gradient that is not finite adds nothing
                raise BadParameter("loss_fn", "mixes the rows of a batch: an absent row has a gradient")

    def _check_mixing(self, *, brief: bool) -> None:
        x, y = self.form.rows(self._rows)
        usual = self._floats(self._tried(x, y))
        for kept, other_x, other_y, present in self._variations(x, y, brief=brief):
            try:
                parts = self._tried(other_x, other_y, present)
            except BadParameter:
                continue  # the module fails on such rows: training leaves them out
            _refuse_mixing(zip(usual, self._floats(parts), strict=True), kept)
            self._refuse_absent(parts, present)

    def _variations(
        self, x: Tensor, y: Tensor, *, brief: bool
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yield pages with some units replaced: masks of kept units, rows, and masks of present units."""
        units, half = self.units, self.units // 2

        def some(count: int) -> Tensor:
            return torch.randperm(units, device=x.device)[:count]

        first, last = torch.tensor([0], device=x.device), torch.tensor([units - 1], device=x.device)
        choices = [
            (some(1), "long"), (some(half), "long"), (some(half), "absent"), (some(1), "absent"),
            (first, "long"), (last, "zero"), (some(half), "other"), (some(half), "zero"),
            (some(units - 1), "absent"),
        ]  # fmt: skip
        for replaced, how in choices[:3] if brief else choices:
            kept = torch.ones(units, dtype=torch.bool, device=x.device)
            kept[replaced] = False
            rows = kept.repeat_interleave(self.unit_rows)
            new_x, new_y = self.form.rows(self._rows)
            if how in ("zero", "absent"):
                new_x, new_y = torch.zeros_like(new_x), torch.zeros_like(new_y)
            if how == "long" and new_x.is_floating_point():
                new_x = new_x * _LONG
            present = kept if how == "absent" else torch.ones_like(kept)
            yield kept, _either(rows, x, new_x), _either(rows, y, new_y), present

    def _kinds(self, kinds: int, sizes: tuple[float, ...]) -> int:
        """Return the number of kinds of places: `kinds`, those within a tile, or one for each place."""
        for size in sizes:
            x, y = self.form.rows(self._rows)
            if x.is_floating_point():
                x = x * size
            usual = self._without_dropout(x, y)
            while usual and not self._are_alike(kinds, usual, x, y, is_usual=size == _USUAL):
                kinds = TILE if kinds < TILE < self.units else self.units
        return kinds

    def _without_dropout(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """Return a page's floats; an empty list if the module fails on it."""
        try:
            with without_dropout(self.module):
                return self._floats(self._tried(x, y))
        except BadParameter:
            return []  # training leaves such units out

    def _are_alike(self, kinds: int, usual: list[Tensor], x: Tensor, y: Tensor, *, is_usual: bool) -> bool:
        """Tell whether units keep their floats when they change places within their kind.

        Every place is tried, in two turns, and in each turn some units stay.
        """
        places, of_unit = (torch.arange(n, device=x.device) for n in (self.units, self.unit_rows))
        order = torch.randperm(self.units, device=x.device)
        for turn in range(2):
            moved = places.clone()
            for kind in range(kinds):
                group = _moving(order[order % kinds == kind], kind, turn)
                moved[group] = group.roll(1)
            rows = (moved[:, None] * self.unit_rows + of_unit).flatten()
            floats = self._without_dropout(x[rows], y[rows])
            pairs = [(here, there[moved]) for here, there in zip(floats, usual, strict=bool(floats))]
            _refuse_mixing(pairs, moved == places)
            if is_usual:
                _refuse_by_place(pairs, moved != places)
            if not all(torch.equal(here, there) for here, there in pairs):
                return False
        return True

    def _check_sums(self) -> None:
        """Raise BadParameter if units' gradients do not add up to the gradient of all losses."""
        x, y = self.form.rows(self._rows)
        weights = torch.rand(self.units, dtype=torch.float64, device=x.device) + 0.5
        with nullcontext() if self.drops_in_sums else without_dropout(self.module):
            parts, whole = self._tried(x, y), self._by_torch(x, y, weights)
        lengths = {
            part.name: float((part.squares().sqrt() * weights).nan_to_num(0, 0, 0).sum()) for part in parts
        }
        longest = sum(lengths.values())
        sums = {name: torch.zeros(value.numel(), dtype=torch.float64, device=x.device)
                 for name, value in self.trained.items()}  # fmt: skip
        for part in parts:
            part.drop(~part.squares().isfinite())
            part.add(weights, sums[part.name], is_first=False)
        for name, total in whole.items():
            off = sums[name] if total is None else total.double().flatten() - sums[name]
            if float(off[off.isfinite()].norm()) > _OFF * lengths.get(name, 0.0) + _OFF_OF_ALL * longest:
                raise BadParameter("module", f"{name}: {self.wrong}")

    def _by_torch(self, x: Tensor, y: Tensor, weights: Tensor) -> dict[str, Tensor | None]:
        def run() -> dict[str, Tensor | None]:
            with fixed_randomness(x.device, self.seed), deterministic_gpu(x), torch.enable_grad():
                losses = checked_losses(self.loss_fn(self.module(x), y), len(x))
                if not losses.requires_grad:
                    return dict.fromkeys(self.trained)
                total = (losses * weights.repeat_interleave(self.unit_rows)).sum()
                gradients = torch.autograd.grad(total, list(self.trained.values()), allow_unused=True)
            return dict(zip(self.trained, gradients, strict=True))

        return _explained(run)


def deterministic_gpu(x: Tensor) -> AbstractContextManager[None]:
    """Let the same rows use the same algorithms on a GPU each time."""
    if not x.is_cuda:
        return nullcontext()
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    )
    return flags


def _moving(group: Tensor, kind: int, turn: int) -> Tensor:
    """Return the places of one kind that change units in this turn: one half, or all if there are few."""
    half = len(group) // 2
    if half >= 2:
        return group[half:] if turn else group[:half]
    return group if (kind + turn) % 2 else group[:0]


def _refuse_mixing(pairs: Iterable[tuple[Tensor, Tensor]], kept: Tensor) -> None:
    """Raise BadParameter if a kept unit's floats differ by a bit, although only other units changed."""
    if any(not torch.equal(first[kept], second[kept]) for first, second in pairs):
        raise BadParameter(
            "module", "mixes the rows of a batch: a row's gradient changed when other rows did"
        )


def _refuse_by_place(pairs: list[tuple[Tensor, Tensor]], moved: Tensor) -> None:
    """Raise BadParameter if most moved units of the usual size changed by more than rounding explains.

    Privacy does not need this, since each unit draws its kind of place: such a module is a mistake.
    """
    off = [
        (first - second)[moved].norm(dim=1) > _OF_PLACE * second[moved].norm(dim=1)
        for first, second in pairs
    ]
    if off and moved.any() and torch.stack(off).any(0).float().mean() > 1 / 2:
        raise BadParameter("module", "gives a row another gradient at another place of the batch")


def _either(chosen: Tensor, value: Tensor, instead: Tensor) -> Tensor:
    return torch.where(chosen.reshape(-1, *[1] * (value.ndim - 1)), value, instead)


_Found = TypeVar("_Found")


def _explained(run: Callable[[], _Found]) -> _Found:
    """Run, and convert errors of the module to BadParameter. It sees only made-up rows."""
    try:
        return run()
    except (CannotTrace, LapwingError):
        raise
    except Exception as error:
        said = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise BadParameter("module", f"cannot be taken unit by unit on such rows: {said}") from error


def refuse_unfit_module(module: nn.Module) -> None:
    """Raise BadParameter with the name of a layer that mixes units or keeps statistics of them."""
    for name, part in module.named_modules():
        where = f"{name or 'the module'} ({type(part).__name__})"
        if isinstance(part, _BatchNorm) and (part.training or part.running_mean is None):
            raise BadParameter(
                "module",
                f"{where} mixes the units of a batch, so that none can be clipped alone. "
                "Use GroupNorm or LayerNorm instead",
            )
        if isinstance(part, _InstanceNorm) and part.track_running_stats and part.training:
            raise BadParameter("module", f"{where} keeps running statistics of private data, unpaid")
        if isinstance(part, nn.Embedding) and part.max_norm is not None:
            raise BadParameter("module", f"{where} with max_norm rewrites lines that private data names")
    trained = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
    if not trained:
        raise BadParameter("module", "has no parameter to train")
    if any(value.dtype not in (torch.float32, torch.float64) for _, value in trained):
        raise BadParameter("module", "must be of float32 or float64: shorter floats err too much")
    if len({(value.device, value.dtype) for _, value in trained}) > 1:
        raise BadParameter("module", "must be on one device and of one type of float")


# Torch's newer names of the same setting. Convolutions on a GPU are set while they run.
_PRECISIONS = ("", "cuda.matmul", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn", "mkldnn")


def _precision(path: str) -> str:
    place: Any = torch.backends
    for name in path.split(".") if path else ():
        place = getattr(place, name, None)
    return str(getattr(place, "fp32_precision", "none"))


def refuse_short_floats() -> None:
    """Raise BadParameter if torch is set to lose digits in products: the price assumes that it does not."""
    for path in _PRECISIONS:
        if _precision(path) not in ("none", "ieee"):
            where = ".".join(part for part in ("torch.backends", path, "fp32_precision") if part)
            raise BadParameter("torch", f"must multiply in full: set {where} to 'ieee'")
    try:
        in_full = torch.get_float32_matmul_precision() == "highest"
        _ = torch.backends.cudnn.allow_tf32  # set during a page, so that it must be readable
    except RuntimeError:  # torch raises if its older and newer settings are mixed
        raise BadParameter(
            "torch",
            "has older and newer settings of precision mixed up: set all fp32_precision of torch.backends "
            "to 'ieee', and none of set_float32_matmul_precision and allow_tf32",
        ) from None
    if not in_full:
        raise BadParameter("torch", "must multiply in full: set_float32_matmul_precision('highest')")
    if torch.backends.cuda.matmul.allow_fp16_accumulation:
        raise BadParameter(
            "torch", "must add in full: no torch.backends.cuda.matmul.allow_fp16_accumulation"
        )
    if torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu"):
        raise BadParameter("torch", "must not autocast while it trains privately")


class BufferGuard:
    """The buffers of a module and its loss, as they were.

    Changes would be statistics of rows, without a charge.
    """

    def __init__(self, module: nn.Module, loss_fn: Any) -> None:
        holders = [("module", module)]
        moved = loss_fn if isinstance(loss_fn, nn.Module) else getattr(loss_fn, "__self__", None)
        if isinstance(moved, nn.Module) and moved is not module:
            holders.append(("loss_fn", moved))
        self._before = [
            (holder, name, value, value.clone())
            for holder, part in holders
            for name, value in part.named_buffers()
        ]

    def refuse_changes(self) -> None:
        """Restore changed buffers, and raise BadParameter if there were any."""
        changed = [
            buffer
            for buffer in self._before
            if not torch.equal(buffer[2].nan_to_num(), buffer[3].nan_to_num())
        ]
        for _, _, now, before in changed:
            with torch.no_grad():
                now.copy_(before)
        for holder, name, _, _ in changed:
            raise BadParameter(holder, f"its buffer {name} keeps statistics of private data, unpaid")
