"""`lapwing survey invite`, `serve`, `collect` and `close`: the owner's side of a survey that runs.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from lapwing.cli.opened import AsJson, plainly, print_json, tell
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.survey.collecting import Rule, Store
    from lapwing.survey.planning import Design

PORT = 8000
SurveyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The survey file, such as wellbeing.toml.")
]


def invite(
    file: SurveyFile,
    *,
    count: Annotated[int | None, typer.Option(help="How many, for people whom nobody names.")] = None,
    to: Annotated[
        Path | None, typer.Option(help="A file with one id or address of a person a line.")
    ] = None,
    base: Annotated[
        str, typer.Option(help="The address at which respondents reach the survey.")
    ] = f"http://127.0.0.1:{PORT}",
    out: Annotated[
        Path | None, typer.Option(help="Write the links into this new file; else print them.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those who were invited to it before.")
    ] = False,
) -> None:
    """Issue invitations: each is charged its worst case now, answered or not. Prints one link each."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.survey import invitations  # noqa: PLC0415

    _require_base(base)
    design = _designed(file)
    invitations.require_answerable(design)  # before a ledger is made
    people = None if to is None else _ids(to)
    if design.warning:
        tell(f"Warning: {design.warning}")
    issued = 0
    with (
        plainly(),
        _reports(design) as reports,
        invitations.open_ledger(design.survey, tell) as ledger,
        working("inviting") as progress,
    ):
        batches = invitations.invite(
            design, ledger, reports, people=people, count=count, again=again, progress=progress
        )
        with _output(out) as output:  # made before anything is charged
            for batch in batches:
                for one in batch:
                    person = f"{one.person}\t" if one.person else ""
                    output.write(f"{person}{one.link(base)}\n")
                output.flush()
                issued += len(batch)
    price = f"ε {float(design.epsilon):.4g}"
    told = f"Issued {issued:,} invitations, each charged {price} in {_ledger(design)}."
    print(told, file=sys.stderr if out is None else sys.stdout)


def _require_base(base: str) -> None:
    """An address that a link can begin with, which nobody can read along the way."""
    from urllib.parse import urlsplit  # noqa: PLC0415

    from lapwing.server.running import is_loopback  # noqa: PLC0415

    wrong = BadParameter("base", "must be an address such as https://survey.example.org")
    if not base.isascii() or not base.isprintable() or set(base) & set(' ?#\\"<>@'):
        raise wrong
    try:
        found = urlsplit(base)
        host, _ = found.hostname, found.port
    except ValueError:
        raise wrong from None
    if found.scheme not in ("https", "http") or not host:
        raise wrong
    if found.scheme == "http" and not is_loopback(host):
        raise BadParameter("base", "must begin with https:// unless it is this machine (127.0.0.1)")


def _ledger(design: Design) -> str:
    """The ledger, for people: never with a password."""
    from lapwing.ledger.places import is_postgres  # noqa: PLC0415

    return "PostgreSQL" if is_postgres(design.survey.ledger) else design.survey.ledger


def serve(
    file: SurveyFile,
    *,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 for any.", min=0, max=65535)] = PORT,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate (PEM), for https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).")] = None,
    behind_tls_proxy: Annotated[
        bool,
        typer.Option("--behind-tls-proxy", help="A proxy with TLS stands in front, and logs no addresses."),
    ] = False,
) -> None:
    """Serve the page and take reports, until you stop it. No address and no time is logged or stored."""
    from lapwing.server.opening import open_survey  # noqa: PLC0415
    from lapwing.server.running import require_private  # noqa: PLC0415
    from lapwing.server.running import serve as run  # noqa: PLC0415
    from lapwing.survey.respondent.offered import fingerprint  # noqa: PLC0415

    has_tls = tls_cert is not None
    require_private(host, has_tls=has_tls, behind_tls_proxy=behind_tls_proxy)
    with plainly():
        opened = open_survey(file)

    def ready(address: str) -> None:
        state = opened.desk.reports.state()
        print(f"{opened.design.survey.title}: {address}")
        shown = fingerprint(opened.desk.digest, opened.desk.key.public)
        print(f"The fingerprint of this survey and its key: {shown}")
        print(f"{state.reports:,} reports so far. It ends {opened.design.survey.stops}.", flush=True)

    try:
        run(
            opened.app(has_tls=has_tls),
            host=host,
            port=port,
            certificate=tls_cert,
            key=tls_key,
            behind_tls_proxy=behind_tls_proxy,
            ready=ready,
        )
    except KeyboardInterrupt:
        pass
    finally:
        opened.desk.close()


