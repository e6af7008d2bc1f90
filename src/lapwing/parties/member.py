"""One member's side of a run over the network, from the lobby to the sums.

Claim    data is read before a run begins, without a deadline, and nothing of it leaves by that; noise is
         drawn, and a charge made, only after the run has begun, once per stage; every post is stored before
         it leaves; after a crash the same bytes leave again, or the run ends for this member. After any
         error that follows the charge, the others are told, and the journal has the end. This member then
         signs only its own findings, never statements of the relay.
Because  the code follows the order that `MemberJournal` needs: mark, contribute, store the post with all
         that it was made from, send. A member that cannot read its data does not become ready, and the
         others learn no more than that.
Test     tests/parties/test_member_runs.py, tests/faults/test_parties_crashes.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lapwing.errors import Aborted, BadParameter, BadValue, Unavailable
from lapwing.parties import messages
from lapwing.parties.identity import MemberKeys
from lapwing.parties.journals import MemberJournal, RecordedCoins, RunEnding
from lapwing.parties.messages import LeaveMessage, Progress, ProgressCallback
from lapwing.parties.participant import Participant
from lapwing.parties.posts import Delivery, Parcel, round_digest
from lapwing.parties.protocols.protocol import Ints, OpenedSum, ProtocolStopped
from lapwing.parties.relay_client import MissedRound, RelayClient, RunEnded
from lapwing.parties.run_configuration import RunConfiguration
from lapwing.parties.transcript import Transcript, TranscriptRound, order_violations, sums_from_posts

Contribute = Callable[[int, Sequence[OpenedSum]], Ints]  # stage, earlier sums -> noised value
ReadData = Callable[[], None]  # reads the data of the first stage into memory

_NOT_A_RESULT = (
    "the relay's result does not follow from the posts that members have signed. The transcript of any "
    "member shows the sums: lapwing party verify"
)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The sums of all stages, and the path of the transcript that proves them."""

    opened: list[OpenedSum]
    transcript: Path


def take_part(
    config: RunConfiguration,
    me: int,
    keys: MemberKeys,
    *,
    folder: Path,
    contribute: Contribute,
    read: ReadData = lambda: None,
    watch: ProgressCallback | None = None,
) -> RunOutcome:
    """Take part in a run as one member, from the lobby to the opened sums.

    Call it again after a crash or a cut: it continues. After the end it returns the same outcome.

    Args:
        config: the run, from `Consortium.run_configuration`.
        me: this member's number: the position of its card in the consortium.
        keys: this member's private keys.
        folder: where this member keeps the journals and transcripts of its runs.
        contribute: charges, then returns the noised value of a stage. It is called after the lobby, once
            per stage, with the number of the stage and the sums of the stages before.
        read: reads data in the lobby, where no deadline runs and nothing is charged. The data must stay in
            memory.
        watch: is called with each event of the run; None reports nothing.

    Returns:
        The opened sums, and the path of the transcript.

    Raises:
        Aborted: the run ended without all sums. The error names the missing members.
        Unavailable: the relay cannot be reached, or the journal cannot be used.
        BadParameter: the keys are not this member's.
        Exception: any error of `read` or `contribute`.

    Example:
        >>> def contribute(stage, earlier):
        ...     return noised_counts  # int64, one number for each cell
        >>> config = Consortium.read(path).run_configuration(1)  # doctest: +SKIP
        >>> take_part(config, 0, keys, folder=runs, contribute=contribute).opened  # doctest: +SKIP
    """
    if config.cards[me].der != keys.card.der:
        raise BadParameter("keys", f"these are {keys.name}'s, but member {me} is {config.names[me]}")
    quiet = None if watch is None else messages.suppress_errors(watch)
    with MemberJournal(MemberJournal.path_of(folder, config), config, me) as journal:
        return _MemberRun(
            Participant(config, me, keys), keys, folder, journal, contribute, read, quiet
        ).run()


class ContributionFailed(Exception):
    """This member could not contribute. `why` may be private: only this member may see it."""

    def __init__(self, why: Exception) -> None:
        super().__init__("could not contribute")
        self.why = why


