"""A Spark in this process for tests: the one that tests share, started when first asked for."""

from __future__ import annotations

import atexit
import os
from functools import cache

from lapwing.engines.spark import SparkEngine

# It answers a few questions and is gone: to compile what it runs a second time, better, does not pay.
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@cache
def spark() -> SparkEngine:
    """Its optimizer does not compute what it sees in the text, so that what runs is what runs on tables."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", _BRIEF)
    engine = SparkEngine(writable=True)
    seen = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    engine.execute(f"SET spark.sql.optimizer.excludedRules = {seen}")
    atexit.register(engine.close)
    return engine
