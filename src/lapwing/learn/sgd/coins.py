"""The coins that torch throws for a module (dropout): secret and fresh in training, none in a rehearsal.

Claim    while `own_coins` lasts, what torch draws at random follows from 64 fresh bits of `lapwing.noise`,
         new ones for each call of what it gives, and not from a seed that somebody set.
Because  torch's generators are seeded from there, and put back to what they were afterwards.
Test     tests/learn/sgd/test_coins.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lapwing.noise import random_bytes

Coins = tuple[Tensor, Tensor | None]


def _seed(device: torch.device, number: int) -> None:
    # Not torch.manual_seed: without a GPU, each call of it adds to a list of what to do on one later.
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)


def _forked(device: torch.device) -> Any:
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


@contextmanager
def known_coins(device: torch.device, number: int) -> Iterator[None]:
    """The same coins each time: for made-up rows."""
    with _forked(device):
        _seed(device, number)
        yield


@contextmanager
def own_coins(device: torch.device) -> Iterator[Callable[[], None]]:
    """Fresh, secret coins, from each call of what is given on."""
    with _forked(device):
        yield lambda: _seed(device, int.from_bytes(random_bytes(8), "little"))


def coins_of(device: torch.device) -> Coins:
    """Where torch's generators stand."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def put_back(coins: Coins, device: torch.device) -> None:
    """Let torch throw the coins again that it threw from here on."""
    torch.set_rng_state(coins[0])
    if coins[1] is not None:
        torch.cuda.set_rng_state(coins[1], device)


class _WithoutDropout(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given, name = kwargs or {}, getattr(func, "__name__", "")
        if "dropout" in name:
            return args[0] if args else given["input"]
        if name == "scaled_dot_product_attention":
            args, given = args[:4] + (0.0,) * (len(args) > 4) + args[5:], {**given}
            given.pop("dropout_p", None)
        return func(*args, **given)


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Dropout does nothing, and all else is as in training: its coins go by place, as nothing else may."""
    # Attention and recurrent layers take it as a number.
    numbers = [
        (part, part.dropout)
        for part in module.modules()
        if isinstance(getattr(part, "dropout", None), float)
    ]
    for part, _ in numbers:
        setattr(part, "dropout", 0.0)  # noqa: B010 (mypy sees a submodule)
    try:
        with _WithoutDropout():
            yield
    finally:
        for part, number in numbers:
            setattr(part, "dropout", number)  # noqa: B010
