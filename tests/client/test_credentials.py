"""A token comes from one place, and is shown in none."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from lapwing.client.credentials import find_token
from lapwing.errors import BadParameter
from support.raised import named

TEXT = "lapwing_0123456789abcdefghijklmnop"


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAPWING_TOKEN", "LAPWING_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TEXT}\n")
    path.chmod(0o600)
    return path


def test_a_token_comes_from_an_argument_a_file_or_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_token(TEXT).header == find_token(None, file).header == f"Bearer {TEXT}"
    monkeypatch.setenv("LAPWING_TOKEN_FILE", str(file))
    assert find_token().header == f"Bearer {TEXT}"
    monkeypatch.setenv("LAPWING_TOKEN", TEXT.upper())  # JupyterHub gives it to the process
    assert find_token().header == f"Bearer {TEXT.upper()}"
    assert find_token(TEXT).header == f"Bearer {TEXT}"  # what is nearer counts


def test_without_a_token_the_error_says_where_to_get_one() -> None:
    with pytest.raises(BadParameter, match="LAPWING_TOKEN", check=named("token")):
        find_token()


def test_a_file_that_others_can_read_is_refused(file: Path) -> None:
    for mode in (0o640, 0o604, 0o660):
        file.chmod(mode)
        with pytest.raises(BadParameter, match="chmod 600", check=named("token_file")):
            find_token(None, file)


def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "missing"):
        with pytest.raises(BadParameter, check=named("token_file")):
            find_token(None, path)


@pytest.mark.parametrize("text", ["", "short", "a b" * 20, TEXT + "\r\nX-Other: 1", "ü" * 30, "a" * 600])
def test_what_cannot_be_a_token_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(BadParameter, check=named("token")) as caught:
        find_token(text)
    assert not text or text not in str(caught.value)


def test_a_token_is_not_shown_and_not_pickled() -> None:
    token = find_token(TEXT)
    assert TEXT not in f"{token!r} {token} {vars(type(token))}"
    with pytest.raises(TypeError):
        pickle.dumps(token)


def test_two_tokens_are_one_too_many(file: Path) -> None:
    with pytest.raises(BadParameter, check=named("token")):
        find_token(TEXT, file)
