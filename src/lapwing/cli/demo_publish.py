"""The part of `lapwing demo` that publishes a town: invented rows, and a census of three levels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from lapwing.cli.console import console, heading, indented, points
from lapwing.examples import clinic
from lapwing.examples.town import TOWN_CENSUS, TOWN_PEOPLE, TOWN_ROWS, write_town
from lapwing.publish import Publication, PublishedBundle, verify_bundle


def tell_publish() -> None:
    """Publish invented rows and the census of a town, and let a stranger verify both."""
    with TemporaryDirectory(prefix="lapwing-demo-") as name, clinic.state_in(Path(name, "state")):
        folder = Path(name)
        write_town(folder)
        with console() as out:
            heading(out, "Publishing: a table of invented rows, and a census of three levels")
            indented(out, f"A town of {TOWN_PEOPLE:,} people (invented), ε 6 for life.")
        for file in (TOWN_ROWS, TOWN_CENSUS):
            bundle = folder / Path(file).stem
            with Publication.open(folder / file, analyst="the demo") as release:
                release.dataset.tell = lambda _: None
                manifest = release.run(bundle)
            verified = verify_bundle(bundle, key=manifest["key"])
            with console() as out:
                points(out, _published(PublishedBundle(bundle), verified.rows, verified.findings))


def _published(bundle: PublishedBundle, rows: int | None, findings: Sequence[str]) -> list[str]:
    privacy = bundle.manifest["privacy"]
    if bundle.is_census:
        found = bundle.count({"life": "old"}, level="district", area="district 2")
        what, counted = "census", "people of 65 or more in district 2"
    else:
        found, what, counted = bundle.count({"work": "retired"}), "rows", "retired people"
    verdict = "; ".join(findings) or "nothing differs"
    return [
        f"{what}: {rows:,} invented rows at ε {privacy['epsilon']}; {counted}: {found.value:,.0f} "
        f"({found.low:,.0f} to {found.high:,.0f}).",
        f"Verified by a stranger, with the ledger's public key alone: {verdict}.",
    ]
