"""All members' seats at one table, and a relay that is a few lines: for tests without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lapwing.parties.participant import Participant
from lapwing.parties.posts import Delivery, Parcel
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.protocols.secret_sharing import FreshCoins
from support.parties import Flock

Twist = Callable[[int, Delivery], Delivery]  # recipient, what it should hear -> what it is shown


def seats(flock: Flock) -> list[Participant]:
    return [Participant(flock.table, i, keys) for i, keys in enumerate(flock.keys)]


def sit(all_seats: Sequence[Participant], stage: int = 0) -> None:
    for i, seat in enumerate(all_seats):
        seat.start_stage(np.full(seat.config.length, (i + 1) * (stage + 1), dtype=np.int64), FreshCoins())


def deliver(parcels: Mapping[int, Parcel], seat: Participant) -> Delivery:
    """A closed round, as an honest relay shows it."""
    items = [(parcel.envelope, parcel.boxes.get(seat.me)) for parcel in parcels.values()]
    return Delivery(seat.stage, seat.round, items, {})


def play_round(all_seats: Sequence[Participant]) -> dict[int, Parcel]:
    parcels = {seat.me: seat.post() for seat in all_seats}
    for seat in all_seats:
        seat.hear(deliver(parcels, seat))
    return parcels


def play(flock: Flock) -> tuple[list[OpenedSum], list[dict[int, Parcel]]]:
    """All stages, honestly."""
    everybody = seats(flock)
    parcels = []
    for stage in range(flock.table.stages):
        sit(everybody, stage)
        parcels += [play_round(everybody) for _ in everybody[0].config.rounds]
    return everybody[0].opened, parcels
