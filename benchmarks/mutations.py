"""A mutation run: a number or operator that decides privacy is changed. The auditor must see it.

    .venv/bin/python -m benchmarks.mutations [--only laplace] [--every 5] [--list] [--json FILE]

The mutants are in the functions of TARGETS: scales, rates, sensitivities, probabilities, losses, and the
division of a budget. LEFT_OUT names all other functions of the same files that have arithmetic, each with
the reason; the run stops if a function is in neither.

Each mutant is a copy of the package with one change: a number goes up or down, `*` and `/`, `+` and `-`,
or `min` and `max` are swapped, a factor or an exponent is dropped. A fresh process runs those quick stages
of the registry that call the changed function, cheapest first, until one does not hold. Survivors
then meet the exact stages with all their settings and, inside of samplers, 20,000 draws.

Half of the changes only add noise or charge more. A mutant that survives is *harmless* if that is
measured: something moved, and no bound of the registry (ε, δ or a Rényi value) is used up to a larger
share, beyond a millionth, than without the change; or a budget was divided in another way, and its parts
were still found to be within the price. EXPLAINED has what a person judged. All others are gaps. The share
is: caught / (caught + gaps).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from benchmarks.mutation_targets import EXPLAINED, LEFT_OUT, SAMPLERS, TARGETS

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"
WORKERS = 2
SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
# Texts of errors, types and indices are no mechanism.
SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arguments)
EXTREMES = {"min": "max", "max": "min"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    function: str
    line: int
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """The change in one line, without the number of the line."""
        return f"{self.file}: {self.function}: {self.before} -> {self.after}"

    @property
    def key(self) -> tuple[str, int]:
        """The change and its line."""
        return self.name, self.line


@dataclass(frozen=True)
class Tried:
    """What became of a mutant: its outcome, by which stage, and why."""

    outcome: str
    stage: str = ""
    why: str = ""


def mutants(file: str) -> Iterator[Mutant]:
    """All changes of a file, one by one."""
    whole = (SOURCE / "lapwing" / file).read_bytes()
    starts = [0]
    for line in whole.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for name, node in _functions(ast.parse(whole)):
        found = list(_within(node))
        if name in LEFT_OUT.get(file, {}):
            continue
        if name not in TARGETS[file]:
            if found:
                sys.exit(f"{file}: {name} has arithmetic, and is in neither TARGETS nor LEFT_OUT")
            continue
        for each in found:
            first = starts[each.lineno - 1] + each.col_offset
            last = starts[(each.end_lineno or each.lineno) - 1] + (each.end_col_offset or 0)
            for after in dict.fromkeys(_changed(each)):
                made = whole[:first] + f"({after})".encode() + whole[last:]
                yield Mutant(file, name, each.lineno, ast.unparse(each), after, made.decode())


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield all functions and methods. Those inside of another function belong to it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield f"{prefix}{child.name}", child


def _within(node: ast.AST) -> Iterator[ast.expr]:
    is_number = isinstance(node, ast.Constant) and type(node.value) in {int, float}
    is_operation = isinstance(node, ast.BinOp) and type(node.op) in {*SWAPPED, ast.Pow}
    is_extreme = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXTREMES
    if isinstance(node, ast.expr) and (is_number or is_operation or is_extreme):
        yield node
    for name, child in ast.iter_fields(node):
        if name in {"annotation", "returns", "slice", "decorator_list"}:
            continue
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST) and not isinstance(each, SKIPPED) and not _is_bookkeeping(each):
                yield from _within(each)


def _is_bookkeeping(node: ast.AST) -> bool:
    """Whether this is a check of arguments, or a precision in bits."""
    if isinstance(node, ast.keyword):
        return node.arg in {"at_least", "guard", "dtype", "maxsize"}
    return isinstance(node, ast.If) and all(isinstance(one, ast.Raise) for one in node.body)


def _changed(node: ast.expr) -> Iterator[str]:
    """Yield changes in both directions."""
    match node:
        case ast.Constant(value=int() as value):
            yield str(value + 1)
            if value > 1:
                yield str(value - 1)
        case ast.Constant(value=float() as value):
            yield str(value * 2)
            yield str(value / 2)
        case ast.Call(func=ast.Name() as function):
            other = ast.Name(EXTREMES[function.id])
            yield ast.unparse(ast.Call(other, node.args, node.keywords))
        case ast.BinOp(op=ast.Pow()):
            yield ast.unparse(node.left)
        case ast.BinOp():
            swapped = ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
            yield ast.unparse(ast.fix_missing_locations(swapped))
            if isinstance(node.op, ast.Mult | ast.Div):
                yield ast.unparse(node.left)


def run(package: Path, file: str, function: str, seconds: float, baseline: Path) -> Tried:
    """Whether the auditor sees something in this copy of the package, and what."""
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(HERE / "mutation_worker.py"), file, function, str(baseline)]
    if function in SAMPLERS.get(file, ()):
        command.append("sampled")
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return Tried("too slow")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return Tried("error", why=(done.stderr.strip().splitlines() or ["no output"])[-1][:120])
    return Tried(**json.loads(lines[-1]))


def main() -> None:
    """Run all mutants. Print a table, the survivors and the share that is caught."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, help="take only every n-th mutant")
    parser.add_argument("--first", type=int, default=0, help="begin with the mutant of this number")
    parser.add_argument("--baseline", type=Path, help="a file that keeps the numbers without a change")
    parser.add_argument(
        "--again", type=Path, help="take outcomes from this file of --json, and run the rest and survivors"
    )
    parser.add_argument("--only", default="", help="take only files and functions with this in their names")
    parser.add_argument("--seconds", type=float, default=240, help="the time limit of one mutant")
    parser.add_argument("--list", action="store_true", help="list the mutants, and run none")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    given = parser.parse_args()
    todo = [one for file in TARGETS for one in mutants(file) if given.only in one.name]
    todo = todo[given.first :: given.every]
    if given.list:
        print("\n".join(f"{one.line:>4} {one.name}" for one in todo), len(todo), sep="\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copy = Path(folder) / str(number)
            shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
            copies.put(copy)
        baseline = given.baseline or Path(folder) / "baseline.json"
        if not baseline.exists():
            unchanged = run(Path(folder) / "0", "", "", 1800, baseline)
            if unchanged.outcome != "survived":
                sys.exit(f"without a change the registry does not hold: {unchanged}")

        earlier = _settled(given.again) if given.again else {}

        def tried(mutant: Mutant) -> Tried:
            if mutant.key in earlier:
                return earlier[mutant.key]
            copy = copies.get()
            target = copy / "lapwing" / mutant.file
            try:
                target.write_text(mutant.text)
                why = _explanation(mutant)
                outcome = run(copy, mutant.file, mutant.function, given.seconds, baseline)
                is_judged = outcome.outcome == "survived" and bool(why)
                return Tried("harmless", "by hand", why) if is_judged else outcome
            finally:
                shutil.copy(SOURCE / "lapwing" / mutant.file, target)
                copies.put(copy)

        outcomes: list[Tried] = []
        with ThreadPoolExecutor(WORKERS) as pool:
            for number, outcome in enumerate(pool.map(tried, todo), 1):
                outcomes.append(outcome)
                told = (
                    f"{number} of {len(todo)}: {outcome.outcome} {outcome.stage}: {todo[number - 1].name}"
                )
                print(f"{told}  [{outcome.why}]", file=sys.stderr, flush=True)
    if given.json:
        rows = [{**asdict(one), **asdict(other)} for one, other in zip(todo, outcomes, strict=True)]
        given.json.write_text(
            json.dumps([{**row, "text": ""} for row in rows], indent=1, ensure_ascii=False)
        )
    report(todo, outcomes)


def _settled(file: Path) -> dict[tuple[str, int], Tried]:
    """Return earlier outcomes, but for mutants that survived or were too slow."""
    found = {}
    for row in json.loads(file.read_text()):
        tried = Tried(**{name: row.pop(name) for name in ("outcome", "stage", "why")})
        if tried.outcome not in {"survived", "too slow"}:
            found[Mutant(**row).key] = tried
    return found


def _explanation(mutant: Mutant) -> str:
    """Return what a person judged about a mutant that survives; empty if nothing."""
    return next((why for words, why in EXPLAINED.items() if mutant.name.startswith(words)), "")


def report(todo: list[Mutant], outcomes: list[Tried]) -> None:
    """Print a table of all mutants, those that survived, and the share that is caught."""
    print()
    for mutant, tried in sorted(zip(todo, outcomes, strict=True), key=lambda pair: pair[1].outcome):
        print(f"{tried.outcome:<9}{tried.stage:<9}{mutant.name}  [{tried.why}]")
    counts = Counter((tried.outcome, tried.stage) for tried in outcomes)
    print()
    for (outcome, stage), count in counts.most_common():
        print(f"{outcome:<9} {stage:<9}{count:>5}")
    total = Counter(tried.outcome for tried in outcomes)
    caught, gaps = total["caught"], total["survived"] + total["too slow"]
    print(f"{len(todo)} mutants; {total['harmless']} harmless, {total['error']} end in an error at once")
    print(f"share caught of those that could matter: {caught / max(caught + gaps, 1):.3f}")
    print(f"share with those that end in an error: "
          f"{(caught + total['error']) / max(caught + gaps + total['error'], 1):.3f}")  # fmt: skip
    print("left out:")
    for file, functions in LEFT_OUT.items():
        for function, reason in functions.items():
            print(f"  {file}: {function}: {reason}")


if __name__ == "__main__":
    main()
