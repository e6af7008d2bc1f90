"""Piles of reports without credentials, and where a survey's key lies."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.survey import report_store
from lapwing.survey.report_store import IntakeResult, StoppingRule
from lapwing.survey.service import existing_signing_key, open_signing_key
from support.collecting import DIGEST, SIZE, TODAY, Shelf

PILE = np.arange(10 * SIZE, dtype=np.uint8).reshape(10, SIZE) % 4
NAME = b"the hash of a file"


class TestAPile:
    def test_counts_once_however_often_it_is_taken(self, shelf: Shelf) -> None:
        store = shelf.open()
        for taken in (10, 0):
            new = report_store.not_yet_stored(store, report_store.offline_entries(PILE, NAME))
            verdicts = store.accept(new, StoppingRule(), TODAY, has_credential=False)
            assert verdicts == [IntakeResult.NEW] * taken
        assert store.state().without_credential == 10

    def test_of_the_same_content_from_others_is_taken_again_on_demand(self, shelf: Shelf) -> None:
        store = shelf.open()
        store.accept(report_store.offline_entries(PILE, NAME), StoppingRule(), TODAY, has_credential=False)
        more = report_store.offline_entries(PILE, NAME, again=True)
        assert store.accept(more, StoppingRule(), TODAY, has_credential=False) == [IntakeResult.NEW] * 10
        assert store.state().reports == 20

    def test_that_was_taken_in_part_is_completed(self, shelf: Shelf) -> None:
        store, pile = shelf.open(), report_store.offline_entries(PILE, NAME)
        store.accept(pile[:4], StoppingRule(), TODAY, has_credential=False)
        assert report_store.not_yet_stored(store, pile) == pile[4:]

    def test_has_alike_reports_that_all_count(self, shelf: Shelf) -> None:
        store = shelf.open()
        alike = np.zeros((7, SIZE), np.uint8)
        assert (
            store.accept(
                report_store.offline_entries(alike, NAME), StoppingRule(), TODAY, has_credential=False
            )
            == [IntakeResult.NEW] * 7
        )

    def test_of_another_file_counts_although_its_reports_are_alike(
        self, shelf: Shelf, tmp_path: Path
    ) -> None:
        store, alike = shelf.open(), np.zeros((1, SIZE), np.uint8)
        for device in range(7):
            file = tmp_path / f"{device}.report"
            file.write_bytes(b"lapwing reports, mark %d\n" % device + alike.tobytes())
            for expected in ([IntakeResult.NEW], [IntakeResult.AGAIN]):
                pile = report_store.offline_entries(alike, report_store.pile_digest(file))
                assert store.accept(pile, StoppingRule(), TODAY, has_credential=False) == expected
        assert store.state().reports == 7

    def test_that_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(BadParameter, match="cannot be read"):
            report_store.pile_digest(tmp_path)


class TestTheKey:
    def test_lies_beside_the_keys_of_the_ledger_one_for_each_survey(self, tmp_path: Path) -> None:
        ledger = str(tmp_path / "own.ledger")
        assert existing_signing_key(ledger, "", name="a", digest=DIGEST) is None
        first = open_signing_key(ledger, "", name="a", digest=DIGEST)
        [path] = tmp_path.iterdir()
        assert path.name.startswith("own.ledger.keys.")
        found = existing_signing_key(ledger, "", name="a", digest=DIGEST)
        assert found is not None
        assert found.public == first.public
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert open_signing_key(ledger, "", name="a", digest=DIGEST).public == first.public
        other = open_signing_key(ledger, "", name="b", digest=DIGEST)
        assert other.public != first.public  # so a token of one is worth nothing in another

    def test_of_a_ledger_in_a_server_needs_a_place(self, tmp_path: Path) -> None:
        assert existing_signing_key("postgresql://host/db", "", name="a", digest=DIGEST) is None
        with pytest.raises(BadParameter, match="where its keys lie"):
            open_signing_key("postgresql://host/db", "", name="a", digest=DIGEST)
        open_signing_key("postgresql://host/db", str(tmp_path / "k"), name="a", digest=DIGEST)
        [path] = tmp_path.iterdir()
        assert path.name.startswith("k.")
