"""Other libraries on the same question, data, ε, δ and bound: each in a process and environment of its own.

A peer's process imports its library, loads the rows in the form that the library likes best, and then
answers one job after the other, so that all sides take turns. Only planning and running are timed.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.query_data import (
    DELTA,
    LONGEST,
    Figures,
    Size,
    heading,
    make_duckdb,
    opened,
    say,
    seconds,
    write_policy,
)
from benchmarks.query_error import errors_of

GROUPS = 199
EPSILON = 1
BOUND, ABOVE_ALL = 5, 40  # rows of a person: half of all are dropped; nobody has more
QUESTIONS = {"count": "COUNT(*)", "sum": "SUM(stay)", "mean": "AVG(stay)"}
OUR_TURNS = 3
INSTALLING = 1200  # seconds

_LOOP = f"""
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
out = os.fdopen(os.dup(1), "w")  # what libraries print goes elsewhere
os.dup2(2, 1)
PATH, GROUPS, EPSILON, DELTA, HIGH = sys.argv[1], {GROUPS}, {float(EPSILON)}, {DELTA}, {LONGEST}

def serve(answer):
    out.write(json.dumps("ready") + "\\n"); out.flush()
    for line in sys.stdin:
        job = json.loads(line)
        start = time.perf_counter()
        try:
            found = answer(job["question"], job["rows"])
            reply = {{"seconds": time.perf_counter() - start, "answers": found}}
        except Exception as error:
            reply = {{"why": f"{{type(error).__name__}}: {{error}}"[:300]}}
        out.write(json.dumps(reply) + "\\n"); out.flush()
"""

_OPENDP = """
import polars as pl, opendp.prelude as dp
dp.enable_features("contrib")
rows = pl.read_parquet(PATH)
keys = pl.DataFrame({"ward": range(GROUPS)}, schema={"ward": pl.Int32})

def answer(question, bound):
    context = dp.Context.compositor(
        data=rows.lazy(),
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("patient")),
        privacy_loss=dp.loss_of(epsilon=EPSILON),
        split_evenly_over=1,
        margins=[dp.polars.Margin(by=by, max_length=len(rows)) for by in ([], ["ward"])],
    )
    stay = pl.col("stay").fill_null(0)
    wanted = {"count": dp.len(), "sum": stay.dp.sum((0, HIGH)), "mean": stay.dp.mean((0, HIGH))}[question]
    bounded = context.query().truncate_per_group(bound)
    found = bounded.group_by("ward").agg(wanted.alias("a")).with_keys(keys).release().collect()
    return {str(k): v for k, v in zip(found["ward"], found["a"])}
"""

_PIPELINE_DP = """
import pipeline_dp, pyarrow.parquet as pq
table = pq.read_table(PATH, columns=["patient", "ward", "stay"])
rows = list(zip(*(table.column(n).to_pylist() for n in range(3))))

def answer(question, bound):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    metric = getattr(pipeline_dp.Metrics, question.upper())
    limits = dict(max_contributions=bound)
    if question != "count":
        limits |= dict(min_value=0, max_value=HIGH)
    found = engine.aggregate(
        rows,
        pipeline_dp.AggregateParams(metrics=[metric], noise_kind=pipeline_dp.NoiseKind.LAPLACE, **limits),
        pipeline_dp.DataExtractors(
            privacy_id_extractor=lambda row: row[0],
            partition_extractor=lambda row: row[1],
            value_extractor=lambda row: row[2],
        ),
        public_partitions=list(range(GROUPS)),
    )
    accountant.compute_budgets()
    return {str(key): float(values[0]) for key, values in found}
"""

_SMARTNOISE = """
import pandas as pd, snsql
rows = pd.read_parquet(PATH, columns=["patient", "ward", "stay"])
SQL = {"count": "COUNT(*)", "sum": "SUM(stay)", "mean": "AVG(stay)"}
costs = {}  # it charges ε for each column, and more; what is asked for is ε in all

