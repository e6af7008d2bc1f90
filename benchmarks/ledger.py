"""What a durable charge costs, beside the bare transactions that nobody can do without.

Each figure is a ratio of two sides measured in turns in one run; absolute times are for information.

    .venv/bin/python benchmarks/ledger.py [--entries 1000000] [--only charge,group,blocks]
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from lapwing.core.losses import LaplaceNoise, Relation
from lapwing.ledger import Ledger, Slices, Unit
from lapwing.ledger.charging import ChargeRequest, charge
from lapwing.ledger.spending import Spending, Target
from lapwing.ledger.store import Posting, Transaction
from support import postgres

LOSS = LaplaceNoise(Fraction(10**7), 1)
BODY = b"x" * 480  # as long as the entry of a charge
CLIENTS = 16
SERVERS = 8
BLOCKS = 300
Side = Callable[[int], None]


def spending(account: str, *blocks: str) -> Spending:
    """A count, planned."""
    return Spending(
        targets=(Target(account, blocks),),
        loss=LOSS,
        unit=Unit.PERSON,
        relation=Relation.ADD_REMOVE,
        mechanism="laplace",
        parameters={"scale": "10000000"},
        request=b"SELECT count(*) FROM visits WHERE ward = 'eyes'",
    )


def open_account(ledger: Ledger, label: str, blocks: int = 0) -> None:
    """A wide budget: nothing is refused here."""
    ledger.open_account(
        label,
        epsilon=1000,
        delta="1e-6",
        unit=Unit.PERSON,
        relation=Relation.ADD_REMOVE,
        slices=Slices.UNITS if blocks else Slices.NONE,
        rule="month of the first visit" if blocks else "",
    )
    if blocks:
        ledger.open_blocks(label, [f"b{k}" for k in range(blocks)])


class Bare:
    """One indexed INSERT and one UPDATE (or only the INSERT), fsynced: what the disk allows."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for sql in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE entries (seq INTEGER PRIMARY KEY, key BLOB UNIQUE, body BLOB, digest BLOB)",
            "CREATE TABLE accounts (account INTEGER PRIMARY KEY, spent INTEGER)",
            "INSERT INTO accounts VALUES (1, 0)",
        ):
            self.connection.execute(sql)

    def insert(self, _: int) -> None:
        """One INSERT."""
        run, key = self.connection.execute, os.urandom(32)
        run("BEGIN IMMEDIATE")
        run("INSERT INTO entries (key, body, digest) VALUES (?, ?, ?)", (key, BODY, key))
        run("COMMIT")

    def both(self, _: int) -> None:
        """One INSERT and one UPDATE."""
        run, key = self.connection.execute, os.urandom(32)
        run("BEGIN IMMEDIATE")
        run("INSERT INTO entries (key, body, digest) VALUES (?, ?, ?)", (key, BODY, key))
        run("UPDATE accounts SET spent = spent + 1 WHERE account = 1")
        run("COMMIT")


def in_turns(sides: list[Side], *, rounds: int, each: int) -> list[list[float]]:
    """Seconds of every call, the sides taking turns so that a slow moment hits all of them."""
    times: list[list[float]] = [[] for _ in sides]
    number = 0
    for _ in range(rounds):
        for side, taken in zip(sides, times, strict=True):
            for _ in range(each):
                number += 1
                start = time.perf_counter()
                side(number)
                taken.append(time.perf_counter() - start)
    return times


def report(name: str, ratio: float, wanted: str, *, good: bool, detail: str) -> bool:
    """One line per figure."""
    print(f"{name:<58} {ratio:6.2f}   wanted {wanted:<9} {'yes' if good else 'NO'}   {detail}", flush=True)
    return good


def micro(seconds: float) -> str:
    """For people."""
    return f"{seconds * 1e6:,.0f} µs"


# SQLite


