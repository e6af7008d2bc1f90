"""Connecting finds the data set, or says what there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lapwing
from client.conftest import Place
from lapwing.client.replied_errors import RequestRefused
from lapwing.errors import BadParameter, Unavailable
from support.raised import named


def test_the_only_data_set_needs_no_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPWING_TOKEN", place.token)
    with lapwing.connect(place.door.address) as found:
        assert found.name == "visits"
        assert repr(found) == f"<RemoteDataset visits at {place.door.address}>"
        assert place.token not in f"{found!r} {vars(found)}"


def test_another_name_is_told_with_those_that_are_known(place: Place) -> None:
    with pytest.raises(BadParameter, match="visits", check=named("url")):
        lapwing.connect(f"{place.door.address}/sales", token=place.token)


def test_a_token_that_is_not_known_is_refused(place: Place) -> None:
    with pytest.raises(RequestRefused) as caught:
        lapwing.connect(place.door.address, token="lapwing_" + "x" * 40)
    assert caught.value.code == "not-signed-in"


def test_a_server_that_is_not_there_is_told_within_seconds() -> None:
    with pytest.raises(Unavailable):
        lapwing.connect("http://127.0.0.1:9", token="lapwing_" + "x" * 40, patience=0.0)


def test_the_client_loads_httpx_and_nothing_heavy(tmp_path: Path) -> None:
    code = """
import sys
sys.modules.update(dict.fromkeys(
    ("numpy", "pyarrow", "duckdb", "sqlglot", "pydantic", "flint", "cryptography", "fastapi"), None))
import lapwing
try:
    lapwing.connect("http://127.0.0.1:9", token="lapwing_0123456789abcdef", patience=0)
except lapwing.LapwingError as error:
    assert error.code == "unavailable", error
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=60)
