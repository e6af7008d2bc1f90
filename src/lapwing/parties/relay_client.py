"""A member's line to the relay: mutual TLS, and again after every cut until the deadline.

Claim    the run has begun for a member only if it was ready, and as many members as the run needs have
         signed that they are, in this lobby of the run or in an earlier one. Who is ready waits without a
         deadline, as long as the relay is there.
Test     tests/faults/test_parties_lies.py
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lapwing.errors import BadValue, Unavailable
from lapwing.parties.identity import MemberKeys
from lapwing.parties.messages import (
    HEADER,
    PROTOCOL_VERSION,
    FrameKind,
    LeaveMessage,
    Progress,
    ProgressCallback,
    ReadyMessage,
    frame,
    json_frame,
    largest_delivery,
    read_header,
    read_json,
    version_mismatch,
)
from lapwing.parties.posts import Delivery
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.run_configuration import RunConfiguration, parse_address

_GRACE = 10.0  # seconds, for the relay's own deadline to reach this member
_GOODBYE = 2.0  # seconds, to tell the others that this member leaves
_CLOSING = 1.0  # seconds, for the relay to close its side
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
RoundKey = tuple[int, int]


class RunEnded(Exception):
    """It is over for this member, as the relay says or by what it sent. `missing` are names."""

    def __init__(self, why: str, missing: tuple[str, ...]) -> None:
        super().__init__(why)
        self.why = why
        self.missing = missing


class MissedRound(Exception):
    """The run goes on without this member, which missed a round: it may wait for the sums."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class RelayClient:
    """Blocking. `has_begun` once the lobby was over. What was charged by then, only the journal knows."""

    def __init__(
        self, table: RunConfiguration, me: int, keys: MemberKeys, watch: ProgressCallback | None
    ) -> None:
        self.notices: dict[int, LeaveMessage] = {}
        self.has_begun = False
        self._table = table
        self._largest = largest_delivery(table)
        self._watch = watch
        self._context = keys.tls(trusting=(table.host,), server=False)
        self._rounds = PROTOCOLS[table.protocol].rounds
        self._socket: ssl.SSLSocket | None = None
        self._greeting = ReadyMessage.fresh(table.run_id, me, keys)
        self._is_welcome = False
        self._is_ready = False
        self._me = me
        self._pause = 0.0  # before the next try: longer after every cut, until something is achieved

    def arrive(self, place: RoundKey) -> None:
        """Come to the lobby, and be let in. Raises `RunEnded`, `MissedRound`, `Unavailable`."""
        deadline = self._lobby_deadline()
        while not self._is_welcome:
            with self._trying_again():
                self._connect(place, deadline)
                self._take(place, *self._receive(deadline))

    def enter(self, place: RoundKey) -> None:
        """Say that this member is ready, and wait until the run begins: as long as the relay is there, and
        the others are not ready. Raises `RunEnded`, `MissedRound`, `Unavailable`."""
        with self._trying_again():
            self._send(json_frame(FrameKind.READY, greeting=self._greeting.to_json()))
        self._is_ready = True
        deadline = self._lobby_deadline()
        while not self.has_begun:
            with self._trying_again():
                self._connect(place, deadline)
                self._take(place, *self._receive(deadline))
                deadline = self._lobby_deadline()
        self._pause = 0.0
        self._catch_up(place)

    def _catch_up(self, place: RoundKey) -> None:
        """Hear what else has come, before anything is charged: the run may have begun, and gone on, while
        this member read."""
        deadline = time.monotonic() + self._table.round_seconds
        with self._trying_again():
            while self._socket is not None and _has_more(self._socket):
                if self._take(place, *self._receive(deadline)) is not None:
                    raise BadValue("a round that was closed before this member could post")

    def _lobby_deadline(self) -> float:
        """For the relay's next word."""
        return time.monotonic() + self._table.lobby_seconds + min(_GRACE, self._table.lobby_seconds)

    def exchange(self, place: RoundKey, parcel: bytes) -> Delivery:
        """Post, and wait for the round to be closed. Raises `RunEnded`, `MissedRound`, `Unavailable`."""
        # A relay that was restarted gives a round its whole time again.
        deadline = time.monotonic() + 3 * self._table.round_seconds
        sent_over = None
        while True:
            with self._trying_again():
                self._connect(place, deadline)
                if sent_over is not self._socket:
                    self._send(frame(FrameKind.POST, parcel))
                    sent_over = self._socket
                delivery = self._take(place, *self._receive(deadline))
                if delivery is not None:
                    self._pause = 0.0
                    return delivery

    def result(self, place: RoundKey) -> list[Delivery]:
        """All rounds of a run that has gone on without this member, once its sums are open. Raises `RunEnded`,
        `Unavailable`."""
        every = self._table.stages * len(self._rounds)
        deadline = time.monotonic() + (every + 2) * self._table.round_seconds
        found: list[Delivery] = []
        while len(found) < every:
            with self._trying_again():
                self._connect(place, deadline)
                kind, payload = self._receive(deadline)
                if kind is FrameKind.OUT:  # from the beginning, after a cut
                    found = []
                elif kind is FrameKind.CLOSED:
                    found.append(Delivery.from_bytes(payload))
                else:
                    self._take(place, kind, payload)
        return found

    def leave(self, notice: LeaveMessage) -> None:
        """Tell the others, if they can be told."""
        with suppress(OSError, Unavailable):
            self._connect((notice.stage, notice.round), time.monotonic() + _GOODBYE)
            self._send(json_frame(FrameKind.NOTICE, **notice.to_json()))

    def done(self) -> None:
        """The relay need not wait for this member."""
        with suppress(OSError):
            self._send(frame(FrameKind.DONE))

    def close(self) -> None:
        """Nothing more is sent."""
        if self._socket is not None:
            # Closed with something unread, the last word could be lost on its way: read to the end first.
            with suppress(OSError):
                self._socket.settimeout(_CLOSING)
                self._socket.shutdown(socket.SHUT_WR)
                while self._socket.recv(1 << 16):
                    pass
            self._drop()

    @contextmanager
    def _trying_again(self) -> Iterator[None]:
        """Cuts are no errors: whoever calls connects again."""
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            self._drop()
            host, address = self._table.host.name, self._table.address
            raise Unavailable(f"whoever answers at {address} does not show {host}'s certificate") from error
        except TimeoutError as error:
            self._drop()
            raise Unavailable(self._nobody()) from error
        except ssl.SSLError as error:
            self._drop()
            if "ALERT" in (error.reason or ""):
                raise Unavailable(
                    f"{self._table.host.name}'s relay refused this member's certificate"
                ) from error
        except (OSError, EOFError):
            self._drop()
        except BadValue as error:
            self._drop()
            raise RunEnded(f"the relay sent what it cannot have meant: {error}", ()) from error

    def _connect(self, place: RoundKey, deadline: float) -> None:
        if self._socket is not None:
            return
        while True:
            time.sleep(min(self._pause, _left(deadline)))
            is_first = not self._pause
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            try:
                plain = socket.create_connection(
                    parse_address(self._table.address), timeout=_left(deadline)
                )
                break
            except OSError as error:  # nobody listens there yet
                if is_first:
                    self._tell(Progress("away"))
                if time.monotonic() + self._pause >= deadline:
                    raise Unavailable(self._nobody()) from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise
        stage, number = place
        hello = {"run": self._table.run_id.hex(), "stage": stage, "round": number, "begun": self.has_begun}
        watches = self._watch is not None
        greeting = self._greeting.to_json() if self._is_ready else None
        self._send(
            json_frame(FrameKind.HELLO, version=PROTOCOL_VERSION, **hello, watch=watches, greeting=greeting)
        )

    def _begin(self, greetings: object) -> None:
        """Only if enough members are ready, and this one is: without them nothing may be charged. What
        comes while this member still reads is not heard before it has said that it is ready."""
        if not self._is_ready:
            raise BadValue("that the run has begun, before this member was ready")
        here = {self._me}
        for said in greetings if isinstance(greetings, list) else ():
            greeting = ReadyMessage.from_json(self._table.run_id, said)
            if not 0 <= greeting.sender < len(self._table.cards) or not greeting.is_signed_by(
                self._table.cards[greeting.sender]
            ):
                raise BadValue("a greeting that no member has signed")
            here.add(greeting.sender)
        if len(here) < self._table.setting(0).least:
            raise BadValue("that the run has begun, but not that enough members are ready")
        self.has_begun = True
        self._tell(Progress("begun", tuple(self._table.names[i] for i in sorted(here))))

    def _take(self, place: RoundKey, kind: FrameKind, payload: bytes) -> Delivery | None:
        match kind:
            case FrameKind.CLOSED:
                delivery = Delivery.from_bytes(payload)
                return delivery if (delivery.stage, delivery.round) == place else None
            case FrameKind.WELCOME:
                self._welcomed(read_json(payload).get("version"))
            case FrameKind.BEGIN:
                if not self.has_begun:
                    self._begin(read_json(payload).get("greetings"))
            case FrameKind.OUT:
                raise MissedRound(f"the relay says: {_printable(read_json(payload).get('why'))}")
            case FrameKind.NEWS:
                self._tell_news(read_json(payload))
            case FrameKind.NOTICE:
                self._take_notice(LeaveMessage.from_json(read_json(payload)))
            case FrameKind.END:
                raise self._ended(read_json(payload))
            case _:
                raise BadValue("a message that relays do not send")
        return None

    def _take_notice(self, notice: LeaveMessage) -> None:
        if not 0 <= notice.sender < len(self._table.cards) or notice.run != self._table.run_id:
            raise BadValue("a notice of nobody, or of another run")
        if not notice.is_signed_by(self._table.cards[notice.sender]):
            raise BadValue("a notice that is not signed")
        self.notices.setdefault(notice.sender, notice)

    def _welcomed(self, version: object) -> None:
        other = version_mismatch(version)
        if other is not None:
            raise RunEnded(f"{self._table.host.name}'s relay cannot be talked with: {other}", ())
        self._is_welcome = True

    def _ended(self, said: dict[str, object]) -> RunEnded:
        missing = said.get("missing")
        known = tuple(n for n in self._table.names if isinstance(missing, list) and n in missing)
        other = None if self._is_welcome else version_mismatch(said.get("version"))
        why = f"the relay says: {_printable(said.get('why'))}"
        return RunEnded(why if other is None else f"{why}. As for the relay: {other}", known)

    def _tell_news(self, said: dict[str, object]) -> None:
        names, kind, stage, number = (said.get(key) for key in ("names", "what", "stage", "round"))
        known = tuple(n for n in self._table.names if isinstance(names, list) and n in names)
        in_range = isinstance(number, int) and 0 <= number < len(self._rounds)
        if kind == "refused":
            self._tell(Progress("refused", known, why=_printable(said.get("why"))))
        if (
            kind in ("arrived", "ready", "posted")
            and isinstance(stage, int)
            and isinstance(number, int)
            and in_range
        ):
            stages, rounds = self._table.stages, len(self._rounds)
            self._tell(Progress(str(kind), known, stage, stages, self._rounds[number], number, rounds))

    def _send(self, parts: list[bytes]) -> None:
        if self._socket is None:
            raise ConnectionError
        self._socket.settimeout(self._table.round_seconds + _GRACE)
        self._socket.sendall(b"".join(parts))

    def _receive(self, deadline: float) -> tuple[FrameKind, bytes]:
        kind, length = read_header(self._exactly(HEADER.size, deadline), largest=self._largest)
        return kind, self._exactly(length, deadline)

    def _exactly(self, length: int, deadline: float) -> bytes:
        if self._socket is None:
            raise ConnectionError
        buffer = bytearray(length)
        view, got = memoryview(buffer), 0
        while got < length:
            self._socket.settimeout(_left(deadline))
            count = self._socket.recv_into(view[got:])
            if not count:
                raise EOFError
            got += count
        return bytes(buffer)

    def _drop(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    def _tell(self, progress: Progress) -> None:
        if self._watch is not None:
            self._watch(progress)

    def _nobody(self) -> str:
        return (
            f"{self._table.host.name}'s relay at {self._table.address} cannot be reached, or does not "
            "answer. The same command goes on where this stopped, once the relay serves run "
            f"{self._table.number}: also after its end, if {self._table.host.name} runs it again"
        )


def _has_more(line: ssl.SSLSocket) -> bool:
    """Whether something has come that was not read yet."""
    return bool(line.pending() or select.select([line], [], [], 0)[0])


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _printable(why: object) -> str:
    text = why if isinstance(why, str) and why.isprintable() else ""
    return text[:200] or "it is over"
