"""A member's client of the relay: mutual TLS, with a new connection after every cut until the deadline.

Claim    the run has begun for a member only if it was ready, and as many members as the run needs have
         signed that they are, in this lobby of the run or in an earlier one. A ready member waits without a
         deadline, as long as the relay answers.
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
from lapwing.parties import messages
from lapwing.parties.identity import MemberKeys
from lapwing.parties.messages import FrameKind, LeaveMessage, Progress, ProgressCallback, ReadyMessage
from lapwing.parties.posts import Delivery
from lapwing.parties.run_configuration import RoundKey, RunConfiguration, parse_address

_GRACE_SECONDS = 10.0  # for the relay's own deadline to reach this member
_LEAVE_SECONDS = 2.0  # to tell the others that this member leaves
_CLOSING_SECONDS = 1.0  # for the relay to close its side
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


class RunEnded(Exception):
    """The run is over for this member: the relay says so, or sent an impossible message.

    `missing` are names of members.
    """

    def __init__(self, why: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.missing = missing


class MissedRound(RunEnded):
    """The run continues without this member, which missed a round. It may wait for the sums."""


class RelayClient:
    """A blocking connection to the relay. `has_begun` tells whether the lobby is over.

    Only the journal knows whether this member was charged.
    """

    def __init__(
        self, config: RunConfiguration, me: int, keys: MemberKeys, watch: ProgressCallback | None
    ) -> None:
        self.leave_messages: dict[int, LeaveMessage] = {}
        self.has_begun = False
        self._config = config
        self._me = me
        self._watch = watch
        self._largest = messages.largest_delivery(config)
        self._context = keys.tls(trusting=(config.host,), server=False)
        self._socket: ssl.SSLSocket | None = None
        self._ready_message = ReadyMessage.fresh(config.run_id, me, keys)
        self._is_welcome = False
        self._is_ready = False
        self._pause = 0.0  # seconds before the next attempt; doubled after every cut, until a success

    def arrive(self, key: RoundKey) -> None:
        """Connect to the lobby, and be admitted. Raises `RunEnded`, `MissedRound`, `Unavailable`."""
        deadline = self._lobby_deadline()
        while not self._is_welcome:
            with self._reconnecting():
                self._connect(key, deadline)
                self._take(key, *self._receive(deadline))

    def enter(self, key: RoundKey) -> None:
        """Say that this member is ready, and wait until the run begins.

        There is no deadline as long as the relay answers. Raises `RunEnded`, `MissedRound`, `Unavailable`.
        """
        with self._reconnecting():
            self._send(messages.json_frame(FrameKind.READY, greeting=self._ready_message.to_json()))
        self._is_ready = True
        deadline = self._lobby_deadline()
        while not self.has_begun:
            with self._reconnecting():
                self._connect(key, deadline)
                self._take(key, *self._receive(deadline))
                deadline = self._lobby_deadline()
        self._pause = 0.0
        self._catch_up(key)

    def _catch_up(self, key: RoundKey) -> None:
        """Process all frames that have come, before anything is charged.

        The run may have begun, and continued, while this member read its data.
        """
        deadline = time.monotonic() + self._config.round_seconds
        with self._reconnecting():
            while self._socket is not None and _has_unread(self._socket):
                if self._take(key, *self._receive(deadline)) is not None:
                    raise BadValue("a round that was closed before this member could post")

    def _lobby_deadline(self) -> float:
        """Return the deadline for the relay's next frame in the lobby."""
        return (
            time.monotonic() + self._config.lobby_seconds + min(_GRACE_SECONDS, self._config.lobby_seconds)
        )

    def exchange(self, key: RoundKey, parcel: bytes) -> Delivery:
        """Post, and wait for the closed round. Raises `RunEnded`, `MissedRound`, `Unavailable`."""
        # A relay that was restarted gives a round its whole time again.
        deadline = time.monotonic() + 3 * self._config.round_seconds
        sent_over = None
        while True:
            with self._reconnecting():
                self._connect(key, deadline)
                if sent_over is not self._socket:
                    self._send(messages.frame(FrameKind.POST, parcel))
                    sent_over = self._socket
                delivery = self._take(key, *self._receive(deadline))
                if delivery is not None:
                    self._pause = 0.0
                    return delivery

    def result(self, key: RoundKey) -> list[Delivery]:
        """Wait for all rounds of a run that continued without this member.

        The relay sends them once the sums are open. Raises `RunEnded`, `Unavailable`.
        """
        every = self._config.stages * len(self._config.rounds)
        deadline = time.monotonic() + (every + 2) * self._config.round_seconds
        deliveries: list[Delivery] = []
        while len(deliveries) < every:
            with self._reconnecting():
                self._connect(key, deadline)
                kind, payload = self._receive(deadline)
                if kind is FrameKind.OUT:  # from the beginning, after a cut
                    deliveries = []
                elif kind is FrameKind.CLOSED:
                    deliveries.append(Delivery.from_bytes(payload))
                else:
                    self._take(key, kind, payload)
        return deliveries

    def leave(self, message: LeaveMessage) -> None:
        """Tell the others that this member leaves, if the relay can be reached."""
        with suppress(OSError, Unavailable):
            self._connect((message.stage, message.round), time.monotonic() + _LEAVE_SECONDS)
            self._send(messages.json_frame(FrameKind.LEAVE, **message.to_json()))

    def done(self) -> None:
        """Tell the relay that this member needs nothing more."""
        with suppress(OSError):
            self._send(messages.frame(FrameKind.DONE))

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            # If unread bytes are left at closing, the last sent bytes can be lost: read to the end first.
            with suppress(OSError):
                self._socket.settimeout(_CLOSING_SECONDS)
                self._socket.shutdown(socket.SHUT_WR)
                while self._socket.recv(1 << 16):
                    pass
            self._drop()

    @contextmanager
    def _reconnecting(self) -> Iterator[None]:
        """Drop the connection after a cut, which is no error: the caller connects again."""
        host = self._config.host.name
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            self._drop()
            raise Unavailable(
                f"the server at {self._config.address} does not show {host}'s certificate"
            ) from error
        except TimeoutError as error:
            self._drop()
            raise self._unreachable() from error
        except ssl.SSLError as error:
            self._drop()
            if "ALERT" in (error.reason or ""):
                raise Unavailable(f"{host}'s relay refused this member's certificate") from error
        except (OSError, EOFError):
            self._drop()
        except BadValue as error:
            self._drop()
            raise RunEnded(f"the relay sent an impossible message: {error}") from error

    def _connect(self, key: RoundKey, deadline: float) -> None:
        """Connect and say hello, if there is no connection. Raises `Unavailable` or `OSError`."""
        if self._socket is not None:
            return
        while True:
            time.sleep(min(self._pause, _seconds_left(deadline)))
            is_first = not self._pause
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            try:
                address = parse_address(self._config.address)
                plain = socket.create_connection(address, timeout=_seconds_left(deadline))
                break
            except OSError as error:  # nobody listens there yet
                if is_first:
                    self._tell(Progress("away"))
                if time.monotonic() + self._pause >= deadline:
                    raise self._unreachable() from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise
        stage, number = key
        hello = {"run": self._config.run_id.hex(), "stage": stage, "round": number, "begun": self.has_begun}
        watches = self._watch is not None
        ready = self._ready_message.to_json() if self._is_ready else None
        self._send(
            messages.json_frame(
                FrameKind.HELLO, version=messages.PROTOCOL_VERSION, **hello, watch=watches, greeting=ready
            )
        )

    def _begin(self, greetings: object) -> None:
        """Begin the run, if enough members are ready, and this member is. Raises `BadValue`.

        Without enough ready messages nothing may be charged. Frames that come while this member still reads
        its data are processed only after it has said that it is ready.
        """
        if not self._is_ready:
            raise BadValue("it says that the run has begun, before this member was ready")
        present = {self._me}
        for content in greetings if isinstance(greetings, list) else ():
            message = ReadyMessage.from_json(self._config.run_id, content)
            if not message.is_valid_in(self._config):
                raise BadValue("a ready message that no member has signed")
            present.add(message.sender)
        if len(present) < self._config.setting(0).least:
            raise BadValue("it says that the run has begun, but not that enough members are ready")
        self.has_begun = True
        self._tell(Progress("begun", tuple(self._config.names[i] for i in sorted(present))))

    def _take(self, key: RoundKey, kind: FrameKind, payload: bytes) -> Delivery | None:
        """Process a frame. Return it if it is the closed round of this key, else None."""
        match kind:
            case FrameKind.CLOSED:
                delivery = Delivery.from_bytes(payload)
                return delivery if delivery.key == key else None
            case FrameKind.WELCOME:
                self._welcomed(messages.read_json(payload).get("version"))
            case FrameKind.BEGIN:
                if not self.has_begun:
                    self._begin(messages.read_json(payload).get("greetings"))
            case FrameKind.OUT:
                raise MissedRound(f"the relay says: {_printable(messages.read_json(payload).get('why'))}")
            case FrameKind.NEWS:
                self._tell_news(messages.read_json(payload))
            case FrameKind.LEAVE:
                message = LeaveMessage.from_json(messages.read_json(payload))
                if not message.is_valid_in(self._config):
                    raise BadValue("a leave message that no member has signed for this run")
                self.leave_messages.setdefault(message.sender, message)
            case FrameKind.END:
                raise self._ended(messages.read_json(payload))
            case _:
                raise BadValue("a kind of message that relays do not send")
        return None

    def _welcomed(self, version: object) -> None:
        mismatch = messages.version_mismatch(version)
        if mismatch is not None:
            raise RunEnded(f"{self._config.host.name}'s relay is not supported: {mismatch}")
        self._is_welcome = True

    def _ended(self, said: dict[str, object]) -> RunEnded:
        why = f"the relay says: {_printable(said.get('why'))}"
        mismatch = messages.version_mismatch(said.get("version"))
        if mismatch is not None and not self._is_welcome:
            why = f"{why}. The relay is not supported: {mismatch}"
        return RunEnded(why, self._known_names(said.get("missing")))

    def _known_names(self, said: object) -> tuple[str, ...]:
        """Return the members' names that a list from the relay contains."""
        return tuple(name for name in self._config.names if isinstance(said, list) and name in said)

    def _tell_news(self, said: dict[str, object]) -> None:
        """Report an event that the relay tells. Ignore all that is not of the right form."""
        names = self._known_names(said.get("names"))
        match said:
            case {"what": "refused"}:
                self._tell(Progress("refused", names, why=_printable(said.get("why"))))
            case {"what": "arrived" | "ready" | "posted" as kind, "stage": int(stage), "round": int(at)}:
                if 0 <= at < len(self._config.rounds):
                    self._tell(Progress.of_round(self._config, kind, names, (stage, at)))

    def _send(self, parts: list[bytes]) -> None:
        if self._socket is None:
            raise ConnectionError
        self._socket.settimeout(self._config.round_seconds + _GRACE_SECONDS)
        self._socket.sendall(b"".join(parts))

    def _receive(self, deadline: float) -> tuple[FrameKind, bytes]:
        kind, length = messages.read_header(
            self._exactly(messages.HEADER.size, deadline), largest=self._largest
        )
        return kind, self._exactly(length, deadline)

    def _exactly(self, length: int, deadline: float) -> bytes:
        if self._socket is None:
            raise ConnectionError
        buffer = bytearray(length)
        view, got = memoryview(buffer), 0
        while got < length:
            self._socket.settimeout(_seconds_left(deadline))
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

    def _unreachable(self) -> Unavailable:
        host = self._config.host.name
        return Unavailable(
            f"{host}'s relay at {self._config.address} cannot be reached, or does not answer. The same "
            f"command goes on where this stopped, once the relay serves run {self._config.number}: also "
            f"after its end, if {host} runs it again"
        )


def _has_unread(connection: ssl.SSLSocket) -> bool:
    """Return whether bytes have come that were not read yet."""
    return bool(connection.pending() or select.select([connection], [], [], 0)[0])


def _seconds_left(deadline: float) -> float:
    """Return the seconds until the deadline. Raises `TimeoutError` after it."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _printable(why: object) -> str:
    """Return the relay's reason, cut to 200 characters, or a default if it cannot be printed."""
    text = why if isinstance(why, str) and why.isprintable() else ""
    return text[:200] or "it is over"
