"""The chapter "Many answers"."""

from __future__ import annotations

from lapwing.show.topic import Chapter

CHAPTER = Chapter("Many answers", ())
