"""The chapter "Choosing"."""

from __future__ import annotations

from lapwing.show.topic import Chapter

CHAPTER = Chapter("Choosing", ())
