"""All members in one process, through the same protocols: to teach, to try and to measure."""

from __future__ import annotations

from lapwing.parties.simulation.comparison import compare
from lapwing.parties.simulation.story import Simulation, Step, simulate

__all__ = ["Simulation", "Step", "compare", "simulate"]
