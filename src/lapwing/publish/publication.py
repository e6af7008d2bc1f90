"""A release from its file to its bundle: plan it, run it, and run it again for nothing.

Claim    `plan` reads no private row, charges nothing and makes no ledger. `run` charges a release once;
         after a crash, or run again, it goes on with the release of the same name.
Because  the plan follows from the files and from public tables. The release's name is its key in the
         ledger, and the price of an earlier request is read from its entry.
Test     tests/publish/test_publication.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from lapwing.core.conversions import largest_rho, zcdp_to_epsilon
from lapwing.core.exact import short, short_down, short_up
from lapwing.errors import BadFile, BadParameter, KeyReused, OverBudget, WorkEnded
from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.publish.bound_release import BoundRelease, bind_release, first_error
from lapwing.publish.bundle import bundle_contents, manifest
from lapwing.publish.census import census_release
from lapwing.publish.release_file import CENSUS, ReleasePlanFile, load_release
from lapwing.publish.synthetic_release import publish_table
from lapwing.sql.dataset import Dataset
from lapwing.sql.opening import open as open_dataset
from lapwing.sql.question.refusal import Refused

T = TypeVar("T")
INTERRUPTED, STALE, ENDED = "interrupted", "stale", RequestState.ENDED.value
Progress = Callable[[str, float], None]  # what is done now, and the share of it that is done


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """A plan of a release: its columns, price and expected errors. Nothing was read or charged for it.

    `errors` has, for each level of a census and each query, the expected absolute error of one number. For
    a synthetic table it has the expected error of one count of a single column.
    """

    name: str
    method: str
    unit: str
    rows_per_unit: int
    columns: Mapping[str, int]
    delta: Fraction
    rho: Fraction
    rho_that_fits: Fraction
    errors: tuple[tuple[str, int, Mapping[str, float]], ...]  # level, its nodes, error by query
    facts: tuple[str, ...]
    notes: tuple[str, ...]
    state: str | None  # of an earlier run: "answered", "open", "interrupted", "stale" or "ended"

    @property
    def epsilon(self) -> Fraction:
        """The ε of the release at its δ, rounded up."""
        return zcdp_to_epsilon(self.rho, self.delta)

    @property
    def fits(self) -> bool:
        """True if the release can be made. One that was charged before costs nothing more."""
        return self.state not in {ENDED, STALE} and (
            self.state is not None or self.rho <= self.rho_that_fits
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable names."""
        return {
            "name": self.name,
            "method": self.method,
            "unit": self.unit,
            "rows_per_unit": self.rows_per_unit,
            "columns": dict(self.columns),
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "rho": float(self.rho),
            "fits": self.fits,
            "rho_that_fits": float(self.rho_that_fits),
            "epsilon_that_fits": float(epsilon_within(self.rho_that_fits, self.delta)),
            "earlier_run": self.state,
            "expected_errors": [
                {"level": level, "areas": nodes, "errors": dict(errors)}
                for level, nodes, errors in self.errors
            ],
            "facts": list(self.facts),
            "notes": list(self.notes),
        }


def epsilon_within(rho: Fraction, delta: Fraction) -> Fraction:
    """Return an ε with few digits whose ρ at this δ is at most the given one."""
    if not rho:
        return Fraction(0)
    digits = 4
    epsilon = Fraction(short_down(zcdp_to_epsilon(rho, delta), digits))
    while epsilon > 0 and largest_rho(epsilon, delta) > rho:
        epsilon -= Fraction(1, 10**digits)
    return max(epsilon, Fraction(0))


