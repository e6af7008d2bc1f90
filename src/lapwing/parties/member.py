"""A member's side of a run over the network.

One member's part in a run, from the lobby to the sums.

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
from lapwing.parties.identity import MemberKeys
from lapwing.parties.journals import MemberJournal, RecordedCoins, RunEnding
from lapwing.parties.messages import (
    LONGEST_REASON,
    LeaveMessage,
    Progress,
    ProgressCallback,
    suppress_errors,
)
from lapwing.parties.participant import Participant
from lapwing.parties.posts import Delivery, Envelope, Parcel, round_digest
from lapwing.parties.protocols.protocol import Ints, OpenedSum, ProtocolStopped
from lapwing.parties.relay_client import MissedRound, RelayClient, RunEnded
from lapwing.parties.run_configuration import RunConfiguration
from lapwing.parties.transcript import Transcript, TranscriptRound, order_violations, sums_from_posts

Contribute = Callable[[int, Sequence[OpenedSum]], Ints]  # stage, sums opened before -> noised value
ReadData = Callable[[], None]  # what the first stage needs, into memory


_NOT_A_RESULT = (
    "what the relay showed as the result does not follow from what members have signed. The transcript of "
    "any member shows the sums: lapwing party verify"
)


def nothing_to_read() -> None:
    """The default: what is contributed is at hand."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The sums of all stages, and the file that shows how they came about."""

    opened: list[OpenedSum]
    transcript: Path


def take_part(
    table: RunConfiguration,
    me: int,
    keys: MemberKeys,
    *,
    folder: Path,
    contribute: Contribute,
    read: ReadData = nothing_to_read,
    watch: ProgressCallback | None = None,
) -> RunOutcome:
    """Play one member's part, to the end.

    `read` is called in the lobby, where nobody's clock runs and nothing is charged: what it reads must stay
    in memory. `contribute` charges, then gives the noised value of a stage. It is called after the lobby,
    and once per stage. Raises `Aborted` naming who was missing; `Unavailable` if the relay cannot be
    reached; whatever `read` or `contribute` raises. Called again after a crash or a cut, it goes
    on; after the end, it gives the same.
    """
    if table.cards[me].der != keys.card.der:
        raise BadParameter("keys", f"these are {keys.name}'s, but member {me} is {table.names[me]}")
    with MemberJournal(folder / f"{table.label}.journal", table, me) as journal:
        return _Part(
            table,
            me,
            keys,
            folder=folder,
            journal=journal,
            contribute=contribute,
            read=read,
            watch=None if watch is None else suppress_errors(watch),
        ).play()


class ContributionFailed(Exception):
    """`why` is for this member alone."""

    def __init__(self, why: Exception) -> None:
        super().__init__("could not contribute")
        self.why = why


