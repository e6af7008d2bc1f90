"""Encoding and aggregating simulated respondents beside pure-ldp and multi-freq-ldpy, in one run.

Ours: answers to bytes as they are sent, and from these bytes (checked) to shares of all options. Theirs:
answers to their reports in memory, and from these to shares. Each peer has a process and an environment of
its own, gets fewer respondents, and is scaled to one of them: it works one respondent at a time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.query_data import Figures, heading, say
from benchmarks.survey_variance import estimates
from lapwing.survey.randomizers import (
    FrequencyOracle,
    HadamardResponse,
    KaryResponse,
    SubsetSelection,
    UnaryEncoding,
)

OPTIONS, EPSILON = 100, 1
FEW = 30_000  # respondents of a peer
INSTALLING = 1200  # seconds
ENCODE, AGGREGATE = 15, 10  # times faster, at least

_LOOP = f"""
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
out = os.fdopen(os.dup(1), "w")  # what libraries print goes elsewhere
os.dup2(2, 1)
K, EPSILON = {OPTIONS}, {float(EPSILON)}

def serve(protocols):
    say = lambda reply: (out.write(json.dumps(reply) + "\\n"), out.flush())
    say(sorted(protocols))
    for line in sys.stdin:
        job = json.loads(line)
        answers = [i * 7919 % K for i in range(job["people"])]
        try:
            encode, aggregate = protocols[job["protocol"]]()
            encode(answers[0])  # what is compiled once is not measured
            start = time.perf_counter()
            reports = [encode(answer) for answer in answers]
            middle = time.perf_counter()
            shares = aggregate(reports)
            end = time.perf_counter()
            assert len(shares) == K
            say({{"encode": middle - start, "aggregate": end - middle}})
        except Exception as error:
            say({{"why": f"{{type(error).__name__}}: {{error}}"[:300]}})
"""

_PURE_LDP = """
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer
from pure_ldp.frequency_oracles.hadamard_response import HadamardResponseClient, HadamardResponseServer
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer

def sides(client, server):
    def aggregate(reports):
        server.aggregate_all(reports)
        return server.estimate_all(range(1, K + 1), suppress_warnings=True)
    return (lambda answer: client.privatise(answer + 1)), aggregate

def hadamard():
    server = HadamardResponseServer(EPSILON, K)
    return sides(HadamardResponseClient(EPSILON, K, server.get_hash_funcs()), server)

serve({
    "GRR": lambda: sides(DEClient(EPSILON, K), DEServer(EPSILON, K)),
    "OUE": lambda: sides(UEClient(EPSILON, K, use_oue=True), UEServer(EPSILON, K, use_oue=True)),
    "HR": hadamard,
    "OLH": lambda: sides(LHClient(EPSILON, K, use_olh=True), LHServer(EPSILON, K, use_olh=True)),
})
"""

_MULTI_FREQ = """
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client
from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Aggregator_MI, SS_Client
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client

