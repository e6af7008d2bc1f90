"""`python -m lapwing.plots FOLDER` draws the pictures of the documentation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from lapwing.plots import accuracy, curator_and_local, epsilon_delta_curve, privacy_loss, save, spending
from lapwing.plots.invented import clinic
from lapwing.privacy import LaplaceNoise


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
    for name, figure in pictures.items():
        save(figure, folder / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
