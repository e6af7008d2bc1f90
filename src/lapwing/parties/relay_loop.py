"""The relay's loop through one run: a lobby, rounds with deadlines, the same closed rounds for all members.

Claim    a member's place is taken only over TLS with the certificate on its card. No clock runs for arrived
         members before the run has begun: it begins when as many members as it needs have signed that they
         are ready, and all members are shown these messages. The relay passes a post on only if it is
         signed, belongs to this run and to the open round, and is its sender's first. Posts that come after
         a round was closed are discarded. Members do not have to trust any of this: see `participant`.
Test     tests/parties/test_relay_server.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from lapwing.errors import BadValue
from lapwing.parties import messages
from lapwing.parties.journals import ClosedRound, RelayJournal
from lapwing.parties.messages import FrameKind, LeaveMessage, Progress, ProgressCallback, ReadyMessage
from lapwing.parties.posts import Delivery, Envelope, Parcel, round_digest, start_digest
from lapwing.parties.run_configuration import RoundKey, RunConfiguration
from lapwing.parties.transcript import Transcript, TranscriptRound, sums_from_posts

_RECONNECT_SECONDS = 10.0  # for a member whose connection was cut in the lobby
_LAST_DELIVERY_SECONDS = 2.0  # in which all connected members receive the end
_SIGN_OF_LIFE_SECONDS = 5.0  # between signs of life to ready members


class MemberConnection:
    """One connection of one member. `member` is the number of the certificate that the peer showed."""

    def __init__(self, member: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.member = member
        self.watches = False
        self._reader = reader
        self._writer = writer

    async def receive(self, *, largest: int) -> tuple[FrameKind, bytes]:
        """Return the next frame. Raises `BadValue`, or `OSError` and `EOFError` at the connection's end."""
        kind, length = messages.read_header(
            await self._reader.readexactly(messages.HEADER.size), largest=largest
        )
        return kind, await self._reader.readexactly(length)

    def send(self, parts: list[bytes]) -> None:
        """Send a frame without waiting: the amount is bounded by the size of a run."""
        if not self._writer.is_closing():
            self._writer.write(b"".join(parts))  # each piece by itself would be a TLS record

    async def drain(self) -> None:
        """Wait until most of the sent bytes have left."""
        with suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        """Close the connection after the sent bytes have left."""
        self._writer.close()


