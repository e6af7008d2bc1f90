"""One member's part in a run, from the lobby to the sums.

Claim    data is read before a run begins, on no clock, and nothing of it leaves by that; noise is drawn,
         and a charge made, only after the run has begun, once per stage; every post is on disk before it
         leaves; after a crash the same bytes leave again, or the run ends for this member.
         Whatever goes wrong after the charge, the others are told, and the journal has the end; what this
         member signs then is what it found itself, and never what a relay said.
Because  this follows the order that `journal` needs: mark, contribute, post with all it was made of, send.
         Who cannot read its data does not become ready, and whoever waits for it hears no more than that.
Test     tests/parties/running/test_runs.py, tests/faults/test_parties_crashes.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lapwing.errors import Aborted, BadParameter, BadValue, Unavailable
from lapwing.parties.identity import Keys
from lapwing.parties.journal import Ending, Journal, RecordedCoins
from lapwing.parties.member.line import Ended, Line, Out
from lapwing.parties.messages.envelope import Envelope, round_digest
from lapwing.parties.messages.notice import LONGEST_WHY, Notice
from lapwing.parties.messages.parcel import Delivery, Parcel
from lapwing.parties.messages.progress import Progress, Watch, harmless
from lapwing.parties.messages.table import Table
from lapwing.parties.protocols.protocol import Ints, Opened, Stop
from lapwing.parties.seat import Seat
from lapwing.parties.transcript import Round, Transcript, open_publicly, out_of_order

Contribute = Callable[[int, Sequence[Opened]], Ints]  # stage, sums opened before -> noised value
Read = Callable[[], None]  # what the first stage needs, into memory


_NOT_A_RESULT = (
    "what the relay showed as the result does not follow from what members have signed. The transcript of "
    "any member shows the sums: lapwing party verify"
)


def nothing_to_read() -> None:
    """The default: what is contributed is at hand."""


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
    read: Read = nothing_to_read,
    watch: Watch | None = None,
) -> Outcome:
    """Play one member's part, to the end.

    `read` is called in the lobby, where nobody's clock runs and nothing is charged: what it reads must stay
    in memory. `contribute` charges, then gives the noised value of a stage. It is called after the lobby,
    and once per stage. Raises `Aborted` naming who was missing; `Unavailable` if the relay cannot be
    reached; whatever `read` or `contribute` raises. Called again after a crash or a cut, it goes
    on; after the end, it gives the same.
    """
    if table.cards[me].der != keys.card.der:
        raise BadParameter("keys", f"these are {keys.name}'s, but member {me} is {table.names[me]}")
    with Journal(folder / f"{table.label}.journal", table, me) as journal:
        return _Part(
            table,
            me,
            keys,
            folder=folder,
            journal=journal,
            contribute=contribute,
            read=read,
            watch=None if watch is None else harmless(watch),
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
        read: Read,
        watch: Watch | None,
    ) -> None:
        self._table = table
        self._me = me
        self._keys = keys
        self._transcript = folder / f"{table.label}.transcript"
        self._contribute = contribute
        self._read = read
        self._watch = watch
        self._journal = journal
        self._seat = Seat(table, me, keys)
        self._coins = RecordedCoins()
        self._value: Ints | None = None  # drawn, and not yet in the journal
        self._unstored: Delivery | None = None  # heard, and not yet in the journal
        self._heard: list[Delivery] = []
        self._shown: Delivery | None = None  # last; heard only if nothing is wrong with it
        self._parcel: Parcel | None = None  # of the open round, if it was posted before a crash
        self._took = 0.0  # seconds, for the slowest contribution

    def play(self) -> Outcome:
        ending = self._journal.outcome()
        if ending is not None:
            if ending.stopped is not None:
                raise Aborted(ending.stopped, opened=len(ending.opened))
            self._heard = self._journal.heard()
            self._write(ending, {})
            return Outcome(list(ending.opened), self._transcript)
        line = Line(self._table, self._me, self._keys, self._watch)
        try:
            line.has_begun = self._journal.has_begun()
            self._replay()
            return self._go_on(line)
        except CouldNotContribute as error:
            self._give_up(Stop("could not contribute"), line)
            raise error.why from error.why.__cause__
        except (Stop, Ended) as error:
            raise self._give_up(error, line) from error
        except Aborted as error:
            if not self._journal.has_begun():
                raise
            raise self._give_up(Stop(error.why), line) from error
        except Unavailable:
            raise  # the same command goes on
        except Exception as error:
            if not self._journal.has_begun():
                raise
            aborted = self._give_up(Stop("stopped on an error of its own"), line)
            why = f"{aborted.why}, {type(error).__name__}: {error}"  # for this member alone
            raise Aborted(why, opened=aborted.opened) from error
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
        try:
            return self._go_through(line)
        except Out as error:
            if not self._journal.has_begun():  # nothing was charged: nothing is owed
                raise Ended(error.why, ()) from error
            return self._fetch(line)

    def _go_through(self, line: Line) -> Outcome:
        seat = self._seat
        if not line.has_begun:
            line.arrive((seat.stage, seat.round))
            self._become_ready()
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
        return self._finish(line, Ending(seat.opened), self._last_heard())

    def _last_heard(self) -> list[Delivery]:
        return [] if self._unstored is None else [self._unstored]

    def _finish(self, line: Line, ending: Ending, heard: Sequence[Delivery]) -> Outcome:
        self._journal.finish(heard, ending)
        line.done()
        self._write(ending, line.notices)
        return Outcome(list(ending.opened), self._transcript)

    def _fetch(self, line: Line) -> Outcome:
        """The sums of a run that has gone on without this member: checked as a stranger would, and against
        what this member has heard itself. It posts nothing more."""
        shown = line.result((self._seat.stage, self._seat.round))
        try:
            rounds = [self._round_of(one) for one in shown]
        except (BadValue, IndexError) as error:
            raise Unavailable(_NOT_A_RESULT) from error
        opened, stop = open_publicly(self._table, rounds)
        heard = [self._round_of(one) for one in self._heard]
        is_same = all(
            round_digest(mine.envelopes) == round_digest(theirs.envelopes)
            for mine, theirs in zip(heard, rounds, strict=False)
        )
        if out_of_order(rounds, self._table) or stop or len(opened) < self._table.stages or not is_same:
            raise Unavailable(_NOT_A_RESULT)
        self._heard = shown
        self._tell("opened", opened[-1].contributors)
        return self._finish(line, Ending(opened), shown)

    def _become_ready(self) -> None:
        """Read, before anybody is charged. Later stages are read on the clock: if that would be too slow,
        better nobody begins."""
        began = time.monotonic()
        self._read()
        took, limit = time.monotonic() - began, self._table.round_seconds
        if self._table.stages > 1 and took > limit / 2:
            raise Aborted(
                f"to read its data took this member {took:.0f} seconds, and each of {self._table.stages} "
                f"stages must be read within a round of {limit:g}: a consortium with a longer deadline "
                "would wait for it",
                was_charged=False,
            )

    def _draw(self) -> None:
        seat = self._seat
        self._journal.drawing(seat.stage, self._unstored)
        self._unstored = None
        self._coins = RecordedCoins()
        began = time.monotonic()
        try:
            self._value = self._contribute(seat.stage, tuple(seat.opened))
            seat.sit(self._value, self._coins)
        except Exception as error:  # why may be private: the others hear only that
            raise CouldNotContribute(error) from error
        finally:
            self._took = max(self._took, time.monotonic() - began)

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

    def _give_up(self, error: Stop | Ended, line: Line) -> Aborted:
        """Tell the others, note it, and say it with names. What fails on the way does not hide why."""
        seat = self._seat
        if isinstance(error, Stop):
            names = tuple(self._table.names[i] for i in error.members)
            found, reasons = error.why, self._reasons(error.members, line)
        else:
            names, found, reasons = error.missing, error.why, ""
        if isinstance(error, Ended) and not self._journal.has_begun():
            return Aborted(found, names, was_charged=False)  # the same run may be tried again
        notices = dict(line.notices)
        listed = f" ({', '.join(names)})" if names else ""
        if isinstance(error, Stop):
            said = _cut_to(found + listed, LONGEST_WHY)  # own findings: what others said, they must sign
            notice = Notice(self._table.run_id, seat.stage, seat.round, self._me, said).signed(self._keys)
            line.leave(notice)
            notices[self._me] = notice
        ending = Ending(seat.opened, _cut_to(found + listed + reasons, LONGEST_WHY))
        with suppress(Unavailable):
            self._journal.finish(self._last_heard(), ending)
            self._write(ending, notices)
        return Aborted(found + reasons + self._hint(), names, opened=len(seat.opened))

    def _reasons(self, members: Sequence[int], line: Line) -> str:
        """What is said of those who are missing: by themselves, else by the relay."""
        texts = []
        for i in members:
            name, notice = self._table.names[i], line.notices.get(i)
            said = "" if self._shown is None else self._shown.missing.get(i, "")
            if notice is not None:
                texts.append(f"{name} left: {notice.why}")
            elif said and said.isprintable():  # it cannot write to a terminal as it likes
                texts.append(f"the relay says: {name} {said[:200]}")
        return f": {'; '.join(texts)}" if texts else ""

    def _hint(self) -> str:
        if self._took <= self._table.round_seconds:
            return ""
        return (
            f". To contribute took this member {self._took:.0f} seconds, and a round has "
            f"{self._table.round_seconds:g}: a consortium with a longer deadline would wait for it"
        )

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

    def _round_of(self, heard: Delivery) -> Round:
        envelopes = tuple(Envelope.from_bytes(raw) for raw, _ in heard.items)
        return Round(heard.stage, heard.round, self._seat.rounds[heard.round], envelopes)

    def _write(self, ending: Ending, notices: dict[int, Notice]) -> None:
        Transcript(
            self._table.number,
            self._table.digest,
            self._table.document,
            [self._round_of(heard) for heard in self._heard],
            list(notices.values()),
            list(ending.opened),
            ending.stopped,
        ).write(self._transcript, durably=False)


def _cut_to(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