def answer(question, bound):
    table = {
        "rows": len(rows), "max_ids": bound, "censor_dims": False, "clamp_counts": False,
        "patient": {"type": "int", "private_id": True},
        "ward": {"type": "int"},
        "stay": {"type": "int", "lower": 0, "upper": HIGH},
    }
    sql = f"SELECT ward, {SQL[question]} AS a FROM d.visits GROUP BY ward"

    def reader(epsilon):
        privacy = snsql.Privacy(epsilon=epsilon, delta=DELTA)
        return snsql.from_df(rows, privacy=privacy, metadata={"": {"d": {"visits": table}}})

    if sql not in costs:
        costs[sql] = reader(EPSILON).get_privacy_cost(sql)[0]
    found = reader(EPSILON * EPSILON / costs[sql]).execute(sql)
    return {str(key): None if value is None else float(value) for key, value in found[1:]}
"""

_TUMULT = """
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID, KeySet, MaxRowsPerID, PureDPBudget, QueryBuilder, Session,
)
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "4").config("spark.driver.memory", "4g").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
rows = spark.read.parquet(PATH).select("patient", "ward", "stay").cache()
rows.count()

def answer(question, bound):
    session = Session.from_dataframe(
        PureDPBudget(EPSILON), "visits", rows, protected_change=AddRowsWithID("patient")
    )
    keys = KeySet.from_dict({"ward": list(range(GROUPS))})
    query = QueryBuilder("visits").enforce(MaxRowsPerID(bound)).groupby(keys)
    if question == "count":
        query = query.count("a")
    else:
        query = getattr(query, {"sum": "sum", "mean": "average"}[question])("stay", 0, HIGH, "a")
    found = session.evaluate(query, PureDPBudget(EPSILON)).collect()
    return {str(row["ward"]): float(row["a"]) for row in found}
