"""Where anchors are: an address says what it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, MissingExtra
from lapwing.ledger.anchors import FileAnchor
from lapwing.ledger.remote_anchors import (
    PostgresAnchor,
    SqliteAnchor,
    UrlAnchor,
    anchor_at,
)


class TestPlaces:
    @pytest.mark.parametrize(
        ("where", "kind"),
        [
            ("visits.ledger.anchor", FileAnchor), (Path("x"), FileAnchor), ("C:x", FileAnchor),
            ("http://anchor.example/visits", UrlAnchor), ("HTTPS://anchor.example/visits", UrlAnchor),
            ("sqlite:///anchor.db", SqliteAnchor), ("sqlite:////var/anchor.db", SqliteAnchor),
            ("postgresql://anchor.example/visits", PostgresAnchor),
        ],
        ids=str,
    )  # fmt: skip
    def test_the_form_of_a_place_says_what_it_is(self, where: str | Path, kind: type) -> None:
        if kind is PostgresAnchor:
            pytest.importorskip("psycopg")
        assert type(anchor_at(where)) is kind

    def test_sqlite_paths_are_relative_and_with_a_fourth_slash_absolute(self) -> None:
        assert anchor_at("sqlite:///anchor.db").where == os.path.realpath("anchor.db")
        assert anchor_at("sqlite:////nowhere/anchor.db").where == "/nowhere/anchor.db"

    @pytest.mark.parametrize(
        "where",
        [
            "",
            "ftp://x/y",
            "htp://x/y",
            "sqlite://x",
            "sqlite:///",
            "http://",
            "file:///x",
            "http://x:port/",
        ],
    )
    def test_a_mistyped_address_does_not_become_a_file(self, where: str) -> None:
        with pytest.raises(BadParameter):
            anchor_at(where)

    def test_a_password_is_in_no_message(self) -> None:
        pytest.importorskip("psycopg")
        for where in (
            "https://anna:hush@anchor.example/visits?token=hush",
            "postgresql://anna:hush@[::1]:1/visits",
        ):
            anchor = anchor_at(where)
            assert "hush" not in anchor.where
            assert "anna" not in anchor.where
        with pytest.raises(BadParameter) as caught:
            anchor_at("postgresql://anna:hush%zz@anchor.example/visits")
        assert "hush" not in str(caught.value)

    def test_postgres_without_its_extra_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "psycopg", None)
        monkeypatch.delitem(sys.modules, "lapwing.storage.postgres", raising=False)
        with pytest.raises(MissingExtra, match="postgres"):
            anchor_at("postgresql://anchor.example/visits")