@dataclass
class _MemberRun:
    """The state of `take_part`."""

    _participant: Participant
    _keys: MemberKeys
    _folder: Path
    _journal: MemberJournal
    _contribute: Contribute
    _read: ReadData
    _watch: ProgressCallback | None

    def __post_init__(self) -> None:
        self._config = self._participant.config
        self._transcript = self._folder / f"{self._config.label}.transcript"
        self._coins = RecordedCoins()
        self._value: Ints | None = None  # drawn, and not yet in the journal
        self._unstored: Delivery | None = None  # received, and not yet in the journal
        self._heard: list[Delivery] = []
        self._last_shown: Delivery | None = None  # the relay's last delivery, also if it was invalid
        self._parcel: Parcel | None = None  # of the open round, if it was posted before a crash
        self._slowest = 0.0  # seconds of the slowest contribution

    def run(self) -> RunOutcome:
        ending = self._journal.outcome()
        if ending is not None:
            if ending.stopped is not None:
                raise Aborted(ending.stopped, opened=len(ending.opened))
            self._heard = self._journal.heard()
            self._write(ending, {})
            return RunOutcome(list(ending.opened), self._transcript)
        client = RelayClient(self._config, self._participant.me, self._keys, self._watch)
        try:
            client.has_begun = self._journal.has_begun()
            self._replay()
            return self._run_or_fetch(client)
        except ContributionFailed as error:
            self._give_up(ProtocolStopped("could not contribute"), client)
            raise error.why from error.why.__cause__
        except (ProtocolStopped, RunEnded) as error:
            raise self._give_up(error, client) from error
        except Aborted as error:
            if not self._journal.has_begun():
                raise
            raise self._give_up(ProtocolStopped(error.why), client) from error
        except Unavailable:
            raise  # the same command continues the run
        except Exception as error:
            if not self._journal.has_begun():
                raise
            aborted = self._give_up(ProtocolStopped("stopped on an error of its own"), client)
            why = f"{aborted.why}, {type(error).__name__}: {error}"  # for this member alone
            raise Aborted(why, opened=aborted.opened) from error
        finally:
            client.close()

    def _replay(self) -> None:
        """Repeat the run up to the end of the journal."""
        participant = self._participant
        for delivery in self._journal.heard():
            self._restart_stage()
            parcel = self._journal.parcel(participant.key)
            if parcel is None:
                raise ProtocolStopped("the journal lacks a post", (participant.me,))
            participant.repeat_post(parcel)
            participant.hear(delivery)
            self._heard.append(delivery)
        if not participant.is_over:
            self._restart_stage()
            self._parcel = self._journal.parcel(participant.key)

    def _restart_stage(self) -> None:
        """Begin a stage again with the stored value and coins, if there are any."""
        participant = self._participant
        if participant.needs_value:
            value = self._journal.value(participant.stage)
            if value is not None:
                self._coins = self._journal.coins(participant.stage)
                participant.start_stage(value, self._coins)

    def _run_or_fetch(self, client: RelayClient) -> RunOutcome:
        try:
            return self._run_rounds(client)
        except MissedRound as error:
            if not self._journal.has_begun():  # nothing was charged: the member needs no result
                raise Aborted(error.why, goes_on=True) from error
            return self._fetch(client)

    def _run_rounds(self, client: RelayClient) -> RunOutcome:
        participant = self._participant
        if not client.has_begun:
            client.arrive(participant.key)
            self._become_ready()
            client.enter(participant.key)
        while not participant.is_over:
            key = participant.key
            if participant.needs_value:
                self._draw()
            self._tell("round")
            delivery = self._last_shown = client.exchange(key, self._posted())
            participant.hear(delivery)
            self._unstored = delivery
            self._heard.append(delivery)
            self._tell("closed")
            if delivery.missing:
                self._tell("lost", delivery.missing)
            if participant.round == 0:
                self._tell("opened", participant.opened[-1].contributors)
        return self._finish(client, RunEnding(participant.opened), self._unstored_rounds())

    def _unstored_rounds(self) -> list[Delivery]:
        return [] if self._unstored is None else [self._unstored]

    def _finish(self, client: RelayClient, ending: RunEnding, heard: Sequence[Delivery]) -> RunOutcome:
        self._journal.finish(heard, ending)
        client.done()
        self._write(ending, client.leave_messages)
        return RunOutcome(list(ending.opened), self._transcript)

    def _fetch(self, client: RelayClient) -> RunOutcome:
        """Get the sums of a run that continued without this member.

        They are checked as a stranger would, and against the rounds that this member has received. This
        member posts nothing more. Raises `Unavailable` if the relay shows something else.
        """
        config, shown = self._config, client.result(self._participant.key)
        try:
            rounds = [self._round_of(delivery) for delivery in shown]
        except (BadValue, IndexError) as error:
            raise Unavailable(_NOT_A_RESULT) from error
        opened, stop = sums_from_posts(config, rounds)
        is_same = all(
            round_digest(mine.envelopes) == round_digest(theirs.envelopes)
            for mine, theirs in zip(self._heard, rounds, strict=False)
        )
        if order_violations(rounds, config) or stop or len(opened) < config.stages or not is_same:
            raise Unavailable(_NOT_A_RESULT)
        self._heard = shown
        self._tell("opened", opened[-1].contributors)
        return self._finish(client, RunEnding(opened), shown)

    def _become_ready(self) -> None:
        """Read the data, before any member is charged.

        Later stages are read while a round's deadline runs. If that would be too slow, this member does not
        begin. Raises `Aborted`.
        """
        started = time.monotonic()
        self._read()
        took, limit = time.monotonic() - started, self._config.round_seconds
        if self._config.stages > 1 and took > limit / 2:
            raise Aborted(
                f"to read its data took this member {took:.0f} seconds, and each of {self._config.stages} "
                f"stages must be read within a round of {limit:g}: a consortium with a longer deadline "
                "would wait for it",
                was_charged=False,
            )

    def _draw(self) -> None:
        """Charge, and begin a stage with the noised value. Raises `ContributionFailed`."""
        participant = self._participant
        self._journal.drawing(participant.stage, self._unstored)
        self._unstored = None
        self._coins = RecordedCoins()
        started = time.monotonic()
        try:
            self._value = self._contribute(participant.stage, tuple(participant.opened))
            participant.start_stage(self._value, self._coins)
        except Exception as error:  # the reason may be private: the others learn only that it failed
            raise ContributionFailed(error) from error
        finally:
            self._slowest = max(self._slowest, time.monotonic() - started)

    def _posted(self) -> bytes:
        """Return the post of the open round: the stored one if there is one, else a new one, stored."""
        participant = self._participant
        if self._parcel is not None:
            parcel, self._parcel = self._parcel, None
            participant.repeat_post(parcel)
            return parcel.to_bytes()
        raw = participant.post().to_bytes()
        self._journal.posting(
            participant.key, raw, coins=self._coins, value=self._value, heard=self._unstored
        )
        self._value = self._unstored = None
        return raw

    def _give_up(self, error: ProtocolStopped | RunEnded, client: RelayClient) -> Aborted:
        """Tell the others, store the end, and return the error with names.

        Failures on the way do not hide why the run ended.
        """
        participant, why = self._participant, error.why
        if isinstance(error, ProtocolStopped):
            names = tuple(self._config.names[i] for i in error.members)
            reasons = self._reasons(error.members, client)
        else:
            names, reasons = error.missing, ""
            if not self._journal.has_begun():
                return Aborted(why, names, was_charged=False)  # the same run may be tried again
        left = dict(client.leave_messages)
        listed = f" ({', '.join(names)})" if names else ""
        if isinstance(error, ProtocolStopped):
            # This member signs its own findings only: others must sign their statements themselves.
            said = _cut_to(why + listed, messages.LONGEST_REASON)
            message = LeaveMessage(self._config.run_id, *participant.key, participant.me, said)
            left[participant.me] = message.signed(self._keys)
            client.leave(left[participant.me])
        ending = RunEnding(participant.opened, _cut_to(why + listed + reasons, messages.LONGEST_REASON))
        with suppress(Unavailable):
            self._journal.finish(self._unstored_rounds(), ending)
            self._write(ending, left)
        return Aborted(why + reasons + self._hint(), names, opened=len(participant.opened))

    def _reasons(self, members: Sequence[int], client: RelayClient) -> str:
        """Return the reasons for missing members: their own, else the relay's."""
        texts = []
        for i in members:
            name, message = self._config.names[i], client.leave_messages.get(i)
            said = "" if self._last_shown is None else self._last_shown.missing.get(i, "")
            if message is not None:
                texts.append(f"{name} left: {message.why}")
            elif said and said.isprintable():  # else it could control the terminal
                texts.append(f"the relay says: {name} {said[:200]}")
        return f": {'; '.join(texts)}" if texts else ""

    def _hint(self) -> str:
        """Return a hint about the deadline, if this member's contribution was too slow for it."""
        if self._slowest <= self._config.round_seconds:
            return ""
        return (
            f". To contribute took this member {self._slowest:.0f} seconds, and a round has "
            f"{self._config.round_seconds:g}: a consortium with a longer deadline would wait for it"
        )

    def _tell(self, kind: str, members: Iterable[int] | None = None) -> None:
        """Report an event. `members` are by default those of the last received round."""
        if self._watch is None:
            return
        config, last = self._config, self._heard[-1] if self._heard else None
        if members is None:
            members = range(len(config.cards)) if last is None else [e.sender for e in last.envelopes]
        key = self._participant.key if kind == "round" or last is None else last.key
        self._watch(Progress.of_round(config, kind, (config.names[i] for i in sorted(members)), key))

    def _round_of(self, heard: Delivery) -> TranscriptRound:
        return TranscriptRound(*heard.key, self._config.rounds[heard.round], heard.envelopes)

    def _write(self, ending: RunEnding, left: dict[int, LeaveMessage]) -> None:
        config, rounds = self._config, [self._round_of(heard) for heard in self._heard]
        head = config.number, config.digest, config.document
        transcript = Transcript(*head, rounds, list(left.values()), ending.opened, ending.stopped)
        transcript.write(self._transcript, durably=False)


def _cut_to(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
