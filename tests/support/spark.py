"""A Spark in this process for tests: the one that tests share, started when first asked for."""

from __future__ import annotations

import atexit
from functools import cache

from lapwing.engines.spark import SparkEngine


@cache
def spark() -> SparkEngine:
    """Its optimizer does not compute what it sees in the text, so that what runs is what runs on tables."""
    engine = SparkEngine(writable=True)
    seen = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    engine.execute(f"SET spark.sql.optimizer.excludedRules = {seen}")
    atexit.register(engine.close)
    return engine
