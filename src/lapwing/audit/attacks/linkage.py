"""Linkage: a table without names is joined with a public list that has names.

Two attacks. A hospital publishes visits without names, but with zip code, birth date and sex; a voter list
has the same three, and names (Sweeney 1997). A film service publishes ratings without names; some people
review the same films in public under their names (Narayanan and Shmatikov 2008).

Claim    each guess against Lapwing is right with probability at most `value_limit`, independently.
Because  all that the attacker gets is one answer at the whole lifetime ε. Its cells have independent noise,
         and a guess is made from the cells of one person alone.
Test     tests/audit/attacks/test_linkage.py
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from lapwing.audit.attacks.attack_result import AttackResult, AttackSettings, SuccessCount, total
from lapwing.audit.attacks.limits import two_step_limit, value_limit
from lapwing.audit.attacks.temporary_gate import opened, temporary_folder, write_world
from lapwing.core.chances import percent_up
from lapwing.core.losses import Relation
from lapwing.core.noise import permutation, uniform_int

RUNS, AT_ONCE = 400, 50
DIAGNOSES = ("fracture", "asthma", "infarction", "birth", "migraine", "burn", "pneumonia", "diabetes")
PATIENTS = 800
FIRST_BIRTH, BIRTH_DAYS = date(1930, 1, 1), 29_000
FILMS, STARS, SUBSCRIBERS = 8, 5, 400


def linkage(settings: AttackSettings) -> tuple[AttackResult, ...]:
    """Attack a hospital table, then ratings."""
    half = AttackSettings(settings.epsilon, settings.runs)
    runs = settings.runs or RUNS
    results = []
    for number, attack in enumerate((_hospital, _ratings)):
        settings.progress(number * runs, 2 * runs)
        with temporary_folder() as folder:
            results.append(attack(half, folder))
    settings.progress(2 * runs, 2 * runs)
    return tuple(results)


def _result(
    settings: AttackSettings, unprotected: SuccessCount, protected: SuccessCount, values: int, **words: str
) -> AttackResult:
    epsilon = settings.epsilon
    return AttackResult(
        "linkage",
        unprotected=unprotected,
        protected=protected,
        epsilon=epsilon,
        chance=Fraction(1, values),
        limit=value_limit(epsilon, values, Relation.ADD_REMOVE),
        formula=f"min(e^ε / k, 1 - e^-ε (k - 1) / k) for k = {values} values; the two-step limit "
        f"e^2ε / (e^2ε + k - 1) is {percent_up(float(two_step_limit(epsilon, values)))}",
        **words,  # type: ignore[arg-type]
    )


# Hospital


def _hospital(settings: AttackSettings, folder: Path) -> AttackResult:
    counts: list[list[SuccessCount]] = [[], []]
    for targets in settings.batches(RUNS, AT_ONCE):
        table, people = _visits(targets)
        truth = [table["diagnosis"][person] for person in people]
        voters = [(table["zip"][person], table["born"][person], table["sex"][person]) for person in people]
        counts[0].append(_right(truth, _joined(table, voters)))
        counts[1].append(_right(truth, _asked_visits(settings.epsilon, folder, table, voters)))
    shown, safe = map(total, counts)
    return _result(
        settings, shown, safe, len(DIAGNOSES),
        title="a hospital table and a voter list",
        knows="The voter list has the person's name, zip code, birth date and sex. The person was in the "
        "hospital.",
        guesses=f"The person's diagnosis, one of {len(DIAGNOSES)} that are equally likely.",
        without="all visits, without names",
        through="one answer, for all of ε",
    )  # fmt: skip


def _visits(targets: int) -> tuple[dict[str, list[Any]], list[int]]:
    """Return the visits of all patients, and the rows of the targets: one in each zip code."""
    zips = np.concatenate([np.arange(targets), uniform_int(0, targets, PATIENTS - targets)])
    days = uniform_int(0, BIRTH_DAYS, PATIENTS)
    sexes, codes = uniform_int(0, 2, PATIENTS), uniform_int(0, len(DIAGNOSES), PATIENTS)
    mixed = permutation(PATIENTS)  # the order of rows has no information
    table: dict[str, list[Any]] = {
        "person": [int(person) for person in mixed],
        "zip": [f"{10001 + int(zips[person])}" for person in mixed],
        "born": [FIRST_BIRTH + timedelta(days=int(days[person])) for person in mixed],
        "sex": ["fm"[int(sexes[person])] for person in mixed],
        "diagnosis": [DIAGNOSES[int(codes[person])] for person in mixed],
    }
    return table, [int(np.flatnonzero(mixed == person)[0]) for person in range(targets)]


def _joined(table: Mapping[str, Sequence[Any]], voters: Sequence[tuple[str, date, str]]) -> list[Hashable]:
    """Guess from the published rows: the diagnosis of a row that agrees in zip code, birth date and sex."""
    rows = zip(table["zip"], table["born"], table["sex"], strict=True)
    diagnosis = dict(zip(rows, table["diagnosis"], strict=True))
    return [diagnosis[voter] for voter in voters]


def _asked_visits(
    epsilon: Fraction,
    folder: Path,
    table: Mapping[str, Sequence[Any]],
    voters: Sequence[tuple[str, date, str]],
) -> list[Hashable]:
    """Guess from a private answer: the diagnosis with the greatest count."""
    columns = {
        "zip": f"values = {_texts(sorted({zip_code for zip_code, _, _ in voters}))}",
        "born": f"low = {FIRST_BIRTH}, high = {FIRST_BIRTH + timedelta(days=BIRTH_DAYS)}",
        "sex": 'values = ["f", "m"]',
        "diagnosis": f"values = {_texts(DIAGNOSES)}",
    }
    who = " OR ".join(
        f"(zip = '{z}' AND born = DATE '{born}' AND sex = '{sex}')" for z, born, sex in voters
    )
    question = f"SELECT zip, diagnosis, COUNT(*) AS n FROM visits WHERE {who} GROUP BY zip, diagnosis"  # noqa: S608
    with opened(write_world(folder, "visits", table, columns, epsilon=epsilon)) as visits:
        rows = visits.ask(question, epsilon=epsilon).to_arrow().to_pylist()
    guesses = _greatest((row["zip"], row["diagnosis"], row["n"]) for row in rows)
    return [guesses[zip_code] for zip_code, _, _ in voters]


# Ratings


def _ratings(settings: AttackSettings, folder: Path) -> AttackResult:
    counts: list[list[SuccessCount]] = [[], []]
    for targets in settings.batches(RUNS, AT_ONCE):
        films = uniform_int(0, STARS + 1, SUBSCRIBERS * FILMS).reshape(SUBSCRIBERS, FILMS)
        private = uniform_int(1, STARS + 1, SUBSCRIBERS)
        truth = private[:targets].tolist()
        reviews = films[:targets]
        stars_by_film = {film.tobytes(): int(stars) for film, stars in zip(films, private, strict=True)}
        counts[0].append(_right(truth, [stars_by_film[review.tobytes()] for review in reviews]))
        counts[1].append(_right(truth, _asked_ratings(settings.epsilon, folder, films, private, targets)))
    shown, safe = map(total, counts)
    return _result(
        settings, shown, safe, STARS,
        title="film ratings and public reviews",
        knows=f"The person reviewed {FILMS} films in public, under a name. All of them are in the ratings.",
        guesses=f"The person's rating of one more film, 1 to {STARS} stars, all equally likely.",
        without="all ratings, without names",
        through="one answer, for all of ε",
    )  # fmt: skip


def _asked_ratings(
    epsilon: Fraction, folder: Path, films: Any, private: Any, targets: int
) -> list[Hashable]:
    """Guess from a private answer: the rating with the greatest count, among rows like the reviews."""
    names = [f"film_{number}" for number in range(FILMS)]
    table = {
        "person": list(range(SUBSCRIBERS)),
        **{name: films[:, number].tolist() for number, name in enumerate(names)},
        "private_film": private.tolist(),
    }
    columns = dict.fromkeys(names, f"low = 0, high = {STARS}, step = 1")
    columns["private_film"] = f"values = {list(range(1, STARS + 1))}"
    cases = " ".join(
        f"WHEN {' AND '.join(f'{name} = {stars}' for name, stars in zip(names, films[row], strict=True))} "
        f"THEN {row + 1}"
        for row in range(targets)
    )
    question = (
        f"SELECT CASE {cases} ELSE 0 END AS who, private_film, COUNT(*) AS n FROM ratings "  # noqa: S608
        "GROUP BY who, private_film"
    )
    with opened(write_world(folder, "ratings", table, columns, epsilon=epsilon)) as ratings:
        rows = ratings.ask(question, epsilon=epsilon).to_arrow().to_pylist()
    guesses = _greatest((row["who"], row["private_film"], row["n"]) for row in rows)
    return [guesses[target + 1] for target in range(targets)]


# Both


def _right(truth: Sequence[Hashable], guesses: Sequence[Hashable]) -> SuccessCount:
    return SuccessCount(sum(a == b for a, b in zip(truth, guesses, strict=True)), len(truth))


def _greatest(counted: Iterable[tuple[Hashable, Hashable, float]]) -> dict[Hashable, Hashable]:
    """Return for each key the value with the greatest count. Chance decides between equal counts."""
    rows = list(counted)
    best: dict[Hashable, tuple[float, Hashable]] = {}
    for number in permutation(len(rows)):
        key, value, many = rows[int(number)]
        if key not in best or many > best[key][0]:
            best[key] = many, value
    return {key: value for key, (_, value) in best.items()}


def _texts(values: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
