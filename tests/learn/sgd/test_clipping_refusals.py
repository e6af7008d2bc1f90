"""Modules that cannot be trained privately are refused by name, before anything is charged."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lapwing.errors import BadParameter
from lapwing.learn.sgd import ClippedGradients
from learn.sgd.made import losses

NO_TARGETS = torch.zeros(0, dtype=torch.int64)


class Centred(nn.Module):
    """Subtracts the mean of the batch: a quiet way to mix."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x - x.mean(0) if self.training else x)
        return found


class Counting(nn.Module):
    """Remembers the rows it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.detach().sum(0)
        found: Tensor = self.layer(x)
        return found


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), r"1 \(BatchNorm1d\) mixes the units"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.SyncBatchNorm(2)), r"1 \(SyncBatchNorm\) mixes"),
        (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), "keeps running statistics"),
        (nn.Embedding(5, 3, max_norm=1.0), "max_norm rewrites"),
        (nn.Linear(6, 3).half(), "float32 or float64"),
        (nn.Linear(6, 3).requires_grad_(False), "no parameter"),
    ],
)
def test_modules_that_cannot_be_private_are_named(module: nn.Module, says: str) -> None:
    with pytest.raises(BadParameter, match=says):
        ClippedGradients(module, losses, clip=1)


@pytest.mark.parametrize(("module", "says"), [(Centred(), "mixes the rows"), (Counting(), "buffer seen")])
def test_modules_that_mix_or_remember_are_found_out_on_made_up_rows(module: nn.Module, says: str) -> None:
    gradients = ClippedGradients(module, losses, clip=1, page=16)
    with pytest.raises(BadParameter, match=says):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


class Deciding(nn.Module):
    """Looks at a number to decide: torch.func cannot do that for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale if float(x.sum()) > 0 else x


def test_what_torch_cannot_take_unit_by_unit_is_refused() -> None:
    gradients = ClippedGradients(Deciding(), losses, clip=1, page=16)
    with pytest.raises(BadParameter, match="cannot be taken unit by unit"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


def test_batch_norm_that_only_uses_fixed_numbers_is_taken() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    module[1].eval()
    gradients = ClippedGradients(module, losses, clip=1, page=16)
    gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


def test_dropout_is_taken_whole_and_in_training() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    gradients = ClippedGradients(module, losses, clip=1, page=16)
    gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)
    assert gradients.method == "one backward pass"
    assert module[1].training


def test_a_mean_over_rows_is_no_loss_of_each() -> None:
    gradients = ClippedGradients(nn.Linear(6, 3), functional.cross_entropy, clip=1, page=16)
    with pytest.raises(BadParameter, match="reduction='none'"):
        gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)


def test_short_products_are_refused() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(BadParameter, match="multiply in full"):
            ClippedGradients(nn.Linear(6, 3), losses, clip=1)
    finally:
        torch.set_float32_matmul_precision(before)


SETTINGS = {
    "fp32_precision = 'tf32'": "must multiply in full: set torch.backends.fp32_precision to 'ieee'",
    "mkldnn.matmul.fp32_precision = 'bf16'": "set torch.backends.mkldnn.matmul.fp32_precision to 'ieee'",
    "cuda.matmul.fp32_precision = 'tf32'": "set torch.backends.cuda.matmul.fp32_precision to 'ieee'",
    "cudnn.conv.fp32_precision = 'ieee'": "older and newer settings of precision mixed up",
    "cuda.matmul.allow_fp16_accumulation = True": "must add in full",
}
EACH_IN_A_PROCESS_OF_ITS_OWN = """
import os, sys, torch
from lapwing.errors import BadParameter
from lapwing.learn.sgd.rehearsal import refuse_short_floats
refuse_short_floats()
for setting in sys.argv[1:]:
    if not os.fork():
        exec("torch.backends." + setting)
        try:
            refuse_short_floats()
        except BadParameter as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_short_products_are_refused_by_the_name_of_the_setting() -> None:
    """Torch does not forget that such settings were mixed."""
    ran = subprocess.run(
        [sys.executable, "-c", EACH_IN_A_PROCESS_OF_ITS_OWN, *SETTINGS],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = ran.stdout.splitlines()
    assert len(said) == len(SETTINGS)
    assert all(expected in line for expected, line in zip(SETTINGS.values(), said, strict=True))


class RunningMean(nn.Module):
    """A loss that keeps a mean of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = losses(outputs, targets)
        self.mean.mul_(0.9).add_(0.1 * found.detach().mean())
        return found - self.mean


def test_a_loss_that_remembers_is_found_out_and_put_back() -> None:
    for loss_fn in (whole := RunningMean(), whole.forward):
        gradients = ClippedGradients(nn.Linear(6, 3), loss_fn, clip=1)
        with pytest.raises(BadParameter, match="loss_fn: its buffer mean keeps statistics"):
            gradients.rehearse(torch.zeros(0, 6), NO_TARGETS)
        assert whole.mean == 0


def test_autocasting_is_refused() -> None:
    with torch.autocast("cpu"), pytest.raises(BadParameter, match="autocast"):
        ClippedGradients(nn.Linear(6, 3), losses, clip=1)


def test_without_torch_the_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['torch'] = None\nimport lapwing.learn.sgd"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra: Training a torch module privately needs an extra: pip install" in ran.stderr
