"""Which data sets count as neighbours."""

from __future__ import annotations

from enum import Enum


class Relation(Enum):
    """What one neighbouring step does. All losses charged to one budget must be about the same.

    ADD_REMOVE  one unit's rows are added or removed: curated data, the size is private.
    REPLACE     one unit's rows are replaced by others: the number of units is public.
    """

    ADD_REMOVE = "add or remove one unit"
    REPLACE = "replace one unit"
