"""A store in a database of its own, that nobody seals unless a test does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from lapwing.ledger.postgres_store import PostgresStore
from lapwing.storage import postgres
from support.postgres import fresh_url
from support.stores import (
    MemoryAnchor,
    opened,
)


@pytest.fixture(autouse=True)
def _nobody_seals_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "KEEPER_SECONDS", 3600.0)


@pytest.fixture
def url() -> str:
    return fresh_url()


@pytest.fixture
def anchor() -> MemoryAnchor:
    return MemoryAnchor()


@pytest.fixture
def store(url: str, anchor: MemoryAnchor) -> Iterator[PostgresStore]:
    with opened(url, create=True, anchor=anchor) as made:
        yield made


@pytest.fixture
def beside() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(8) as threads:
        yield threads.submit
