"""`lapwing publish`: plan a release, run it into a bundle, and verify a bundle.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from lapwing.cli import console

if TYPE_CHECKING:
    from lapwing.publish.bundle.verified_bundle import BundleReport
    from lapwing.publish.publication import Publication, PublicationPlan

app = console.Commands(help="Publish synthetic tables and census tables.")
NO_KEY_GIVEN = 3
ReleaseFile = Annotated[Path, Argument(metavar="RELEASE", help="The release file, such as town-rows.toml.")]
Everything = Annotated[
    bool, Option("--everything", help="Spend all of the budget that is left, instead of the file's ε.")
]


@app.command()
def example(folder: console.ExampleFolder = Path(".")) -> None:
    """Write an invented town: its data, a policy, and two release files."""
    from lapwing.examples.town import TOWN_CENSUS, TOWN_ROWS, write_town

    with console.os_errors_told():
        names, is_new = write_town(folder)
    said = "Wrote" if is_new else "These files are there already, unchanged:"
    print(f"{said} {', '.join(names)}. Next:")
    print(f"  lapwing publish plan {folder / TOWN_CENSUS}")
    print(f"  lapwing publish run {folder / TOWN_ROWS} --out {folder / 'rows'}")


@contextmanager
def _opened(path: Path, analyst: str | None, threads: int | None = None) -> Iterator[Publication]:
    from lapwing.publish import Publication

    with console.os_errors_told(), Publication.open(path, analyst=analyst, threads=threads) as publication:
        publication.dataset.curator.notify = console.tell
        yield publication


@app.command()
def plan(
    release: ReleaseFile,
    *,
    everything: Everything = False,
    plot: Annotated[Path | None, Option(help="Draw error against ε into this file.")] = None,
    analyst: console.Analyst = None,
    as_json: console.AsJson = False,
) -> None:
    """Show what a release would publish, cost and be off by. It is free and reads no private row."""
    console.check_plot(plot)
    with _opened(release, analyst) as publication:
        made = publication.plan(everything=everything)
    console.print_result(made, show_plan, as_json=as_json)
    if plot is not None:
        from lapwing.plots.accuracy import release_error

        shown = [(level, next(iter(errors.values()))) for level, _, errors in made.errors]
        console.write_plot(
            plot, release_error(made.name, shown, made.rho, made.delta, made.rho_that_fits), quiet=as_json
        )


def show_plan(made: PublicationPlan) -> None:
    """Show a plan."""
    from lapwing.core.exact import short, short_down, short_up
    from lapwing.publish.publication import epsilon_within

    delta, left = short(float(made.delta)), made.rho_that_fits
    price = f"ρ {short_up(made.rho, 4)}: ε {short_up(made.epsilon, 4)} at δ {delta}"
    fitting = f"ρ {short_down(left)}: ε {short_down(epsilon_within(left, made.delta))} at δ {delta}"
    with console.page() as out:
        out.title(f"{made.name} ({made.method})")
        rows = [
            ("protected", _protected(made.unit, made.rows_per_unit)),
            ("columns", ", ".join(f"{name} ({cells})" for name, cells in made.columns.items())),
            ("price", price),
            ("the budget admits", fitting),
        ]
        rows += [("public fact", line) for line in made.facts]
        rows += [("note", line) for line in made.notes]
        out.pairs(*rows)
        if made.errors:
            out.heading("Expected error of one number, before anything is measured")
            queries = list(dict.fromkeys(query for _, _, errors in made.errors for query in errors))
            shown = console.table("", "areas", *queries, right=range(1, len(queries) + 2))
            for level, nodes, errors in made.errors:
                numbers = [f"{errors[query]:,.2f}" if query in errors else "" for query in queries]
                shown.add_row(level, f"{nodes:,}", *numbers)
            out.print(shown)
        _show_state(out, made)


def _protected(unit: str, rows: int) -> str:
    return f"one {unit}, of which at most {rows:,} row{' is' if rows == 1 else 's are'} used"


def _show_state(out: console.Page, made: PublicationPlan) -> None:
    if made.state is not None:
        words = {
            "answered": "This release was made before: running it again costs nothing.",
            "open": "A run of this release is under way.",
            "interrupted": "A run was interrupted: running it again goes on, within its price.",
            "stale": "The data changed since this release was begun. Give a new release another name.",
            "ended": "A run of this release failed after its charge. Give a new release another name.",
        }
        out.indented(words[made.state])
    elif not made.fits:
        out.warning(
            "The budget refuses this release. Lower epsilon in the file, or run it with --everything."
        )


@app.command()
def run(
    release: ReleaseFile,
    *,
    out: Annotated[Path, Option("--out", help="The folder of the bundle: new, or empty.")],
    everything: Everything = False,
    analyst: console.Analyst = None,
    threads: console.Threads = None,
    as_json: console.AsJson = False,
) -> None:
    """Charge, measure, and write the bundle. A synthesis that was interrupted goes on if run again."""
    from lapwing.publish.bundle.manifest import privacy_numbers

    with _opened(release, analyst, threads) as publication, _watched(quiet=as_json) as progress:
        manifest = publication.run(out, everything=everything, progress=progress)
    privacy = manifest["privacy"]
    if as_json:
        told = {name: manifest[name] for name in ("name", "method", "ledger", "key", "charge", "answer")}
        console.print_json({"folder": str(out), **told, "privacy": privacy_numbers(privacy)})
        return
    with console.page() as shown:
        shown.title(f"{manifest['name']} is in {out}")
        shown.indented(
            f"One {privacy['unit']} lost at most ε {privacy['epsilon']} at δ {_delta(privacy)} by it."
        )
        shown.points(
            f"Read {out / 'report.html'}: how good the numbers are, and what they are not good for.",
            f"Read {out / 'privacy.md'}: who is protected, and what is not.",
            f"Anybody can check it: lapwing publish verify {out} --key {manifest['key']}",
            "Publish this key elsewhere: who takes the key from the bundle itself checks nothing.",
        )


def _delta(privacy: dict[str, Any]) -> str:
    from fractions import Fraction

    from lapwing.core.exact import short

    return short(float(Fraction(privacy["delta"])))


@contextmanager
def _watched(*, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """Show progress: a bar on a terminal; elsewhere, unless quiet, a line for each step that measures."""
    if quiet or sys.stderr.isatty():
        with console.working("publishing") as report:
            yield lambda _, share: report(round(1000 * share), 1000)
        return

    def say(what: str, share: float) -> None:
        if what != "fitting":
            print(f"{what} ({share:.0%})", flush=True)

    yield say


@app.command()
def verify(
    folder: Annotated[Path, Argument(metavar="BUNDLE", help="The folder of a bundle.")],
    key: console.KnownKey = None,
    as_json: console.AsJson = False,
) -> None:
    """Check a bundle without the data and the ledger.

    Exit code 1: it is not what was released. Exit code 3: no --key was given, so anybody may have made it.
    """
    from lapwing.publish import verify_bundle

    with console.os_errors_told():
        bundle = verify_bundle(folder, key=key)
    if as_json:
        console.print_json(bundle.to_json())
    elif bundle.findings:
        advice = "Do not use it. Ask the publisher for the original."
        console.print_findings(f"{folder} is not what was released:", bundle.findings, advice)
    else:
        show_verified_bundle(bundle)
    if bundle.findings:
        raise Exit(1)
    if not bundle.key_was_given:
        raise Exit(NO_KEY_GIVEN)


def show_verified_bundle(bundle: BundleReport) -> None:
    """Show a bundle in which nothing is wrong."""
    privacy, rows = dict(bundle.privacy), "" if bundle.rows is None else f", {bundle.rows:,} rows"
    with console.page() as out:
        out.title(f"{bundle.folder}: nothing differs")
        loss = f"ε {privacy['epsilon']} at δ {_delta(privacy)}, derived again from the stated noise"
        out.pairs(
            ("release", f"{bundle.name} ({bundle.method}){rows}"),
            ("protected", _protected(privacy["unit"], privacy["rows_per_unit"])),
            ("loss", loss),
            ("charged to", f"ledger {bundle.ledger}"),
            ("public key", bundle.key),
        )
        if not bundle.key_was_given:
            out.warning(console.NO_KEY)
