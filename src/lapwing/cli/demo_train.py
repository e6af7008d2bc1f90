"""The demo's stream of rides: one model that is accepted after retries, and one that is rejected."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from lapwing.cli.demo_ledger import state_in
from lapwing.cli.show import console, heading, indented
from lapwing.cli.show_train import show_outcome
from lapwing.cli.train_example import ARRIVING, PIPELINES, POLICY, write_example
from lapwing.learn.growing import Stream
from lapwing.learn.pipelines import train
from lapwing.learn.pipelines.card import card_of
from lapwing.learn.pipelines.file import load_pipeline
from lapwing.learn.pipelines.model import load_model
from lapwing.learn.pipelines.outputs import write_outputs


def tell_train() -> None:
    """Take four months in, and train twice."""
    with TemporaryDirectory(prefix="lapwing-demo-") as name, state_in(Path(name, "state")):
        folder = Path(name)
        write_example(folder)
        with console() as out:
            heading(out, "Learning from data that keeps arriving: a model leaves only if it is proven good")
            indented(out, "Rides of four months (invented); every month may lose ε 8 in its life.")
        with Stream.open(folder / POLICY, analyst="the demo") as stream:
            stream.append(through="2026-01")
            _run(stream, folder, PIPELINES[0], show=False)  # ends waiting for data
            for file in sorted((folder / ARRIVING).iterdir()):
                stream.append(file, through=file.stem)
            for pipeline in PIPELINES:
                _run(stream, folder, pipeline, show=True)


def _run(stream: Stream, folder: Path, name: str, *, show: bool) -> None:
    pipeline = load_pipeline(folder / name)
    runs = folder / "runs" / pipeline.name
    outcome = train(stream, pipeline, runs)
    if not show:
        return
    files = write_outputs(outcome, stream.policy, runs)
    show_outcome(outcome, card_of(outcome, stream.policy), {})
    if "model" in files:
        predicted = load_model(files["model"]).predict({"distance": [10]})[0]
        with console() as out:
            indented(out, f"The model says of a ride of 10 km: {predicted:.1f} minutes (the truth is 25).")
