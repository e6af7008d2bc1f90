"""The wheel and the source distribution: what is in them, and that they work without a clone."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path

import pytest

from support.orders import typed_commands, write_orders
from support.scripts import ROOT

HEAVY = ("torch", "pyspark", "matplotlib", "pandas", "polars", "scipy", "IPython")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def clean() -> dict[str, str]:
    """Return the environment without what points at this clone."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files of a release, as `make package` makes them."""
    return _release_of(ROOT, tmp_path_factory.mktemp("dist"))


def _release_of(tree: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "release.build", str(out)]
    done = subprocess.run(command, cwd=tree, env=clean(), capture_output=True, text=True, check=False)
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
    for folder in ("tests", "docs", "benchmarks", "release", "vectors", ".github"):
        wanted = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert {name for name in wanted if "__pycache__" not in name} <= held
    documents = {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md"}
    assert documents | {"Makefile", "constraints.txt", "mkdocs.yml", ".pre-commit-config.yaml"} <= held
    assert not [name for name in held if name.endswith(".pyc")]


@pytest.mark.slow
def test_an_unpacked_source_distribution_builds_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """So whoever has the source distribution can check the wheel; its time is packed in it."""
    with tarfile.open(_source(built)) as source:
        assert {(one.uid, one.gid, one.uname, one.gname) for one in source} == {(0, 0, "", "")}
        assert len({one.mtime for one in source}) == 1
        source.extractall(tmp_path / "tree", filter="data")
    [tree] = (tmp_path / "tree").iterdir()
    again = _release_of(tree, tmp_path / "again")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in built.iterdir()
    }


@pytest.mark.slow
def test_the_digests_and_the_parts_are_those_of_the_files(built: Path) -> None:
    digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in built.iterdir()}
    lines = (line.split("  ") for line in (built / "SHA256SUMS").read_text().splitlines())
    written = {name: digest for digest, name in lines}
    [listed] = built.glob("*.cdx.json")
    assert written == {name: digest for name, digest in digests.items() if name != "SHA256SUMS"}
    parts = json.loads(listed.read_text())
    files = parts["metadata"]["component"]["components"]
    assert {file["name"]: file["hashes"][0]["content"] for file in files} == {
        name: digest for name, digest in written.items() if name != listed.name
    }
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().lower().replace("_", "-").split()
    )
    versions = {part["name"]: part["version"] for part in parts["components"]}
    assert versions.items() <= {name.replace(".", "-"): version for name, version in pins.items()}.items()
    required = {part["name"] for part in parts["components"] if part["scope"] == "required"}
    assert (
        {"numpy", "duckdb", "cffi"}
        <= required
        <= {name.lower().replace("_", "-") for name in _base_packages()}
    )
    assert "torch" in versions.keys() - required
    assert not {"pytest", "mypy", "mkdocs"} & versions.keys()
    named = {part["bom-ref"] for part in parts["components"]} | {parts["metadata"]["component"]["bom-ref"]}
    assert {edge["ref"] for edge in parts["dependencies"]} == named
    assert {name for edge in parts["dependencies"] for name in edge["dependsOn"]} <= named


def test_builds_that_differ_are_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    build = importlib.import_module("release.build")
    dates = iter([b"Monday", b"Tuesday"])
    monkeypatch.setattr(build, "built", lambda *_: {"lapwing-1-py3-none-any.whl": next(dates)})
    with pytest.raises(SystemExit, match=r"two builds differ: lapwing-1-py3-none-any\.whl"):
        build.write_release(ROOT, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_an_archive_packed_again_holds_no_owner_and_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    build = importlib.import_module("release.build")
    packed = [build.packed_again(_archive(owner, date), 1_000_000) for owner, date in ((0, 5), (1000, 6))]
    assert packed[0] == packed[1]
    with tarfile.open(fileobj=io.BytesIO(packed[0])) as archive:
        assert [(one.name, one.mtime, one.uid) for one in archive] == [
            ("a", 1_000_000, 0),
            ("b", 1_000_000, 0),
        ]
        text = archive.extractfile("b")
        assert text is not None
        assert text.read() == b"text of b"


def _archive(owner: int, date: int) -> bytes:
    """A tar.gz of two files, in an order that depends on the owner."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in sorted("ab", reverse=bool(owner)):
            member = tarfile.TarInfo(name)
            content = f"text of {name}".encode()
            member.size, member.mtime, member.uid, member.uname = len(content), date, owner, f"user{owner}"
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


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
    "tests/journeys/test_vectors.py",
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
