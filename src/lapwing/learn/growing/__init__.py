"""Growing data: a stream takes in new data, opens blocks, and knows which of them can still pay."""

from __future__ import annotations

from lapwing.learn.growing.sharing import Sharing
from lapwing.learn.growing.status import BlockStatus, Status, blocks_text
from lapwing.learn.growing.stream import Appended, Stream

__all__ = ["Appended", "BlockStatus", "Sharing", "Status", "Stream", "blocks_text"]
