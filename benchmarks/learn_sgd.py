"""DP-SGD throughput and memory beside Opacus and plain training: `python benchmarks/learn_sgd.py`.

Three models, batch 256, one CPU thread (or `--device cuda`): sides take turns in one process, medians of
samples a second. `gradients` is the step without noise, on all sides; `step` has each side's own noise:
exact and discrete here, floating-point in Opacus. Memory is the peak beyond the loaded model, each side in
a process of its own. Without Opacus (`pip install 'lapwing[opacus]'`) its columns are left out.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))

from lapwing.learn.sgd import ClippedGradients, GradientSensitivity
from lapwing.learn.sgd.randomness import StepNoise, release_noisy_sum

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped_in: Any = importlib.import_module("opacus.grad_sample")
        stepped_by: Any = importlib.import_module("opacus.optimizers")
        lost_by: Any = importlib.import_module("opacus.utils.fast_gradient_clipping_utils")
except ImportError:
    HAS_OPACUS = False
else:
    HAS_OPACUS = True

BATCH, CLIP, NOISE = 256, 1.0, 1.0
TURN = 0.03  # seconds
WANTED = {"opacus ghost": 1.4, "opacus fastest": 1.0, "plain": 0.7}
Step = Callable[[], None]


class Block(nn.Module):
    """Attention and a small network, each after a LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.middle = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(row, time, width) to the same."""
        rows, times, width = x.shape
        parts = self.ask(self.before(x)).reshape(rows, times, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(found.transpose(1, 2).reshape(rows, times, width))
        added: Tensor = self.down(functional.gelu(self.up(self.middle(x))))
        return x + added


class Transformer(nn.Module):
    """Two blocks over 64 tokens of 1,000."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, 128)
        self.blocks = nn.Sequential(Block(128, 4), Block(128, 4))
        self.last, self.head = nn.LayerNorm(128), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens to ten classes."""
        found: Tensor = self.head(self.last(self.blocks(self.tokens(x))).mean(1))
        return found


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip


# The model, the form of a row, and how many units a page has on a processor and on a GPU.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], int, int]] = {
    "two-layer network": (_network, lambda: torch.randn(BATCH, 784), 256, 256),
    "small CNN": (_convolutions, lambda: torch.randn(BATCH, 3, 32, 32), 32, 256),
    "two-block transformer": (Transformer, lambda: torch.randint(0, 1000, (BATCH, 64)), 16, 256),
}


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


class Side:
    """One way to train a model; `step` does one step on the same 256 rows."""

    def __init__(self, name: str, model: str, device: str, *, noise: bool) -> None:
        torch.manual_seed(0)
        make, rows, on_cpu, on_gpu = MODELS[model]
        self.module = make().to(device)
        self.x, self.y = rows().to(device), torch.randint(0, 10, (BATCH,)).to(device)
        self.page, self.noise = (on_gpu if device == "cuda" else on_cpu), noise
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
        self.step: Step = {"plain": self._plain, "lapwing": self._lapwing}.get(name) or self._opacus(name)
        if name == "lapwing":
            self._prepare()

    def _plain(self) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(self.module(self.x), self.y))
        self.optimizer.step()

    def _prepare(self) -> None:
        self.gradients = ClippedGradients(self.module, _losses, clip=CLIP, page=self.page)
        size = self.gradients.size
        self.grid = GradientSensitivity.of(CLIP, parameters=size, page=self.page, expected_batch=BATCH)
        self.drawn = StepNoise(self.grid.mechanism(Fraction(NOISE)), steps=1 << 20)

    def _lapwing(self) -> None:
        sums = self.gradients.reused_sum(single=self.grid.single_up_to >= BATCH)
        present = torch.ones(self.page, dtype=torch.bool, device=self.x.device)
        for start in range(0, BATCH, self.page):
            x, y = self.x[start : start + self.page], self.y[start : start + self.page]
            self.gradients.add_page(x, y, present, sums, is_first=not start)
        if self.noise:
            sums = release_noisy_sum(sums, self.grid, self.drawn, divided_by=BATCH)
        else:
            sums.div_(BATCH)
        for value, part in zip(self.module.parameters(), self.gradients.views(sums).values(), strict=True):
            value.grad = part.view_as(value).to(value.dtype)
        self.optimizer.step()

    def _opacus(self, name: str) -> Step:
        noise = NOISE if self.noise else 0.0
        common: dict[str, Any] = dict(noise_multiplier=noise, max_grad_norm=CLIP, expected_batch_size=BATCH)
        if name == "opacus ghost":
            module = wrapped_in.GradSampleModuleFastGradientClipping(self.module, max_grad_norm=CLIP)
            optimizer = stepped_by.DPOptimizerFastGradientClipping(self.optimizer, **common)
            criterion = lost_by.DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())

            def ghost() -> None:
                optimizer.zero_grad()
                criterion(module(self.x), self.y).backward()
                optimizer.step()

            return ghost
        wrap = (
            wrapped_in.GradSampleModule
            if name == "opacus hooks"
            else wrapped_in.GradSampleModuleExpandedWeights
        )
        wrapped = wrap(self.module)
        per_row = stepped_by.DPOptimizer(self.optimizer, **common)

        def written_out() -> None:
            per_row.zero_grad()
            torch.autograd.backward(functional.cross_entropy(wrapped(self.x), self.y))
            per_row.step()

        return written_out


def _sides() -> list[str]:
    return [
        "plain",
        "lapwing",
        *(["opacus ghost", "opacus hooks", "opacus ew"] if HAS_OPACUS else []),
    ]


def _settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _timed(side: Side, device: str, steps: int) -> float:
    """Seconds for a step, of so many in a row."""
    start = time.perf_counter()
    for _ in range(steps):
        side.step()
    _settle(device)
    return (time.perf_counter() - start) / steps


def speeds(model: str, device: str, turns: int, *, noise: bool) -> dict[str, float]:
    """Samples a second of each side that runs, the median of so many turns.

    A turn is as many steps as plain training does in 30 ms, the same number for all: a side that follows on
    another's single step would find its memory given back and its caches filled with something else.
    """
    sides: dict[str, Side] = {}
    steps = 1
    for name in _sides():
        try:
            side = Side(name, model, device, noise=noise)
            for _ in range(2):
                taken = _timed(side, device, 1)
            if name == "plain":
                steps = max(1, round(TURN / taken))
            sides[name] = side
        except Exception as error:  # a mode that a peer lacks
            print(f"    {name} does not run {model}: {type(error).__name__}")
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            times[name].append(_timed(side, device, steps))
    return {name: BATCH / statistics.median(found) for name, found in times.items()}


def peak(name: str, model: str, device: str) -> None:
    """Print the megabytes beyond the loaded model that steps of this side take."""
    side = Side(name, model, device, noise=True)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            side.step()
        print((torch.cuda.max_memory_allocated() - before) / 1e6)
    else:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
        before = _status("VmRSS")
        for _ in range(3):
            side.step()
        print((_status("VmHWM") - before) / 1e3)


def _status(field: str) -> int:
    """A field of this process's status, in kilobytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def _memory(name: str, model: str, device: str) -> float:
    command = [sys.executable, "-W", "ignore", __file__, "--peak", name, model, "--device", device]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(ran.stdout.split()[-1]) if ran.returncode == 0 else float("nan")


