"""The wheel and the source distribution: what is in them, and that they work without a clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from support.orders import typed_commands, write_orders
from support.scripts import ROOT

LEFT_OUT = (".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
HEAVY = ("torch", "pyspark", "matplotlib", "pandas", "polars", "scipy", "IPython")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def clean() -> dict[str, str]:
    """Return the environment without what points at this clone."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, built from a copy of the tree."""
    copy, out = tmp_path_factory.mktemp("tree") / "lapwing", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", str(out)]
    done = subprocess.run(command, cwd=copy, env=clean(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


def _wheel(built: Path) -> Path:
    [wheel] = built.glob("*.whl")
    return wheel


def _source(built: Path) -> Path:
    [source] = built.glob("*.tar.gz")
    return source


@pytest.mark.slow
def test_the_distributions_hold_what_they_need(built: Path) -> None:
    """The wheel: every file of the package, data and py.typed included, and nothing else."""
    package = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "lapwing").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(_wheel(built)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        about = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = wheel.read(about).decode()
    assert names == package
    assert any(name.endswith(".csv") for name in names)
    assert {"lapwing/py.typed", "lapwing/examples/data/visits.toml"} <= names
    assert any(name.startswith("lapwing/survey/pages/") for name in names)
    assert "Keywords: differential privacy" in metadata
    assert "License-File: LICENSE" in metadata
    with tarfile.open(_source(built)) as source:
        held = {name.partition("/")[2] for name in source.getnames()}
    assert {f"src/{name}" for name in package} <= held
    for folder in ("tests", "docs", "benchmarks", ".github"):
        wanted = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert {name for name in wanted if "__pycache__" not in name} <= held
    assert {"Makefile", "constraints.txt", "mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md"} <= held
    assert not [name for name in held if name.endswith(".pyc")]


def test_the_base_install_is_light() -> None:
    names = {re.split(r"[><=\[ ]", name)[0].lower() for name in PROJECT["dependencies"]}
    assert not names & {name.lower() for name in HEAVY}


def test_no_link_leads_to_a_place_that_is_not_ours() -> None:
    """There is no public address yet. When there is one, put it here and into pyproject.toml."""
    assert "urls" not in PROJECT


def _base_packages() -> set[str]:
    """Return the names of the distributions that the base install needs, found from their metadata."""
    wanted, found = list(PROJECT["dependencies"]), set()
    while wanted:
        text = wanted.pop()
        name = re.split(r"[><=!~;\[ ]", text)[0]
        if name in found or "extra ==" in text or re.search(r"(platform|python_version) *[=<]", text):
            continue
        found.add(name)
        wanted += distribution(name).requires or []
    return found


def _linked_environment(folder: Path) -> Path:
    """Make a virtual environment with links to the packages of the base install, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, env=clean())
    [site] = folder.glob("lib/python*/site-packages")
    for name in _base_packages():
        package = distribution(name)
        for top in {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            place = Path(str(package.locate_file(top)))
            if not (site / top).exists() and place.exists():
                (site / top).symlink_to(place)
    return folder / "bin"


@pytest.mark.slow
def test_the_wheel_runs_the_readme_with_the_base_install_alone(built: Path, tmp_path: Path) -> None:
    binaries = _linked_environment(tmp_path / "venv")
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", str(_wheel(built))], check=True, env=clean())
    code = (
        f"import lapwing.cli.main, sys; print(lapwing.__file__, *(n for n in {HEAVY} if n in sys.modules))"
    )
    done = subprocess.run(
        [binaries / "python", "-c", code], capture_output=True, text=True, env=clean(), check=True
    )
    assert done.stdout.split() == [str(site / "lapwing" / "__init__.py")]
    for name in HEAVY:
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is not None)"
        assert (
            subprocess.run([binaries / "python", "-c", code], env=clean(), check=False).returncode == 0
        ), name
    work = tmp_path / "work"
    work.mkdir()
    write_orders(work / "orders.csv")
    commands = typed_commands((ROOT / "README.md").read_text())
    assert len(commands) == 3
    more = ("lapwing example", "lapwing budget lapwing.ledger", "lapwing survey example")
    for program, *arguments in [*commands, *map(str.split, more)]:
        ran = subprocess.run(
            [binaries / program, *arguments],
            cwd=work,
            env=clean(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, (arguments, ran.stderr)


QUICK = (
    "tests/claims/test_laplace.py",
    "tests/shape",
    "tests/stored",
    "tests/sql/policy/test_policy_draft.py",
)


@pytest.mark.slow
def test_the_source_distribution_passes_tests(built: Path, tmp_path: Path) -> None:
    with tarfile.open(_source(built)) as source:
        source.extractall(tmp_path, filter="data")
    [tree] = tmp_path.iterdir()
    environment = {**clean(), "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-m", "not slow", *QUICK]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
