"""Stores of reports for tests, in either database, and services in front of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from lapwing.errors import BadValue
from lapwing.survey.credentials import Blinding, BlindSigningKey, blind_token, new_invitation, prepare_token
from lapwing.survey.report_store import ReportStore, StoppingRule
from lapwing.survey.service import SurveyService, open_report_store
from support import postgres
from support.ledgers import SQLITE

DIGEST = hashlib.sha256(b"a survey").hexdigest()
SIZE = 3
TODAY = date(2026, 5, 4)


@dataclass(slots=True)
class Shelf:
    """Where a test's reports lie, and what was opened there."""

    where: str
    opened: list[ReportStore] = field(default_factory=list)

    @classmethod
    def of(cls, database: str, folder: Path) -> Shelf:
        return cls(str(folder / "survey.reports") if database == SQLITE else postgres.fresh_url())

    def open(self, digest: str = DIGEST, size: int = SIZE) -> ReportStore:
        store = open_report_store(self.where, digest=digest, report_size=size)
        self.opened.append(store)
        return store

    def close(self) -> None:
        for store in self.opened:
            store.close()


@cache
def private_key() -> rsa.RSAPrivateKey:
    """One for all tests: to search the primes takes a while."""
    return rsa.generate_private_key(65537, 2048)


def key() -> BlindSigningKey:
    return BlindSigningKey(private_key())


def small(report: bytes) -> None:
    """Reports of tests: the first byte says how many of the others are 1."""
    if report[0] != sum(report[1:]) or max(report[1:]) > 1:
        raise BadValue("a report has as many ones as it says")


def service_of(
    store: ReportStore, rule: StoppingRule | None = None, check: Callable[[bytes], None] = small
) -> SurveyService:
    return SurveyService(store, key(), DIGEST, SIZE, check, rule or StoppingRule(), today=lambda: TODAY)


def credential() -> tuple[bytes, bytes]:
    """A token and its signature, as a respondent ends up with them, without a server's help."""
    prepared = prepare_token()
    pss = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=48)
    return prepared, private_key().sign(prepared, pss, hashes.SHA384())


def invited(store: ReportStore) -> tuple[str, Blinding]:
    """An invitation that the store expects, and a blinded token to be signed for it."""
    invitation = new_invitation()
    store.admit([invitation])
    return invitation, blind_token(key().public, prepare_token())


def take(at: SurveyService, *credential_and_report: Any) -> Any:
    """Hand in a report, and wait for what becomes of it."""
    return at.take(DIGEST, *credential_and_report).result(60)
