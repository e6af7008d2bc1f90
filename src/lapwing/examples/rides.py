"""An invented stream of rides, month by month, and some pipelines."""

from __future__ import annotations

from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.examples.visits import example_text, first_person, forget_lost_ledgers, write_example

RIDERS, FIRST, MONTHS = 6000, 1, 4
RIDES_POLICY, PIPELINES = "rides.toml", ("durations.toml", "hopeless.toml")
OTHERS = ("late.toml", "mean.toml", "histogram.toml")  # a network, and two statistics
TAKEN, ARRIVING = "rides", "arriving"
# From a hash of a ride's number: the same on every machine, and looking like chance.
_CHANCE = "((hash({ride}, '{salt}') % 1000000) + 0.5) / 1000000.0"


def _month_sql(month: int, first: int) -> str:
    """Return about 1.7 rides of each rider: 5 minutes and 2 for each kilometre, give or take 6."""
    chance = {salt: _CHANCE.format(ride="r", salt=salt) for salt in ("day", "far", "u", "v", "again")}
    normal = f"sqrt(-2 * ln({chance['u']})) * cos(2 * pi() * {chance['v']})"
    return f"""
        SELECT {first} + rider AS rider,
            DATE '2026-{month:02d}-01' + CAST(floor(28 * {chance["day"]}) AS INTEGER) AS day,
            round(distance, 1) AS distance,
            round(greatest(0, least(60, 5 + 2 * distance + 6 * {normal})), 1) AS duration
        FROM (SELECT rider, r, least(20, 1 - 5 * ln({chance["far"]})) AS distance
              FROM (SELECT rider, 1000000 * {month} + 10 * rider + k AS r
                    FROM range({RIDERS}) AS riders(rider), range(3) AS rides(k))
              WHERE r % 10 = 0 OR {chance["again"]} < 0.35)
        ORDER BY hash(r)"""  # noqa: S608 (all of it is ours)


def write_rides(folder: Path) -> tuple[list[str], bool]:
    """Write the stream and the pipelines into a folder, unless they are there unchanged.

    Args:
        folder: is created if it is missing.

    Returns:
        The names of the files, and whether they were written now.

    Raises:
        BadParameter: other files of these names are there, or the folder cannot be written.
    """
    texts = {name: example_text(name) for name in (RIDES_POLICY, *PIPELINES, *OTHERS)}
    first = first_person()
    months = {
        f"{TAKEN if month == FIRST else ARRIVING}/2026-{month:02d}.parquet": _month_sql(month, first)
        for month in range(FIRST, FIRST + MONTHS)
    }
    for place in (folder / TAKEN, folder / ARRIVING):
        if place.exists() and not any((folder / name).exists() for name in (*texts, *months)):
            raise BadParameter("folder", f"{place} exists: nothing is written into it. Give a new folder")
    is_new = write_example(folder, texts, months)
    if is_new:
        forget_lost_ledgers(folder / TAKEN / Path(name).name for name in months)  # all will be there
    return [*months, *texts], is_new
