"""A policy from its file (TOML). All mistakes are found and told together, each with its line.

```toml
[dataset]
name = "visits"
[budget]
epsilon = 3.0
delta = 1e-7
[tables.visits]
source = "visits.parquet"
unit = "patient_id"
rows_per_unit = 5
[tables.visits.columns.stay]
low = 0
high = 60
```
"""

from __future__ import annotations

import glob
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lapwing.engines.limits import DEFAULTS, MEGABYTE, Limits
from lapwing.errors import BadFile, BadParameter
from lapwing.exact import round_down
from lapwing.ledger.entry import checked_label
from lapwing.privacy import Terms
from lapwing.privacy.charge import DELTA_UNIT
from lapwing.privacy.loss import checked_delta, checked_epsilon
from lapwing.privacy.portfolio import SHARE_DELTA0
from lapwing.query.policies.check import PERSON_PERIOD, blocks_of, check_tables
from lapwing.query.policies.policy import Policy
from lapwing.query.policies.tables import Around, tables_of
from lapwing.toml.places import LedgerPlaces, ledger_places
from lapwing.toml.section import Section
from lapwing.toml.text import read

__all__ = ["BadFile", "load"]

ROOT = ("dataset", "budget", "blocks", "ledger", "analysts", "engine", "parties", "tables")
LEDGER = "lapwing.ledger"  # the budget follows the data, also if a policy is copied or renamed
IDS = ("exact", "folded")
ENGINE = ("timeout", "failures", "spark_master", "memory", "temporary", "threads")
PROTECTS = ("person", "row", PERSON_PERIOD)
QUERIES = 1000  # the questions with undeclared keys that δ is shared by, unless delta_per_query is given
MOST_MEMBERS = 1000
TIMEOUT, DAY = 600, 86_400  # seconds
FAILURES, MOST_FAILURES = 3, 100
LEAST_MEMORY, MOST_MEGABYTES, MOST_THREADS = 500, 100_000_000, 1024


def load(path: str | Path) -> Policy:
    """The policy in a file, checked; or `BadFile` with every mistake in it. Reads no data."""
    path = Path(path)
    values, mistakes = read(path, what="policy", example="visits.toml", draft="lapwing init DATA")
    root = Section.of(mistakes, (), values, ROOT)
    assert root is not None
    path = path.absolute()
    dataset = _dataset(root)
    budget = _budget(root)
    quotas = _quotas(root, budget)
    engine = _engine(root)
    ledger = _ledger(root, path)
    least_coalition = _least_coalition(root)
    protects = dataset.protects if dataset else None
    if not root.has("tables"):
        root.missing("tables", "[tables.visits] with source, unit and rows_per_unit")
    tables = tables_of(root, Around(path.parent, protects, engine.spark_master))
    if root.has("tables"):
        check_tables(mistakes, tables, named=root.tables("tables"))
    blocks = blocks_of(root, protects, tables)
    mistakes.complain()
    assert dataset is not None
    assert dataset.name is not None
    assert dataset.protects is not None
    assert budget is not None
    return Policy(
        path=path,
        name=dataset.name,
        epsilon=budget.epsilon,
        delta=budget.delta,
        delta_per_query=budget.delta_per_query,
        tables=tables,
        blocks=blocks,
        ledger=ledger.url,
        quotas=quotas,
        protects=dataset.protects,
        population=dataset.population,
        timeout=engine.timeout,
        failures=engine.failures,
        ledger_keys=ledger.keys,
        ledger_anchor=ledger.anchor,
        folds_ids=dataset.folds_ids,
        limits=engine.limits,
        shares_answers=not quotas if dataset.shares_answers is None else dataset.shares_answers,
        least_coalition=least_coalition,
    )


def _least_coalition(root: Section) -> int:
    section = root.below("parties", ("least_coalition",))
    return 0 if section is None else section.whole("least_coalition", least=1, most=MOST_MEMBERS) or 0


@dataclass(frozen=True, slots=True)
class _Dataset:
    name: str | None
    protects: str | None
    population: str
    folds_ids: bool
    shares_answers: bool | None


def _dataset(root: Section) -> _Dataset | None:
    section = root.below("dataset", ("name", "protects", "population", "ids", "share_answers"))
    if section is None:
        if not root.has("dataset"):
            root.missing("dataset", '[dataset] with name = "visits"')
        return None
    if not section.has("name"):
        section.missing("name", 'name = "visits": how the ledger calls these data')
    protects = section.one_of("protects", PROTECTS) if section.has("protects") else "person"
    folds_ids = section.has("ids") and section.one_of("ids", IDS) == "folded"
    shares = section.flag("share_answers") if section.has("share_answers") else None
    return _Dataset(section.label("name"), protects, section.label("population") or "", folds_ids, shares)