class _Part:
    def __init__(
        self,
        table: RunConfiguration,
        me: int,
        keys: MemberKeys,
        *,
        folder: Path,
        journal: MemberJournal,
        contribute: Contribute,
        read: ReadData,
        watch: ProgressCallback | None,
    ) -> None:
        self._table = table
        self._me = me
        self._keys = keys
        self._transcript = folder / f"{table.label}.transcript"
        self._contribute = contribute
        self._read = read
        self._watch = watch
        self._journal = journal
        self._participant = Participant(table, me, keys)
        self._coins = RecordedCoins()
        self._value: Ints | None = None  # drawn, and not yet in the journal
        self._unstored: Delivery | None = None  # heard, and not yet in the journal
        self._heard: list[Delivery] = []
        self._shown: Delivery | None = None  # last; heard only if nothing is wrong with it
        self._parcel: Parcel | None = None  # of the open round, if it was posted before a crash
        self._took = 0.0  # seconds, for the slowest contribution

    def play(self) -> RunOutcome:
        ending = self._journal.outcome()
        if ending is not None:
            if ending.stopped is not None:
                raise Aborted(ending.stopped, opened=len(ending.opened))
            self._heard = self._journal.heard()
            self._write(ending, {})
            return RunOutcome(list(ending.opened), self._transcript)
        line = RelayClient(self._table, self._me, self._keys, self._watch)
        try:
            line.has_begun = self._journal.has_begun()
            self._replay()
            return self._go_on(line)
        except ContributionFailed as error:
            self._give_up(ProtocolStopped("could not contribute"), line)
            raise error.why from error.why.__cause__
        except (ProtocolStopped, RunEnded) as error:
            raise self._give_up(error, line) from error
        except Aborted as error:
            if not self._journal.has_begun():
                raise
            raise self._give_up(ProtocolStopped(error.why), line) from error
        except Unavailable:
            raise  # the same command goes on
        except Exception as error:
            if not self._journal.has_begun():
                raise
            aborted = self._give_up(ProtocolStopped("stopped on an error of its own"), line)
            why = f"{aborted.why}, {type(error).__name__}: {error}"  # for this member alone
            raise Aborted(why, opened=aborted.opened) from error
        finally:
            line.close()

    def _replay(self) -> None:
        """Everything up to where the journal ends."""
        seat = self._participant
        for delivery in self._journal.heard():
            self._sit_again()
            parcel = self._journal.parcel((seat.stage, seat.round))
            if parcel is None:
                raise ProtocolStopped("the journal lacks what was posted", (self._me,))
            seat.repeat_post(parcel)
            seat.hear(delivery)
            self._heard.append(delivery)
        if not seat.is_over:
            self._sit_again()
            self._parcel = self._journal.parcel((seat.stage, seat.round))

    def _sit_again(self) -> None:
        stage = self._participant.stage
        if self._participant.needs_value:
            value = self._journal.value(stage)
            if value is not None:
                self._coins = self._journal.coins(stage)
                self._participant.start_stage(value, self._coins)

    def _go_on(self, line: RelayClient) -> RunOutcome:
        try:
            return self._go_through(line)
        except MissedRound as error:
            if not self._journal.has_begun():  # nothing was charged: nothing is owed
                raise RunEnded(error.why, ()) from error
            return self._fetch(line)

    def _go_through(self, line: RelayClient) -> RunOutcome:
        seat = self._participant
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
        return self._finish(line, RunEnding(seat.opened), self._last_heard())

    def _last_heard(self) -> list[Delivery]:
        return [] if self._unstored is None else [self._unstored]

    def _finish(self, line: RelayClient, ending: RunEnding, heard: Sequence[Delivery]) -> RunOutcome:
        self._journal.finish(heard, ending)
        line.done()
        self._write(ending, line.notices)
        return RunOutcome(list(ending.opened), self._transcript)

    def _fetch(self, line: RelayClient) -> RunOutcome:
        """The sums of a run that has gone on without this member: checked as a stranger would, and against
        what this member has heard itself. It posts nothing more."""
        shown = line.result((self._participant.stage, self._participant.round))
        try:
            rounds = [self._round_of(one) for one in shown]
        except (BadValue, IndexError) as error:
            raise Unavailable(_NOT_A_RESULT) from error
        opened, stop = sums_from_posts(self._table, rounds)
        heard = [self._round_of(one) for one in self._heard]
        is_same = all(
            round_digest(mine.envelopes) == round_digest(theirs.envelopes)
            for mine, theirs in zip(heard, rounds, strict=False)
        )
        if order_violations(rounds, self._table) or stop or len(opened) < self._table.stages or not is_same:
            raise Unavailable(_NOT_A_RESULT)
        self._heard = shown
        self._tell("opened", opened[-1].contributors)
        return self._finish(line, RunEnding(opened), shown)

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
        seat = self._participant
        self._journal.drawing(seat.stage, self._unstored)
        self._unstored = None
        self._coins = RecordedCoins()
        began = time.monotonic()
        try:
            self._value = self._contribute(seat.stage, tuple(seat.opened))
            seat.start_stage(self._value, self._coins)
        except Exception as error:  # why may be private: the others hear only that
            raise ContributionFailed(error) from error
        finally:
            self._took = max(self._took, time.monotonic() - began)

    def _posted(self) -> bytes:
        """This round's post: the stored one if there is one, else a new one, stored."""
        seat = self._participant
        if self._parcel is not None:
            parcel, self._parcel = self._parcel, None
            seat.repeat_post(parcel)
            return parcel.to_bytes()
        raw = seat.post().to_bytes()
        self._journal.posting(
            (seat.stage, seat.round), raw, coins=self._coins, value=self._value, heard=self._unstored
        )
        self._value = self._unstored = None
        return raw

    def _give_up(self, error: ProtocolStopped | RunEnded, line: RelayClient) -> Aborted:
        """Tell the others, note it, and say it with names. What fails on the way does not hide why."""
        seat = self._participant
        if isinstance(error, ProtocolStopped):
            names = tuple(self._table.names[i] for i in error.members)
            found, reasons = error.why, self._reasons(error.members, line)
        else:
            names, found, reasons = error.missing, error.why, ""
        if isinstance(error, RunEnded) and not self._journal.has_begun():
            return Aborted(found, names, was_charged=False)  # the same run may be tried again
        notices = dict(line.notices)
        listed = f" ({', '.join(names)})" if names else ""
        if isinstance(error, ProtocolStopped):
            said = _cut_to(found + listed, LONGEST_REASON)  # own findings: what others said, they must sign
            notice = LeaveMessage(self._table.run_id, seat.stage, seat.round, self._me, said).signed(
                self._keys
            )
            line.leave(notice)
            notices[self._me] = notice
        ending = RunEnding(seat.opened, _cut_to(found + listed + reasons, LONGEST_REASON))
        with suppress(Unavailable):
            self._journal.finish(self._last_heard(), ending)
            self._write(ending, notices)
        return Aborted(found + reasons + self._hint(), names, opened=len(seat.opened))

    def _reasons(self, members: Sequence[int], line: RelayClient) -> str:
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
        seat, rounds = self._participant, self._participant.rounds
        stage, number = (seat.stage, seat.round) if kind == "round" else self._last()
        names = tuple(self._table.names[i] for i in sorted(members))
        self._watch(Progress(kind, names, stage, self._table.stages, rounds[number], number, len(rounds)))

    def _last(self) -> tuple[int, int]:
        return self._heard[-1].stage, self._heard[-1].round

    def _round_of(self, heard: Delivery) -> TranscriptRound:
        envelopes = tuple(Envelope.from_bytes(raw) for raw, _ in heard.items)
        return TranscriptRound(heard.stage, heard.round, self._participant.rounds[heard.round], envelopes)

    def _write(self, ending: RunEnding, notices: dict[int, LeaveMessage]) -> None:
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


__all__ = ["Contribute", "RunOutcome", "take_part"]