def _print(model: str, found: dict[str, float], what: str) -> None:
    print(f"  {what}: " + ", ".join(f"{name} {speed:,.0f}/s" for name, speed in found.items()))
    peers = {name: speed for name, speed in found.items() if name.startswith("opacus")}
    beside = {"plain": found["plain"]}
    if "opacus ghost" in peers:
        beside["opacus ghost"] = peers["opacus ghost"]
    if peers:
        beside["opacus fastest"] = max(peers.values())
    for name, speed in beside.items():
        ratio = found["lapwing"] / speed
        mark = "" if ratio >= WANTED[name] else "   BELOW"
        print(f"    {model}, {what}, against {name}: {ratio:.2f} (wanted {WANTED[name]}){mark}")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--model", default="")
    parser.add_argument("--peak", nargs=2)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    if chosen.peak:
        peak(chosen.peak[0], chosen.peak[1], chosen.device)
        return
    print(
        f"DP-SGD, batch {BATCH}, {chosen.device}, torch {torch.__version__}, median of {chosen.turns} turns"
    )
    if not HAS_OPACUS:
        print("Opacus is not installed: its columns are missing (pip install 'lapwing[opacus]')")
    for model in MODELS:
        if chosen.model not in model:
            continue
        print(model)
        for noise in (False, True):
            what = "step" if noise else "gradients"
            _print(model, speeds(model, chosen.device, chosen.turns, noise=noise), what)
        megabytes = {name: _memory(name, model, chosen.device) for name in _sides()}
        print("  memory: " + ", ".join(f"{name} {size:,.0f} MB" for name, size in megabytes.items()))


if __name__ == "__main__":
    main()
