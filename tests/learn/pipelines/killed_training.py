"""Trains in children that kill themselves at one step, then goes on in others. Prints JSON.

    python killed_training.py FOLDER POINT ATTEMPT ...

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
from typing import Any

from lapwing.cli.train_example import POLICY, write_example
from lapwing.gate import Point
from lapwing.learn.growing import Stream
from lapwing.learn.pipelines import Event, Outcome, train
from lapwing.learn.pipelines.file import load_pipeline
from lapwing.learn.pipelines.outputs import write_outputs

SLOW_TO_IMPORT = ("dp_accounting.pld.privacy_loss_distribution", "matplotlib.backends.backend_svg")


class Killer:
    """Kills this process at a point of the n-th attempt."""

    def __init__(self, point: str, attempt: int) -> None:
        self.point, self.attempt, self.now = point, attempt, 0

    def __call__(self, point: Point) -> None:
        self._at(point.value)

    def hear(self, event: Event) -> None:
        if event.kind == "try":
            self.now = event.tried.attempt
        self._at(event.kind)

    def _at(self, point: str) -> None:
        if (point, self.now) == (self.point, self.attempt):
            os.kill(os.getpid(), signal.SIGKILL)


def trained(folder: Path, killer: Killer) -> Outcome:
    with Stream.open(folder / POLICY, analyst="trainer") as stream:
        pipeline = load_pipeline(folder / "durations.toml")
        outcome = train(stream, pipeline, folder / "runs", watch=killer.hear, at=killer)
        write_outputs(outcome, stream.policy, folder / "runs")
        return outcome


def state(folder: Path) -> dict[str, Any]:
    """What the run came to, once it went on."""
    outcome = trained(folder, Killer("", 0))
    with Stream.open(folder / POLICY, analyst="trainer") as stream:
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


def begin(folder: Path) -> None:
    write_example(folder)
    text = (folder / "durations.toml").read_text()
    # Three attempts, of which none can be accepted.
    for old, new in (("[1, 8]", "[1, 1]"), ("[0.5, 1.0]", "[0.25, 1.0]"), ("target = 6.1", "target = 5.0")):
        assert old in text
        text = text.replace(old, new)
    (folder / "durations.toml").write_text(text)
    with Stream.open(folder / POLICY, analyst="trainer") as stream:
        stream.append(through="2026-01")


def told(folder: Path, point: str, attempt: int) -> dict[str, Any]:
    """Begin, be killed there, go on, and look again."""
    folder.mkdir()
    os.environ["LAPWING_STATE"] = str(folder / "state")
    assert child(lambda: begin(folder)) == (0, None)
    killed = child(lambda: trained(folder, Killer(point, attempt)))[0]
    models = list(folder.glob("runs/run-*/model.json"))
    code, went_on = child(lambda: state(folder))
    again = child(lambda: state(folder))[1]
    shutil.rmtree(folder)
    return {"killed": killed, "code": code, "went_on": went_on, "again": again, "models": len(models)}


def main(where: Path, points: list[str]) -> None:
    for name in SLOW_TO_IMPORT:
        import_module(name)
    pairs = zip(points[::2], points[1::2], strict=True)
    print(json.dumps({f"{point} {n}": told(where / f"{point}-{n}", point, int(n)) for point, n in pairs}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
