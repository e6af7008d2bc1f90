"""Planted bugs in the code that runs: each must be seen by the auditor.

    .venv/bin/python -m benchmarks.planted_bugs [--only words] [--seconds 5]

`benchmarks/mutations.py` changes numbers and operators one by one. Here are mistakes that a person might
make: a coin too many, a clamp that is lost in one type, a charge that comes too late. Each is planted in a
copy of the package, and a fresh process runs the quick stages of the cases that are named, until one does
not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
WORKER = """
import json, sys
from lapwing.audit import StageBudget, cases
from lapwing.audit.audit_run import run_case
wanted, seconds = json.loads(sys.argv[1]), float(sys.argv[2])
budget = StageBudget(seconds=seconds, error=1e-8, is_thorough=False)
for case in cases():
    if any(words in case.name for words in wanted):
        found = run_case(case, budget)
        if found.witness is not None or found.unable:
            why = found.witness.event if found.witness is not None else found.unable[0]
            print(json.dumps([case.name, found.stages[-1].stage.value, why[:150]]))
            break
else:
    print(json.dumps(None))
"""


@dataclass(frozen=True)
class Planted:
    """A bug: the text of a file that is replaced, and the cases that may see it."""

    words: str
    file: str
    before: str
    after: str
    cases: tuple[str, ...]


_RANDOMIZERS, _PAGE = "survey/randomizers", "survey/pages/randomize.js"
_SCRIPT = ("the page's script",)
BUGS = (
    Planted("one of several: the neighbour of the answer is sent as the answer",
            f"{_RANDOMIZERS}/index_oracles.py", "return other + (other >= answer)",
            "return other + (other > answer)", ("survey: one of several",)),
    Planted("Hadamard: answers share rows", f"{_RANDOMIZERS}/index_oracles.py",
            "odd = not source.odds(self.favoured)\n        row = answer + 1",
            "odd = not source.odds(self.favoured)\n        row = answer | 1", ("survey: Hadamard",)),
    Planted("Duchi: one step too many", f"{_RANDOMIZERS}/numbers.py",
            "int(source.below(self.steps) < answer)", "int(source.below(self.steps + 1) < answer)",
            ("survey: Duchi",)),
    Planted("window: its first message is twice as likely", f"{_RANDOMIZERS}/numbers.py",
            "return int(outside + self.width * (outside >= start))",
            "return int(outside + self.width * (outside > start))", ("survey: square wave",)),
    Planted("hybrid: the other part", f"{_RANDOMIZERS}/numbers.py",
            "return int(source.odds(self.odds))", "return int(not source.odds(self.odds))",
            ("survey: hybrid",)),
    Planted("coins of five bytes", "survey/randomize.py", "_ODDS_BYTES = 6", "_ODDS_BYTES = 5",
            ("survey: two coins",)),
    Planted("page: words lose fewer letters", _PAGE, "const LETTER_BITS = 5n", "const LETTER_BITS = 4n",
            _SCRIPT),
    Planted("page: two options share a bit", _PAGE, "1 << (option & 7)", "1 << (option & 6)", _SCRIPT),
    Planted("page: a list that lacks the answer is shorter", _PAGE,
            "const wanted = recipe.chosen - (told ? 1 : 0);", "const wanted = recipe.chosen - 1;", _SCRIPT),
    Planted("page: numbers begin at the wrong end", _PAGE,
            "bytes[at] = Number(number & 255n);", "bytes[count - 1 - at] = Number(number & 255n);",
            _SCRIPT),
    Planted("texts are clamped at twice their bound", "engines/dialect.py",
            "self.float_steps(self.cast(text, self.float_type), step, first, last)",
            "self.float_steps(self.cast(text, self.float_type), step, first, 2 * last)", ("SUM",)),
    Planted("decimals are not clamped above", "engines/dialect.py", "if high <= shape.last:",
            "if high <= shape.last and shape.family is TypeFamily.WHOLE:", ("SUM",)),
    Planted("one row of a unit too many", "sql/reading/render.py", "{RANK} <= {scan.rows}",
            "{RANK} <= {scan.rows + 1}", ("COUNT",)),
    Planted("quantile: the sensitivity of the median for all", "core/order_statistics.py",
            "Relation.REPLACE else max(f, 1 - f))", "Relation.REPLACE else Fraction(1, 2))", ("uantile",)),
    Planted("selection of keys: one unit more", "core/partition_selection.py",
            "held = np.clip(whole_numbers(counts), 0, last + 1)",
            "held = np.clip(whole_numbers(counts) + 1, 0, last + 1)", ("artition", "key")),
    Planted("permute and flip: coins at twice the rate", "core/selection.py",
            "bernoulli_exp(wholes.max() - wholes, rate=self.rate)",
            "bernoulli_exp(wholes.max() - wholes, rate=2 * self.rate)", ("ermute",)),
    Planted("noisy max: half of the noise", "core/selection.py",
            "np.argmax(checked + discrete_laplace(self.scale, len(checked)))",
            "np.argmax(checked + discrete_laplace(self.scale / 2, len(checked)))", ("oisy max",)),
    Planted("Gaussian: less noise from ε = 10 on", "core/gaussian.py", "return cls(sigma, squared, dims)",
            "return cls(sigma * Fraction(9, 10) if epsilon >= 10 else sigma, squared, dims)",
            ("Gaussian",)),
    Planted("Gaussian: the first half of the coordinates again", "core/gaussian.py",
            "return checked + discrete_gaussian(self.sigma, len(checked))",
            "half = discrete_gaussian(self.sigma, -(-len(checked) // 2))\n"
            "        return checked + np.concatenate([half, half])[: len(checked)]", ("Gaussian",)),
    Planted("DP-SGD: the same sample in each step", "learn/sgd/randomness.py",
            "return self.rows_of(np.flatnonzero(bernoulli(rate, len(self))), unit_rows)",
            "if not hasattr(self, '_kept'):\n            self._kept = bernoulli(rate, len(self))\n"
            "        return self.rows_of(np.flatnonzero(self._kept), unit_rows)", ("DP-SGD",)),
    Planted("DP-SGD: every second coordinate without noise", "learn/sgd/randomness.py",
            "part[:] = np.add(drawn, round_to_grid(part, grid), out=drawn)",
            "drawn[::2] = 0\n        part[:] = np.add(drawn, round_to_grid(part, grid), out=drawn)",
            ("DP-SGD",)),
    Planted("DP-SGD: units are clipped at one and a half", "learn/sgd/clipping.py",
            "factors = (self._clip / norms).clamp_(max=1.0)",
            "factors = (1.5 * self._clip / norms).clamp_(max=1.0)", ("DP-SGD",)),
    Planted("logistic regression: samples are larger", "learn/trainers/linear_models.py",
            "else bernoulli(rate, len(rows))", "else bernoulli(min(rate * 13 / 10, 1), len(rows))",
            ("logistic regression",)),
    Planted("filter: Σε admits one unit more", "core/budget.py",
            "if sums[EPSILON] <= caps[EPSILON] and", "if spent[EPSILON] < caps[EPSILON] and", ("ledger",)),
    Planted("filter: a Rényi order admits one charge more", "core/budget.py",
            "            if sums[k] <= caps[k]:", "            if spent[k] <= caps[k]:", ("ledger",)),
    Planted("gate: a key is not kept", "ledger/gate.py",
            "chosen = _fresh_key() if key is None else key\n            receipt",
            "chosen = _fresh_key()\n            receipt", ("ledger",)),
    Planted("charged read: rows are read first", "ledger/gate.py", "            values = read()\n", "",
            ("ledger",)),
    Planted("device: the report is not written", "survey/respondent.py",
            "            state.store()  # nobody gets to see the report before this\n", "", ("device",)),
    Planted("device: the lifetime is for each survey", "survey/respondent.py",
            "left = max(0, lifetime - state.spent)", "left = lifetime", ("device",)),
    Planted("parties: one honest member more", "parties/protocols/protocol.py",
            "return setting.members - setting.coalition - setting.losses",
            "return setting.members - setting.coalition - setting.losses + (setting.members > 3)",
            ("protocol",)),
    Planted("parties: a polynomial of a lower degree", "parties/protocols/secret_sharing.py",
            "(threshold - 1) * length).reshape(threshold - 1, length)",
            "(threshold - 1) * length).reshape(threshold - 1, length)\n        drawn[1:] = 0",
            ("protocol",)),
    Planted("Laplace shares: for one member more", "core/laplace.py",
            "polya_share(self.scale, len(checked), parties=self.of)",
            "polya_share(self.scale, len(checked), parties=self.of + 1)", ("Laplace shares",)),
    Planted("randomized response: the answer among the others", "core/randomized_response.py",
            "others = uniform_int(1, self.options, len(true))",
            "others = uniform_int(0, self.options, len(true))", ("andomized response",)),
    Planted("people by key: one of them in L2", "sql/question/aggregates.py",
            '((1, self._sum("units")),), most, most)', '((1, self._sum("units")),), most, 1)',
            ("COUNT of people",)),
    Planted("pairs: half of the distance in L2", "sql/question/aggregates.py",
            "NoisySumPair(name, above, l1, l1 * l1, ONE, below)",
            "NoisySumPair(name, above, l1, (l1 * l1 + 1) // 2, ONE, below)", ("SQL: AVG",)),
    Planted("covariance: rows that lack the other column", "sql/question/aggregates.py",
            "x, y = _where_known(x, second), _where_known(y, first)", "x = _where_known(x, second)",
            ("covariance",)),
    Planted("folded ids: capitals make another person", "sql/reading/column_codes.py",
            "return dialect.lower(dialect.trim(text)) if self.folds else text",
            "return dialect.trim(text) if self.folds else text", ("folded",)),
    Planted("quantile: a replaced row moves a score as an added one", "core/order_statistics.py",
            "(Fraction(1) if self.relation is Relation.REPLACE else max(f, 1 - f))", "max(f, 1 - f)",
            ("quantile",)),
    Planted("noisy max: exact scores decide between equal noisy ones", "core/selection.py",
            "        return int(np.argmax(checked + discrete_laplace(self.scale, len(checked))))",
            "        noisy = checked + discrete_laplace(self.scale, len(checked))\n"
            "        return int(np.lexsort((checked, noisy))[-1])", ("oisy max",)),
    Planted("above threshold: noise for one yes", "core/selection.py",
            "return 2 * self.positives * self.sensitivity /", "return 2 * self.sensitivity /",
            ("above threshold",)),
    Planted("Gaussian: σ above 16 is rounded down", "core/gaussian.py",
            "return checked + discrete_gaussian(self.sigma, len(checked))",
            "sigma = Fraction(math.floor(self.sigma)) if self.sigma > 16 else self.sigma\n"
            "        return checked + discrete_gaussian(sigma, len(checked))", ("Gaussian",)),
    Planted("Laplace: two zeros in large batches", "core/laplace_sampler.py", "            out ^= sign\n",
            "            out ^= sign\n            out -= sign\n", ("Laplace",)),
    Planted("page: a device is charged for the dearest question", "survey/pages/price.js",
            "reduce(([a, b], [c, d]) => [a * c, b * d], [1n, 1n])", "reduce(larger, [1n, 1n])", _SCRIPT),
    Planted("parties: two sets share no honest member", "parties/protocols/protocol.py",
            "(self.members + self.coalition) // 2 + 1 if", "(self.members + self.coalition + 1) // 2 if",
            ("protocol",)),
    Planted("parties: pieces of 60 bits", "parties/protocols/secret_sharing.py",
            "uniform_int(0, modulus, count)", "uniform_int(0, 1 << (modulus.bit_length() - 1), count)",
            ("protocol B",)),
    Planted("publishing: a step is charged after its noise", "publish/measured/private_marginals.py",
            "            self._charge(loss)\n            self._journal.end(self._drawn(draw))\n",
            "            self._journal.end(self._drawn(draw))\n            self._charge(loss)\n",
            ("publish: independent",)),
    Planted("ledger: charges take what is reserved", "ledger/sqlite_store.py",
            'f"left_{k} - held_{k} >= ?{k + 1}"', 'f"left_{k} >= ?{k + 1}"', ("ledger",)),
)  # fmt: skip


def tried(bug: Planted, folder: Path, seconds: float) -> str:
    """Plant a bug in a copy of the package, and return what saw it; empty if nothing did."""
    package = folder / "package"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    try:
        file = package / "lapwing" / bug.file
        text = file.read_text()
        if text.count(bug.before) != 1:
            sys.exit(f"{bug.words}: the text is {text.count(bug.before)} times in {bug.file}")
        planted = text.replace(bug.before, bug.after)
        if bug.words.startswith("charged read"):
            planted = planted.replace(
                "        def run() -> bytes:\n", "        values = read()\n\n        def run() -> bytes:\n"
            )
        file.write_text(planted)
        done = subprocess.run(
            [sys.executable, "-c", WORKER, json.dumps(bug.cases), str(seconds)], capture_output=True,
            env={**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"},
            text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return f"the audit ended: {done.stderr.strip().splitlines()[-1][:150]}"
        found = json.loads(done.stdout.strip().splitlines()[-1])
        return "" if found is None else ": ".join(found)
    finally:
        shutil.rmtree(package)


def main() -> None:
    """Try all bugs, and print what saw each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="take only bugs with this in their words")
    parser.add_argument("--seconds", type=float, default=5, help="the time of a sampled stage")
    given = parser.parse_args()
    todo = [bug for bug in BUGS if given.only in bug.words]
    caught = 0
    with tempfile.TemporaryDirectory() as folder:
        for bug in todo:
            found = tried(bug, Path(folder), given.seconds)
            caught += bool(found)
            print(f"{'caught' if found else 'MISSED':<7}{bug.words}  [{found}]", flush=True)
    print(f"{caught} of {len(todo)} caught")


if __name__ == "__main__":
    main()
