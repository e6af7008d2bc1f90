"""A relay that lies, and what it and everybody else can find of a member's secrets. Over TLS."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.errors import Aborted, LapwingError
from lapwing.parties.member import RunOutcome, take_part
from lapwing.parties.posts import Delivery, Envelope, Parcel
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.relay_loop import RelayLoop
from lapwing.parties.relay_server import relay_in_thread
from support.parties import Flock, flock

Ended = dict[int, RunOutcome | LapwingError]


def run_all(
    group: Flock, make: type[RelayLoop] = RelayLoop, values: Sequence[int] = (1, 2, 3, 4, 5)
) -> Ended:
    """All members in threads; each with its outcome or error."""
    ended: Ended = {}

    def part(i: int) -> None:
        def contribute(stage: int, earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
            del earlier
            return np.full(group.table.length, values[i] + stage, dtype=np.int64)

        try:
            ended[i] = take_part(
                group.table, i, group.keys[i], folder=group.folder(i), contribute=contribute
            )
        except LapwingError as error:
            ended[i] = error

    with relay_in_thread(group.table, group.keys[0], folder=group.root, make=make):
        threads = [threading.Thread(target=part, args=(i,)) for i in range(len(group.keys))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return ended


class ShowsTwoSets(RelayLoop):
    """Hides a different member's post from each half: at most a planned loss, for each of them."""

    at = "deal"

    def _take(self, i: int, payload: bytes) -> None:
        """An honest relay would refuse one half now. This one passes everything on."""
        self._seen = Envelope.from_bytes(Parcel.from_bytes(payload).envelope).seen
        super()._take(i, payload)

    def delivery(self, to: int) -> Delivery:
        honest = super().delivery(to)
        if honest.round < self._rounds.index(self.at):
            return honest
        hidden = 4 if to in (0, 1, 3) else 3  # from then on, in every round
        shown = [item for item in honest.items if Envelope.from_bytes(item[0]).sender != hidden]
        return replace(honest, items=shown)


class ShowsTwoMaskedSets(ShowsTwoSets):
    at = "masked"


class ChangesBoxes(RelayLoop):
    """Turns one bit of what one member sends to another."""

    def delivery(self, to: int) -> Delivery:
        honest = super().delivery(to)
        if to != 0:
            return honest
        items = [
            (envelope, box and bytes([box[0] ^ 1]) + box[1:]) if i == 1 else (envelope, box)
            for i, (envelope, box) in enumerate(honest.items)
        ]
        return replace(honest, items=items)


@pytest.mark.parametrize(("letter", "make"), [("C", ShowsTwoSets), ("D", ShowsTwoMaskedSets)])
def test_M1_a_relay_that_shows_members_different_sets_opens_nothing(
    tmp_path: Path, letter: str, make: type[RelayLoop]
) -> None:
    group = flock(tmp_path, 5, protocol=letter, losses=1)
    ended = run_all(group, make)
    assert len(ended) == 5
    for error in ended.values():
        assert isinstance(error, Aborted)
    assert sum("different rounds" in str(error) for error in ended.values()) >= 2


def test_a_changed_box_is_noticed_and_named(tmp_path: Path) -> None:
    ended = run_all(flock(tmp_path, protocol="C"), ChangesBoxes)
    assert isinstance(ended[0], Aborted)
    assert ended[0].missing == ("south",)
    assert "does not open" in str(ended[0])
    assert not isinstance(ended[1], RunOutcome) or ended[1].opened  # the others may go on without north


@pytest.mark.parametrize("letter", PROTOCOLS)
def test_the_relay_and_the_transcripts_hold_no_members_value(tmp_path: Path, letter: str) -> None:
    """Protocols A and L show noised values by design; the others never show a single member's."""
    group = flock(tmp_path, protocol=letter, coalition=0 if letter == "L" else 1, length=3)
    values = (0x0123456789AB, 0x0234567890CD, 0x034567890AEF)
    ended = run_all(group, values=values)
    assert all(isinstance(outcome, RunOutcome) for outcome in ended.values())
    files = [path for path in tmp_path.rglob("*") if ".relay" in path.name or "transcript" in path.name]
    assert len(files) >= 5
    stored = b"".join(path.read_bytes() for path in files)
    journals = b"".join(path.read_bytes() for path in tmp_path.rglob("*.journal"))
    for value in values:
        for form in (value.to_bytes(8, "little"), value.to_bytes(8), str(value).encode()):
            if letter not in "AL":
                assert form not in stored
                assert form not in journals


def test_the_same_numbers_travel_differently_in_each_run(tmp_path: Path) -> None:
    group = flock(tmp_path, protocol="D")
    texts = []
    for number in (1, 2):
        again = group.run(number)
        run_all(again)
        texts.append(again.transcript(1).read_text().splitlines())
    for one, two in zip(*texts, strict=True):
        if "posts" in one and '"public": ""' not in one:
            assert one != two
    seen = [line for lines in texts for line in lines if '"masked"' in line or '"keys"' in line]
    assert len(set(seen)) == 4