def one_client(folder: Path) -> bool:
    """One client against a bare transaction of the same shape."""
    bare = Bare(folder / "bare.db")
    with Ledger.create(folder / "one.ledger") as ledger:
        open_account(ledger, "visits")
        plan = spending("visits")
        ours = charging(ledger, plan)
        in_turns([ours, bare.both], rounds=5, each=100)  # the log files reach their length
        mine, theirs = (statistics.median(side) for side in in_turns([ours, bare.both], rounds=40, each=50))
    ratio = theirs / mine
    detail = f"charge {micro(mine)}, bare INSERT + UPDATE {micro(theirs)}"
    return report(
        "SQLite, one client: rate against a bare transaction",
        ratio,
        ">= 0.7",
        good=ratio >= 0.7,
        detail=detail,
    )


def charging(ledger: Ledger, plan: Spending) -> Side:
    """One charge after the other, each with its own key."""

    def side(_: int) -> None:
        charge(ledger, plan, principal="analyst", key=os.urandom(12).hex())

    return side


def many_clients(folder: Path) -> bool:
    """Sixteen clients that share commits, against bare INSERTs one after the other."""
    bare = Bare(folder / "bare16.db")
    rates: list[tuple[float, float]] = []
    with Ledger.create(folder / "many.ledger") as ledger:
        open_account(ledger, "visits")
        plan = spending("visits")
        for round_ in range(9):
            start = time.perf_counter()
            for k in range(1000):
                bare.insert(k)
            theirs = 1000 / (time.perf_counter() - start)

            def client(number: int, round_: int = round_) -> None:
                for k in range(100):
                    charge(ledger, plan, principal="analyst", key=f"many {round_} {number} {k}")

            threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rates.append((CLIENTS * 100 / (time.perf_counter() - start), theirs))
    rates = rates[2:]
    ours, theirs = (statistics.median(side) for side in zip(*rates, strict=True))
    ratio = statistics.median(mine / bare_ for mine, bare_ in rates)
    detail = f"charges {ours:,.0f}/s, bare INSERTs {theirs:,.0f}/s"
    return report(
        "SQLite, 16 clients: rate against bare INSERTs", ratio, ">= 1.0", good=ratio >= 1, detail=detail
    )


def many_blocks(folder: Path) -> bool:
    """A charge over 300 blocks against one over a single block."""
    with Ledger.create(folder / "blocks.ledger") as ledger:
        open_account(ledger, "visits", BLOCKS)
        one, all_ = spending("visits", "b7"), spending("visits", *(f"b{k}" for k in range(BLOCKS)))
        few, many = charging(ledger, one), charging(ledger, all_)
        in_turns([few, many], rounds=2, each=50)
        single, whole = (statistics.median(side) for side in in_turns([few, many], rounds=30, each=20))
    ratio = whole / single
    detail = f"{BLOCKS} blocks {micro(whole)}, one block {micro(single)}"
    return report(
        "SQLite, 300 blocks: time against one block", ratio, "<= 4", good=ratio <= 4, detail=detail
    )


# A long history


def fill(ledger: Ledger, entries: int) -> None:
    """Charges like any other, but many to a commit: only the making of the history is hurried."""
    plan, at_once = spending("visits"), 5000
    done = 0
    while done < entries:
        some = min(at_once, entries - done)

        def work(tx: Transaction, done: int = done, some: int = some) -> None:
            for k in range(done, done + some):
                key = f"fill {k}"
                request = ChargeRequest(
                    ledger, plan, principal="analyst", key=key, kind="charge", shared=False
                )
                debits = request._debits(None)
                tx.debit(Posting.of(request.body(debits), request.key, debits))

        ledger.store.write(work)
        done += some
        print(f"\r  a history of {done:,} entries", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)


