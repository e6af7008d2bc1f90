"""The part of `lapwing demo` that learns from months of data, as they arrive."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lapwing.cli.console import console, heading, indented
from lapwing.examples import clinic
from lapwing.examples.rides import ARRIVING, PIPELINES, RIDES_POLICY, write_rides

if TYPE_CHECKING:
    from lapwing.learn import Stream


def tell_train() -> None:
    """Append four months of data, and train two pipelines."""
    from lapwing.learn import Stream

    with TemporaryDirectory(prefix="lapwing-demo-") as name, clinic.state_in(Path(name, "state")):
        folder = Path(name)
        write_rides(folder)
        with console() as out:
            heading(out, "Learning from data that keeps arriving: a model leaves only if it is proven good")
            indented(out, "Rides of four months (invented); every month may lose ε 8 in its life.")
        with Stream.open(folder / RIDES_POLICY, analyst="the demo") as stream:
            stream.append(through="2026-01")
            _run(stream, folder, PIPELINES[0], show=False)  # ends waiting for data
            for file in sorted((folder / ARRIVING).iterdir()):
                stream.append(file, through=file.stem)
            for pipeline in PIPELINES:
                _run(stream, folder, pipeline, show=True)


def _run(stream: Stream, folder: Path, name: str, *, show: bool) -> None:
    from lapwing.cli.learning import show_outcome
    from lapwing.learn import load_model, load_pipeline, model_card, train, write_outputs

    pipeline = load_pipeline(folder / name)
    runs = folder / "runs" / pipeline.name
    outcome = train(stream, pipeline, runs)
    if not show:
        return
    files = write_outputs(outcome, stream.policy, runs)
    show_outcome(outcome, model_card(outcome, stream.policy), {})
    if "model" in files:
        predicted = load_model(files["model"]).predict({"distance": [10]})[0]
        with console() as out:
            indented(out, f"The model says of a ride of 10 km: {predicted:.1f} minutes (the truth is 25).")