serve({
    "GRR": lambda: (lambda v: GRR_Client(v, K, EPSILON), lambda r: GRR_Aggregator_MI(r, K, EPSILON)),
    "OUE": lambda: (lambda v: UE_Client(v, K, EPSILON, True), lambda r: UE_Aggregator_MI(r, EPSILON, True)),
    "SS": lambda: (lambda v: SS_Client(v, K, EPSILON), lambda r: SS_Aggregator_MI(r, K, EPSILON)),
    "OLH": lambda: (
        lambda v: LH_Client(v, K, EPSILON, True), lambda r: LH_Aggregator_MI(r, K, EPSILON, True)
    ),
})
"""

PEERS = {  # what pip installs, what it needs beside that without saying so, and the code
    "pure-ldp": ("pure-ldp==1.2", ["scikit-learn", "statsmodels"], _PURE_LDP),
    "multi-freq-ldpy": ("multi-freq-ldpy==0.2.5", [], _MULTI_FREQ),
}
OURS: dict[str, tuple[str, FrequencyOracle]] = {
    "GRR": ("k-ary randomized response", KaryResponse.for_epsilon(EPSILON, options=OPTIONS)),
    "OUE": ("unary encoding (OUE)", UnaryEncoding.for_epsilon(EPSILON, options=OPTIONS)),
    "SS": ("subset selection", SubsetSelection.for_epsilon(EPSILON, options=OPTIONS)),
    "HR": ("Hadamard response", HadamardResponse.for_epsilon(EPSILON, options=OPTIONS)),
}


@dataclass
class Peer:
    """A running peer, and the protocols that it has."""

    name: str
    process: subprocess.Popen[str]
    protocols: tuple[str, ...] = ()

    def read(self) -> Any:
        """Its next reply."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def measure(self, protocol: str) -> dict[str, Any]:
        """Seconds for one respondent, or why there are none."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"protocol": protocol, "people": FEW}) + "\n")
        self.process.stdin.flush()
        reply = self.read() or {"why": "its process ended"}
        return {key: value if key == "why" else value / FEW for key, value in reply.items()}

    def end(self) -> None:
        """Let it go."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _run(command: list[str]) -> str:
    """Nothing, or the last lines of what went wrong."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLING, check=False)
    except subprocess.TimeoutExpired:
        return "took too long"
    lines = [line for line in ran.stderr.splitlines() if "WARNING" not in line]
    return " ".join(lines[-2:])[:200] if ran.returncode else ""


def started(figures: Figures, name: str, cache: Path, folder: Path) -> Peer | None:
    """A peer that is ready. Its environment is made once; what it does not declare is said and added."""
    package, undeclared, code = PEERS[name]
    home = cache / name
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        say(f"installing {package} under {home}")
        pip = [str(python), "-m", "pip", "install", "-q"]
        for command in ([sys.executable, "-m", "venv", "--clear", str(home)], [*pip, package]):
            if why := _run(command):
                figures.note(package, f"does not install: {why}")
                return None
        (home / "alone").write_text(_run([str(python), "-c", code.partition("\n\n")[0]]), encoding="utf-8")
        if undeclared and (why := _run([*pip, *undeclared])):
            figures.note(package, f"what it needs does not install: {why}")
            return None
        (home / "installed").touch()
    if why := (home / "alone").read_text(encoding="utf-8"):
        figures.note(f"{package}, as it declares itself", f"does not import: {why.strip()}")
    script = folder / f"{name}.py"
    script.write_text(f"{_LOOP}\n{code}", encoding="utf-8")
    log = open(folder / f"{name}.log", "w", encoding="utf-8")  # noqa: SIM115 (the process writes it)
    process = subprocess.Popen(
        [str(python), str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
    )
    peer = Peer(name, process)
    protocols = peer.read()
    if protocols is None:
        lines = (folder / f"{name}.log").read_text(encoding="utf-8").strip().splitlines()
        figures.note(package, f"does not start: {lines[-1][:200] if lines else ''}")
        peer.end()
        return None
    peer.protocols = tuple(protocols)
    also = f", with {', '.join(undeclared)}" if undeclared else ""
    both = [protocol for protocol in OURS if protocol in protocols]
    figures.note(f"{package}{also}", f"has {', '.join(both)} of {', '.join(OURS)}")
    return peer


def ours(oracle: FrequencyOracle, answers: NDArray[np.int64]) -> dict[str, float]:
    """Seconds for one respondent: to bytes, and from bytes."""
    start = time.perf_counter()
    rows = oracle.encode(oracle.sample(answers))
    middle = time.perf_counter()
    estimates(oracle, oracle.decode(rows))
    end = time.perf_counter()
    return {"encode": (middle - start) / len(answers), "aggregate": (end - middle) / len(answers)}


def compare(figures: Figures, protocol: str, peers: list[Peer], people: int) -> None:
    """One protocol: the sides take turns. The first turn is not counted."""
    name, oracle = OURS[protocol]
    answers = np.arange(people, dtype=np.int64) * 7919 % OPTIONS
    mine: list[dict[str, float]] = []
    theirs: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    for _ in range(figures.repeats + 1):
        mine.append(ours(oracle, answers))
        for peer in peers:
            theirs[peer.name].append(peer.measure(protocol))
    failed = {
        peer: found[-1]["why"] for peer, found in theirs.items() if any("why" in one for one in found)
    }
    for peer_name, why in failed.items():
        figures.note(f"{name}: {peer_name}", why)
        del theirs[peer_name]
    for what, least in (("encode", ENCODE), ("aggregate", AGGREGATE)):
        own = statistics.median(turn[what] for turn in mine[1:])
        others = {
            peer: statistics.median(turn[what] for turn in found[1:]) for peer, found in theirs.items()
        }
        rates = ", ".join(f"{peer} {1e-3 / each:,.0f}" for peer, each in others.items())
        detail = f"thousand respondents a second: lapwing {1e-3 / own:,.0f}, {rates or 'no peer'}"
        if others:
            figures.factor(f"{name}, {what}: times faster", min(others.values()) / own, least, detail)
        else:
            figures.note(f"{name}, {what}", detail)


def speed_figures(figures: Figures, people: int, cache: Path) -> None:
    """Every protocol that a peer has too."""
    heading(
        f"speed: k = {OPTIONS}, ε = {EPSILON}, {people:,} respondents ({FEW:,} of a peer, scaled), "
        f"median of {figures.repeats}"
    )
    with tempfile.TemporaryDirectory() as folder:
        peers = [peer for name in PEERS if (peer := started(figures, name, cache, Path(folder)))]
        try:
            for protocol in OURS:
                compare(figures, protocol, [peer for peer in peers if protocol in peer.protocols], people)
            for peer in peers:
                for protocol in set(peer.protocols) - set(OURS):  # ours has none: only whether theirs runs
                    reply = peer.measure(protocol)
                    figures.note(f"{peer.name}, {protocol}", reply.get("why", "runs; not measured"))
        finally:
            for peer in peers:
                peer.end()
