"""Generated SQL, sound, unsound and hostile, asked end to end.

Nothing that comes out (answers, plans, refusals, errors) holds an engine's words or a private value; no
accepted question moves what reaches a mechanism further than declared when one person is removed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from lapwing.errors import BadParameter
from lapwing.sql.answering.estimates import estimate
from lapwing.sql.answering.noisy_numbers import add_noise
from lapwing.sql.pricing.noise_shares import divide_budget
from lapwing.sql.question.bind import bind
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.reader import Reader
from sql.reading.test_reader_neighbours import require_close
from support.clinic import clinic_catalog, people, roomy, write_clinic
from support.sql_grammar import question

KEY = bytes(range(32))
ENGINE_WORDS = re.compile(
    r"duckdb|binder|parser error|catalog error|conversion error|out of range|invalid input|traceback|"
    r"hugeint|lapwing_unit|lapwing_rank",
    re.IGNORECASE,
)
CANARY = "only p"  # begins a name that exactly one person has


class Clinic:
    """The clinic with everybody, and without one person."""

    def __init__(self, folder: Path) -> None:
        visits, patients = people(11, 14)
        most = max(
            {row[0] for row in visits if row[0]}, key=lambda who: sum(row[0] == who for row in visits)
        )
        self.readers = []
        for name in ("all", "without"):
            (folder / name).mkdir()
            keep = [row for row in visits if name == "all" or row[0] != most]
            write_clinic(folder / name, keep[::-1] if name == "without" else keep,
                         [row for row in patients if name == "all" or row[0] != most])  # fmt: skip
            catalog = roomy(clinic_catalog(folder / name))
            self.readers.append(Reader.open(catalog.policy, KEY, catalog.public, threads=1))
        self.catalog: Catalog = roomy(clinic_catalog(folder / "all"))

    def ask(self, sql: str) -> str:
        """All that an analyst would see. Raises what an analyst would get."""
        bound = bind(sql, self.catalog)
        shares = divide_budget(bound, epsilon=1, delta=Fraction(1, 10**9), noise="auto")
        here, there = (reader.exact(bound) for reader in self.readers)
        require_close(bound, here, there)
        rows = estimate(shares, add_noise(shares, here), confidence="0.95", agree=True)
        seen = [str(value) for column in rows.columns for value in column.values]
        notes = [column.note for column in rows.columns]
        return " ".join([*seen, *notes, shares.reason])


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    found = Clinic(tmp_path_factory.mktemp("fuzz"))
    yield found
    for reader in found.readers:
        reader.close()


def run(clinic: Clinic, count: int, seed: int) -> None:
    random = Random(seed)
    refused = 0
    for _ in range(count):
        sql, expectation = question(random)
        complaint = ""
        try:
            shown = clinic.ask(sql)
        except (Refused, BadParameter) as error:
            shown = complaint = str(error)
        refused += bool(complaint)
        must_be_refused, must_be_answered = expectation is None, bool(expectation and expectation.sound)
        assert not (complaint and must_be_answered), f"{sql} -> {complaint}"
        assert complaint or not must_be_refused, f"{sql} was answered"
        assert not ENGINE_WORDS.search(shown) or (complaint and ENGINE_WORDS.search(sql)), sql
        assert CANARY not in shown or CANARY in sql, sql
    assert count // 4 < refused < 3 * count // 4


def test_some_dozens_of_generated_questions(clinic: Clinic) -> None:
    run(clinic, 80, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_generated_questions(clinic: Clinic, seed: int) -> None:
    run(clinic, 1000, seed=100 + seed)


def test_the_fuzzer_itself_would_notice(clinic: Clinic) -> None:
    """A question about one name that is selected whatever it costs would show the canary."""
    bound = bind("SELECT name, COUNT(*) FROM visits GROUP BY name", clinic.catalog)
    keys = list(itertools.chain.from_iterable(clinic.readers[0].exact(bound)[0].keys or ()))
    assert any(str(key).startswith(CANARY) for key in keys)
