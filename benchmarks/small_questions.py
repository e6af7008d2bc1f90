"""CPU time of a plan with its JSON, and of a small prepared question: what Lapwing itself costs.

The data are tiny, so that the engine has little to do. A question is planned and released; each one is new.
With `--beside`, an earlier commit does the same, in turns, each in a process of its own. Times are CPU time
of the whole process, medians.

    .venv/bin/python benchmarks/small_questions.py [--beside main] [--turns 20]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[1]
POLICY = """
dataset.name = "visits"
budget = { epsilon = 1000, delta = 1e-6, least_epsilon = 0.001 }
engine.threads = 1
[tables.visits]
source = "visits.csv"
unit = "patient"
rows_per_unit = 5
[tables.visits.columns]
ward = { values = ["north", "south", "east", "west"] }
stay = { low = 0, high = 30, step = 1 }
cost = { low = 0, high = 10_000, step = 0.01 }
"""
WARDS = ("north", "south", "east", "west")
PLAN, QUESTION = "plan with JSON", "plan and release"
TARGETS = {PLAN: 3.0, QUESTION: 15.0}  # ms of CPU
KNOWN = ", truncated rows known"
EACH_TURN = 5


def answer_times(folder: Path) -> None:
    """Read names of measurements from stdin, and print the CPU time of each in ms. This is one side."""
    import lapwing  # noqa: PLC0415 (of the commit that is measured)

    rows = [f"{p},{WARDS[p % 4]},{p * i % 31},{p * i % 10_000}" for p in range(100) for i in range(4)]
    (folder / "visits.csv").write_text("\n".join(["patient,ward,stay,cost", *rows]) + "\n")
    (folder / "visits.toml").write_text(POLICY)
    numbers = count(10)
    with lapwing.open(folder / "visits.toml", analyst="ann") as dataset:
        dataset.prepare()

        def question() -> str:
            return f"SELECT ward, COUNT(*) AS n, AVG(stay) FROM visits GROUP BY ward LIMIT {next(numbers)}"

        sides: dict[str, Callable[[], object]] = {
            PLAN: lambda: dataset.plan(question(), epsilon="0.01").to_json(),
            QUESTION: lambda: dataset.plan(question(), epsilon="0.01").release(),
        }
        for line in sys.stdin:
            name = line.strip()
            if name == KNOWN:
                dataset.truncated("visits", epsilon="0.5", beyond=10)
                print("0", flush=True)
                continue
            start = time.process_time()
            for _ in range(EACH_TURN):
                sides[name]()
            print((time.process_time() - start) * 1000 / EACH_TURN, flush=True)


class Measured:
    """One commit in a process of its own."""

    def __init__(self, tree: Path, folder: Path) -> None:
        folder.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree / "src"),
            "LAPWING_STATE": str(folder / "state"),
        }
        command = [sys.executable, str(Path(__file__)), "--answer", str(folder)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, name: str) -> float:
        """Return the CPU time of one measurement, in ms."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate(timeout=60)


@contextmanager
def earlier_tree(revision: str, folder: Path) -> Iterator[Path]:
    """Lend the files of another commit."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def compare(sides: dict[str, Measured], turns: int) -> list[str]:
    """Print the medians of all sides, and return the names of the targets that ours missed."""
    missed = []
    for known in ("", KNOWN):
        if known:
            for side in sides.values():
                side.ask(KNOWN)
        for name, most in TARGETS.items():
            times: dict[str, list[float]] = {label: [] for label in sides}
            for side in sides.values():
                side.ask(name)  # what is read or compiled once is not measured
            for _ in range(turns):
                for label, side in sides.items():
                    times[label].append(side.ask(name))
            found = {label: statistics.median(taken) for label, taken in times.items()}
            ours = found["this"]
            others = "".join(f"; {label} {ms:.2f} ms" for label, ms in found.items() if label != "this")
            print(
                f"{name + known:<42} {ours:6.2f} ms of CPU   wanted <= {most:g}   "
                f"{'yes' if ours <= most else 'NO '}{others}",
                flush=True,
            )
            missed += [name + known] if ours > most else []
    return missed


def main() -> int:
    """Measure this commit, beside another one if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--beside", default="", help="a commit to measure in turns with this one")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--answer", type=Path, default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answer is not None:
        answer_times(asked.answer)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        trees = {"this": ROOT}
        with earlier_tree(asked.beside or "HEAD", folder / "tree") as tree:
            if asked.beside:
                trees[asked.beside] = tree
            sides = {
                label: Measured(tree, folder / f"side{n}") for n, (label, tree) in enumerate(trees.items())
            }
            try:
                missed = compare(sides, asked.turns)
            finally:
                for side in sides.values():
                    side.end()
    if missed:
        print("missed:", *missed, sep="\n  ")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