def growth(folder: Path, entries: int) -> bool:
    """A charge at the end of a long history against one at the end of a short one."""
    short, long = Ledger.create(folder / "short.ledger"), Ledger.create(folder / "long.ledger")
    with short, long:
        plan = spending("visits")
        for ledger, length in ((short, 1000), (long, entries)):
            open_account(ledger, "visits")
            ledger.principal("analyst")
            fill(ledger, length)
        young, old = charging(short, plan), charging(long, plan)
        in_turns([young, old], rounds=2, each=100)
        before, after = (statistics.median(side) for side in in_turns([young, old], rounds=10, each=50))
    ratio = after / before
    detail = f"at {entries:,} entries {micro(after)}, at 1,000 {micro(before)}"
    return report("SQLite, growth: time of a charge", ratio, "<= 1.3", good=ratio <= 1.3, detail=detail)


def verify(folder: Path) -> bool:
    """Verifying against reading and hashing alone, each in a process of its own."""
    path = folder / "long.ledger"
    results: list[tuple[float, float, float]] = []
    for _ in range(3):
        hashed, _ = in_own_process(read_and_hash, path)
        seconds, memory = in_own_process(verify_all, path)
        results.append((seconds, hashed, memory))
    ratio = statistics.median(seconds / hashed for seconds, hashed, _ in results)
    seconds, hashed, memory = (statistics.median(side) for side in zip(*results, strict=True))
    detail = f"verify {seconds:.1f} s, read and hash {hashed:.1f} s, {memory:,.0f} MB"
    return report(
        "verify: time against reading and hashing",
        ratio,
        "<= 5",
        good=ratio <= 5 and memory < 500,
        detail=detail,
    )


def opening(folder: Path, entries: int) -> bool:
    """Processor time of opening, the first time in a process, with 100 blocks, after a crash."""
    lengths = sorted({min(length, entries) for length in (10_000, 100_000, 1_000_000)})
    taken: list[float] = []
    for length in lengths:
        path = folder / f"opening {length}.ledger"
        with Ledger.create(path) as ledger:
            open_account(ledger, "visits")
            open_account(ledger, "months", 98)  # and a block of everyone in each
            ledger.principal("analyst")
            fill(ledger, length)
        crashed(path)
        taken.append(
            in_own_process(open_once, path)[0]
        )  # the first, which finds entries that are not sealed
    detail = ", ".join(
        f"{length:,}: {1000 * seconds:.0f} ms" for length, seconds in zip(lengths, taken, strict=True)
    )
    return report(
        "opening, SQLite, 100 blocks: processor time in ms",
        1000 * taken[-1],
        "<= 50",
        good=taken[-1] <= 0.05,
        detail=f"at entries {detail}",
    )


def crashed(path: Path) -> None:
    """A process that charges some more and dies without closing."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_charge_and_die, args=(path,))
    process.start()
    process.join()


def _charge_and_die(path: Path) -> None:
    side = charging(Ledger.open(path), spending("visits"))
    for k in range(200):
        side(k)
    os._exit(0)


def open_once(path: Path) -> float:
    """Seconds of the processor."""
    start = time.process_time()
    ledger = Ledger.open(path)
    taken = time.process_time() - start
    ledger.close()
    return taken


def read_and_hash(path: Path) -> float:
    """The least that any check must do."""
    connection = sqlite3.connect(path)
    start = time.perf_counter()
    for _, body, digest in connection.execute("SELECT seq, body, digest FROM entries ORDER BY seq"):
        if hashlib.sha256(b"\x00" + body).digest() != digest:
            raise AssertionError
    return time.perf_counter() - start


def verify_all(path: Path) -> float:
    """Everything: history, filters, prices, seals, signatures, anchors, tables, answers."""
    with Ledger.open(path) as ledger:
        start = time.perf_counter()
        if ledger.verify().findings:
            raise AssertionError
        return time.perf_counter() - start


def in_own_process(work: Callable[[Path], float], path: Path) -> tuple[float, float]:
    """Its seconds, and the most memory (MB) that the process had."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measured, (work, path))


def _measured(work: Callable[[Path], float], path: Path) -> tuple[float, float]:
    seconds = work(path)
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# PostgreSQL


