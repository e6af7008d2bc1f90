"""A model's numbers as bytes: the same numbers give the same bytes. And an iterate, to go on from.

What is saved of a run was paid for when the run began. Noise and its source are never saved: whoever goes
on from an iterate draws fresh coins, and pays again for every step that is done again.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lapwing.errors import BadParameter

_MAGIC = b"lapwing model 1\n"
_KINDS = {torch.float32: "<f4", torch.float64: "<f8"}


def to_bytes(module: nn.Module) -> bytes:
    """The trained parameters, one after the other, after a line that says which they are."""
    named = module.named_parameters()
    values = {name: value.detach().cpu() for name, value in named if value.requires_grad}
    header = [[name, _KINDS[value.dtype], list(value.shape)] for name, value in values.items()]
    body = b"".join(value.numpy().astype(_KINDS[value.dtype]).tobytes() for value in values.values())
    return _MAGIC + json.dumps(header, separators=(",", ":")).encode() + b"\n" + body


def load_bytes(module: nn.Module, stored: bytes) -> None:
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
class Iterate:
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
    def load(cls, path: Path, *, run: dict[str, str]) -> Iterate:
        """Read what `save` wrote, of a run with the same public parameters."""
        try:
            found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise BadParameter("save_to", "has no saved iterate to go on from") from None
        if json.loads(found["run"]) != run:
            raise BadParameter("save_to", "holds an iterate of a run with other parameters")
        model: Tensor = found["model"]
        return cls(int(found["step"]), run, model.numpy().tobytes(), found["optimizer"])
