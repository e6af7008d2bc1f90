"""Surveys: what estimates stray by beside published figures, speed beside peers, and taking reports in.

Every ratio is of two sides measured in turns in one run (medians). Peers are installed by pip, each in an
environment of its own under --cache.

    .venv/bin/python benchmarks/survey.py [--only variance,speed,ingest]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.query_data import Figures
from benchmarks.survey_speed import speed_figures
from benchmarks.survey_variance import variance_figures


def ingest_figures() -> None:
    """Reports that come in over HTTP."""
    from benchmarks.survey_ingest import section  # noqa: PLC0415 (it needs the server's extra)

    section()


def main() -> int:
    """All figures, or some of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="variance,speed,ingest")
    parser.add_argument("--people", type=int, default=1_000_000, help="simulated, for speed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "lapwing-peers")
    asked = parser.parse_args()
    figures = Figures(asked.repeats)
    sections: dict[str, Callable[[], None]] = {
        "variance": partial(variance_figures, figures),
        "speed": partial(speed_figures, figures, asked.people, asked.cache),
        "ingest": ingest_figures,
    }
    wanted = asked.only.split(",")
    if unknown := set(wanted) - set(sections):
        parser.error(f"there is no section {', '.join(unknown)}")
    for name, section in sections.items():
        if name in wanted:
            section()
    if figures.missed:
        print("\nmissed:", *figures.missed, sep="\n  ")
    return 1 if figures.missed else 0


if __name__ == "__main__":
    sys.exit(main())
