"""Many clients at once while workers are killed: no answer is lost, nothing is charged above the cap.

The trial lasts LAPWING_LOAD_SECONDS: 300 in `make test-all`; the fast case has few clients and one death.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import lapwing
from lapwing.errors import Held, LapwingError, OverBudget
from lapwing.ledger import Ledger
from lapwing.server.people.person import Role
from support.door_process import DoorProcess, new_token, running
from support.served import COUNT, write_data
from support.slowly import slow

SECONDS = float(os.environ.get("LAPWING_LOAD_SECONDS", "300"))


@dataclass
class Diary:
    """What all clients were told."""

    answers: dict[str, int] = field(default_factory=dict)  # receipts by price
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, price: str, receipt: int) -> None:
        """Note an answer. The same question at the same price has one receipt for ever."""
        with self.lock:
            known = self.answers.setdefault(price, receipt)
            if known != receipt:
                self.wrong.append(f"two charges for one question: receipts {known} and {receipt}")
            self.outcomes["answered"] += 1


def ask(number: int, url: str, token: str, diary: Diary, end: float) -> None:
    """Ask as one client: questions of its own, and questions that others ask at the same time."""
    with lapwing.connect(url, token=token, patience=60.0) as visits:
        turn = 0
        while time.monotonic() < end:
            turn += 1
            # The price tells questions apart. Every other turn is shared by all clients.
            price = f"0.0200{0 if turn % 2 else number + 1:03}{turn:05}"
            try:
                answer = visits.ask(COUNT, epsilon=price)
                assert answer.receipt is not None
                diary.answered(price, answer.receipt.position)
            except (OverBudget, Held) as error:
                with diary.lock:
                    diary.outcomes[error.code] += 1
                time.sleep(0.05)
            except LapwingError as error:
                with diary.lock:
                    diary.wrong.append(f"{error.code}: {error}")


def workers_of(door: DoorProcess) -> list[int]:
    """The processes that serve: children of the server that have the port open, newest last."""
    children = Path(f"/proc/{door.process.pid}/task/{door.process.pid}/children").read_text().split()
    return [pid for pid in map(int, children) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize(("clients", "seconds", "every"), [(8, 8.0, 4.0), slow(64, SECONDS, 20.0)])
def test_no_answer_is_lost_while_workers_are_killed(
    clients: int, seconds: float, every: float, tmp_path: Path
) -> None:
    write_data(tmp_path)
    token = new_token(tmp_path, "ann", Role.ANALYST)
    diary, killed = Diary(), 0
    with running(tmp_path, more=("--workers", "2")) as door:
        end = time.monotonic() + seconds
        url = f"{door.address}/visits"
        threads = [
            threading.Thread(target=ask, args=(number, url, token, diary, end)) for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() + every < end:
            time.sleep(every)
            if alive := workers_of(door):
                os.kill(alive[0], signal.SIGKILL)
                killed += 1
        for thread in threads:
            thread.join(seconds + 120)
            assert not thread.is_alive()
        with lapwing.connect(url, token=token) as visits:  # every answer is there again, at no cost
            for receipt in list(diary.answers.values())[:20]:
                again = visits.answer(f"visits.{receipt}").receipt
                assert again is not None
                assert again.position == receipt
    assert diary.wrong == []
    assert killed
    assert diary.outcomes["answered"] > clients
    with Ledger.open(tmp_path / "lapwing.ledger") as ledger:
        assert ledger.verify().findings == ()  # a second accountant: never above the cap
        charged = {
            int(row[0]) for row in ledger.store.rows("SELECT seq FROM entries WHERE key IS NOT NULL")
        }
        rows = ledger.store.rows("SELECT charge FROM answers WHERE bytes IS NOT NULL")
        stored = {int(row[0]) for row in rows}
        told = set(diary.answers.values())
        assert told <= stored <= charged  # each answer that was told is stored under a charge
        assert len(charged - stored) <= killed * clients  # held: what a killed worker had begun
        assert len(told) == len(diary.answers)  # one charge for each question
