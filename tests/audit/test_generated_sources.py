"""Generated people are read by the code that reads private ones, and are neighbours as they say."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lapwing.audit import generated_sources
from lapwing.audit.audit_run import run_case
from lapwing.audit.case import AuditCase, Family, Stage, StageBudget
from lapwing.audit.generated_people import NUMBER_TYPES, QUICK, neighbours
from lapwing.audit.generated_sources import GeneratedSources, WatchedEngine, _array
from lapwing.audit.registry.clinic import FORMS, WARDS, built_in_policy
from lapwing.audit.stages.replay import ReplayPair, replay_stage
from lapwing.core.losses import Pure
from lapwing.sql.policy.kinds import Moment, Numeric
from lapwing.sql.policy.policy import Column
from lapwing.sql.question.bind import bind
from lapwing.sql.question.scope import Catalog

POLICIES = {form: built_in_policy(form) for form in FORMS}


@pytest.mark.parametrize("form", POLICIES)
def test_neighbours_differ_by_one_person_or_not_at_all(form: str) -> None:
    policy = POLICIES[form]
    found = neighbours(policy)
    assert len({pair.description for pair in found}) == len(found) > QUICK
    for pair in found:
        here, there = [Counter(person.id for person in side) for side in (pair.first, pair.second)]
        assert not here - there
        more = [who for who in there - here if who is not None and who.strip()]
        assert len(more) == (0 if pair.is_equal else 1), pair.description


def test_they_are_the_same_each_time() -> None:
    assert repr(neighbours(POLICIES["people"])) == repr(neighbours(POLICIES["people"]))


def test_rows_of_a_sliced_person_lie_in_one_period() -> None:
    """Where a person in one period is the unit, a neighbour differs in one period."""
    for pair in neighbours(POLICIES["periods"]):
        for person in pair.second:
            assert len({row["admitted"] for row in person.rows["visits"]}) <= 1


def test_what_is_read_is_truncated_coded_and_without_nobody() -> None:
    policy = POLICIES["people"]
    sources = GeneratedSources(policy, {"wards": WARDS})
    catalog = Catalog(policy, sources.public)
    question = bind("SELECT COUNT(*), COUNT(cost), COUNT(DISTINCT who), SUM(stay) FROM visits", catalog)
    read = {}
    for pair in sources.neighbours(is_thorough=True):
        for side, is_reversed in ((pair.first, False), (pair.second, pair.is_reversed)):
            reader = sources.reader(side, is_reversed=is_reversed)
            read[pair.description, len(side)] = [
                int(value) for value in reader.exact(question)[0].values[0]
            ]
    folder = sources._folder
    sources.close()
    assert not folder.exists()

    def moved(words: str) -> list[int]:
        (lower, higher) = [read[key] for key in sorted(read) if words in key[0]]
        return [b - a for a, b in zip(lower, higher, strict=True)]

    assert moved("each at the greatest value") == [3, 3, 1, 3 * 60]
    assert moved("many more rows")[::2] == [3, 1]
    assert moved("without values") == [3, 0, 1, 0]
    assert moved("beyond all bounds")[:3] == [3, 3, 1]
    for kind in NUMBER_TYPES[1:]:
        assert moved(f"stored as {kind}, and one more: just above") == [3, 3, 1, 3 * 60], kind
        assert moved(f"stored as {kind}, and one more: just below") == [3, 3, 1, 0], kind
        assert moved(f"stored as {kind}, and one more: far beyond")[::2] == [3, 1], kind
    assert moved("which belong to nobody") == [0, 0, 0, 0]
    assert moved("but for a space") == [3, 3, 1, 3 * 60]
    assert moved("but for a capital")[::2] == [3, 1]


def test_statements_are_noted_without_the_folder_of_generated_files() -> None:
    policy = POLICIES["people"]
    sources = GeneratedSources(policy, {"wards": WARDS})
    people = sources.neighbours(is_thorough=False)[0].first
    engine: Any = sources.reader(people).engine
    assert isinstance(engine, WatchedEngine)
    sources.reader(people).exact(bind("SELECT COUNT(*) FROM visits", Catalog(policy, sources.public)))
    assert engine.statements
    assert all(str(sources._folder) not in statement for statement in engine.statements)
    sources.close()


def test_a_quick_audit_has_values_beyond_their_bounds_and_repeated_keys() -> None:
    policy = POLICIES["people"]
    found = {pair.description: pair.second[-1].rows["visits"] for pair in neighbours(policy)[:QUICK]}
    admitted = policy.tables["visits"].columns["admitted"].kind
    assert isinstance(admitted, Moment)

    def rows(words: str) -> list[Any]:
        (these,) = [list(rows) for name, rows in found.items() if name.endswith(words)]
        return these

    assert all(
        row["admitted"] > admitted.value(admitted.last) for row in rows("dates just above their bounds")
    )
    assert all(
        row["admitted"] < admitted.value(admitted.first) for row in rows("dates just below their bounds")
    )
    assert all(row["stay"] == -90 for row in rows("dates just below their bounds"))
    assert [row["ward"] for row in rows("second of its keys")] == ["B"] * 3  # twice in the public table


def test_large_whole_numbers_are_stored_in_each_type() -> None:
    """A float of 32 bits rounds them. An error there once looked like a violation."""
    column = Column("x", Numeric(Fraction(1), -(10**17), 10**17))
    for kind in NUMBER_TYPES:
        assert len(_array(column, [755241029713430, None, 1e300, float("nan")], kind)) == 4, kind


def test_people_that_cannot_be_generated_are_no_outcome_of_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise pa.ArrowInvalid("no such number")

    sources = GeneratedSources(POLICIES["people"], {"wards": WARDS})
    people = sources.neighbours(is_thorough=False)[0].first
    with monkeypatch.context() as patched:
        patched.setattr(generated_sources, "stored_people", failing)
        pair = ReplayPair("people", lambda: sources.reader(people), lambda: sources.reader(people))
        stages = {Stage.REPLAY: replay_stage([pair], Pure(Fraction(1)), epsilon=Fraction(1))}
        case = AuditCase("generated", Family.AGGREGATE, (), Fraction(1), Fraction(0), stages)
        (found,) = run_case(case, StageBudget()).stages
    assert found.witness is None
    assert "not generated: ArrowInvalid: no such number" in found.unable
    sources.reader(people)  # a folder of a failure is not in the way
    sources.close()


def test_files_that_do_not_exist_are_not_missed() -> None:
    """The built-in policy names files of no folder: only generated ones are opened."""
    assert not Path(POLICIES["people"].tables["visits"].source.location).parent.exists()
