"""The owner's side of a collection: links, people to invite, reports that are stored or come in files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from lapwing.config.values import is_postgres
from lapwing.errors import BadParameter
from lapwing.survey import invitations, report_store
from lapwing.survey.designing import Design
from lapwing.survey.offered import fingerprint
from lapwing.survey.report_file import read_reports
from lapwing.survey.report_store import IntakeResult, ReportStore, StoppingRule
from lapwing.survey.service import existing_signing_key, open_report_store
from lapwing.web.connections import is_loopback


class CollectedFile(NamedTuple):
    """Numbers of reports: in the file, new among them, and in the store now."""

    in_file: int
    taken: int
    stored: int


def opened_reports(design: Design) -> closing[ReportStore]:
    """Open the survey's store of reports, and close it at the end of the block."""
    where, size = design.survey.reports, design.report_size
    return closing(open_report_store(where, digest=design.digest, report_size=size))


def stored_reports(design: Design) -> tuple[NDArray[np.uint8], bool]:
    """Return all reports in the survey's store, and whether each came with a credential."""
    where = design.survey.reports
    if not is_postgres(where) and not Path(where).is_file():
        raise BadParameter(
            "reports", f"there are none yet at {where}: serve the survey, or use --reports FILE"
        )
    with opened_reports(design) as store:
        return report_store.read_all_reports(store), not store.state().without_credential


def collect_file(
    design: Design,
    path: Path,
    *,
    again: bool,
    tell: Callable[[str], None],
    progress: Callable[[int, int], None],
) -> CollectedFile:
    """Charge and store the reports of a file that were not stored before, as far as the rule allows.

    If one report is impossible, BadParameter is raised, and none of the file is stored or charged.
    """
    sent = read_reports(path, design)
    design.unpack(sent)
    rule = StoppingRule(design.survey.stop_after, design.survey.until)
    with opened_reports(design) as store, invitations.open_ledger(design.survey, tell) as ledger:
        entries = report_store.offline_entries(sent, report_store.pile_digest(path), again=again)
        new = report_store.not_yet_stored(store, entries)[: _room(rule, store)]
        if new:
            invitations.charge_uninvited(design, ledger, len(new), progress)
        results = store.accept(new, rule, datetime.now(UTC).date(), has_credential=False)
        taken = sum(result is IntakeResult.NEW for result in results)
        return CollectedFile(len(sent), taken, store.state().reports)


def _room(rule: StoppingRule, store: ReportStore) -> int | None:
    """Return how many reports the stopping rule still admits; None for any number."""
    state = store.state()
    if state.is_closed or rule.is_over(state.reports, datetime.now(UTC).date()):
        return 0
    return None if rule.stop_after is None else rule.stop_after - state.reports


def existing_fingerprint(design: Design) -> str | None:
    """Return the fingerprint of the survey and its key, for respondents; None before the key is made."""
    survey = design.survey
    key = existing_signing_key(survey.ledger, survey.ledger_keys, name=survey.name, digest=design.digest)
    return None if key is None else fingerprint(design.digest, key.public)


def shown_ledger(design: Design) -> str:
    """Return the ledger's name for people, never with a password."""
    return "PostgreSQL" if is_postgres(design.survey.ledger) else design.survey.ledger


def require_base_address(base: str) -> None:
    """Raise BadParameter unless links can begin with this address and nobody can read them on their way."""
    wrong = BadParameter("base", "must be an address such as https://survey.example.org")
    if not base.isascii() or not base.isprintable() or set(base) & set(' ?#\\"<>@'):
        raise wrong
    try:
        parts = urlsplit(base)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("https", "http") or not host:
        raise wrong
    if parts.scheme == "http" and not is_loopback(host):
        raise BadParameter("base", "must begin with https:// unless it is this machine (127.0.0.1)")


def read_people(path: Path) -> list[str]:
    """Return the ids in a file, one in each line. Empty lines do not count."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadParameter("to", f"{path} is not a text file") from None
    except (OSError, ValueError) as error:  # a name with NUL in it raises ValueError
        why = getattr(error, "strerror", None) or "it is no name of a file"
        raise BadParameter("to", f"{path} cannot be read ({why})") from None
    return [line.strip() for line in lines if line.strip()]
