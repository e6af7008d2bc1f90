"""The reader of the README: the commands, and a CSV file of invented orders."""

from __future__ import annotations

import csv
import random
import re
import shlex
from pathlib import Path

CITIES = ("Oslo", "Bergen", "Tromsø")


def write_orders(path: Path, *, rows: int = 8000) -> None:
    """Write the file. It is the same each time."""
    draw = random.Random(3)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["order_id", "customer_id", "city", "amount", "ordered_on", "express"])
        for number in range(rows):
            day = f"2026-{draw.randrange(1, 7):02d}-{draw.randrange(1, 29):02d}"
            amount = round(draw.expovariate(1 / 60), 2)
            customer, city, express = draw.randrange(1500), draw.choice(CITIES), draw.choice(("yes", "no"))
            writer.writerow([number, customer, city, amount, day, express])


def typed_commands(text: str) -> list[list[str]]:
    """Return the words of each command after a `$`. A line that ends in a backslash goes on."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [shlex.split(line) for line in re.findall(r"^\$ (.*)$", joined, re.MULTILINE)]
