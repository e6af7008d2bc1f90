"""An invented stream of rides, month by month, and some pipelines."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.examples.visits import already_written, forget_lost_ledgers

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


def write_rides(folder: Path) -> tuple[list[str], bool]:
    """Write the stream and the pipelines into a folder, unless they are there unchanged.

    Args:
        folder: is created if it is missing.

    Returns:
        The names of the files, and whether they were written now.

    Raises:
        BadParameter: other files of these names are there.
    """
    import duckdb  # noqa: PLC0415

    data = files("lapwing.examples").joinpath("data")
    names = (RIDES_POLICY, *PIPELINES, *OTHERS)
    texts = {folder / name: data.joinpath(name).read_text(encoding="utf-8") for name in names}
    months = {
        folder / (TAKEN if month == FIRST else ARRIVING) / f"2026-{month:02d}.parquet": _month_sql(month)
        for month in range(FIRST, FIRST + MONTHS)
    }
    written = [str(path.relative_to(folder)) for path in (*months, *texts)]
    if already_written(texts, months):
        return written, False
    for place in (folder / TAKEN, folder / ARRIVING):
        if place.exists():
            raise BadParameter("folder", f"{place} exists: nothing is written into it. Give a new folder")
    with duckdb.connect() as connection:
        for path, sql in months.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            connection.sql(sql).write_parquet(str(path))
    forget_lost_ledgers(folder / TAKEN / path.name for path in months)  # all files will be there
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return written, True
