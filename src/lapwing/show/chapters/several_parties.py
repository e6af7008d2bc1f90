"""The chapter "Several parties"."""

from __future__ import annotations

from lapwing.show.topic import Chapter

CHAPTER = Chapter("Several parties", ())
