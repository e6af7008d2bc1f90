"""The chapter "Rare failures"."""

from __future__ import annotations

from lapwing.show.topic import Chapter

CHAPTER = Chapter("Rare failures", ())