def postgres_clients(folder: Path) -> bool:
    """Eight clients on disjoint accounts against bare BEGIN-UPDATE-COMMIT by the same driver."""
    url = postgres.fresh_url()
    files = {"keys": folder / "pg.keys", "anchor": folder / "pg.anchor"}
    with Ledger.create(
        url, curator=folder / "pg.curator", keys=files["keys"], anchor=files["anchor"]
    ) as ledger:
        for k in range(SERVERS):
            open_account(ledger, f"account {k}")
    plain = url.partition("#")[0]
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bare_accounts")
        connection.execute("CREATE TABLE bare_accounts (account bigint PRIMARY KEY, spent bigint)")
        connection.execute("INSERT INTO bare_accounts SELECT k, 0 FROM generate_series(0, 99) k")
    rates = []
    for _ in range(7):
        theirs = together(bare_client, plain, files)
        rates.append((together(ledger_client, url, files), theirs))
    rates = rates[1:]
    ours, theirs = (statistics.median(side) for side in zip(*rates, strict=True))
    ratio = statistics.median(mine / bare for mine, bare in rates)
    detail = f"charges {ours:,.0f}/s, bare {theirs:,.0f}/s"
    return report(
        "PostgreSQL, 8 clients: rate against BEGIN-UPDATE-COMMIT",
        ratio,
        ">= 0.5",
        good=ratio >= 0.5,
        detail=detail,
    )


def together(client: Callable[..., float], url: str, files: dict[str, Path]) -> float:
    """Transactions a second of eight processes that begin at once."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(SERVERS)
    results: multiprocessing.Queue[float] = context.Queue()
    processes = [
        context.Process(target=_client, args=(client, url, files, k, ready, results))
        for k in range(SERVERS)
    ]
    for process in processes:
        process.start()
    seconds = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return SERVERS * 400 / statistics.mean(seconds)


def _client(  # noqa: PLR0917
    client: Callable[..., float], url: str, files: dict[str, Path], k: int, ready: object, out: object
) -> None:
    out.put(client(url, files, k, ready.wait))  # type: ignore[attr-defined]


def bare_client(url: str, _files: dict[str, Path], number: int, ready: Callable[[], None]) -> float:
    """BEGIN, UPDATE, COMMIT."""
    with psycopg.connect(url) as connection:
        ready()
        start = time.perf_counter()
        for _ in range(400):
            connection.execute("UPDATE bare_accounts SET spent = spent + 1 WHERE account = %s", (number,))
            connection.commit()
        return time.perf_counter() - start


def ledger_client(url: str, files: dict[str, Path], number: int, ready: Callable[[], None]) -> float:
    """Charges."""
    with Ledger.open(url, keys=files["keys"], anchor=files["anchor"]) as ledger:
        plan = spending(f"account {number}")
        fresh = os.urandom(8).hex()
        charge(ledger, plan, principal="analyst", key=f"{fresh} first")
        ready()
        start = time.perf_counter()
        for k in range(400):
            charge(ledger, plan, principal="analyst", key=f"{fresh} {k}")
        return time.perf_counter() - start


def main() -> int:
    """All figures, or some of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--only", default="charge,group,blocks,postgres,growth,verify,opening")
    chosen = parser.parse_args()
    wanted = chosen.only.split(",")
    results: list[bool] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["LAPWING_STATE"] = str(folder / "state")
        figures: dict[str, Callable[[], bool]] = {
            "charge": partial(one_client, folder),
            "group": partial(many_clients, folder),
            "blocks": partial(many_blocks, folder),
            "postgres": partial(postgres_clients, folder),
            "growth": partial(growth, folder, chosen.entries),
            "verify": partial(verify, folder),  # of the history that `growth` made
            "opening": partial(opening, folder, chosen.entries),
        }
        for name, figure in figures.items():
            if name in wanted:
                results.append(figure())
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
