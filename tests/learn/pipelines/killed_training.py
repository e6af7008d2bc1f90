"""Trains in children that kill themselves at one step, then goes on in others. Prints JSON.

    python killed_training.py FOLDER PIPELINE POINT ATTEMPT ...

One process for all points, since what it imports takes longer than what it does. It opens nothing itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lapwing.examples.rides import RIDES_POLICY, write_rides
from lapwing.learn.features import Feature, Features
from lapwing.learn.payer import PublicData
from lapwing.learn.pipelines.pipeline import load_pipeline
from lapwing.learn.pipelines.run_files import write_outputs
from lapwing.learn.pipelines.training import TrainingEvent, TrainingOutcome, train
from lapwing.learn.stream import Stream
from lapwing.ledger.gate import ReleaseStep
from lapwing.sql.policy.kinds import Numeric, Truth

SLOW_TO_IMPORT = ("dp_accounting.pld.privacy_loss_distribution", "matplotlib.backends.backend_svg")
EDITS = {  # three attempts with January, at ε ¼, ½ and 1, of which none can be accepted
    "durations": (("[1, 8]", "[1, 1]"), ("[0.5, 1.0]", "[0.25, 1.0]"), ("target = 6.1", "target = 5.0")),
    "late": (
        ("[1, 4]", "[1, 1]"), ("[1.5, 1.5]", "[0.25, 1.0]"), ("target = 0.75", "target = 0.99"),
        ('"aggressive"', '"conserve"'), ("epsilon = 0.4", "epsilon = 0.1"), ("batch = 400", "rate = 0.5"),
        ("steps = 60", "steps = 5"),
    ),
    "mean": (("[1, 4]", "[1, 1]"), ("[0.05, 0.4]", "[0.25, 1.0]"), ("target = 2.0", "target = 0.01")),
    "histogram": (("[1, 4]", "[1, 1]"), ("[0.1, 0.8]", "[0.25, 1.0]"), ("target = 0.03", "target = 1e-4")),
}  # fmt: skip


class Killer:
    """Kills this process at a point of the n-th attempt."""

    def __init__(self, point: str, attempt: int) -> None:
        self.point, self.attempt, self.now = point, attempt, 0

    def __call__(self, point: ReleaseStep) -> None:
        self._at(point.value)

    def hear(self, event: TrainingEvent) -> None:
        if event.kind == "try":
            self.now = event.tried.attempt
        self._at(event.kind)

    def _at(self, point: str) -> None:
        if (point, self.now) == (self.point, self.attempt):
            os.kill(os.getpid(), signal.SIGKILL)


def trained(folder: Path, killer: Killer) -> TrainingOutcome:
    with Stream.open(folder / RIDES_POLICY, analyst="trainer") as stream:
        pipeline = load_pipeline(folder / "pipeline.toml")
        outcome = train(stream, pipeline, folder / "runs", watch=killer.hear, at=killer)
        write_outputs(outcome, stream.policy, folder / "runs")
        return outcome


def state(folder: Path) -> dict[str, Any]:
    """What the run came to, once it went on."""
    outcome = trained(folder, Killer("", 0))
    with Stream.open(folder / RIDES_POLICY, analyst="trainer") as stream:
        [left] = [one.left for one in stream.status().blocks if one.label == "2026-01"]
    return {
        "end": outcome.end.value,
        "attempts": [
            ["crashed" if one.judged is None else one.judged.verdict.value, one.is_replay]
            for one in outcome.attempts
        ],
        "spent": float(Fraction(8) - left),
        "receipts": len({one.receipt.position for one in outcome.attempts}),
        "files": sorted(path.name for path in (folder / "runs" / "run-1").iterdir()),
    }


def child(work: Callable[[], Any]) -> tuple[int, Any]:
    """Run it in a child. Gives how that ended, and what it gave."""
    out, into = os.pipe()
    number = os.fork()
    if not number:
        os.write(into, json.dumps(work()).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    status = os.waitpid(number, 0)[1]
    return (-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)), (
        json.loads(said) if said else None
    )


def begin(folder: Path, name: str) -> None:
    write_rides(folder)
    text = (folder / f"{name}.toml").read_text()
    for old, new in EDITS[name]:
        assert old in text
        text = text.replace(old, new)
    (folder / "pipeline.toml").write_text(text)
    with Stream.open(folder / RIDES_POLICY, analyst="trainer") as stream:
        stream.append(through="2026-01")


def told(folder: Path, name: str, point: str, attempt: int) -> dict[str, Any]:
    """Begin, be killed there, go on, and look again."""
    folder.mkdir()
    os.environ["LAPWING_STATE"] = str(folder / "state")
    assert child(lambda: begin(folder, name)) == (0, None)
    killed = child(lambda: trained(folder, Killer(point, attempt)))[0]
    models = [*folder.glob("runs/run-*/model.json"), *folder.glob("runs/run-*/statistic.json")]
    code, went_on = child(lambda: state(folder))
    again = child(lambda: state(folder))[1]
    shutil.rmtree(folder)
    return {"killed": killed, "code": code, "went_on": went_on, "again": again, "models": len(models)}


def price_ahead() -> None:
    """Prices of a network are slow to find, and children find them in the parent's memory."""
    import_module("torch").set_num_threads(1)  # threads do not survive a fork
    with TemporaryDirectory() as name:
        begin_at = Path(name)
        os.environ["LAPWING_STATE"] = str(begin_at / "state")
        assert child(lambda: begin(begin_at, "late")) == (0, None)
        pipeline = load_pipeline(begin_at / "pipeline.toml")
    distance = Feature("distance", Numeric(Fraction(1, 10), 0, 200))
    features = Features((distance,), "late", Truth())
    for epsilon in (Fraction(1, 4), Fraction(1, 2), Fraction(1)):
        made = pipeline.trainer.create(
            features, epsilon=epsilon, delta=pipeline.delta, size=pipeline.size(1), payer=PublicData()
        )
        made.price(len(features.declared))


def main(where: Path, name: str, points: list[str]) -> None:
    for slow in SLOW_TO_IMPORT:
        import_module(slow)
    if name == "late":
        price_ahead()
    pairs = zip(points[::2], points[1::2], strict=True)
    found = {f"{point} {n}": told(where / f"{point}-{n}", name, point, int(n)) for point, n in pairs}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
