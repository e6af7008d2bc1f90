"""Torch's random numbers: fresh and secret, repeatable for a second try, and fixed in a rehearsal."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from lapwing.learn.sgd.randomness import (
    fixed_randomness,
    fresh_randomness,
    generator_state,
    restore_generator,
    without_dropout,
)

HERE = torch.device("cpu")


def test_own_coins_are_fresh_at_every_call_and_the_seed_is_put_back() -> None:
    torch.manual_seed(0)
    expected = torch.rand(4)
    torch.manual_seed(0)
    drawn = []
    for _ in range(2):
        with fresh_randomness(HERE) as throw_anew:
            for _ in range(2):
                throw_anew()
                drawn.append(tuple(torch.rand(4).tolist()))
    assert len(set(drawn)) == 4
    assert torch.equal(torch.rand(4), expected)


def test_known_coins_and_those_that_are_put_back_are_the_same_again() -> None:
    with fixed_randomness(HERE, 1):
        here = generator_state(HERE)
        first = torch.rand(4)
        restore_generator(here, HERE)
        assert torch.equal(torch.rand(4), first)
    with fixed_randomness(HERE, 1):
        assert torch.equal(torch.rand(4), first)


class Dropping(nn.Module):
    """Dropout as people write it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.dropout = how, 0.5
        self.inner = nn.Dropout(0.5)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
        self.recurrent = nn.GRU(4, 4, 2, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor
        if self.how == "attention":
            found = functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        elif self.how == "by place":
            found = functional.scaled_dot_product_attention(x, x, x, None, 0.5)
        elif self.how == "layer":
            found = self.inner(x)
        elif self.how == "many heads":
            found = self.attention(x, x, x)[0]
        elif self.how == "recurrent":
            found = self.recurrent(x)[0]
        else:
            found = functional.dropout(x, 0.5, self.training)
        return found


@pytest.mark.parametrize("how", ["attention", "by place", "layer", "many heads", "recurrent", "function"])
def test_without_dropout_nothing_is_drawn_and_all_else_is_in_training(how: str) -> None:
    module, x = Dropping(how), torch.randn(2, 3, 4)
    assert not torch.equal(module(x), module(x))
    with without_dropout(module):
        assert module.training
        assert torch.equal(module(x), module(x))
    assert module.dropout == module.attention.dropout == 0.5
    assert not torch.equal(module(x), module(x))


def test_without_dropout_holds_under_vmap() -> None:
    module, x = Dropping("function"), torch.randn(5, 4)
    with without_dropout(module):
        slopes = vmap(grad(lambda row: module(row).square().sum()), randomness="different")(x)
    torch.testing.assert_close(slopes, 2 * x)
