"""A small survey in a file of its own."""

from __future__ import annotations

from pathlib import Path

SMALL = """
[survey]
name = "{name}"
title = "The canteen"
epsilon = {epsilon}
lifetime = {lifetime}
ask = "all"
stop_after = {stop_after}
{places}
[[questions]]
name = "vegetarian"
text = "Did you eat a vegetarian meal this week?"
kind = "yes_no"
[[questions]]
name = "place"
text = "Where did you eat?"
kind = "choice"
options = ["in the hall", "outside", "at the desk"]
"""


def write_survey(
    folder: Path,
    name: str = "canteen",
    *,
    epsilon: float = 2.0,
    lifetime: float = 5.0,
    stop_after: int = 1000,
    places: str = "",
) -> Path:
    """The file of a survey of two questions."""
    path = folder / f"{name}.toml"
    path.write_text(
        SMALL.format(name=name, epsilon=epsilon, lifetime=lifetime, stop_after=stop_after, places=places)
    )
    return path
