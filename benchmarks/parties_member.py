"""One member of `benchmarks/parties.py`: takes part in one run after the other, and prints its times."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import Relation
from lapwing.ledger import Ledger, Unit
from lapwing.ledger.gate import ChargedRelease, Gate
from lapwing.ledger.spending import Spending, Target
from lapwing.parties.identity import Card, MemberKeys
from lapwing.parties.member import take_part
from lapwing.parties.messages import Progress
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.relay_server import relay_in_thread
from lapwing.parties.run_configuration import RunConfiguration

LENGTHY = 120.0


def main(folder: Path, me: int) -> None:
    """The host's relay runs in a thread of member 0."""
    spec = json.loads((folder / "spec.json").read_text())
    members, length = spec["members"], spec["length"]
    keys = MemberKeys.open(folder / str(me))
    cards = tuple(Card.read(folder / str(k) / f"member-{k}.card") for k in range(members))
    counts = np.arange(length) % 1000
    seconds = []
    with ExitStack() as ending:
        ledger = _ledger(folder / f"{me}.ledger") if spec["ledger"] else None
        if ledger is not None:
            ending.enter_context(ledger)
        for number in range(spec["repeats"]):
            table = RunConfiguration(
                digest=sha256(b"benchmark").digest(),
                number=number,
                cards=cards,
                host=cards[0],
                address=f"127.0.0.1:{spec['ports'][number]}",  # the relay of the run before may still serve
                protocol=spec["protocol"],
                coalition=spec["coalition"],
                losses=0,
                length=length,
                stages=1,
                lobby_seconds=LENGTHY,
                round_seconds=LENGTHY,
            )
            honest = PROTOCOLS[table.protocol].honest(table.setting(0))
            shares = LaplaceShares.for_epsilon(1, l1=1, of=honest)
            begun: list[float] = []

            def watch(event: Progress, begun: list[float] = begun) -> None:
                if event.kind == "begun":
                    begun.append(time.perf_counter())

            def contribute(
                _stage: int, _earlier: object, shares: LaplaceShares = shares
            ) -> NDArray[np.int64]:
                if ledger is not None:
                    _charge(ledger, shares)
                return shares.sample(counts)

            with ExitStack() as run:
                if me == 0:
                    run.enter_context(relay_in_thread(table, keys, folder=folder / "relay"))
                outcome = take_part(
                    table, me, keys, folder=folder / f"runs-{me}", contribute=contribute, watch=watch
                )
                seconds.append(time.perf_counter() - begun[0])
            assert len(outcome.opened[0].contributors) == members
    traffic = [
        (
            part.public + part.private * part.recipients,
            part.public * members + part.private * part.recipients,
        )
        for part in PROTOCOLS[table.protocol].traffic(table.setting(0))
    ]
    sent, received = (sum(side) for side in zip(*traffic, strict=True))
    print(json.dumps({"seconds": seconds, "sent": sent, "received": received}))


def _ledger(path: Path) -> Ledger:
    ledger = Ledger.create(path)
    ledger.open_account("visits", epsilon=1000, delta=0, unit=Unit.PERSON, relation=Relation.ADD_REMOVE)
    return ledger


def _charge(ledger: Ledger, shares: LaplaceShares) -> None:
    spending = Spending(
        targets=(Target("visits"),),
        loss=shares.loss,
        unit=Unit.PERSON,
        relation=Relation.ADD_REMOVE,
        mechanism="noise share",
        parameters={"scale": str(Fraction(shares.scale))},
        request=b"benchmark",
    )
    Gate(ledger, principal="member").release(ChargedRelease(spending, lambda: b"contributed"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
