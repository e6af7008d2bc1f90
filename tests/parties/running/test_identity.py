"""Keys and cards: made once, bound together, and never shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.parties.identity import Card, Keys


def test_what_was_created_can_be_opened(tmp_path: Path) -> None:
    made = Keys.create("north", tmp_path / "north")
    opened = Keys.open(tmp_path / "north")
    assert opened.card == made.card == Card.read(tmp_path / "north" / "north.card")
    assert made.card.verifies(opened.sign(b"words"), b"words")
    assert not made.card.verifies(opened.sign(b"words"), b"other words")


def test_private_keys_are_their_owners_alone(tmp_path: Path) -> None:
    Keys.create("north", tmp_path / "north")
    for name in ("signing.key", "box.key"):
        assert (tmp_path / "north" / name).stat().st_mode & 0o777 == 0o600
    (tmp_path / "north" / "box.key").chmod(0o644)
    with pytest.raises(BadFile, match="chmod 600"):
        Keys.open(tmp_path / "north")


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    before = Keys.create("north", tmp_path)
    with pytest.raises(BadParameter, match="never overwritten"):
        Keys.create("south", tmp_path)
    assert Keys.open(tmp_path).card == before.card


def test_no_key_shows_in_words(tmp_path: Path) -> None:
    keys = Keys.create("north", tmp_path)
    secret = (tmp_path / "signing.key").read_text().splitlines()[1]
    assert secret not in repr(keys)
    assert keys.signing.private_bytes_raw().hex() not in repr(keys)


@pytest.mark.parametrize("name", ["", "North", "a" * 41, "a/b", "a b", "..", "ä"])
def test_names_are_short_and_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadParameter, match="1 to 40"):
        Keys.create(name, tmp_path)


class TestACard:
    @pytest.fixture
    def cards(self, tmp_path: Path) -> tuple[Card, Card]:
        return tuple(Keys.create(name, tmp_path / name).card for name in ("north", "south"))  # type: ignore[return-value]

    @pytest.mark.parametrize("part", ["name", "certificate", "box", "signature"])
    def test_has_no_part_of_another(self, cards: tuple[Card, Card], part: str) -> None:
        north, south = cards
        with pytest.raises(BadParameter, match="not signed by its own key"):
            replace(north, **{part: getattr(south, part)})

    def test_has_a_fingerprint_of_its_own(self, cards: tuple[Card, Card]) -> None:
        north, south = cards
        assert north.fingerprint != south.fingerprint
        assert len(north.fingerprint.replace(" ", "")) == 64

    @pytest.mark.parametrize("wrong", ["{", "[]", "{}", '{"name": 1}', "\x00"])
    def test_is_read_strictly(self, tmp_path: Path, wrong: str) -> None:
        (tmp_path / "x.card").write_text(wrong)
        with pytest.raises(BadFile):
            Card.read(tmp_path / "x.card")

    def test_has_nothing_else_in_its_file(self, cards: tuple[Card, Card]) -> None:
        with pytest.raises(BadParameter, match="nothing else"):
            Card.from_json(cards[0].to_json() | {"more": "x"})


def test_keys_of_another_card_are_refused(tmp_path: Path) -> None:
    Keys.create("north", tmp_path / "north")
    other = Keys.create("south", tmp_path / "south")
    (tmp_path / "north" / "north.card").write_text(json.dumps(other.card.to_json()))
    with pytest.raises(BadFile, match="do not belong together"):
        Keys.open(tmp_path / "north")


def test_a_folder_without_keys_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="lapwing party init"):
        Keys.open(tmp_path)
