"""The second accountant's books at one moment, as bytes from which a replay goes on.

They hold all that decides whether a later entry is right: accounts, what each block has spent and holds,
reservations that are open, data sets. Not what became of single charges: that is asked of the entries.
"""

from __future__ import annotations

import json
from fractions import Fraction

from lapwing.ledger.accountant.held import Held, Part
from lapwing.ledger.accountant.registers import Opened, Registered
from lapwing.ledger.accountant.replay import Check, Replay
from lapwing.ledger.entry import encode

FORMAT = 1
LARGEST = 2000  # blocks, or reservations: writing many with every seal would cost more than replaying them


class OtherForm(Exception):
    """The books were written by another version: everything is replayed instead. Internal."""


def books_of(replay: Replay) -> bytes | None:
    """The books after all entries that a replay has read; None if they are too large to be kept."""
    replay.bring_up_to_date()
    held = replay.reservations.still_open
    if max(replay.balances.numbers.count, len(held)) > LARGEST:
        return None
    return encode(
        {
            "format": FORMAT,
            "ledger": replay.ledger,
            "key": replay.key.hex(),
            "curator": replay.curator.hex(),
            "entries": replay.entries,
            "last": replay.last,
            "recovered": replay.recovered,
            "accounts": [
                [
                    one.number, one.root, one.name, one.unit, one.relation, str(one.epsilon),
                    str(one.delta), one.orders, one.caps, one.slices, one.rule, one.everyone, one.raises,
                ]
                for one in replay.accounts.values()
            ],
            "blocks": replay.balances.packed(),
            "held": [
                [
                    one.number, one.is_fixed, one.steps,
                    [[part.account, part.ranges, part.total, part.used] for part in one.parts.values()],
                ]
                for one in held.values()
            ],
            "data": [
                [one.number, one.name, one.origin, one.rule, one.accounts, one.version]
                for one in replay.registers.datasets.values()
            ],
            **({"checks": replay.checks} if replay.checks else {}),  # books without are those of before
        }
    )  # fmt: skip


def replay_from(books: bytes) -> Replay:
    """A replay that goes on after the entries of these books. They must be known to be ours."""
    said = json.loads(books)
    if said["format"] != FORMAT:
        raise OtherForm
    replay = Replay()
    balances, registers = replay.balances, replay.registers
    replay.ledger = registers.ledger = said["ledger"]
    replay.key, replay.curator = bytes.fromhex(said["key"]), bytes.fromhex(said["curator"])
    registers.curator = replay.curator
    replay.entries, replay.last = said["entries"], said["last"]
    replay.recovered = [(entry, lost) for entry, lost in said["recovered"]]
    replay.checks = [Check(*one) for one in said.get("checks", ())]
    replay.outcomes.begin_after = replay.last
    for number, root, name, unit, relation, epsilon, delta, orders, caps, *rest in said["accounts"]:
        place = balances.add_account(number, caps)
        registers.keep(
            Opened(
                number, root, place, name, unit, relation, Fraction(epsilon), Fraction(delta),
                tuple(orders), tuple(caps), *rest,
            )
        )  # fmt: skip
    balances.unpack(said["blocks"])
    for number, is_fixed, steps, parts in said["held"]:
        held = Held(number, is_fixed, {}, steps)
        for account, ranges, total, used in parts:
            rows = [balances.rows_between(first, last) for first, last in ranges]
            part = Part(account, ranges, rows, tuple(total), registers.accounts[account].caps)
            part.used = part.booked = tuple(used)
            held.parts[account] = part
        replay.reservations.reserve(held)
    for number, name, origin, rule, accounts, version in said["data"]:
        registers.datasets[number] = Registered(number, name, origin, rule, tuple(accounts), version)
    return replay
