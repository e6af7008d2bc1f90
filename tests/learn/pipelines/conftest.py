"""A stream of rides in a folder of its own, of which one month has come in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapwing.examples.rides import ARRIVING, RIDES_POLICY, TAKEN, write_rides
from lapwing.learn.stream import Stream

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before a test imports it: it would report that it was


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("example")
    write_rides(made)
    return made


@pytest.fixture
def folder(example: Path, tmp_path: Path) -> Path:
    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def stream(folder: Path) -> Iterator[Stream]:
    with Stream.open(folder / RIDES_POLICY, analyst="trainer") as opened:
        opened.append(through="2026-01")
        yield opened


@pytest.fixture
def full(folder: Path) -> Iterator[Stream]:
    """All four months, which came in together."""
    for file in (folder / ARRIVING).iterdir():
        file.rename(folder / TAKEN / file.name)
    with Stream.open(folder / RIDES_POLICY, analyst="trainer") as opened:
        opened.append(through="2026-04")
        yield opened
