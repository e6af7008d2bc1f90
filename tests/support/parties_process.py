"""One member of a test as a process: it has its orders, and says what happens over a pipe.

Orders: `serve` (it hosts the relay), `relay_only`, `values` (what it contributes; default: its number plus
1 everywhere), `hold` (an event at which it stops until it is told to go on), `fail` (its contribution
fails), `unread` (its data cannot be read).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import LapwingError
from lapwing.parties.identity import Card, MemberKeys
from lapwing.parties.member import take_part
from lapwing.parties.messages import Progress
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.relay_server import relay_in_thread, serve_relay
from lapwing.parties.run_configuration import RunConfiguration


def table_to_json(table: RunConfiguration) -> dict[str, Any]:
    fields = (
        "number", "address", "protocol", "coalition", "losses", "length", "stages", "document",
        "honest_quorum",
    )  # fmt: skip
    said: dict[str, Any] = {name: getattr(table, name) for name in fields}
    return said | {
        "lobby_seconds": table.lobby_seconds,
        "round_seconds": table.round_seconds,
        "digest": table.digest.hex(),
        "cards": [card.to_json() for card in table.cards],
        "host": table.host.to_json(),
    }


def table_from_json(said: Mapping[str, Any]) -> RunConfiguration:
    cards = tuple(Card.from_json(card) for card in said["cards"])
    rest = {name: value for name, value in said.items() if name not in ("cards", "host", "digest")}
    return RunConfiguration(
        digest=bytes.fromhex(said["digest"]), cards=cards, host=Card.from_json(said["host"]), **rest
    )


class Member:
    """What the process does, and where it stops."""

    def __init__(self, orders: Mapping[str, Any], pipe: Connection) -> None:
        self.orders = orders
        self.pipe = pipe
        self.table = table_from_json(orders["table"])
        self.me: int = orders["member"]
        self.folder = Path(orders["root"]) / self.table.names[self.me]
        self.keys = MemberKeys.open(self.folder)

    def say(self, kind: str, **rest: object) -> None:
        self.pipe.send({"kind": kind} | rest)

    def hold(self, event: str) -> None:
        if self.orders.get("hold") == event:
            self.say("holding")
            self.pipe.recv()

    def watch(self, progress: Progress) -> None:
        self.say(progress.kind, names=progress.names, round=progress.round, stage=progress.stage)
        self.hold(f"{progress.kind}:{progress.round}:{progress.stage}")

    def read(self) -> None:
        self.say("reading")
        self.hold("read")
        if self.orders.get("unread"):
            raise ValueError("SECRET-OF-ONE-MEMBER")

    def contribute(self, stage: int, earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
        self.say("contributing", stage=stage)
        self.hold("contribute")
        if self.orders.get("fail"):
            raise ValueError("SECRET-OF-ONE-MEMBER")
        values = self.orders.get("values") or [(self.me + 1) * (stage + 1)] * self.table.length
        assert len(earlier) == stage
        return np.array(values, dtype=np.int64)

    def run(self) -> dict[str, object]:
        table, keys, folder = self.table, self.keys, self.folder
        with ExitStack() as stack:
            if self.orders.get("relay_only"):
                serve_relay(table, keys, folder=folder, ready=lambda: self.say("listening"))
                return {"sums": None}
            if self.orders.get("serve"):
                stack.enter_context(relay_in_thread(table, keys, folder=folder))
                self.say("listening")
            outcome = take_part(
                table,
                self.me,
                keys,
                folder=folder,
                contribute=self.contribute,
                read=self.read,
                watch=self.watch,
            )
            ended: dict[str, object] = {
                "sums": [opened.values.tolist() for opened in outcome.opened],
                "contributors": [list(opened.contributors) for opened in outcome.opened],
            }
            self.say("ended", **ended)  # a host stays for the others
            return ended


def run(orders: Mapping[str, Any], pipe: Connection, stderr: Path) -> None:
    with stderr.open("wb") as file:
        os.dup2(file.fileno(), 2)
    member = Member(orders, pipe)
    try:
        said = member.run()
    except (LapwingError, ValueError) as error:
        said = {
            "error": type(error).__name__,
            "message": str(error),
            "missing": getattr(error, "missing", ()),
        }
    member.say("ended", **said)
