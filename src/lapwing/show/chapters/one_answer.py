"""The chapter "One answer"."""

from __future__ import annotations

from lapwing.show.topic import Chapter

CHAPTER = Chapter("One answer", ())