"""

PEERS = {  # what pip installs, and the code
    "OpenDP": (["opendp[polars]"], _OPENDP),
    "PipelineDP": (["pipeline-dp", "pyarrow"], _PIPELINE_DP),
    "SmartNoise": (["smartnoise-sql", "pyarrow"], _SMARTNOISE),
    "Tumult": (["tmlt.analytics"], _TUMULT),
}


@dataclass
class Peer:
    """A running peer."""

    name: str
    process: subprocess.Popen[str]
    times: list[float] = field(default_factory=list)
    answers: list[dict[str, float]] = field(default_factory=list)
    why: str = ""

    def ask(self, **job: Any) -> Any:
        """One job. Nothing is asked again of a peer that could not."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            if job:
                print(json.dumps(job), file=self.process.stdin, flush=True)
            return json.loads(self.process.stdout.readline())
        except (json.JSONDecodeError, BrokenPipeError):
            return {"why": "its process ended"}

    def measure(self, question: str, rows: int) -> None:
        """One more answer and its seconds, unless it failed before."""
        if not self.why:
            reply = self.ask(question=question, rows=rows)
            self.why = reply.get("why", "")
            if not self.why:
                self.times.append(reply["seconds"])
                self.answers.append(reply["answers"])

    def end(self) -> None:
        """Let it go."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _started(name: str, cache: Path, data: Path, folder: Path) -> Peer | str:
    """A peer that is ready, or why there is none. Its environment is made once."""
    wanted, code = PEERS[name]
    home = cache / name.lower()
    python = home / "bin" / "python"
    done = home / "installed"
    if not done.exists():
        say(f"installing {', '.join(wanted)} under {home}")
        for command in (
            [sys.executable, "-m", "venv", str(home)],
            [str(python), "-m", "pip", "install", "-q", *wanted],
        ):
            try:
                ran = subprocess.run(
                    command, capture_output=True, text=True, timeout=INSTALLING, check=False
                )
            except subprocess.TimeoutExpired:
                return "installing took too long"
            if ran.returncode:
                lines = [line for line in ran.stderr.splitlines() if "WARNING" not in line]
                return f"does not install: {' '.join(lines[-2:])[:200]}"
        done.touch()
    script = folder / f"run_{name.lower()}.py"
    script.write_text(f"{_LOOP}\n{code}\nserve(answer)\n", encoding="utf-8")
    log = open(folder / f"{name.lower()}.log", "w", encoding="utf-8")  # noqa: SIM115 (the process writes it)
    process = subprocess.Popen(
        [str(python), str(script), str(data)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder,
    )  # fmt: skip
    peer = Peer(name, process)
    if peer.ask() == "ready":
        return peer
    peer.end()
    lines = (folder / f"{name.lower()}.log").read_text(encoding="utf-8").strip().splitlines()
    return f"does not start: {lines[-1][:200] if lines else ''}"


def compare_peers(  # noqa: PLR0917
    figures: Figures, folder: Path, size: Size, cache: Path, only: list[str], questions: list[str]
) -> None:
    """Seconds and error of each peer, and ours."""
    repeats = figures.repeats
    heading(f"peers: {size}, {GROUPS} groups, ε = {EPSILON}, δ = {DELTA}, median of {repeats}")
    make_duckdb(folder / "peers.duckdb", size, GROUPS)
    data = folder / "peers.parquet"
    with duckdb.connect(folder / "peers.duckdb", read_only=True) as connection:
        connection.execute(f"COPY visits TO '{data}'")
        truths = {
            question: dict(connection.execute(f"SELECT ward, {sql} FROM visits GROUP BY ward").fetchall())
            for question, sql in QUESTIONS.items()
        }
    for bound in (BOUND, ABOVE_ALL):
        policy = write_policy(folder / f"peers{bound}.toml", "peers.duckdb#visits", bound, GROUPS)
        with opened(policy) as dataset:
            figures.note(f"lapwing, K = {bound}, prepare, once", f"{seconds(dataset.prepare):.2f} s")
    for name in PEERS:
        if only != [""] and name.lower() not in only:
            continue
        peer = _started(name, cache, data, folder)
        if isinstance(peer, str):
            figures.note(f"{name}", peer)
            continue
        figures.note(f"{name} {_version(cache / name.lower(), PEERS[name][0][0].partition('[')[0])}", "")
        try:
            for question in questions:
                for bound in (BOUND, ABOVE_ALL) if question == "count" else (BOUND,):
                    _beside(figures, folder, peer, question, truths[question], bound, repeats)
        finally:
            peer.end()


def _version(home: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    command = [str(home / "bin" / "python"), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _beside(  # noqa: PLR0917
    figures: Figures, folder: Path, peer: Peer, question: str, truth: dict[int, float], bound: int,
    repeats: int,
) -> None:  # fmt: skip
    """One question: the sides take turns. The first turn, with what is compiled once, is not counted."""
    peer.times, peer.answers, peer.why = [], [], ""
    times: list[float] = []
    answers: list[dict[str, float]] = []
    with opened(folder / f"peers{bound}.toml") as dataset:
        for turn in range(repeats + 1):
            peer.measure(question, bound)
            for again in range(OUR_TURNS):  # ours are so short that a single one would say little
                # Another name each time: answers to the same question would be combined.
                name = f"a_{peer.name}_{turn}_{again}".lower()
                sql = f"SELECT ward, {QUESTIONS[question]} AS {name} FROM visits GROUP BY ward"
                start = time.perf_counter()
                found = dataset.plan(sql, epsilon=EPSILON).release().to_arrow()
                times.append(time.perf_counter() - start)
                assert found.num_rows == GROUPS
                keys = map(str, found.column("ward").to_pylist())
                answers.append(dict(zip(keys, found.column(name).to_pylist(), strict=True)))
    label = f"{peer.name}, {question} by group, K = {bound}"
    if peer.why:
        figures.note(label, peer.why.replace("\n", " "))
        return
    mine, theirs = statistics.median(times[OUR_TURNS:]), statistics.median(peer.times[1:])
    detail = f"lapwing {mine:.3f} s, {peer.name} {theirs:.2f} s"
    figures.factor(f"{label}: times faster", theirs / mine, 10, detail)
    ours, its = errors_of(answers[OUR_TURNS:], truth), errors_of(peer.answers[1:], truth)
    chance = 3 * (ours.uncertain**2 + its.uncertain**2) ** 0.5
    detail = (
        f"RMSE lapwing {ours.rmse:,.4g}, {peer.name} {its.rmse:,.4g}"
        f" (scatter alone {ours.scatter:,.4g}, {its.scatter:,.4g}); 1 and 3 standard errors"
    )
    figures.ratio(f"{label}: error", ours.rmse / its.rmse, 1 + chance, detail)
