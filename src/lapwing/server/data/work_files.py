"""Releases, models and audits: what the files of the served folder declare and hold, and for whom.

Claim    a person sees what belongs to data for which the person has a role, and nothing else of the folder.
Because  each file names its data, or the ledger that signed it; one that belongs to no data set here is for
         people with a role everywhere. Only files that a manifest, card or run lists are given away.
Test     tests/server/data/test_work_files.py

Nothing is opened but these files: no data and no reports. What they do not say is not said.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from lapwing.core.exact import short, short_up
from lapwing.errors import BadParameter
from lapwing.publish.bundle.manifest import MANIFEST, read_manifest
from lapwing.reporting.audit_records import AuditRecord
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.people.person import EVERYWHERE, NotAllowed, NotFound, Requester, Role

LARGEST = 1 << 20  # bytes of a file that may declare something
LARGEST_AUDIT = 1 << 23
LARGEST_GIVEN = 1 << 28  # of a file that is given away
MOST_FILES = 500
CARD = "card.json"
DATA_ROLES = frozenset({Role.STEWARD, Role.ANALYST, Role.OFFICER})
# A bundle is for strangers. A model is an answer: officers read its card.
_OFFICERS_MAY = frozenset({CARD, "card.txt", "receipts.json"})


class WorkKind(StrEnum):
    """What a file is about."""

    RELEASES = "releases"
    MODELS = "models"
    AUDITS = "audits"


@dataclass(frozen=True, slots=True)
class WorkFile:
    """A release, pipeline or audit, declared or done.

    Args:
        kind: What it is about.
        id: Its name in addresses.
        title: The name that it gives itself.
        file: The file or folder.
        words: A few words about it.
        facts: Names and values that it says.
        state: "declared", "released", "passed", "failed", or the verdict on a model.
        data: The data sets that it belongs to. None: to none, such as an audit of a mechanism.
        place: The folder with its files.
        files: The names of the files that are given away.
    """

    kind: WorkKind
    id: str
    title: str
    file: str
    words: str
    facts: tuple[tuple[str, str], ...]
    state: str
    data: frozenset[str] | None
    place: Path
    files: tuple[str, ...] = ()


class WorkFiles:
    """The releases, models and audits of the served folder.

    Args:
        folder: The folder.
        sets: The data sets.
    """

    def __init__(self, folder: Path, sets: ServedDataSets) -> None:
        self._folder, self._sets = folder, sets
        self._readers = {
            WorkKind.RELEASES: self._releases,
            WorkKind.MODELS: self._models,
            WorkKind.AUDITS: self._audits,
        }

    def all_of(self, person: Requester, kind: WorkKind) -> list[WorkFile]:
        """Return what a person may see of one kind.

        Raises:
            NotAllowed: If the person has roles here, and none of them reads data.
        """
        names = (*self._sets.names(), EVERYWHERE)
        roles = frozenset[Role]().union(*(person.roles_for(name) for name in names))
        if roles and not roles & DATA_ROLES:
            raise NotAllowed(kind)
        return [work for work in self._readers[kind]() if roles and _may_see(person, work)]

    def find(self, person: Requester, kind: WorkKind, work_id: str) -> WorkFile:
        """Return one by its id. Raises NotFound if there is none that the person may see."""
        for work in self.all_of(person, kind):
            if work.id == work_id:
                return work
        raise NotFound(work_id)

    def content(self, person: Requester, kind: WorkKind, work_id: str, file: str) -> bytes:
        """Return a file that was written for it. Raises NotFound if there is none for the person."""
        work = self.find(person, kind, work_id)
        reads = frozenset({Role.STEWARD, Role.ANALYST})
        is_free = kind is not WorkKind.MODELS or file in _OFFICERS_MAY
        if file not in work.files or not (is_free or _has(person, work, reads)):
            raise NotFound(file)
        try:
            handle = os.open(work.place / file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            raise NotFound(file) from None
        with open(handle, "rb") as opened:
            if os.fstat(handle).st_size > LARGEST_GIVEN:
                raise BadParameter("file", "is too large to be sent: copy it from the server's folder")
            return opened.read()

    # Where a file belongs

    def _of_policy(self, named: Any) -> frozenset[str]:
        """Return the data sets whose policy a file names."""
        path = self._folder / named if isinstance(named, str) else None
        return frozenset(data.name for data in self._sets if data.curator.policy.path == path)

    def _of_ledger(self, *, key: Any = None, ledger: Any = None) -> frozenset[str]:
        """Return the data sets of a ledger, by its public key or its id."""
        return frozenset(
            data.name
            for data in self._sets
            if data.curator.has_ledger
            and (
                data.curator.ledger.id == ledger
                if key is None
                else data.curator.ledger.keys.signing.public.hex() == key
            )
        )

    # Reading

    def _releases(self) -> Iterator[WorkFile]:
        of_release: dict[str, frozenset[str]] = {}
        for path, release, _ in declared(self._folder, "release"):
            name = str(release.get("name", path.stem))
            of_release[name] = self._of_policy(release.get("policy"))
            facts = facts_of(
                release, ("method", "Method"), ("policy", "Policy"), ("epsilon", "ε"), ("delta", "δ")
            )
            yield WorkFile(
                WorkKind.RELEASES, path.stem, name, path.name, "declared", facts, "declared",
                of_release[name], self._folder,
            )  # fmt: skip
        for place in sorted(self._folder.glob(f"*/{MANIFEST}"))[:MOST_FILES]:
            try:
                manifest = read_manifest(place.parent)
            except BadParameter:
                continue
            privacy, signed = manifest["privacy"], self._of_ledger(key=manifest["key"])
            price = f"ε {_up(privacy['epsilon'])}, δ {_up(privacy['delta'])}"
            yield WorkFile(
                WorkKind.RELEASES, place.parent.name, str(manifest["name"]), f"{place.parent.name}/",
                "a bundle",
                (("Method", str(manifest["method"])), ("Price", price),
                 ("Charged in entry", str(manifest["charge"])), ("Files", str(len(manifest["files"])))),
                "released", signed & of_release.get(manifest["name"], frozenset()) or signed,
                place.parent, (MANIFEST, *manifest["files"]),
            )  # fmt: skip

    def _models(self) -> Iterator[WorkFile]:
        for path, pipeline, values in declared(self._folder, "pipeline"):
            facts = facts_of(pipeline, ("stream", "Stream"), ("features", "Features"), ("label", "Label"))
            parts = (("trainer", "Trainer"), ("validator", "Validator"), ("strategy", "Strategy"))
            facts += tuple(
                (words, str(values[table]["kind"]))
                for table, words in parts
                if isinstance(values.get(table), dict) and "kind" in values[table]
            )
            data, name = self._of_policy(pipeline.get("stream")), str(pipeline.get("name", path.stem))
            yield WorkFile(
                WorkKind.MODELS, path.stem, name, path.name, "declared", facts, "declared", data,
                self._folder,
            )  # fmt: skip
            for place in sorted(self._folder.glob(f"{path.stem}.runs/run-*/{CARD}"))[:MOST_FILES]:
                run = self._run(path.stem, place)
                if run is not None:
                    yield run

    def _run(self, stem: str, place: Path) -> WorkFile | None:
        """Return a run of a pipeline, by its card."""
        try:
            card = _json(place, LARGEST)
            charged, privacy = card["charged"], card["privacy"]
            data = self._of_ledger(ledger=charged["ledger"]) & {str(charged["stream"])}
            epsilon, delta = (_up(str(privacy[f"run_{which}_at_most"])) for which in ("epsilon", "delta"))
            facts = (
                ("Run", str(card["run"])),
                ("Price at most", f"ε {epsilon}, δ {delta}"),
                ("Attempts", str(len(card["attempts"]))),
            )
            title = str(card["pipeline"])
            verdict, words = str(card["verdict"]), str(card["words"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        files = tuple(sorted(file.name for file in place.parent.iterdir() if file.suffix in _TYPES))
        folder = place.parent
        shown = f"{folder.parent.name}/{folder.name}/"
        return WorkFile(
            WorkKind.MODELS,
            f"{stem}.{folder.name}",
            title,
            shown,
            words,
            facts,
            verdict,
            data,
            folder,
            files,
        )

    def _audits(self) -> Iterator[WorkFile]:
        for path in sorted(self._folder.glob("*.json"))[:MOST_FILES]:
            try:
                run = _json(path, LARGEST_AUDIT)
                if run.get("lapwing") != "audit":
                    continue
                record = AuditRecord.read(path, None)
            except (BadParameter, OSError, ValueError, AttributeError, RecursionError):
                continue
            key = run.get("key")
            claims = len({row[0] for row in record.rows})
            begun = datetime.fromisoformat(record.started).astimezone(UTC)
            facts = (
                ("Begun", f"{begun:%Y-%m-%d}"),
                ("Version", record.version),
                ("Claims tried", f"{claims:,} {'claim' if claims == 1 else 'claims'}"),
            )
            yield WorkFile(
                WorkKind.AUDITS, path.stem, record.file, path.name, record.verdict, facts,
                "failed" if record.failure else "passed",
                self._of_ledger(key=key) if isinstance(key, str) else None, self._folder, (path.name,),
            )  # fmt: skip


_TYPES = {".json": "application/json", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}


def file_type(name: str) -> str:
    """Return the type of a file that is given away. What is not known is bytes."""
    return _TYPES.get(Path(name).suffix, "application/octet-stream")


def _has(person: Requester, work: WorkFile, roles: frozenset[Role]) -> bool:
    return any(person.can(name, *roles) for name in work.data or (EVERYWHERE,))


def _may_see(person: Requester, work: WorkFile) -> bool:
    return work.data is None or _has(person, work, DATA_ROLES)


def declared(folder: Path, table: str) -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Yield each TOML file of a folder that has a table, with the table and all values."""
    for path in sorted(folder.glob("*.toml"))[:MOST_FILES]:
        values = _toml(path, path.stat().st_mtime_ns)
        part = values.get(table)
        if isinstance(part, dict):
            yield path, part, values


@lru_cache(maxsize=256)
def _toml(path: Path, _: int) -> dict[str, Any]:
    """Return a TOML file as it was at a time; nothing if it cannot be read: it may be no file of ours."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= LARGEST else {}
    except (OSError, ValueError):
        return {}


def _json(path: Path, most: int) -> Any:
    if path.stat().st_size > most:
        raise ValueError
    return json.loads(path.read_bytes())


def facts_of(values: dict[str, Any], *wanted: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the wanted values that are there, with words for each."""
    return tuple((words, _words(values[key])) for key, words in wanted if key in values)


def _words(value: Any) -> str:
    if isinstance(value, float):
        return short(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _up(value: Any) -> str:
    return short_up(Fraction(value), 6)