class Publication:
    """A release that can be planned and run.

    Open it with `Publication.open`, and close it, or use it in a `with` statement.

    Example:
        >>> from lapwing.publish import Publication
        >>> with Publication.open("town-rows.toml") as release:
        ...     release.plan().fits
        True
    """

    def __init__(self, file: ReleasePlanFile, dataset: Dataset) -> None:
        self.file, self.dataset = file, dataset
        dataset.curator.pads = True  # strangers see the times of a published release

    @classmethod
    def open(cls, path: str | Path, *, analyst: str | None = None, threads: int | None = None) -> Self:
        """Open a release file with its policy. No private data is read.

        Args:
            path: The release file (TOML).
            analyst: Who publishes; None for the user's name.
            threads: How many cores an embedded engine may use.

        Returns:
            The release.

        Raises:
            BadFile: With every mistake in the release file or the policy.
        """
        file = load_release(path)
        return cls(file, open_dataset(file.policy, analyst=analyst, threads=threads))

    def close(self) -> None:
        """Close the ledger and the engine."""
        self.dataset.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def bound(self) -> BoundRelease:
        """The release, bound to the tables of its policy."""
        return self._checked(lambda: bind_release(self.file, self.dataset))

    @cached_property
    def census(self) -> census_release.BoundCensus | None:
        """The census; None for a synthetic table."""
        if self.file.method != CENSUS:
            return None
        return self._checked(lambda: census_release.bind_census(self.bound))

    def _checked(self, bind: Callable[[], T]) -> T:
        """Bind, and tell a mistake with the name of the file."""
        try:
            return bind()
        except BadFile:
            raise
        except (BadParameter, Refused) as error:
            raise BadFile([f"{self.file.path}: {error}"]) from None

    def plan(self, *, everything: bool = False) -> PublicationPlan:
        """Return what the release will cost and be off by. It is free.

        Args:
            everything: Whether to plan with all of the budget that is left.

        Returns:
            The plan.

        Raises:
            BadFile: If the release cannot be made of this policy.
        """
        bound, earlier, policy = self.bound, self._earlier(), self.dataset.policy
        fits = bound.rho_that_fits()
        rho = self._rho(earlier, everything=everything)
        return PublicationPlan(
            name=self.file.name,
            method=self.file.method,
            unit=bundle_contents.unit_name(policy.protects),
            rows_per_unit=bound.rows_per_unit,
            columns={column.name: column.size for column in bound.columns},
            delta=self.file.delta,
            rho=rho,
            rho_that_fits=fits,
            errors=tuple(self._errors(rho)) if rho else (),
            facts=tuple(self.file.facts),
            notes=tuple(bundle_contents.note_lines(bound)),
            state=self._state(earlier),
        )

    def _errors(self, rho: Fraction) -> list[tuple[str, int, Mapping[str, float]]]:
        census = self.census
        if census is not None:
            by_level = census_release.expected_errors(census, rho)
            return [
                (level, len(nodes), errors)
                for level, nodes, errors in zip(
                    census.spine.levels, census.spine.nodes, by_level, strict=True
                )
            ]
        error = self._checked(lambda: first_error(self.bound, rho))
        return [("single columns, measured first", 1, {"count": error})]

    def _earlier(self) -> RequestStatus | None:
        """Return the earlier request under this release's name, or None. It makes no ledger.

        Raises KeyReused if that request was made with another release file.
        """
        if not self.dataset.curator.has_ledger:
            return None
        earlier = self.dataset.session.gate.find(self.bound.key)
        if earlier is not None and earlier.receipt.record["parameters"].get("file") != self.file.digest:
            raise self._other_release()
        return earlier

    def _other_release(self) -> KeyReused:
        return KeyReused(
            f'a release named "{self.file.name}" was begun or made before, from another release file or '
            "other data, and its price stays spent or reserved. Change the file back, byte by byte, to "
            "go on with it; or give the new release another name, at a price of its own"
        )

    def _state(self, earlier: RequestStatus | None) -> str | None:
        if earlier is None:
            return None
        if self.dataset.curator.current_data() is None:
            return STALE
        if earlier.state is RequestState.ENDED and self.file.method != CENSUS and self.journal.exists():
            return INTERRUPTED
        return earlier.state.value

    def _rho(self, earlier: RequestStatus | None, *, everything: bool) -> Fraction:
        if earlier is not None:
            return Fraction(earlier.receipt.record["parameters"]["rho"])
        if everything:
            return self.bound.rho_that_fits()
        if self.file.rho is not None:
            return self.file.rho
        assert self.census is not None
        assert self.file.census is not None
        return census_release.least_rho(self.census, self.file.census.wanted or {})

    def run(
        self, out: str | Path, *, everything: bool = False, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Measure what was not measured before, and write the bundle.

        Args:
            out: The folder of the bundle: new, or empty, or that of an earlier run of this release.
            everything: Whether to spend all of the budget that is left.
            progress: Called with what is done now, and the share of it that is done.

        Returns:
            The manifest of the bundle.

        Raises:
            OverBudget: If the budget is too small. It says what would pass, and nothing is charged.
            KeyReused: If the name was used for another release of this data.
            BadParameter: If the folder has other files, or the data changed.
        """
        place, bound, census = Path(out), self.bound, self.census
        earlier = self._earlier()
        if (known := self._written(place, earlier)) is not None:
            return known
        manifest.require_new_folder(place)
        rho = self._rho(earlier, everything=everything)
        if not rho:
            raise self._refused(OverBudget("everything", "nothing", "The budget is used up."))
        try:
            if census is not None:
                if progress is not None:
                    progress("measuring", 0.0)
                release = census_release.measure_census(census, rho)
                if progress is not None:
                    progress("making whole tables", 0.5)
                return bundle_contents.write_census_bundle(
                    place, census, census_release.tables_from_answer(census, release)
                )
            table = publish_table(bound, rho, self.journal, progress=progress)
            written = bundle_contents.write_synthetic_bundle(place, bound, table)
        except OverBudget as error:
            raise self._refused(error) from None
        except KeyReused:
            raise self._other_release() from None
        except WorkEnded:
            raise WorkEnded(
                f'the release "{self.file.name}" was charged, and failed before its measurements were '
                "stored. Its price is spent. Give the next try another name"
            ) from None
        for path in (self.journal, self.journal.with_name(f"{self.journal.name}.check")):
            path.unlink(missing_ok=True)  # the ledger has all of it
        return written

    @property
    def journal(self) -> Path:
        """The file of the steps, beside the release file. After a crash, a run goes on from it."""
        whose = f"{self.dataset.analyst}\n{self.bound.key}\n{self.file.digest}"
        digest = sha256(whose.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return self.file.path.with_suffix(f".{digest}.journal")

    def _written(self, place: Path, earlier: RequestStatus | None) -> dict[str, Any] | None:
        """Return the manifest of this release's bundle if it is there. Refuse a folder with other files."""
        if not os.path.exists(place):  # unlike pathlib, it tells no error of a name that cannot be
            return None
        if not place.is_dir():
            raise BadParameter("out", f"{place} is not a folder")
        if not any(place.iterdir()):
            return None
        if earlier is not None and earlier.state is RequestState.ANSWERED:
            try:
                written = manifest.read_manifest(place)
            except BadParameter:
                written = {}
            charged = earlier.receipt.ledger, earlier.receipt.position
            if (written.get("ledger"), written.get("charge")) == charged:
                key = self.dataset.ledger.keys.signing.public.hex()
                changed = manifest.changed_files(place, written)
                for finding in (*manifest.signature_findings(written, key), *changed):
                    raise BadParameter(
                        "out", f"{place}: {finding}. Remove the folder and run again: nothing is charged"
                    )
                return written
        raise BadParameter("out", f"{place} has other files: nothing is written over. Name a new folder")

    def _refused(self, error: OverBudget) -> OverBudget:
        """Return the refusal of a release, with what would pass."""
        fits, delta = self.bound.rho_that_fits(), self.file.delta
        epsilon = epsilon_within(fits, delta)
        what_now = (
            f"ρ {short_down(fits)} would pass: epsilon = {short_down(epsilon)} at delta = "
            f"{short(float(delta))} in the release file, or --everything."
            if epsilon
            else "The budget is used up."
        )
        asked = self._rho(None, everything=False)
        words = (
            f"ρ {short_up(asked)} (ε {short_up(zcdp_to_epsilon(asked, delta), 4)} at δ "
            f"{short(float(delta))})"
        )
        return OverBudget(words, f"ρ {short_down(fits)}", what_now, where=error.where)