def collect(
    file: SurveyFile,
    reports: Annotated[Path, typer.Argument(metavar="REPORTS", help="A file of reports made offline.")],
    *,
    again: Annotated[
        bool, typer.Option("--again", help="Count a file whose content was collected before once more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take reports from a file. Each is charged as an invitation; they have no credential, on your word."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.survey import invitations  # noqa: PLC0415
    from lapwing.survey.collecting import Verdict, offline  # noqa: PLC0415
    from lapwing.survey.planning.report_file import read_reports  # noqa: PLC0415

    design = _designed(file)
    found = read_reports(reports, design)
    design.unpack(found)  # an impossible report: nothing of the file is taken
    with (
        plainly(),
        _reports(design) as kept,
        invitations.open_ledger(design.survey, tell) as ledger,
        working("collecting") as progress,
    ):
        new = offline.new_ones(kept, offline.marked(found, offline.digest_of(reports), again=again))
        new = new[: _room(design, kept)]
        if new:
            invitations.charge_uninvited(design, ledger, len(new), progress)
        today = datetime.now(UTC).date()
        verdicts = offline.take(kept, new, _rule(design), today)
        taken = sum(verdict is Verdict.NEW for verdict in verdicts)
        total = kept.state().reports
    if as_json:
        print_json({"file": len(found), "taken": taken, "reports": total})
        return
    print(f"Took {taken:,} of {len(found):,} reports. There are {total:,} now.")
    if taken < len(found):
        print("The others were collected before (the same content: see --again), or the survey is closed.")


def close(file: SurveyFile, *, as_json: AsJson = False) -> None:
    """Close the survey for ever, and remove every trace of the order in which reports came."""
    design = _designed(file)
    with plainly(), _reports(design) as kept:
        kept.close_survey()
        state, (admitted, used) = kept.state(), kept.invitations()
    if as_json:
        print_json({"reports": state.reports, "invitations": admitted, "signed": used, "closed": True})
        return
    print(f"Closed, with {state.reports:,} reports. Of {admitted:,} invitations {used:,} were used.")


def _designed(file: Path) -> Design:
    from lapwing.survey.planning import design  # noqa: PLC0415
    from lapwing.survey.questionnaire import load  # noqa: PLC0415

    return design(load(file))


@contextmanager
def _reports(design: Design) -> Iterator[Store]:
    from lapwing.survey.collecting import open_store  # noqa: PLC0415

    kept = open_store(design.survey.reports, digest=design.digest, report_size=design.report_size)
    try:
        yield kept
    finally:
        kept.close()


def _rule(design: Design) -> Rule:
    from lapwing.survey.collecting import Rule  # noqa: PLC0415

    return Rule(design.survey.stop_after, design.survey.until)


def _room(design: Design, kept: Store) -> int | None:
    """How many reports the stopping rule still lets in; None for any number."""
    state, rule = kept.state(), _rule(design)
    if state.is_closed or rule.is_over(state.reports, datetime.now(UTC).date()):
        return 0
    return None if rule.stop_after is None else rule.stop_after - state.reports


def _ids(path: Path) -> list[str]:
    """One person a line; empty lines do not count."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadParameter("to", f"{path} is not a text file") from None
    except (OSError, ValueError) as error:  # a name with a zero in it is no OSError
        why = getattr(error, "strerror", None) or "it is no name of a file"
        raise BadParameter("to", f"{path} cannot be read ({why})") from None
    return [line.strip() for line in lines if line.strip()]


@contextmanager
def _output(path: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a new file that only its owner can read: who has a link can take part."""
    if path is None:
        yield sys.stdout
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise BadParameter("out", f"{path} exists: nothing is written over") from None
    except OSError as error:
        raise BadParameter("out", f"{path} cannot be written ({error.strerror})") from None
    with open(file, "w", encoding="utf-8") as output:
        yield output
        output.flush()
        os.fsync(output.fileno())
