"""One run as the relay sees it: a lobby, rounds with deadlines, and the same closed rounds for everybody.

Claim    a member's place is taken only over TLS with the certificate on its card. No clock runs before the
         run has begun, for whoever has come: it begins when as many as it needs have signed that they are
         ready, and their greetings are shown to everybody. What a member posts is passed on
         only if it is signed, of this run and of the open round, and the first of it. What comes after a
         round was closed is discarded. Members do not have to believe any of it: see `seat`.
Test     tests/parties/running/test_relay.py

One connection of one member to the relay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lapwing.errors import BadValue
from lapwing.parties.journals import ClosedRound, RelayJournal
from lapwing.parties.messages import (
    HEADER,
    PROTOCOL_VERSION,
    FrameKind,
    LeaveMessage,
    Progress,
    ProgressCallback,
    ReadyMessage,
    frame,
    ignore_progress,
    json_frame,
    largest_post,
    read_header,
    read_json,
    suppress_errors,
    version_mismatch,
)
from lapwing.parties.posts import Delivery, Envelope, Parcel, round_digest, start_digest
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.run_configuration import RunConfiguration
from lapwing.parties.transcript import Transcript, TranscriptRound, sums_from_posts


class MemberConnection:
    """`member` is whose certificate the connection showed, whatever is said over it."""

    def __init__(self, member: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.member = member
        self.watches = False
        self._reader = reader
        self._writer = writer

    async def receive(self, *, largest: int) -> tuple[FrameKind, bytes]:
        """The next frame. Raises `BadValue`, or `OSError` and `EOFError` when the connection ends."""
        kind, length = read_header(await self._reader.readexactly(HEADER.size), largest=largest)
        return kind, await self._reader.readexactly(length)

    def send(self, parts: list[bytes]) -> None:
        """Without waiting: what is sent is bounded by what a run has."""
        if not self._writer.is_closing():
            self._writer.write(b"".join(parts))  # each piece by itself would be a TLS record

    async def drain(self) -> None:
        """Until most of it has left."""
        with suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        """What was sent before still leaves."""
        self._writer.close()


RoundKey = tuple[int, int]
_BACK = 10.0  # seconds, for a member whose line was cut in the lobby
_SOON = 2.0  # seconds, in which all who are there have heard the end
_BEAT = 5.0  # seconds, after which who waits for others to be ready hears that the relay is there


class RelayLoop:
    """Everything but sockets and threads: those are in `serving`."""

    def __init__(
        self, table: RunConfiguration, *, folder: Path, watch: ProgressCallback = ignore_progress
    ) -> None:
        self.table = table
        self.largest = largest_post(table)
        self.transcript = folder / f"{table.label}.relay.transcript"
        self._names = table.names
        self._rounds = PROTOCOLS[table.protocol].rounds
        self._watch = suppress_errors(watch)
        self._peers: dict[int, MemberConnection] = {}
        self._posts: dict[int, Parcel] = {}
        self._left: dict[int, str] = {}  # who will post no more, and why
        self._notices: list[LeaveMessage] = []
        self._has_result = False
        self._told: set[int] = set()  # whose refusal was told
        self._has_given_up = False
        self._changed = asyncio.Event()
        self.memory = RelayJournal(folder, table)
        begun = self.memory.begun()
        self._greetings = begun or {}
        self._closed = self.memory.rounds()
        self._done = self.memory.served()
        self._has_begun = begun is not None
        self._in = set(self._greetings)
        self._seen = start_digest(table.run_id)
        if self._closed:
            self._in = set(self._closed[-1].parcels)
            self._seen = _digest(self._closed[-1])

    @property
    def place(self) -> RoundKey:
        """Stage and round that are open now; after the last round, a stage that does not exist."""
        return divmod(len(self._closed), len(self._rounds))

    @property
    def _is_over(self) -> bool:
        return self.place[0] == self.table.stages

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended, and nobody is known to have missed its end."""
        return self.memory.has_ended() and (not self._is_over or self._greetings.keys() <= self._done)

    async def run_to_end(self) -> None:
        """The whole run; or, for those who missed the end, the end."""
        if not self._has_begun and not await self._lobby():
            return
        while not self._is_over and self._in - set(self._left):
            await self._round()
        self._has_result = self._write()
        self._end()
        if self._has_result:
            await self._serve_result()
        else:
            for i in self._peers.keys() - self._in:
                self._dismiss(i, "the run has ended, and nothing was opened")
            await self._until(lambda: self._in <= self._done | set(self._left), self.table.round_seconds)
            self._done |= self._greetings.keys() - self._in  # they miss nothing
        self._end()
        self._write()

    def _end(self) -> None:
        """The sealed boxes of rounds that nobody hears again are dropped, and who has the sums is noted."""
        self.memory.end(self._done | set(self._left), self._closed[:-1] if self._is_over else self._closed)

    async def _serve_result(self) -> None:
        """Until all who have begun know the sums, the lost ones too: they are charged like the others."""

        def unserved() -> set[int]:
            return self._greetings.keys() - self._done - set(self._left)

        for i in self._peers.keys() - self._in:
            self._show_result(self._peers[i])
        seconds = max(self.table.lobby_seconds, self.table.round_seconds)
        await self._until(lambda: not unserved(), min(_SOON, seconds))
        if unserved():
            names = tuple(self._names[i] for i in sorted(unserved()))
            why = f"they are shown, for {seconds:g} seconds, to whoever gives its command again"
            self._watch(Progress("unserved", names, why=why))
        await self._until(lambda: not unserved(), seconds)

    def _show_result(self, peer: MemberConnection) -> None:
        """All rounds, as everybody can read them. A member that was lost checks them like a stranger."""
        for closed in self._closed:
            items = [(parcel.envelope, None) for parcel in closed.parcels.values()]
            delivery = Delivery(closed.stage, closed.round, items, closed.missing)
            peer.send(frame(FrameKind.CLOSED, *delivery.to_parts()))

    async def _lobby(self) -> bool:
        """Whether the run has begun. Who comes within the lobby's time is waited for as long as it reads,
        unless the run can do without it: nothing was charged yet."""
        least, seconds = self.table.setting(0).least, self.table.lobby_seconds
        await self._until(lambda: len(self._ready) == len(self._names) or self._has_given_up, seconds)
        while len(self._ready) < least and not self._has_given_up:
            await self._until(lambda: len(self._peers) >= least or self._has_given_up, min(_BACK, seconds))
            if len(self._peers) < least:
                break
            await self._until(
                lambda: len(self._ready) >= least or len(self._peers) < least or self._has_given_up,
                min(_BEAT, seconds / 2),
            )
            self._tell("ready", self._ready, to=self._ready)
        missing = [name for i, name in enumerate(self._names) if i not in self._peers]
        why = ""
        if len(self._ready) < least:
            why = "not all members came"
        if self._has_given_up:
            why, missing = "the host left before the run began", [self.table.host.name]
        if why:
            for peer in list(self._peers.values()):
                peer.send(_end(why, missing))
            await self._drain()
            return False
        self._in = self._ready
        self._greetings = {i: self._greetings[i] for i in sorted(self._in)}
        self.memory.begin(self._greetings)
        self._has_begun = True
        self._tell("begun", self._in)
        for i, peer in self._peers.items():
            name = self._names[i]
            without = _end(f"the run has begun without {name}, which was not ready", [name])
            peer.send(self._beginning() if i in self._in else without)
        return True

    @property
    def _ready(self) -> set[int]:
        """Who is here, and has read its data."""
        return self._peers.keys() & self._greetings.keys()

    def _beginning(self) -> list[bytes]:
        return json_frame(FrameKind.BEGIN, greetings=[each.to_json() for each in self._greetings.values()])

    async def _round(self) -> None:
        self._tell("round", self._in)
        await self._until(lambda: self._in <= self._posts.keys() | self._left, self.table.round_seconds)
        stage, number = self.place
        late = f"posted nothing in round {self._rounds[number]} before its deadline"
        missing = {i: self._left.get(i, late) for i in sorted(self._in - set(self._posts))}
        closed = ClosedRound(stage, number, dict(sorted(self._posts.items())), missing)
        self.memory.close_round(closed)
        self._closed.append(closed)
        self._posts = {}
        self._in = set(closed.parcels)
        self._seen = _digest(closed)
        for i in self._in:
            if i in self._peers:
                self._peers[i].send(frame(FrameKind.CLOSED, *self.delivery(i).to_parts()))
        for i, why in missing.items():
            if i in self._left:
                self._dismiss(i, f"{self._names[i]} {why}")
            elif i in self._peers:
                self._peers[i].send(self._out(f"{self._names[i]} {why}"))
        self._tell("closed", self._in)
        if missing:
            self._tell("lost", missing)

    @staticmethod
    def _out(why: str) -> list[bytes]:
        return json_frame(FrameKind.OUT, why=why)

    def delivery(self, to: int) -> Delivery:
        """The last closed round, as one member hears it."""
        closed = self._closed[-1]
        items = [(parcel.envelope, parcel.boxes.get(to)) for parcel in closed.parcels.values()]
        return Delivery(closed.stage, closed.round, items, closed.missing)

    def give_up(self) -> None:
        """The host will not take part. Too late to matter once the run has begun."""
        self._has_given_up = True
        self._changed.set()

    # What members do

    def arrive(self, peer: MemberConnection, hello: bytes) -> None:
        """A member has connected, for the first time or again. Raises `BadValue`."""
        i = peer.member
        place, has_begun, greeting = self._hello(peer, read_json(hello))
        if i in self._left:
            raise BadValue(f"{self._names[i]} is out: {self._left[i]}")
        if not self._has_begun and has_begun:
            raise BadValue("the relay has lost what it knew of this run")
        if self._has_begun and i not in self._greetings:
            raise BadValue("the run has begun without this member")
        before = self._peers.get(i)
        if before is not None:
            before.close()
        self._peers[i] = peer
        peer.send(json_frame(FrameKind.WELCOME, version=PROTOCOL_VERSION))
        if self._has_begun:
            self._take_back(peer, place)
        else:
            self._greetings.pop(i, None)
            self._tell("arrived", self._peers)
            if greeting is not None:
                self._take_greeting(greeting)
        self._changed.set()

    def _hello(
        self, peer: MemberConnection, said: dict[str, Any]
    ) -> tuple[RoundKey, bool, ReadyMessage | None]:
        """Where a member is in this run, whether it has begun for it, and its greeting if it is ready."""
        other = version_mismatch(said.get("version"))
        if other is not None:
            self._tell_refused(peer.member, other)
            raise BadValue(other)
        match said:
            case {"run": str(run), "stage": int(stage), "round": int(number), "begun": bool(begun), **rest}:
                peer.watches = rest.get("watch") is True
            case _:
                raise BadValue("a greeting is not of the right form")
        if run != self.table.run_id.hex():
            raise BadValue(f"this relay serves run {self.table.number} of another consortium or number")
        greeting = None if rest.get("greeting") is None else self._greeting(peer.member, rest["greeting"])
        return (stage, number), begun, greeting

    def _take_back(self, peer: MemberConnection, place: RoundKey) -> None:
        """A member of a run that has begun: it is shown what it may have missed."""
        if peer.member not in self._in:
            peer.send(self._out(f"the run has gone on without {self._names[peer.member]}"))
            if self._has_result:
                self._show_result(peer)
            return
        peer.send(self._beginning())
        last = self._closed and (self._closed[-1].stage, self._closed[-1].round)
        if place == last:
            peer.send(frame(FrameKind.CLOSED, *self.delivery(peer.member).to_parts()))
        elif place != self.place:
            raise BadValue("this member and the relay are at different rounds")

    def _take_greeting(self, greeting: ReadyMessage) -> None:
        """A member is ready. After the beginning it says so only if it was cut off: it is shown that."""
        if not self._has_begun:
            self._greetings[greeting.sender] = greeting
            self._tell("ready", self._ready)

    def _greeting(self, i: int, said: object) -> ReadyMessage:
        greeting = ReadyMessage.from_json(self.table.run_id, said)
        if greeting.sender != i or not greeting.is_signed_by(self.table.cards[i]):
            raise BadValue("a greeting is not signed by its sender")
        return greeting

    def hear(self, peer: MemberConnection, kind: FrameKind, payload: bytes) -> None:
        """A frame from a member who has arrived. Raises `BadValue`."""
        match kind:
            case FrameKind.READY:
                self._take_greeting(self._greeting(peer.member, read_json(payload).get("greeting")))
            case FrameKind.POST if self._has_begun and peer.member not in self._in:
                pass  # too late: it was told
            case FrameKind.POST:
                self._take(peer.member, payload)
            case FrameKind.NOTICE:
                self._take_notice(peer.member, payload)
            case FrameKind.DONE:
                self._done.add(peer.member)
            case _:
                raise BadValue("a message came that members do not send")
        self._changed.set()

    def _take(self, i: int, payload: bytes) -> None:
        parcel = Parcel.from_bytes(payload)
        envelope = Envelope.from_bytes(parcel.envelope)
        place = envelope.stage, envelope.round
        if envelope.sender != i:
            raise BadValue("a post came in another member's name")
        if not envelope.is_signed_by(self.table.cards[i]):
            raise BadValue("a post is not signed by its sender")
        if envelope.run != self.table.run_id:
            raise BadValue("a post of another run came")
        if parcel in (self._posts.get(i), self._closed and self._closed[-1].parcels.get(i)):
            return  # sent again after a cut
        if place < self.place:
            raise BadValue("a post came after its round was closed")
        if place != self.place or not self._has_begun:
            raise BadValue("a post came before its round was open")
        if i in self._posts:
            raise BadValue("two different posts came for one round")
        if envelope.seen != self._seen:
            raise BadValue("a post does not follow from the round before")
        if parcel.boxes.keys() != envelope.commitments.keys():
            raise BadValue("a post's private parts and its commitments do not belong together")
        self._posts[i] = parcel
        self._tell("posted", self._posts)

    def _take_notice(self, i: int, payload: bytes) -> None:
        notice = LeaveMessage.from_json(read_json(payload))
        if notice.sender != i or notice.run != self.table.run_id:
            raise BadValue("a notice came in another's name, or of another run")
        if not notice.is_signed_by(self.table.cards[i]):
            raise BadValue("a notice is not signed by its sender")
        self._notices.append(notice)
        self._left.setdefault(i, f"left: {notice.why}")
        for other, peer in self._peers.items():
            if other != i:
                peer.send(frame(FrameKind.NOTICE, payload))

    def reject(self, peer: MemberConnection, why: str) -> None:
        """Who does not belong here now may come again, and better."""
        peer.send(_end(f"{self._names[peer.member]} was refused: {why}", []))
        self.disconnected(peer)

    def refuse(self, peer: MemberConnection, why: str) -> None:
        """Who has sent what cannot be is out."""
        self._left.setdefault(peer.member, f"was refused: {why}")
        self.reject(peer, why)

    def disconnected(self, peer: MemberConnection) -> None:
        """A connection has ended. Who was cut off may come again."""
        if self._peers.get(peer.member) is peer:
            del self._peers[peer.member]
        self._changed.set()

    def _dismiss(self, i: int, why: str) -> None:
        self._left.setdefault(i, why)
        if i in self._peers:
            self._peers[i].send(_end(why, [self._names[i]]))

    # Time, news, and the end

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()

    async def _drain(self) -> None:
        for peer in list(self._peers.values()):
            await peer.drain()

    def _tell_refused(self, i: int, why: str) -> None:
        """Once: who comes again and again tells nothing new."""
        if i in self._told:
            return
        self._told.add(i)
        self._watch(Progress("refused", (self._names[i],), why=why))
        news = json_frame(
            FrameKind.NEWS, what="refused", names=(self._names[i],), stage=0, round=0, why=why
        )
        for peer in self._peers.values():
            if peer.watches:
                peer.send(news)

    def _tell(self, kind: str, members: Iterable[int], *, to: Iterable[int] = ()) -> None:
        """To whoever watches, and to these."""
        names = tuple(self._names[i] for i in sorted(members))
        stage, number = self.place
        if kind in ("closed", "lost"):
            stage, number = divmod(len(self._closed) - 1, len(self._rounds))
        if kind in ("arrived", "ready", "posted"):
            news = json_frame(FrameKind.NEWS, what=kind, names=names, stage=stage, round=number)
            for i, peer in self._peers.items():
                if peer.watches or i in to:
                    peer.send(news)
        name = self._rounds[number] if stage < self.table.stages else ""
        self._watch(Progress(kind, names, stage, self.table.stages, name, number, len(self._rounds)))

    def _write(self) -> bool:
        """The transcript; whether it shows all sums."""
        rounds = [
            TranscriptRound(closed.stage, closed.round, self._rounds[closed.round], _envelopes(closed))
            for closed in self._closed
        ]
        opened, stop = sums_from_posts(self.table, rounds)
        stopped = None if stop is None else stop.why
        if stopped is None and len(opened) < self.table.stages:
            stopped = "the members left before all was opened"
        table = self.table
        Transcript(
            table.number, table.digest, table.document, rounds, self._notices, opened, stopped
        ).write(self.transcript, durably=True)
        return stopped is None


def _end(why: str, missing: Iterable[str]) -> list[bytes]:
    return json_frame(FrameKind.END, why=why, missing=list(missing), version=PROTOCOL_VERSION)


def _envelopes(closed: ClosedRound) -> tuple[Envelope, ...]:
    return tuple(Envelope.from_bytes(parcel.envelope) for parcel in closed.parcels.values())


def _digest(closed: ClosedRound) -> bytes:
    return round_digest(_envelopes(closed))
