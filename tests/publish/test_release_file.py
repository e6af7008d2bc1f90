"""Release files: every mistake is told with its line, before any data is read."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.core.conversions import zcdp_to_delta
from lapwing.errors import BadFile
from lapwing.publish.release_file import load_release

SYNTHETIC = """[release]
name = "visits-2026"
policy = "visits.toml"
rows = "SELECT ward, stay FROM visits"
method = "adaptive"
epsilon = 1.0
delta = 1e-9
[columns.stay]
bins = 12
[synthetic]
workload = [["ward", "stay"]]
[[impossible]]
ward = "maternity"
stay = 0
"""
CENSUS = """[release]
name = "census"
policy = "people.toml"
rows = "SELECT block, race FROM people"
method = "census"
epsilon = 1.0
delta = 1e-9
[census]
spine = "blocks"
levels = ["state", "block"]
area = "block"
[census.shares.state]
total = 0.25
[census.shares.block]
cells = 0.75
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "release.toml"
    path.write_text(text)
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    found = load_release(written(tmp_path, SYNTHETIC))
    assert (found.name, found.method, found.policy.name) == ("visits-2026", "adaptive", "visits.toml")
    assert found.columns["stay"].bins == 12
    assert found.workload == (("ward", "stay"),)
    assert found.impossible == ({"ward": "maternity", "stay": 0},)
    assert found.model_bytes == 4 << 20
    assert found.rho is not None
    assert zcdp_to_delta(found.rho, Fraction(1)) <= Fraction(1, 10**9)
    assert zcdp_to_delta(found.rho + Fraction(1, 10**9), Fraction(1)) > Fraction(1, 10**9)


def test_a_census_is_read(tmp_path: Path) -> None:
    found = load_release(written(tmp_path, CENSUS)).census
    assert found is not None
    assert found.shares == {"state": {"total": Fraction(1, 4)}, "block": {"cells": Fraction(3, 4)}}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "visits-2026"\n', "", "release.toml:1: release.name: is missing"),
        ('"adaptive"', '"adaptiv"', 'release.method: must be "independent"'),
        ("epsilon = 1.0", "epsilon = 0", "release.epsilon: must be above 0"),
        ("epsilon = 1.0", 'epsilon = "1"', "Remove the quotes"),
        ("epsilon = 1.0\n", "", "release.epsilon: is missing"),
        ("delta = 1e-9\n", "", "release.delta: is missing"),
        ("delta = 1e-9", "delta = 0", "release.toml:7: release.delta: must be above 0: Gaussian noise"),
        (
            "epsilon = 1.0",
            "rho = 1e300",
            "release.toml:6: release.rho: must be above 0, and at most 1,000,000",
        ),
        ("epsilon = 1.0", "epsilon = 1.0\nrho = 0.1", "release.rho: is another way to give the price"),
        ("bins = 12", "bins = 0", "columns.stay.bins: must lie between 1 and 1,024"),
        ("bins = 12", "bin = 12", 'Did you mean "bins"?'),
        ('[["ward", "stay"]]', '["ward"]', "must be a list"),
        ('"adaptive"', '"tree"', 'workload: is for method = "adaptive"'),
        ("[[impossible]]\nward", "[[impossible]]\n[[impossible]]\nward", "impossible"),
        ('"adaptive"', '"census"', "census: is missing"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in SYNTHETIC
    with pytest.raises(BadFile) as found:
        load_release(written(tmp_path, SYNTHETIC.replace(old, new, 1)))
    assert told in str(found.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("total = 0.25", "total = 0.2", "shares: must sum to 1, and sum to 0.95"),
        ("cells = 0.75", "total = 0.75", "must measure the cells of the last level"),
        ("shares.state", "shares.county", "is no level of the census"),
        ('levels = ["state", "block"]', 'levels = ["block", "block"]', "must name each one once"),
        ("total = 0.25", "total = -0.25", "between 0 and 1"),
        ("[census]", "[census]\n[synthetic]\n[census]", "is not TOML"),
    ],
)
def test_a_mistake_of_a_census_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in CENSUS
    with pytest.raises(BadFile) as found:
        load_release(written(tmp_path, CENSUS.replace(old, new, 1)))
    assert told in str(found.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadFile) as found:
        load_release(written(tmp_path, "[release]\nname = 3\nmethod = 4\n[columns.a]\nbins = 'x'\n"))
    assert len(found.value.mistakes) >= 6


def test_errors_that_are_wanted_give_the_price_of_a_census(tmp_path: Path) -> None:
    text = CENSUS.replace("epsilon = 1.0\n", "") + "[census.wanted]\nstate = 1.5\n"
    found = load_release(written(tmp_path, text))
    assert found.rho is None
    assert found.census is not None
    assert found.census.wanted == {"state": Fraction(3, 2)}
