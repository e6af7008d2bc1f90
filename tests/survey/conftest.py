"""Fixtures for tests of surveys."""

from __future__ import annotations

from support.designed import designed
from support.shelf_fixtures import file_shelf, shelf

__all__ = ["designed", "file_shelf", "shelf"]
