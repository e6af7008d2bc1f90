"""The history for people: names, and prices in words that are never too small."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    ParallelComposition,
    Pure,
    Repeated,
    SampledGaussian,
    SequentialComposition,
)
from lapwing.errors import BadParameter
from lapwing.ledger.gate import Gate
from lapwing.ledger.request_log import log_lines, signed_exceptions
from support.events import GAUSSIAN, eventful
from support.ledgers import Home, open_account, release, spending

SAMPLED = SampledGaussian(Fraction(1, 100), GaussianNoise(Fraction(3), Fraction(1), 10))


def test_every_kind_of_entry_is_said_in_words(home: Home) -> None:
    ledger = eventful(home)
    lines = log_lines(ledger, last=100)
    said = {line.kind: line for line in lines}
    assert set(said) == {
        "genesis", "account", "blocks", "charge", "answer", "failed", "reserve", "step", "settle", "data",
        "version",
    }  # fmt: skip
    assert [line.number for line in lines] == sorted(line.number for line in lines)
    charge = next(line for line in lines if line.principal == "Ana")
    assert (charge.accounts, charge.blocks, charge.block_count) == (("visits",), ("b0", "b1", "b2"), 4)
    assert (charge.price, charge.what) == ("ε 0.1", "laplace")
    assert said["charge"].blocks == ("everyone",)
    assert (said["blocks"].blocks, said["blocks"].block_count) == (("b0", "b1", "b2"), 6)
    assert (said["reserve"].principal, said["reserve"].price) == ("Cem", "ρ 0.0002 (zCDP)")
    assert said["step"].price == "ρ 5e-5 (zCDP)"
    assert said["settle"].what.endswith("lapses")
    assert "the curator signed" in said["data"].what
    assert said["account"].what == "raised by ε 0.5, δ 1e-8, signed by the curator"


def test_the_newest_are_read(home: Home) -> None:
    ledger = eventful(home)
    assert log_lines(ledger, last=3) == log_lines(ledger, last=1000)[-3:]


def test_exceptions_are_those_that_the_curator_signed(home: Home) -> None:
    found = eventful(home).store.read(signed_exceptions)
    assert [line.kind for line in found] == ["data", "account"]
    assert all("curator" in line.what for line in found)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Pure(Fraction(1, 3)), "ε 0.333334"),
        (Approximate(Fraction(1, 10), Fraction(1, 10**9)), "ε 0.1, δ 1e-9"),
        (LaplaceNoise(Fraction(40), 1), "ε 0.025"),
        (BoundedRange(Fraction(1, 5)), "ε 0.2"),
        (Concentrated(Fraction(1, 1000)), "ρ 0.001 (zCDP)"),
        (GAUSSIAN, "ρ 5e-5 (zCDP)"),
        (Repeated(Pure(Fraction(1, 100)), 7), "ε 0.07"),
        (SequentialComposition((GAUSSIAN, GAUSSIAN)), "ρ 0.0001 (zCDP)"),
        (ParallelComposition((Pure(Fraction(1, 10)), Pure(Fraction(1, 5)))), "ε 0.2"),
        (SAMPLED, "Rényi of Gaussian σ 3 on a sample of 1 %"),
        (Repeated(SAMPLED, 12), "12 × Rényi of Gaussian σ 3 on a sample of 1 %"),
        (SequentialComposition((Pure(Fraction(1, 10)), GAUSSIAN)), "ε 0.1 + ρ 5e-5 (zCDP)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_prices_are_rounded_up_in_words(loss: Loss, words: str, file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger)
    release(ledger, loss)
    assert log_lines(ledger, last=2)[0].price == words


def test_a_fixed_run_is_said_with_its_epsilon_and_delta(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=2, delta="1e-5")
    run = FixedRun.of((GAUSSIAN, 10), delta="1e-7")
    work = Gate(ledger, principal="trainer").reserve(spending(run))
    work.step()
    reserved, stepped = log_lines(ledger, last=2)
    assert run.pair is not None
    assert reserved.price.startswith("ε 0.")
    assert reserved.price.endswith(", δ 1e-7 as one run")
    assert Fraction(reserved.price.split(",")[0][2:]) >= run.pair[0]
    assert stepped.price == "the whole run"


@pytest.mark.parametrize("last", [0, -1, True, 1.5, 10**9])
def test_how_many_must_be_sensible(last: int, file_home: Home) -> None:
    with pytest.raises(BadParameter):
        log_lines(file_home.create(), last=last)
