"""`lapwing train`: run a pipeline, or go on with it, until its model is accepted or rejected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapwing.cli.opened import AsJson, plainly, print_json, tell
from lapwing.cli.query import Analyst, Threads
from lapwing.errors import BadFile, BadParameter

if TYPE_CHECKING:
    from lapwing.learn.pipelines import Outcome

EXAMPLE = "example"
CODES = {"OVER_BUDGET": 3, "FAILED": 1}  # others have done their work


def train(
    pipeline: Annotated[
        Path,
        typer.Argument(
            metavar="PIPELINE", help='The pipeline file, such as durations.toml; or "example" to get one.'
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="Where runs are kept (PIPELINE.runs), or the example."),
    ] = None,
    *,
    new_run: Annotated[
        bool, typer.Option("--new-run", help="Begin another run: it spends anew. Else the last goes on.")
    ] = False,
    mlflow: Annotated[str | None, typer.Option(help="Log the run to MLflow at this address.")] = None,
    analyst: Analyst = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Train until a model is shown to be good: accept, retry with twice as much, or reject."""
    if str(pipeline) == EXAMPLE:
        _example(folder or Path("."))
        return
    with plainly():
        outcome, card, files = _train(
            pipeline, folder, new_run=new_run, analyst=analyst, threads=threads, quiet=as_json
        )
        logged = _log(card, files, mlflow)
    if as_json:
        print_json({**card, "files": {name: str(path) for name, path in files.items()}, **logged})
    else:
        from lapwing.cli.show_train import show_outcome  # noqa: PLC0415

        show_outcome(outcome, card, files)
    if code := CODES.get(outcome.end.name):
        raise typer.Exit(code)


def _train(
    path: Path,
    folder: Path | None,
    *,
    new_run: bool,
    analyst: str | None,
    threads: int | None,
    quiet: bool,
) -> tuple[Outcome, dict[str, Any], dict[str, Path]]:
    from lapwing.cli.show_train import watching  # noqa: PLC0415
    from lapwing.learn.growing import Stream  # noqa: PLC0415
    from lapwing.learn.pipelines import train as run_pipeline  # noqa: PLC0415
    from lapwing.learn.pipelines.card import card_of  # noqa: PLC0415
    from lapwing.learn.pipelines.checks import checked  # noqa: PLC0415
    from lapwing.learn.pipelines.file import complain_about, load_pipeline  # noqa: PLC0415
    from lapwing.learn.pipelines.outputs import write_outputs  # noqa: PLC0415

    pipeline = load_pipeline(path)
    place = folder if folder is not None else path.with_name(f"{path.stem}.runs")
    with Stream.open(pipeline.stream, analyst=analyst, threads=threads) as stream:
        stream.dataset.tell = tell
        try:
            checked(stream, pipeline)
        except BadFile:
            raise
        except BadParameter as error:
            complain_about(path, error)
        with watching(quiet=quiet) as watch:
            outcome = run_pipeline(stream, pipeline, place, new_run=new_run, watch=watch)
        files = write_outputs(outcome, stream.policy, place)
        return outcome, card_of(outcome, stream.policy), files


def _log(card: dict[str, Any], files: dict[str, Path], uri: str | None) -> dict[str, str]:
    from lapwing.learn.pipelines.tracking import log_to_mlflow  # noqa: PLC0415

    return {} if uri is None else {"mlflow_run": log_to_mlflow(card, files, uri)}


def _example(folder: Path) -> None:
    from lapwing.cli.train_example import PIPELINES, POLICY, write_example  # noqa: PLC0415

    with plainly():
        written = write_example(folder)
    print(f"Wrote {', '.join(written)}. Next:")
    print(f"  lapwing stream append {folder / POLICY} --through 2026-01")
    print(f"  lapwing train {folder / PIPELINES[0]}")
