"""`python -m lapwing.plots FOLDER` draws the pictures of the documentation.

The picture of several parties needs runs of the protocols, which lie above pictures: its numbers are read
from parties.json in the folder, if it is there. `lapwing party compare --out parties.json` measures them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from lapwing.core.losses import LaplaceNoise
from lapwing.plots import accuracy, curator_and_local, epsilon_delta_curve, privacy_loss, save, spending
from lapwing.plots.invented import clinic
from lapwing.plots.parties import MeasuredErrors, parties

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def main(arguments: Sequence[str]) -> int:
    """Draw every picture into the folder that the one argument names."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m lapwing.plots FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "privacy-loss": privacy_loss("0.5", "1e-6"),
        "epsilon-delta": epsilon_delta_curve((LaplaceNoise(Fraction(20), 1), 100)),
        "accuracy": accuracy(n=10_000),
        "curator-and-local": curator_and_local(epsilon="0.5"),
        "spending": spending(clinic()),
    }
    pictures |= of_parties(folder)
    for name, figure in pictures.items():
        save(figure, folder / f"{name}.svg")
    return 0


def of_parties(folder: Path) -> dict[str, Figure]:
    """The picture whose numbers lie in the folder, if they do."""
    if not (measured := folder / "parties.json").is_file():
        return {}
    return {"parties": parties(MeasuredErrors.from_json(json.loads(measured.read_text(encoding="utf-8"))))}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
