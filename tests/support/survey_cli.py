"""The owner's commands of a survey as a process of their own: `python -m support.survey_cli serve ...`."""

from __future__ import annotations

import sys

import typer

from lapwing.cli import survey
from lapwing.errors import LapwingError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
for command in (
    survey.invite,
    survey.serve,
    survey.collect,
    survey.close,
):
    app.command()(command)

if __name__ == "__main__":
    try:
        app(standalone_mode=False)
    except LapwingError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
