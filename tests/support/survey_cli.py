"""The owner's commands of a survey as a process of their own: `python -m support.survey_cli serve ...`."""

from __future__ import annotations

import sys

import typer

from lapwing.cli import survey_serving
from lapwing.errors import LapwingError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
for command in (
    survey_serving.invite,
    survey_serving.serve,
    survey_serving.collect,
    survey_serving.close,
):
    app.command()(command)

if __name__ == "__main__":
    try:
        app(standalone_mode=False)
    except LapwingError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
