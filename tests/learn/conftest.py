"""Fixtures for tests of learning."""

from __future__ import annotations

from support.ride_streams import stream_at
from support.row_question import question
from support.silenced import without_noise

__all__ = ["question", "stream_at", "without_noise"]
