"""What every test has: its own place for second anchors. Ledgers are tested on both databases."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support.clocks import PaddingClock
from support.ledgers import POSTGRES, SQLITE, Home

# As many tests run side by side as there are processors: further threads of each would wait for one
# another, and busily. PyTorch reads this when it is imported, which is later.
os.environ.setdefault("OMP_NUM_THREADS", "1")
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
# No test is about time: other processes have the processor, too.
settings.register_profile("lapwing", deadline=None)
settings.load_profile("lapwing")


def _end_worker(process: int) -> None:
    """End a worker of xdist, whose exit code nobody reads.

    To free its libraries and tests, object by object, would take as long as to import half of them. What
    else is registered has been done then: this was registered first.
    """
    if os.getpid() == process:  # not a fork of it
        os._exit(0)


if IS_WORKER:
    atexit.register(_end_worker, os.getpid())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is collected out of the garbage collector's sight.

    All libraries and thousands of tests are there until the end. To look through them again and again
    would take a twentieth of the time.
    """
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()
    if not IS_WORKER:
        atexit.register(gc.unfreeze)  # libraries complain of objects that are still there at the end


_STATES = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def _own_state_of_wider_fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep fixtures of modules, which are made before those of a test, out of the user's own registry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPWING_STATE", str(tmp_path_factory.getbasetemp() / "states" / "session"))
        yield


@pytest.fixture(autouse=True)
def _own_witnesses(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made by whoever needs it: to make one for each of many thousand tests would take a minute."""
    monkeypatch.setenv("LAPWING_STATE", str(tmp_path_factory.getbasetemp() / "states" / f"{next(_STATES)}"))


@pytest.fixture(autouse=True)
def padding_clock(monkeypatch: pytest.MonkeyPatch) -> PaddingClock:
    """The clock of padding. No test waits for it; processes that a test starts do."""
    return PaddingClock.install(monkeypatch)


@pytest.fixture(params=[SQLITE, POSTGRES])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A place for one ledger, on each database."""
    place = Home.of(request.param, tmp_path)
    yield place
    place.close()


@pytest.fixture
def file_home(tmp_path: Path) -> Iterator[Home]:
    """A place for one ledger in an SQLite file."""
    place = Home.of(SQLITE, tmp_path)
    yield place
    place.close()
