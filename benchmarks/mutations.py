"""A mutation run: one number or operator of a mechanism is changed at a time, and the auditor must see it.

    .venv/bin/python benchmarks/mutations.py [--every 5] [--only laplace] [--sampled 2] [--seconds 120]

Each mutant is a copy of the package with one change: a number is doubled or increased, `*` and `/` or `+`
and `-` are swapped, a factor is dropped. A fresh process runs the quick exact and replay stages of all
cases on it (with --sampled also the sampled ones), until one does not hold. Prints the share that is
caught, and lists the survivors. A person must explain them: some only make a mechanism more private.

Functions that compute only how accurate an answer is are left out (ACCURACY); their number is printed. A
mutant that raises an error is counted apart, and one that runs out of time does not count as caught.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

SOURCE = Path(__file__).parents[1] / "src"
CORE = (
    "laplace", "gaussian", "selection", "order_statistics", "partition_selection", "randomized_response",
    "sensitivity", "losses",
)  # fmt: skip
FILES = (*(f"lapwing/core/{name}.py" for name in CORE), "lapwing/sql/noising.py")
WORKERS = 2
SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
ACCURACY = {
    "spread", "noise_width", "deviation", "upper_tail", "_saddle", "_summed_width", "_next_width",
    "_guess_width", "_overtakes", "estimate", "standard_error", "_probabilities",
}  # fmt: skip
# Texts of errors, types and indices are no mechanism.
SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
CAUGHT = 10  # the exit status of a process in which a stage found a violation or could not run
RUNNER = f"""
import sys
from lapwing.audit.case import Family, Stage, StageBudget
from lapwing.audit.registry import cases
seconds, checks = float(sys.argv[1]), 0
budget = StageBudget(seconds=seconds, is_thorough=False)
for case in sorted(cases(), key=lambda case: case.family is not Family.MECHANISM):
    for stage in (Stage.REPLAY, Stage.EXACT, *([Stage.SAMPLED] if seconds else [])):
        if stage in case.stages:
            result = case.stages[stage](budget)
            checks += result.checks
            if not result.holds:
                print(stage.value, "|", case.name, "|", result.unable)
                sys.exit({CAUGHT})
if not checks:
    sys.exit("no case has an exact or a replay stage: nothing was compared")
"""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    line: int
    before: str
    after: str
    text: str


def mutants(file: str) -> Iterator[Mutant]:
    """All changes of a file, one by one."""
    whole = (SOURCE / file).read_bytes()
    starts = [0]
    for line in whole.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _arithmetic(ast.parse(whole)):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        for after in _changed(node):
            made = whole[:first] + f"({after})".encode() + whole[last:]
            yield Mutant(file, node.lineno, whole[first:last].decode(), after, made.decode())


def _arithmetic(node: ast.AST, *, is_inside: bool = False) -> Iterator[ast.expr]:
    """Numbers and operations in the bodies of functions, but for those of ACCURACY."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            if child.name not in ACCURACY:
                yield from _arithmetic(child, is_inside=True)
        elif isinstance(child, ast.ClassDef):
            yield from _arithmetic(child)
        elif is_inside and isinstance(child, ast.stmt):
            yield from _within(child)


def _within(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, SKIPPED):
        return
    if isinstance(node, ast.FunctionDef):
        yield from _arithmetic(ast.Module([node], []))
        return
    is_number = isinstance(node, ast.Constant) and type(node.value) in {int, float}
    if isinstance(node, ast.expr) and (
        is_number or (isinstance(node, ast.BinOp) and type(node.op) in SWAPPED)
    ):
        yield node
    for name, child in ast.iter_fields(node):
        if name in {"annotation", "returns", "slice"}:
            continue
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST):
                yield from _within(each)


def _changed(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield str(node.value + 1)
        if node.value:
            yield str(node.value * 2)
    elif isinstance(node, ast.BinOp):
        swapped = ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
        yield ast.unparse(ast.fix_missing_locations(swapped))
        if isinstance(node.op, ast.Mult | ast.Div):
            yield ast.unparse(node.left)


def run(package: Path, seconds: float, sampled: float) -> tuple[str, str]:
    """Whether the auditor sees something in this copy of the package, and what."""
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, str(sampled)], env=environment, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "too slow", ""
    if done.returncode == CAUGHT:
        return "caught by a stage", done.stdout.strip()
    if done.returncode:
        return "raised an error", done.stderr.strip().splitlines()[-1][:100]
    return "survived", ""


def main() -> None:
    """Run all mutants, and print the share that is caught and the survivors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, help="take only every n-th mutant")
    parser.add_argument("--only", default="", help="take only files with this in their names")
    parser.add_argument("--seconds", type=float, default=120, help="the time limit of one mutant")
    parser.add_argument(
        "--sampled", type=float, default=0, help="the seconds of each sampled stage; 0: none"
    )
    given = parser.parse_args()
    todo = [mutant for file in FILES if given.only in file for mutant in mutants(file)][:: given.every]
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copy = Path(folder) / str(number)
            shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
            copies.put(copy)
        unchanged = run(Path(folder) / "0", given.seconds, given.sampled)
        if unchanged[0] != "survived":
            sys.exit(f"without a change the registry does not hold: {unchanged}")

        def tried(mutant: Mutant) -> tuple[str, str]:
            copy = copies.get()
            try:
                (copy / mutant.file).write_text(mutant.text)
                return run(copy, given.seconds, given.sampled)
            finally:
                shutil.copy(SOURCE / mutant.file, copy / mutant.file)
                copies.put(copy)

        outcomes = []
        with ThreadPoolExecutor(WORKERS) as pool:
            for number, outcome in enumerate(pool.map(tried, todo), 1):
                outcomes.append(outcome)
                print(f"\r{number} of {len(todo)}", end="", file=sys.stderr, flush=True)
    counts = Counter(kind for kind, _ in outcomes)
    print()
    for kind, count in counts.most_common():
        print(f"{kind:<20}{count:>6}{count / len(todo):>8.3f}")
    either = counts["caught by a stage"] + counts["raised an error"]
    print(f"{'a stage or an error':<20}{either:>6}{either / len(todo):>8.3f}")
    print(f"left out, as they only tell accuracy: {', '.join(sorted(ACCURACY))}")
    for mutant, (kind, _) in zip(todo, outcomes, strict=True):
        if kind in {"survived", "too slow"}:
            print(f"{kind}: {mutant.file}:{mutant.line}   {mutant.before}   ->   {mutant.after}")


if __name__ == "__main__":
    main()
