"""The test vectors: the project's code still gives them, and a program without it computes the same."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lapwing.core import budget, losses, noise, renyi_curves
from lapwing.core.budget import Terms
from lapwing.core.exact import round_down
from lapwing.core.loss_records import KINDS
from lapwing.core.losses import BoundedRange, Concentrated, LaplaceNoise, Loss, Pure
from support.cases import each
from support.scripts import ROOT

VECTORS = ROOT / "vectors"
WIDER = Fraction(21, 20)
FILES = ("draws", "prices", "ledger")
# What the checker computes; the rest is what it computes from.
RESULTS = {
    "draws": {"draws"},
    "prices": {"caps", "costs", "spent"},
    "ledger": {
        "leaves",
        "roots",
        "path",
        "root",
        "frontier",
        "previous",
        "digest",
        "number",
        "id",
        "request",
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the vectors, beside nothing of the project."""
    shutil.copy(VECTORS / "check.py", tmp_path)
    restore(tmp_path)
    return tmp_path


def restore(folder: Path) -> None:
    """Put the project's files there again."""
    for name in ("SHA256SUMS", *(f"{name}.json" for name in FILES)):
        shutil.copy(VECTORS / name, folder)


def check(folder: Path) -> tuple[int, str]:
    """Run the checker with the standard library alone: not even site-packages is on its path."""
    command = [sys.executable, "-I", "-S", str(folder / "check.py")]
    done = subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def rewrite(folder: Path, name: str, vectors: list[Any]) -> None:
    """Replace the vectors of one file, and its digest."""
    restore(folder)
    text = json.dumps({"format": 1, "vectors": vectors})
    (folder / f"{name}.json").write_text(text)
    digests = [
        f"{hashlib.sha256((folder / f'{one}.json').read_bytes()).hexdigest()}  {one}.json" for one in FILES
    ]
    (folder / "SHA256SUMS").write_text("\n".join(digests) + "\n")


def load(name: str) -> list[Any]:
    read: list[Any] = json.loads((VECTORS / f"{name}.json").read_text())["vectors"]
    return read


def places(value: Any, wanted: set[str], inside: bool = False) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every single result inside a vector."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            for rest in places(inner, wanted, inside or key in wanted):
                yield key, *rest
    elif inside:
        yield ()


def spoiled(vector: Any, place: tuple[Any, ...]) -> Any:
    """Return the vector with one result changed by as little as possible."""
    changed = deepcopy(vector)
    holder = changed
    for key in place[:-1]:
        holder = holder[key]
    match holder[place[-1]]:
        case int(number):
            holder[place[-1]] = number + 1
        case str(text) if text:
            holder[place[-1]] = text[:-1] + ("0" if text[-1] != "0" else "1")
        case _:
            holder[place[-1]] = "0"
    return changed


