"""An invented stream of rides, month by month, and some pipelines."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.examples.visits import forget_lost_ledgers

RIDERS, FIRST, MONTHS = 6000, 1, 4
RIDES_POLICY, PIPELINES = "rides.toml", ("durations.toml", "hopeless.toml")
OTHERS = ("late.toml", "mean.toml", "histogram.toml")  # a network, and two statistics
TAKEN, ARRIVING = "rides", "arriving"
# From a hash of a ride's number: the same on every machine, and looking like chance.
_CHANCE = "((hash({ride}, '{salt}') % 1000000) + 0.5) / 1000000.0"


def _month_sql(month: int) -> str:
    """Return about 1.7 rides of each rider: 5 minutes and 2 for each kilometre, give or take 6."""
    chance = {salt: _CHANCE.format(ride="r", salt=salt) for salt in ("day", "far", "u", "v", "again")}
    normal = f"sqrt(-2 * ln({chance['u']})) * cos(2 * pi() * {chance['v']})"
    return f"""
        SELECT rider, DATE '2026-{month:02d}-01' + CAST(floor(28 * {chance["day"]}) AS INTEGER) AS day,
            round(distance, 1) AS distance,
            round(greatest(0, least(60, 5 + 2 * distance + 6 * {normal})), 1) AS duration
        FROM (SELECT rider, r, least(20, 1 - 5 * ln({chance["far"]})) AS distance
              FROM (SELECT rider, 1000000 * {month} + 10 * rider + k AS r
                    FROM range({RIDERS}) AS riders(rider), range(3) AS rides(k))
              WHERE r % 10 = 0 OR {chance["again"]} < 0.35)
        ORDER BY hash(r)"""  # noqa: S608 (all of it is ours)


def write_rides(folder: Path) -> list[str]:
    """Write all files into the folder. Return their names. Raise BadParameter if one of them exists."""
    import duckdb  # noqa: PLC0415

    for name in (RIDES_POLICY, *PIPELINES, *OTHERS, TAKEN, ARRIVING):
        if (folder / name).exists():
            raise BadParameter("folder", f"{folder / name} exists: nothing is written over")
    written = []
    with duckdb.connect() as connection:
        for month in range(FIRST, FIRST + MONTHS):
            place = folder / (TAKEN if month == FIRST else ARRIVING) / f"2026-{month:02d}.parquet"
            place.parent.mkdir(parents=True, exist_ok=True)
            connection.sql(_month_sql(month)).write_parquet(str(place))
            written.append(str(place.relative_to(folder)))
    forget_lost_ledgers(folder / TAKEN / Path(name).name for name in written)  # all files will be there
    for name in (RIDES_POLICY, *PIPELINES, *OTHERS):
        text = files("lapwing.examples").joinpath("data", name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
        written.append(name)
    return written
