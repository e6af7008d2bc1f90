"""What joint statistics cost, in error, time and bytes; beside a bare sum in MPyC, which adds no noise.

    .venv/bin/python benchmarks/parties.py [--only error,mpyc,growth] [--members 3,10,30]

Runs that are timed are real ones: one process per member, mutual TLS through the relay, everything durable
before it is sent. Times are from the moment when all are there to the moment when a member knows the sum.
"""

from __future__ import annotations

import argparse
import json
import math
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.parties_mpyc import peer_python, write_certificates
from lapwing.core.laplace import LaplaceShares
from lapwing.parties.identity import MemberKeys
from lapwing.parties.protocols.protocol import Setting
from lapwing.parties.protocols.registry import NAMES, PROTOCOLS
from lapwing.parties.simulation import run_in_memory

BINS = 10_000
REPEATS = 25
COUNTS = 200_000  # so many counts are opened together: the error of one is known to 0.3 %
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A protocol among so many members, of whom `coalition` may be the adversary's."""

    protocol: str
    members: int
    coalition: int
    wanted: float  # RMSE of a count at ε = 1


CASES = (Case("A", 1, 0, 1.357), Case("C", 3, 1, 1.66), Case("C", 10, 4, 1.75), Case("A", 10, 9, 4.29))


def error() -> bool:
    """Root mean square errors of a count at ε = 1, by real runs of the protocols in one process."""
    print("\nError of a count, ε = 1")
    good = True
    for case in CASES:
        setting = Setting(case.members, case.coalition, 0, COUNTS)
        shares = LaplaceShares.for_epsilon(1, l1=1, of=PROTOCOLS[case.protocol].honest(setting))
        values = [shares.sample(np.full(COUNTS, 100)) for _ in range(case.members)]
        opened = run_in_memory(case.protocol, setting, values).opened.values
        measured = float(np.sqrt(np.mean((opened - 100.0 * case.members) ** 2)))
        claimed = shares.total(case.members).deviation
        # A kurtosis of at most 6, as of Laplace noise alone: within 5 standard errors.
        near = abs(measured / claimed - 1) < 5 * math.sqrt(5 / 4 / COUNTS)
        fine = near and round(claimed, 2) == round(case.wanted, 2)
        good &= fine
        name = "curator" if case.members == 1 else f"m = {case.members}, t = {case.coalition}"
        print(
            f"  {name:<16} {NAMES[case.protocol]:<16} measured {measured:.4f}   claimed {claimed:.4f}   "
            f"wanted {case.wanted:<6} {'yes' if fine else 'NO'}"
        )
    return good


@dataclass(frozen=True)
class Timing:
    """Medians over runs: seconds of the slowest member, and bytes of one member."""

    seconds: float
    sent: int
    received: int
    each: tuple[float, ...]


def our_runs(protocol: str, members: int, coalition: int, *, repeats: int, ledger: bool = False) -> Timing:
    """So many runs of a protocol, each among processes of its own members."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for k in range(members):
            MemberKeys.create(f"member-{k}", folder / str(k))
        spec = {
            "protocol": protocol,
            "coalition": coalition,
            "members": members,
            "length": BINS,
            "ports": free_ports(repeats),
            "repeats": repeats,
            "ledger": ledger,
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        program = [sys.executable, str(HERE / "parties_member.py"), str(folder)]
        running = [
            subprocess.Popen([*program, str(k)], stdout=subprocess.PIPE, text=True) for k in range(members)
        ]
        found = [json.loads(process.communicate()[0]) for process in running]
    # The first runs warm everything up.
    slowest = [max(times) for times in zip(*(one["seconds"] for one in found), strict=True)][3:]
    return Timing(
        statistics.median(slowest),
        int(statistics.median(one["sent"] for one in found)),
        int(statistics.median(one["received"] for one in found)),
        tuple(slowest),
    )


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses just now."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def mpyc_runs(members: int, *, repeats: int) -> list[float]:
    """Seconds of each bare sum of as many numbers, over TLS, without pseudorandom sharing."""
    python = peer_python()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_certificates(folder, members)
        [base] = free_ports(1)
        common = [f"-M{members}", "-B", str(base), "--ssl", "--no-prss", "--no-log"]
        program = [str(python), str(HERE / "parties_mpyc.py"), str(BINS), str(repeats), *common]
        running = [
            subprocess.Popen([*program, f"-I{k}"], cwd=folder, stdout=subprocess.PIPE, text=True)
            for k in range(members)
        ]
        outputs = [process.communicate()[0] for process in running]
    return [float(line) for line in outputs[0].split()][3:]


def mpyc() -> bool:
    """A noised histogram by Shamir shares against a bare sum in MPyC, in turns."""
    print(f"\nA histogram of {BINS:,} bins by 3 members over TLS; medians of {3 * (REPEATS - 3)} runs")
    ours: list[float] = []
    theirs: list[float] = []
    charged: list[float] = []
    for _ in range(3):
        ours += our_runs("C", 3, 1, repeats=REPEATS).each
        theirs += mpyc_runs(3, repeats=REPEATS)
        charged += our_runs("C", 3, 1, repeats=REPEATS, ledger=True).each
    mine, bare, paid = (statistics.median(side) for side in (ours, theirs, charged))
    ratio = mine / bare
    print(f"  C, noised and durable {1e3 * mine:.1f} ms;  bare MPyC sum {1e3 * bare:.1f} ms")
    print(f"  ratio {ratio:.2f}   wanted <= 2   {'yes' if ratio <= 2 else 'NO'}")
    print(f"  with each member's charge on its own ledger: {1e3 * paid:.1f} ms, ratio {paid / bare:.2f}")
    return ratio <= 2


def growth(sizes: list[int]) -> bool:
    """Time and bytes of one member as members grow, for each protocol."""
    print(f"\n{BINS:,} bins, one process per member on this machine's cores, so time grows with them all")
    print(f"  {'':<18} {'m':>3} {'t':>3} {'time':>10} {'sent':>10} {'received':>10}")
    good = True
    for letter in ("A", "B", "C", "D"):
        sent: list[tuple[int, int]] = []
        for m in sizes:
            t = m - 1 if letter == "A" else (m - 1) // 2
            one = our_runs(letter, m, t, repeats=5 if m > 10 else 8)
            sent.append((m, one.sent))
            print(
                f"  {letter} {NAMES[letter]:<16} {m:>3} {t:>3} {1e3 * one.seconds:>7.0f} ms "
                f"{one.sent / 1e6:>7.2f} MB {one.received / 1e6:>7.2f} MB",
                flush=True,
            )
        # What a member sends: one vector (A, D), or one to each other member (B, C); D adds seeds to each.
        order = 1.0 if letter in "BC" else 0.0
        allowed = 1.15 if letter != "D" else 1.3
        (first, least), (last, most) = sent[0], sent[-1]
        fine = most / least <= allowed * ((last - 1) / (first - 1)) ** order
        good &= fine
        grows = f"x {most / least:.1f} from m = {first} to {last}"
        print(f"    bytes sent {grows}: the protocol's own order {'held' if fine else 'NOT held'}")
    return good


def main() -> None:
    """All figures, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="error,mpyc,growth")
    parser.add_argument("--members", default="3,10,30")
    chosen = parser.parse_args()
    sizes = [int(part) for part in chosen.members.split(",")]
    figures: dict[str, Callable[[], bool]] = {"error": error, "mpyc": mpyc, "growth": lambda: growth(sizes)}
    met = [figures[name]() for name in chosen.only.split(",")]
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
