"""The chapter "Nobody is trusted"."""

from __future__ import annotations

from lapwing.show.topic import Chapter

CHAPTER = Chapter("Nobody is trusted", ())