@dataclass(frozen=True, slots=True)
class _Budget:
    epsilon: Fraction
    delta: Fraction
    delta_per_query: Fraction


def _budget(root: Section) -> _Budget | None:
    section = root.below("budget", ("epsilon", "delta", "delta_per_query"))
    if section is None:
        if not root.has("budget"):
            root.missing("budget", "[budget] with epsilon = 3.0 and delta = 1e-7, for life")
        return None
    epsilon, delta = _epsilon_delta(section)
    if epsilon is None or delta is None:
        return None
    try:
        Terms.of(epsilon, delta)
    except BadParameter as error:
        section.wrong(error.name, error.why)
    return _Budget(epsilon, delta, _per_query(section, delta))


def _per_query(section: Section, delta: Fraction) -> Fraction:
    default = nice_below(delta / QUERIES)
    found = _number(section, "delta_per_query")
    if found is not None and found > delta * SHARE_DELTA0:
        share = f"{float(SHARE_DELTA0):.0%}"
        section.wrong("delta_per_query", f"must be at most {share} of delta: more could never be spent")
    return default if found is None else found


def _epsilon_delta(section: Section) -> tuple[Fraction | None, Fraction | None]:
    for name, write in (("epsilon", "epsilon = 3.0"), ("delta", "delta = 1e-7")):
        if not section.has(name):
            section.missing(name, f"{write}, or what you promise for life")
    return _number(section, "epsilon"), _number(section, "delta")


def _number(section: Section, name: str) -> Fraction | None:
    number = section.number(name)
    check = checked_epsilon if name == "epsilon" else checked_delta
    return None if number is None else section.checked(name, check, number)


def nice_below(value: Fraction) -> Fraction:
    """The greatest decimal of two digits, in whole units of the ledger, that is not above `value`."""
    units = round_down(value, DELTA_UNIT)
    scale = 10 ** max(len(str(units)) - 2, 0)
    return Fraction(units // scale * scale, DELTA_UNIT)


def _quotas(root: Section, budget: _Budget | None) -> dict[str, tuple[Fraction, Fraction]]:
    quotas: dict[str, tuple[Fraction, Fraction]] = {}
    for name, raw in root.tables("analysts").items():
        section = Section.of(root.mistakes, ("analysts", name), raw, ("epsilon", "delta"))
        label = root.checked("analysts", checked_label, name)
        if section is None or label is None:
            continue
        if label in quotas:
            root.mistakes.add(section.key, "is here already, written with other characters")
        epsilon, delta = _epsilon_delta(section)
        if epsilon is None or delta is None:
            continue
        if budget is not None and (epsilon > budget.epsilon or delta > budget.delta):
            beyond = "epsilon" if epsilon > budget.epsilon else "delta"
            section.wrong(beyond, f"must be at most budget.{beyond}: a quota is a part of it")
        quotas[label] = epsilon, delta
    return quotas


@dataclass(frozen=True, slots=True)
class _Engine:
    timeout: int = TIMEOUT
    failures: int = FAILURES
    spark_master: str = ""
    limits: Limits = DEFAULTS


def _engine(root: Section) -> _Engine:
    section = root.below("engine", ENGINE)
    if section is None:
        return _Engine()
    memory = section.whole("memory", least=LEAST_MEMORY, most=MOST_MEGABYTES)
    temporary = section.whole("temporary", least=1, most=MOST_MEGABYTES)
    limits = Limits(
        None if memory is None else memory * MEGABYTE,
        None if temporary is None else temporary * MEGABYTE,
        section.whole("threads", least=1, most=MOST_THREADS),
    )
    return _Engine(
        section.whole("timeout", least=1, most=DAY) or TIMEOUT,
        section.whole("failures", least=1, most=MOST_FAILURES) or FAILURES,
        section.text("spark_master") or "",
        limits,
    )


def _ledger(root: Section, path: Path) -> LedgerPlaces:
    return ledger_places(root, path, default=str(_default_ledger(path)), example=LEDGER)


def _default_ledger(path: Path) -> Path:
    """One for all policies of a folder; but one that is named after the policy, or what is left of it,
    stays the policy's own. Never the policy itself."""
    named = f"{path.stem if path.suffix != '.ledger' else path.name}.ledger"
    has_own = any(path.parent.glob(f"{glob.escape(named)}*"))
    return path.with_name(named if has_own or path.name == LEDGER else LEDGER)
