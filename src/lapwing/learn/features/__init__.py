"""Features: from bounded rows to tables and matrices whose bounds are public."""

from __future__ import annotations

from lapwing.learn.features.feature import Feature
from lapwing.learn.features.features import Features
from lapwing.learn.features.found import Found, found_bounds, found_values

__all__ = ["Feature", "Features", "Found", "found_bounds", "found_values"]