class RelayLoop:
    """All of the relay but sockets and threads, which are in `relay_server`."""

    def __init__(
        self, config: RunConfiguration, *, folder: Path, watch: ProgressCallback = messages.ignore_progress
    ) -> None:
        self.config = config
        self.largest = messages.largest_post(config)
        self.transcript = folder / f"{config.label}.relay.transcript"
        self.journal = RelayJournal(folder, config)
        self._names = config.names
        self._rounds = config.rounds
        self._watch = messages.suppress_errors(watch)
        self._peers: dict[int, MemberConnection] = {}
        self._posts: dict[int, Parcel] = {}
        self._gone: dict[int, str] = {}  # members that will post no more, with reasons
        self._leave_messages: list[LeaveMessage] = []
        self._has_result = False
        self._reported: set[int] = set()  # members whose refusal was reported
        self._has_given_up = False
        self._changed = asyncio.Event()
        begun = self.journal.begun()
        self._ready_messages = begun or {}
        self._closed = self.journal.rounds()
        self._done = self.journal.served()
        self._has_begun = begun is not None
        self._in = set(self._ready_messages)  # the members that are in the run now
        self._seen = start_digest(config.run_id)
        if self._closed:
            self._in = set(self._closed[-1].parcels)
            self._seen = round_digest(self._closed[-1].envelopes)

    @property
    def key(self) -> RoundKey:
        """Stage and round that are open now. After the last round the stage is one that does not exist."""
        return divmod(len(self._closed), len(self._rounds))

    @property
    def _is_over(self) -> bool:
        return self.key[0] == self.config.stages

    @property
    def is_finished(self) -> bool:
        """True if the run has ended, and no member is known to have missed its end."""
        has_all = not self._is_over or self._ready_messages.keys() <= self._done
        return self.journal.has_ended() and has_all

    async def run_to_end(self) -> None:
        """Run from the lobby to the end. If the run is over, show its end to members that missed it."""
        if not self._has_begun and not await self._lobby():
            return
        while not self._is_over and self._in - set(self._gone):
            await self._round()
        self._has_result = self._write()
        self._store_end()
        if self._has_result:
            await self._serve_result()
        else:
            for i in self._peers.keys() - self._in:
                self._dismiss(i, "the run has ended, and nothing was opened")
            await self._until(lambda: self._in <= self._done | set(self._gone), self.config.round_seconds)
            self._done |= self._ready_messages.keys() - self._in  # they miss nothing
        self._store_end()
        self._write()

    def _store_end(self) -> None:
        """Store which members have the sums, and delete the boxes of rounds that nobody receives again."""
        heard = self._closed[:-1] if self._is_over else self._closed
        self.journal.end(self._done | set(self._gone), heard)

    async def _serve_result(self) -> None:
        """Wait until all members that began know the sums, also lost ones: all of them are charged."""

        def unserved() -> set[int]:
            return self._ready_messages.keys() - self._done - set(self._gone)

        for i in self._peers.keys() - self._in:
            self._show_result(self._peers[i])
        seconds = max(self.config.lobby_seconds, self.config.round_seconds)
        await self._until(lambda: not unserved(), min(_LAST_DELIVERY_SECONDS, seconds))
        if unserved():
            names = tuple(self._names[i] for i in sorted(unserved()))
            why = f"they are shown, for {seconds:g} seconds, to members that give their command again"
            self._watch(Progress("unserved", names, why=why))
        await self._until(lambda: not unserved(), seconds)

    def _show_result(self, peer: MemberConnection) -> None:
        """Send all rounds without private parts. A lost member checks them as a stranger would."""
        for closed in self._closed:
            peer.send(messages.frame(FrameKind.CLOSED, *closed.delivery(None).to_parts()))

    async def _lobby(self) -> bool:
        """Wait for the members, and return whether the run has begun.

        The relay waits for every member that arrives in the lobby's time while that member reads its data,
        unless the run can begin without it. Nothing was charged yet.
        """
        least, seconds = self.config.setting(0).least, self.config.lobby_seconds
        await self._until(lambda: len(self._ready) == len(self._names) or self._has_given_up, seconds)
        while len(self._ready) < least and not self._has_given_up:
            await self._until(
                lambda: len(self._peers) >= least or self._has_given_up, min(_RECONNECT_SECONDS, seconds)
            )
            if len(self._peers) < least:
                break
            await self._until(
                lambda: len(self._ready) >= least or len(self._peers) < least or self._has_given_up,
                min(_SIGN_OF_LIFE_SECONDS, seconds / 2),
            )
            self._tell("ready", self._ready, to=self._ready)
        missing = [name for i, name in enumerate(self._names) if i not in self._peers]
        why = ""
        if len(self._ready) < least:
            why = "not all members came"
        if self._has_given_up:
            why, missing = "the host left before the run began", [self.config.host.name]
        if why:
            peers = list(self._peers.values())
            for peer in peers:
                peer.send(_end_frame(why, missing))
            for peer in peers:
                await peer.drain()
            return False
        self._begin()
        return True

    def _begin(self) -> None:
        self._in = self._ready
        self._ready_messages = {i: self._ready_messages[i] for i in sorted(self._in)}
        self.journal.begin(self._ready_messages)
        self._has_begun = True
        self._tell("begun", self._in)
        for i, peer in self._peers.items():
            name = self._names[i]
            without = _end_frame(f"the run has begun without {name}, which was not ready", [name])
            peer.send(self._begin_frame() if i in self._in else without)

    @property
    def _ready(self) -> set[int]:
        """The members that are connected, and have read their data."""
        return self._peers.keys() & self._ready_messages.keys()

    def _begin_frame(self) -> list[bytes]:
        greetings = [each.to_json() for each in self._ready_messages.values()]
        return messages.json_frame(FrameKind.BEGIN, greetings=greetings)

    async def _round(self) -> None:
        """Open a round, wait for its posts, and close it."""
        self._tell("round", self._in)
        await self._until(lambda: self._in <= self._posts.keys() | self._gone, self.config.round_seconds)
        late = f"posted nothing in round {self._rounds[self.key[1]]} before its deadline"
        missing = {i: self._gone.get(i, late) for i in sorted(self._in - set(self._posts))}
        closed = ClosedRound(*self.key, dict(sorted(self._posts.items())), missing)
        self.journal.close_round(closed)
        self._closed.append(closed)
        self._posts = {}
        self._in = set(closed.parcels)
        self._seen = round_digest(closed.envelopes)
        for i in self._in & self._peers.keys():
            self._deliver(self._peers[i])
        for i, why in missing.items():
            if i in self._gone:
                self._dismiss(i, f"{self._names[i]} {why}")
            elif i in self._peers:
                self._peers[i].send(messages.json_frame(FrameKind.OUT, why=f"{self._names[i]} {why}"))
        self._tell("closed", self._in)
        if missing:
            self._tell("lost", missing)

    def delivery(self, to: int) -> Delivery:
        """Return the last closed round as one member receives it."""
        return self._closed[-1].delivery(to)

    def _deliver(self, peer: MemberConnection) -> None:
        peer.send(messages.frame(FrameKind.CLOSED, *self.delivery(peer.member).to_parts()))

    def give_up(self) -> None:
        """End the lobby, because the host will not take part. A run that has begun continues."""
        self._has_given_up = True
        self._changed.set()

    # Messages of members

    def arrive(self, peer: MemberConnection, hello: bytes) -> None:
        """Admit a member that has connected, for the first time or again. Raises `BadValue`."""
        i = peer.member
        key, has_begun, ready_message = self._read_hello(peer, hello)
        if i in self._gone:
            raise BadValue(f"{self._names[i]} is no longer in the run: {self._gone[i]}")
        if not self._has_begun and has_begun:
            raise BadValue("the relay has lost its record of this run")
        if self._has_begun and i not in self._ready_messages:
            raise BadValue("the run has begun without this member")
        before = self._peers.get(i)
        if before is not None:
            before.close()
        self._peers[i] = peer
        peer.send(messages.json_frame(FrameKind.WELCOME, version=messages.PROTOCOL_VERSION))
        if self._has_begun:
            self._readmit(peer, key)
        else:
            self._ready_messages.pop(i, None)
            self._tell("arrived", self._peers)
            if ready_message is not None:
                self._take_ready(ready_message)
        self._changed.set()

    def _read_hello(
        self, peer: MemberConnection, hello: bytes
    ) -> tuple[RoundKey, bool, ReadyMessage | None]:
        """Return a member's position, whether the run has begun for it, and its ready message or None."""
        said = messages.read_json(hello)
        mismatch = messages.version_mismatch(said.get("version"))
        if mismatch is not None:
            self._tell_refused(peer.member, mismatch)
            raise BadValue(mismatch)
        match said:
            case {"run": str(run), "stage": int(stage), "round": int(number), "begun": bool(begun), **rest}:
                peer.watches = rest.get("watch") is True
            case _:
                raise BadValue("a hello message is not of the right form")
        if run != self.config.run_id.hex():
            raise BadValue(f"this relay serves run {self.config.number} of another consortium or number")
        message = rest.get("greeting")
        return (stage, number), begun, None if message is None else self._read_ready(peer.member, message)

    def _readmit(self, peer: MemberConnection, key: RoundKey) -> None:
        """Send a member that comes again during the run the messages that it may have missed."""
        if peer.member not in self._in:
            why = f"the run has gone on without {self._names[peer.member]}"
            peer.send(messages.json_frame(FrameKind.OUT, why=why))
            if self._has_result:
                self._show_result(peer)
            return
        peer.send(self._begin_frame())
        if self._closed and key == self._closed[-1].key:
            self._deliver(peer)
        elif key != self.key:
            raise BadValue("this member and the relay are at different rounds")

    def _take_ready(self, message: ReadyMessage) -> None:
        """Note that a member is ready. After the beginning only reconnected members repeat this."""
        if not self._has_begun:
            self._ready_messages[message.sender] = message
            self._tell("ready", self._ready)

    def _read_ready(self, i: int, content: object) -> ReadyMessage:
        message = ReadyMessage.from_json(self.config.run_id, content)
        if message.sender != i or not message.is_valid_in(self.config):
            raise BadValue("a ready message is not signed by its sender")
        return message

    def hear(self, peer: MemberConnection, kind: FrameKind, payload: bytes) -> None:
        """Process a frame of an admitted member. Raises `BadValue`."""
        match kind:
            case FrameKind.READY:
                self._take_ready(self._read_ready(peer.member, messages.read_json(payload).get("greeting")))
            case FrameKind.POST if self._has_begun and peer.member not in self._in:
                pass  # too late, as the member was told
            case FrameKind.POST:
                self._take(peer.member, payload)
            case FrameKind.LEAVE:
                self._take_leave(peer.member, payload)
            case FrameKind.DONE:
                self._done.add(peer.member)
            case _:
                raise BadValue("a kind of message came that members do not send")
        self._changed.set()

    def _take(self, i: int, payload: bytes) -> None:
        """Keep a member's post of the open round. Raises `BadValue`."""
        parcel = Parcel.from_bytes(payload)
        envelope = Envelope.from_bytes(parcel.envelope)
        key = envelope.stage, envelope.round
        if envelope.sender != i:
            raise BadValue("a post came in another member's name")
        if not envelope.is_signed_by(self.config.cards[i]):
            raise BadValue("a post is not signed by its sender")
        if envelope.run != self.config.run_id:
            raise BadValue("a post of another run came")
        if parcel in (self._posts.get(i), self._closed and self._closed[-1].parcels.get(i)):
            return  # sent again after a cut
        if key < self.key:
            raise BadValue("a post came after its round was closed")
        if key != self.key or not self._has_begun:
            raise BadValue("a post came before its round was open")
        if i in self._posts:
            raise BadValue("two different posts came for one round")
        if envelope.seen != self._seen:
            raise BadValue("a post does not follow from the round before")
        if parcel.boxes.keys() != envelope.commitments.keys():
            raise BadValue("a post's private parts and its commitments do not belong together")
        self._posts[i] = parcel
        self._tell("posted", self._posts)

    def _take_leave(self, i: int, payload: bytes) -> None:
        """Note that a member leaves, and pass its message on. Raises `BadValue`."""
        message = LeaveMessage.from_json(messages.read_json(payload))
        if message.sender != i or not message.is_valid_in(self.config):
            raise BadValue("a leave message is not signed by its sender for this run")
        self._leave_messages.append(message)
        self._gone.setdefault(i, f"left: {message.why}")
        for other, peer in self._peers.items():
            if other != i:
                peer.send(messages.frame(FrameKind.LEAVE, payload))

    def reject(self, peer: MemberConnection, why: str) -> None:
        """Close a connection, and say why. The member may connect again."""
        peer.send(_end_frame(f"{self._names[peer.member]} was refused: {why}", []))
        self.disconnected(peer)

    def expel(self, peer: MemberConnection, why: str) -> None:
        """Expel a member that sent an impossible message."""
        self._gone.setdefault(peer.member, f"was refused: {why}")
        self.reject(peer, why)

    def disconnected(self, peer: MemberConnection) -> None:
        """Note that a connection has ended. Its member may connect again."""
        if self._peers.get(peer.member) is peer:
            del self._peers[peer.member]
        self._changed.set()

    def _dismiss(self, i: int, why: str) -> None:
        self._gone.setdefault(i, why)
        if i in self._peers:
            self._peers[i].send(_end_frame(why, [self._names[i]]))

    # Time, events, and the transcript

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()

    def _tell_refused(self, i: int, why: str) -> None:
        """Report a refused member once: repeated attempts are no news."""
        if i in self._reported:
            return
        self._reported.add(i)
        self._watch(Progress("refused", (self._names[i],), why=why))
        self._send_news("refused", (self._names[i],), (0, 0), why=why)

    def _tell(self, kind: str, members: Iterable[int], *, to: Iterable[int] = ()) -> None:
        """Report an event to the callback, to members that watch, and to the members in `to`."""
        names = tuple(self._names[i] for i in sorted(members))
        key = self._closed[-1].key if kind in ("closed", "lost") else self.key
        if kind in ("arrived", "ready", "posted"):
            self._send_news(kind, names, key, to=to)
        self._watch(Progress.of_round(self.config, kind, names, key))

    def _send_news(
        self, kind: str, names: tuple[str, ...], key: RoundKey, *, to: Iterable[int] = (), **more: str
    ) -> None:
        news = messages.json_frame(
            FrameKind.NEWS, what=kind, names=names, stage=key[0], round=key[1], **more
        )
        for i, peer in self._peers.items():
            if peer.watches or i in to:
                peer.send(news)

    def _write(self) -> bool:
        """Write the transcript, and return whether it shows all sums."""
        config = self.config
        rounds = [
            TranscriptRound(closed.stage, closed.round, self._rounds[closed.round], closed.envelopes)
            for closed in self._closed
        ]
        opened, stop = sums_from_posts(config, rounds)
        stopped = None if stop is None else stop.why
        if stopped is None and len(opened) < config.stages:
            stopped = "the members left before all was opened"
        head = config.number, config.digest, config.document
        transcript = Transcript(*head, rounds, self._leave_messages, opened, stopped)
        transcript.write(self.transcript, durably=True)
        return stopped is None


def _end_frame(why: str, missing: Iterable[str]) -> list[bytes]:
    return messages.json_frame(
        FrameKind.END, why=why, missing=list(missing), version=messages.PROTOCOL_VERSION
    )
