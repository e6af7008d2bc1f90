"""Piles of reports without credentials, and where a survey's key lies."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.survey.collecting import Rule, Verdict, known_key, offline, signing_key
from support.collecting import DIGEST, SIZE, TODAY, Shelf

PILE = np.arange(10 * SIZE, dtype=np.uint8).reshape(10, SIZE) % 4
NAME = b"the hash of a file"


class TestAPile:
    def test_counts_once_however_often_it_is_taken(self, shelf: Shelf) -> None:
        store = shelf.open()
        for taken in (10, 0):
            new = offline.new_ones(store, offline.marked(PILE, NAME))
            verdicts = offline.take(store, new, Rule(), TODAY)
            assert verdicts == [Verdict.NEW] * taken
        assert store.state().without_credential == 10

    def test_of_the_same_content_from_others_is_taken_again_on_demand(self, shelf: Shelf) -> None:
        store = shelf.open()
        offline.take(store, offline.marked(PILE, NAME), Rule(), TODAY)
        more = offline.marked(PILE, NAME, again=True)
        assert offline.take(store, more, Rule(), TODAY) == [Verdict.NEW] * 10
        assert store.state().reports == 20

    def test_that_was_taken_in_part_is_completed(self, shelf: Shelf) -> None:
        store, pile = shelf.open(), offline.marked(PILE, NAME)
        offline.take(store, pile[:4], Rule(), TODAY)
        assert offline.new_ones(store, pile) == pile[4:]

    def test_has_alike_reports_that_all_count(self, shelf: Shelf) -> None:
        store = shelf.open()
        alike = np.zeros((7, SIZE), np.uint8)
        assert offline.take(store, offline.marked(alike, NAME), Rule(), TODAY) == [Verdict.NEW] * 7

    def test_of_another_file_counts_although_its_reports_are_alike(
        self, shelf: Shelf, tmp_path: Path
    ) -> None:
        store, alike = shelf.open(), np.zeros((1, SIZE), np.uint8)
        for device in range(7):
            file = tmp_path / f"{device}.report"
            file.write_bytes(b"lapwing reports, mark %d\n" % device + alike.tobytes())
            for expected in ([Verdict.NEW], [Verdict.AGAIN]):
                pile = offline.marked(alike, offline.digest_of(file))
                assert offline.take(store, pile, Rule(), TODAY) == expected
        assert store.state().reports == 7

    def test_that_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(BadParameter, match="cannot be read"):
            offline.digest_of(tmp_path)


class TestTheKey:
    def test_lies_beside_the_keys_of_the_ledger_one_for_each_survey(self, tmp_path: Path) -> None:
        ledger = str(tmp_path / "own.ledger")
        assert known_key(ledger, "", name="a", digest=DIGEST) is None
        first = signing_key(ledger, "", name="a", digest=DIGEST)
        [path] = tmp_path.iterdir()
        assert path.name.startswith("own.ledger.keys.")
        found = known_key(ledger, "", name="a", digest=DIGEST)
        assert found is not None
        assert found.public == first.public
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert signing_key(ledger, "", name="a", digest=DIGEST).public == first.public
        other = signing_key(ledger, "", name="b", digest=DIGEST)
        assert other.public != first.public  # so a token of one is worth nothing in another

    def test_of_a_ledger_in_a_server_needs_a_place(self, tmp_path: Path) -> None:
        assert known_key("postgresql://host/db", "", name="a", digest=DIGEST) is None
        with pytest.raises(BadParameter, match="where its keys lie"):
            signing_key("postgresql://host/db", "", name="a", digest=DIGEST)
        signing_key("postgresql://host/db", str(tmp_path / "k"), name="a", digest=DIGEST)
        [path] = tmp_path.iterdir()
        assert path.name.startswith("k.")