def test_the_checker_uses_the_standard_library_alone_and_agrees(folder: Path) -> None:
    total = sum(len(load(name)) for name in FILES)
    assert check(folder) == (0, f"{total} vectors, 0 wrong\n")
    imports = [line for line in (folder / "check.py").read_text().splitlines() if "import " in line]
    names = {line.split()[1].split(".")[0] for line in imports if line.startswith(("import ", "from "))}
    assert names <= set(sys.stdlib_module_names)


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that writes the vectors."""
    monkeypatch.syspath_prepend(ROOT)
    return import_module("vectors.write")


def test_the_files_are_what_the_project_writes_today(tmp_path: Path, write: Any) -> None:
    write.write(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (VECTORS / path.name).read_bytes(), f"run `make vectors`: {path.name}"


def test_every_sampler_and_every_kind_of_loss_has_a_vector() -> None:
    without_a_law = {"LARGEST_SCALE", "LOT", "SLOT_BITS", "Lookup", "exp_neg", "random_bytes"}
    same_law = {
        "bernoulli_near",
        "discrete_gaussian_lookup",
        "discrete_gaussian_lots",
    }  # other ways to give draws
    samplers = {one["sampler"] for one in load("draws")}
    assert samplers == set(noise.__all__) - without_a_law - same_law | {"randomized_response"}
    told = (VECTORS / "prices.json").read_text()
    assert {kind for kind in KINDS if f'"loss": "{kind}"' in told} == set(KINDS) - {"FixedRun"}


@pytest.mark.slow
def test_many_more_draws_and_prices_agree(folder: Path, write: Any) -> None:
    """Other parameters than those of the files, on both sides of each change of method."""
    scales = [Fraction(n, d) for n in (1, 7, 50, 997) for d in (1, 3, 16)]
    draws = []
    for scale in scales:
        draws.append(write._of(noise.geometric, f"geometric {scale}", 40, scale=str(scale)))
        draws.append(write._of(noise.discrete_laplace, f"Laplace {scale}", 40, scale=str(scale)))
        draws.append(write._of(noise.discrete_gaussian, f"Gaussian {scale}", 100, sigma=str(scale)))
        draws.append(write._of(noise.polya_share, f"shares {scale}", 20, scale=str(scale), parties=4))
        chosen = {"scores": [0, 3, 1, 2], "rate": str(1 / scale)}
        draws.append(write._of(noise.exponential_choice, f"choice {scale}", 40, **chosen))
    rewrite(folder, "draws", draws)
    # Rényi values of ε 997 are closer to 997 than 256 bits show: the price is a unit more.
    shown = [scale for scale in scales if scale < 997]
    kinds: list[Loss] = [
        kind(scale) for scale in shown for kind in (Pure, BoundedRange, lambda e: Concentrated(e / 7))
    ]
    kinds += [LaplaceNoise(scale, distance) for scale in scales[3:] for distance in (1, 2, 9)]
    terms = [Terms.of(epsilon, delta) for epsilon in ("0.3", 8, 1000) for delta in (0, "1e-9", "1e-4")]
    prices = [write._account(f"account {i}", one, kinds) for i, one in enumerate(terms)]
    code, told = check(folder)
    assert (code, told) == (
        0,
        f"{len(draws) + len(load('prices')) + len(load('ledger'))} vectors, 0 wrong\n",
    )
    rewrite(folder, "prices", prices)
    code, told = check(folder)
    assert (code, told) == (
        0,
        f"{len(load('draws')) + len(terms) + len(load('ledger'))} vectors, 0 wrong\n",
    )


@each("name", FILES)
def test_one_changed_byte_is_noticed(name: str, folder: Path) -> None:
    restore(folder)
    content = bytearray((folder / f"{name}.json").read_bytes())
    at = content.index(b'"name": "') + len(b'"name": "')  # the checker itself does not need the name
    content[at] ^= 1
    (folder / f"{name}.json").write_bytes(content)
    code, told = check(folder)
    assert code == 1
    assert f"{name}.json does not have the digest" in told


@each("name", FILES)
def test_every_single_result_is_computed_again(name: str, folder: Path) -> None:
    """Each vector comes once for each of its results, with that result changed. All must be wrong."""
    vectors = [spoiled(one, place) for one in load(name) for place in places(one, RESULTS[name])]
    assert len(vectors) > 70
    rewrite(folder, name, vectors)
    others = sum(len(load(other)) for other in FILES if other != name)
    code, told = check(folder)
    assert code == 1
    assert told.splitlines()[-1] == f"{len(vectors) + others} vectors, {len(vectors)} wrong"


MISTAKES: list[tuple[str, Any, str, Any]] = [
    ("draws", noise, "digit_sampler", lambda right: lambda t, signed: right(t * WIDER, signed=signed)),
    ("draws", noise, "polya_sampler", lambda right: lambda r, t: right(r, t * WIDER)),
    ("prices", budget, "round_up", lambda _: round_down),  # δ₀
    ("prices", losses, "_larger", lambda _: lambda _, other: other),
    ("prices", renyi_curves, "_rounded_up", lambda right: lambda *value: right(*value) - 1),
    ("prices", budget, "DELTA0", lambda _: budget.EPSILON),  # nothing stops δ₀
]


@each("mistake", range(len(MISTAKES)))
def test_a_law_or_a_price_that_is_a_little_wrong_is_noticed(
    folder: Path, write: Any, monkeypatch: pytest.MonkeyPatch, mistake: int
) -> None:
    file, module, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    vectors = getattr(write, file)()
    if name == "digit_sampler":  # which gives two laws
        vectors = [one for one in vectors if one["sampler"] == "geometric"]
    rewrite(folder, file, vectors)
    code, told = check(folder)
    assert code == 1
    assert "another result was computed" in told


def test_a_proof_of_an_entry_that_is_not_there_is_wrong(folder: Path) -> None:
    [ledger] = load("ledger")
    last = ledger["proofs"][-1]
    variants = [last | {"index": last["size"]}, last | {"size": last["size"] + 1}, last | {"index": -1}]
    rewrite(folder, "ledger", [ledger | {"proofs": [one]} for one in variants])
    assert f", {len(variants)} wrong" in check(folder)[1]


def test_bytes_that_are_left_or_lacking_and_entries_that_change_are_wrong(folder: Path) -> None:
    draws = load("draws")
    rewrite(folder, "draws", [one | {"bytes": one["bytes"] + "00"} for one in draws])
    assert f", {len(draws)} wrong" in check(folder)[1]
    rewrite(folder, "draws", [one | {"bytes": one["bytes"][:-2]} for one in draws])
    assert f", {len(draws)} wrong" in check(folder)[1]
    rewrite(folder, "draws", draws)
    [ledger] = load("ledger")
    entries = ledger["entries"]
    longer = [text.replace("2026", "2027", 1) for text in entries]
    variants = [
        ledger | {"entries": [*entries[:i], longer[i], *entries[i + 1 :]]} for i in range(len(entries))
    ]
    rewrite(folder, "ledger", variants)
    assert f", {len(variants)} wrong" in check(folder)[1]


def test_vectors_hold_ties_that_were_refined() -> None:
    """A draw with more bytes than its words: the leading bits did not decide."""
    coins = {one["name"]: one for one in load("draws") if one["sampler"] == "bernoulli"}
    refined = {name: len(one["bytes"]) // 16 - one["size"] for name, one in coins.items()}
    assert refined["one third"] == refined["one half ends: no tie"] == 0
    assert refined["one third, a tie, then above"] == 1
    assert refined["one third, two ties"] == 2
