"""One member's part in a run, from the lobby to the sums.

Claim    noise is drawn, and a charge made, only after the run has begun, once per stage; every post is on
         disk before it leaves; after a crash the same bytes leave again, or the run ends for this member.
Because  this follows the order that `journal` needs: mark, contribute, post with all it was made of, send.
Test     tests/parties/running/test_runs.py, tests/faults/test_parties_crashes.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lapwing.errors import Aborted, BadParameter
from lapwing.parties.identity import Keys
from lapwing.parties.journal import Ending, Journal, RecordedCoins
from lapwing.parties.member.line import Ended, Line
from lapwing.parties.messages.envelope import Envelope
from lapwing.parties.messages.notice import LONGEST_WHY, Notice
from lapwing.parties.messages.parcel import Delivery, Parcel
from lapwing.parties.messages.progress import Progress, Watch
from lapwing.parties.messages.table import Table
from lapwing.parties.protocols.protocol import Ints, Opened, Stop
from lapwing.parties.seat import Seat
from lapwing.parties.transcript import Round, Transcript

Contribute = Callable[[int, Sequence[Opened]], Ints]  # stage, sums opened before -> noised value


@dataclass(frozen=True, slots=True)
class Outcome:
    """The sums of all stages, and the file that shows how they came about."""

    opened: list[Opened]
    transcript: Path


def take_part(
    table: Table,
    me: int,
    keys: Keys,
    *,
    folder: Path,
    contribute: Contribute,
    watch: Watch | None = None,
) -> Outcome:
    """Play one member's part, to the end.

    `contribute` charges, then gives the noised value of a stage. It is called after the lobby, and once per
    stage. Raises `Aborted` naming who was missing; `Unavailable` if the relay cannot be reached; whatever
    `contribute` raises. Called again after a crash or a cut, it goes on; after the end, it gives the same.
    """
    if table.cards[me].der != keys.card.der:
        raise BadParameter("keys", f"these are {keys.name}'s, but member {me} is {table.names[me]}")
    with Journal(folder / f"{table.label}.journal", table, me) as journal:
        return _Part(
            table, me, keys, folder=folder, journal=journal, contribute=contribute, watch=watch
        ).play()


class CouldNotContribute(Exception):
    """`why` is for this member alone."""

    def __init__(self, why: Exception) -> None:
        super().__init__("could not contribute")
        self.why = why


class _Part:
    def __init__(
        self,
        table: Table,
        me: int,
        keys: Keys,
        *,
        folder: Path,
        journal: Journal,
        contribute: Contribute,
        watch: Watch | None,
    ) -> None:
        self._table = table
        self._me = me
        self._keys = keys
        self._transcript = folder / f"{table.label}.transcript"
        self._contribute = contribute
        self._watch = watch
        self._journal = journal
        self._seat = Seat(table, me, keys)
        self._coins = RecordedCoins()
        self._value: Ints | None = None  # drawn, and not yet in the journal
        self._unstored: Delivery | None = None  # heard, and not yet in the journal
        self._heard: list[Delivery] = []
        self._shown: Delivery | None = None  # last; heard only if nothing is wrong with it
        self._parcel: Parcel | None = None  # of the open round, if it was posted before a crash

    def play(self) -> Outcome:
        ending = self._journal.outcome()
        if ending is not None:
            if ending.stopped is not None:
                raise Aborted(ending.stopped)
            self._heard = self._journal.heard()
            self._write(ending, {})
            return Outcome(list(ending.opened), self._transcript)
        line = Line(self._table, self._keys, self._watch)
        try:
            line.has_begun = self._journal.has_begun()
            self._replay()
            return self._go_on(line)
        except CouldNotContribute as error:
            self._give_up(Aborted("could not contribute"), line)
            raise error.why from error.why.__cause__
        except (Stop, Ended, Aborted) as error:
            raise self._give_up(error, line) from error
        finally:
            line.close()

    def _replay(self) -> None:
        """Everything up to where the journal ends."""
        seat = self._seat
        for delivery in self._journal.heard():
            self._sit_again()
            parcel = self._journal.parcel((seat.stage, seat.round))
            if parcel is None:
                raise Stop("the journal lacks what was posted", (self._me,))
            seat.post_again(parcel)
            seat.hear(delivery)
            self._heard.append(delivery)
        if not seat.is_over:
            self._sit_again()
            self._parcel = self._journal.parcel((seat.stage, seat.round))

    def _sit_again(self) -> None:
        stage = self._seat.stage
        if self._seat.needs_value:
            value = self._journal.value(stage)
            if value is not None:
                self._coins = self._journal.coins(stage)
                self._seat.sit(value, self._coins)

    def _go_on(self, line: Line) -> Outcome:
        seat = self._seat
        line.enter((seat.stage, seat.round))
        while not seat.is_over:
            place = seat.stage, seat.round
            if seat.needs_value:
                self._draw()
            self._tell("round")
            delivery = self._shown = line.exchange(place, self._posted())
            seat.hear(delivery)
            self._unstored = delivery
            self._heard.append(delivery)
            self._tell("closed")
            if delivery.missing:
                self._tell("lost", delivery.missing)
            if seat.round == 0:
                self._tell("opened", seat.opened[-1].contributors)
        ending = Ending(seat.opened)
        self._journal.finish(self._unstored, ending)
        line.done()
        self._write(ending, line.notices)
        return Outcome(seat.opened, self._transcript)

    def _draw(self) -> None:
        seat = self._seat
        self._journal.drawing(seat.stage, self._unstored)
        self._unstored = None
        self._coins = RecordedCoins()
        try:
            self._value = self._contribute(seat.stage, tuple(seat.opened))
            seat.sit(self._value, self._coins)
        except Exception as error:  # why may be private: the others hear only that
            raise CouldNotContribute(error) from error

    def _posted(self) -> bytes:
        """This round's post: the stored one if there is one, else a new one, stored."""
        seat = self._seat
        if self._parcel is not None:
            parcel, self._parcel = self._parcel, None
            seat.post_again(parcel)
            return parcel.to_bytes()
        raw = seat.post().to_bytes()
        self._journal.posting(
            (seat.stage, seat.round), raw, coins=self._coins, value=self._value, heard=self._unstored
        )
        self._value = self._unstored = None
        return raw

    def _give_up(self, error: Stop | Ended | Aborted, line: Line) -> Aborted:
        """Tell the others, note it, and say it with names."""
        match error:
            case Stop():
                names = tuple(self._table.names[i] for i in error.members)
                aborted = Aborted(error.why + self._reasons(error.members, line), names)
            case Ended():
                aborted = Aborted(error.why, error.missing)
            case _:
                aborted = error
        if isinstance(error, Ended) and not line.has_begun:
            return aborted  # in the lobby: nothing was drawn, and the same run may be tried again
        seat, notices = self._seat, dict(line.notices)
        why = f"{aborted.why} ({', '.join(aborted.missing)})" if aborted.missing else aborted.why
        if not isinstance(error, Ended):
            said = why[:LONGEST_WHY]
            notice = Notice(self._table.run_id, seat.stage, seat.round, self._me, said).signed(self._keys)
            line.leave(notice)
            notices[self._me] = notice
        ending = Ending(seat.opened, why)
        self._journal.finish(self._unstored, ending)
        self._write(ending, notices)
        return aborted

    def _reasons(self, members: Sequence[int], line: Line) -> str:
        """What is known of those who are missing."""
        said = dict(self._shown.missing) if self._shown is not None else {}
        said.update({i: f"left: {notice.why}" for i, notice in line.notices.items()})
        # What the relay says is shown, but cannot write to a terminal as it likes.
        texts = [
            f"{self._table.names[i]} {said[i][:200]}" for i in members if said.get(i, "\n").isprintable()
        ]
        return f": {'; '.join(texts)}" if texts else ""

    def _in(self) -> list[int]:
        return [Envelope.from_bytes(raw).sender for raw, _ in self._heard[-1].items]

    def _tell(self, kind: str, members: Iterable[int] | None = None) -> None:
        if self._watch is None:
            return
        if members is None:
            members = self._in() if self._heard else range(len(self._table.cards))
        seat, rounds = self._seat, self._seat.rounds
        stage, number = (seat.stage, seat.round) if kind == "round" else self._last()
        names = tuple(self._table.names[i] for i in sorted(members))
        self._watch(Progress(kind, names, stage, self._table.stages, rounds[number], number, len(rounds)))

    def _last(self) -> tuple[int, int]:
        return self._heard[-1].stage, self._heard[-1].round

    def _write(self, ending: Ending, notices: dict[int, Notice]) -> None:
        rounds = [
            Round(
                heard.stage,
                heard.round,
                self._seat.rounds[heard.round],
                tuple(Envelope.from_bytes(raw) for raw, _ in heard.items),
            )
            for heard in self._heard
        ]
        Transcript(
            self._table.number,
            self._table.digest,
            self._table.document,
            rounds,
            list(notices.values()),
            list(ending.opened),
            ending.stopped,
        ).write(self._transcript, durably=False)
