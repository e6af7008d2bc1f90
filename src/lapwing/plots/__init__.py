"""Pictures, one function each. They need the extra `plots`; nothing here reads private data.

Each function returns a matplotlib figure; `save` writes it as SVG, PNG or PDF.
"""

from __future__ import annotations

from lapwing.plots.accuracy import accuracy, curator_and_local, parties
from lapwing.plots.composition import epsilon_delta_curve
from lapwing.plots.loss import privacy_loss
from lapwing.plots.spending import spending
from lapwing.plots.style import save

__all__ = [
    "accuracy",
    "curator_and_local",
    "epsilon_delta_curve",
    "parties",
    "privacy_loss",
    "save",
    "spending",
]
