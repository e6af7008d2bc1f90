"""History and ledger: what was asked and charged, receipts that somebody mailed, proofs and statements."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lapwing.errors import BadParameter, LapwingError
from lapwing.ledger.accountant.guarantee import StatementReport
from lapwing.server.console.answer_view import receipt_facts
from lapwing.server.console.desk import AtDesk, Desk, PageRoute, Posted, see_other
from lapwing.server.console.parts import Fact, Outcome
from lapwing.server.console.records_view import EntryView, entry_view, request_view
from lapwing.server.console.words import counted, price_text, time_text
from lapwing.server.data.signatures import SignedUpTo
from lapwing.server.people.person import NotFound, Role

router = APIRouter(route_class=PageRoute, include_in_schema=False)
SHOWN, ALL = 50, 1_000


@dataclass(frozen=True, slots=True)
class CheckedView:
    """The result for a receipt, proof or statement: genuine, unknown or tampered."""

    title: str
    outcome: Outcome
    words: str
    findings: tuple[str, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class WholeView:
    """The result of checking the whole ledger."""

    is_whole: bool
    title: str
    took: str
    checks: tuple[tuple[str, str], ...]
    findings: tuple[str, ...]


def checked_view(found: Any) -> CheckedView:
    """Return the result of `Records.verify` in words. Its answer is not shown."""
    kind = found.kind[:1].upper() + found.kind[1:]
    title = f"{kind} {found.position}" if found.position else kind
    told = found.told or {}
    if found.is_good:
        words = (
            "It is in this ledger, unchanged."
            if found.kind != "statement"
            else "It is whole, and signed by this ledger."
        )
        facts = (
            receipt_facts(told) if {"principal", "loss", "hash", "at"} <= set(told) else _signed_facts(told)
        )
        return CheckedView(title, Outcome("genuine"), words, (), facts)
    if not found.data:
        words = "No ledger here has this id. It may be genuine elsewhere: this server cannot tell."
        return CheckedView(title, Outcome("unknown", "unknown"), words, (), ())
    words = "It differs from what the ledger has. Do not rely on it."
    return CheckedView(title, Outcome("tampered", "bad"), words, tuple(found.findings), ())


def _signed_facts(told: dict[str, Any]) -> tuple[Fact, ...]:
    facts = [Fact("Ledger", str(told.get("ledger", ""))[:16] + " …", "hash")]
    if told.get("entries"):
        facts.append(Fact("Entries", f"{told['entries']:,}"))
    if told.get("entry"):
        facts += [
            Fact(name.capitalize(), str(value))
            for name, value in told["entry"].items()
            if name in ("number", "at", "kind")
        ]
    if told.get("seal"):
        facts.append(Fact("Root", f"{told['seal']['root'][:16]} …", "hash"))
    return tuple(facts)


@router.get("/d/{data}/history")
def history(desk: AtDesk, data: str, all: str = "") -> Response:  # noqa: A002 (the word in the address)
    """Show what was asked: own questions; all of them to stewards."""
    served = desk.services.sets.require(desk.person, data, Role.STEWARD, Role.ANALYST)
    now, most = datetime.now(UTC), ALL if all else SHOWN
    found = desk.services.records.history(desk.person, data, most)
    lines = [request_view(one, data, now) for one in found]
    sees_all = Role.STEWARD in desk.roles(data)
    lead = (
        "Every question, who asked it, and its price."
        if sees_all
        else "Your questions. To look at an answer again is free."
    )
    return desk.page(
        "history.html",
        "History",
        served,
        lines=lines,
        lead=lead,
        shows_who=sees_all,
        has_more=len(found) == most and not all,
        here=f"/d/{data}/history",
    )


@router.get("/d/{data}/ledger")
def ledger(desk: AtDesk, data: str, all: str = "", receipt: str = "") -> Response:  # noqa: A002 (the word in the address)
    """Show the ledger: its newest charges, and a place to verify a receipt."""
    text = ""
    if receipt.isdecimal() and len(receipt) < 16:
        text = json.dumps(
            desk.services.records.receipt(desk.person, data, int(receipt)), ensure_ascii=False, indent=1
        )
    return _ledger_page(desk, data, most=ALL if all else SHOWN, text=text)


@router.post("/d/{data}/ledger/verify")
def verify(desk: AtDesk, data: str, posted: Posted) -> Response:
    """Check a receipt, a proof or a statement that somebody mailed. It reads no data and is free."""
    text = posted.get("text", "").replace("\r\n", "\n").strip()  # forms send CR and LF
    if not text:
        return _ledger_page(desk, data, wrong="Paste a receipt first, or choose its file.", status=422)
    try:
        found = checked_view(desk.services.records.verify(desk.person, f"{text}\n".encode()))
    except LapwingError as error:
        why = error.why if isinstance(error, BadParameter) else str(error)
        return _ledger_page(desk, data, text=text, wrong=f"This {why}.", status=422)
    return _ledger_page(desk, data, text=text, checked=found, guide="v")


@router.post("/d/{data}/ledger/check")
def check(desk: AtDesk, data: str) -> Response:
    """Check the whole ledger: chain, signatures, anchors, and each price by a second accountant."""
    served = desk.services.sets.require(desk.person, data, Role.STEWARD, Role.OFFICER)
    if not served.curator.has_ledger:
        raise NotFound(data)
    return _ledger_page(desk, data, whole=whole_view(served.curator.ledger, time.monotonic()))


def whole_view(ledger: Any, began: float) -> WholeView:
    """Return the check of a ledger in words."""
    checked = ledger.verify()
    public = ledger.keys.signing.public.hex()
    report = StatementReport.of(checked.replay, ledger.id, public, checked.findings)
    findings = tuple(report.findings)
    took = f"checked {time_text(datetime.now(UTC))}, in {time.monotonic() - began:.1f} s"
    checks = (
        (f"{counted(report.entries, 'entry', 'entries')} chained", "none missing, none edited"),
        ("Signatures hold", f"key {public[:8]} …"),
        (f"{counted(report.prices_checked, 'price')} counted again", "by a second accountant"),
        *[("Anchors agree", f"{len(checked.anchors)} compared") for _ in checked.anchors[:1]],
    )
    title = "The ledger is whole" if not findings else "The ledger was changed"
    return WholeView(not findings, title, took, checks, findings)


def _ledger_page(
    desk: Desk,
    data: str,
    *,
    most: int = SHOWN,
    text: str = "",
    checked: CheckedView | None = None,
    wrong: str = "",
    whole: WholeView | None = None,
    status: int = 200,
    guide: str = "",
) -> Response:
    served = desk.services.sets.require(desk.person, data, Role.STEWARD, Role.ANALYST, Role.OFFICER)
    now = datetime.now(UTC)
    found = desk.services.records.history(desk.person, data, ALL if most > SHOWN else SHOWN)
    sees_all = bool(desk.roles(data) & {Role.STEWARD, Role.OFFICER})
    entries: list[EntryView] = []
    if sees_all:
        entries = [
            entry_view(one, now)
            for one in desk.services.records.entries(desk.person, data, most)
            if one.kind not in ("charge", "answer")
        ]
    note: SignedView | None = None
    if Role.OFFICER in desk.roles(data) and served.curator.has_ledger:
        mark = desk.services.signatures.find(desk.person, data)
        new = [one for one in found if one.line.number > mark.entry or not mark.holds]
        note = signed_view(mark, sum((one.price.epsilon or Fraction(0) for one in new), Fraction(0)))
        if mark.time is not None and most == SHOWN:
            found = new
    lead = (
        "Every charge, in order, signed. You see prices and proofs, and no answers."
        if sees_all
        else "Your charges, in order, signed. Anybody can verify a receipt."
    )
    return desk.page(
        "ledger.html",
        "Ledger",
        served,
        status=status,
        guide=guide,
        here=f"/d/{data}/ledger",
        lead=lead,
        lines=[request_view(one, data, now) for one in found],
        entries=entries[:SHOWN],
        sees_all=sees_all,
        can_check=sees_all and served.curator.has_ledger,
        has_more=most < ALL and (len(found) == most or (note is not None and mark.time is not None)),
        signed=note,
        text=text,
        checked=checked,
        wrong=wrong,
        whole=whole,
        command=f"lapwing ledger export {data}.toml statement-{now:%Y-%m-%d}.json",
    )


@dataclass(frozen=True, slots=True)
class SignedView:
    """Entries that are new since an officer's last signature."""

    title: str
    words: str
    newest: int
    holds: bool


def signed_view(found: SignedUpTo, prices: Fraction) -> SignedView:
    """Return an officer's note in words. `prices` is the sum of the prices since."""
    if not found.holds:
        words = (
            f"You noted a signature up to entry {found.entry}, and the ledger has another entry there now. "
            "Compare it with the statement that you signed."
        )
        return SignedView("All charges", words, found.newest, holds=False)
    if found.time is None:
        return SignedView(
            "All charges", "You have not noted a signature here yet.", found.newest, holds=True
        )
    many = counted(found.new, "entry", "entries") if found.new else "nothing"
    title = f"New since your last signature: {many}{f', {price_text(prices)}' if prices else ''}"
    words = f"You signed up to entry {found.entry}, noted {time_text(found.time)}. It is still there."
    return SignedView(title, words, found.newest, holds=True)


@router.post("/d/{data}/ledger/signed")
def signed(desk: AtDesk, data: str, posted: Posted) -> Response:
    """Note up to which entry an officer has signed. Signing is done where the key is."""
    entry = posted.get("entry", "")
    desk.services.signatures.note(
        desk.person, data, int(entry) if entry.isdecimal() and len(entry) < 16 else 0
    )
    return see_other(f"/d/{data}/ledger#charges")


@router.get("/d/{data}/ledger/{number}/proof")
def proof(desk: AtDesk, data: str, number: int) -> Response:
    """Return a proof that a receipt is in the ledger, as a file."""
    text = json.dumps(desk.services.records.proof(desk.person, data, number), ensure_ascii=False, indent=1)
    return _download(text.encode(), "application/json", f"{data}-receipt-{number}-proof.json")


@router.get("/d/{data}/ledger/statement")
def statement(desk: AtDesk, data: str) -> Response:
    """Return the whole history without names, as anybody can check it."""
    content = desk.services.records.statement(desk.person, data)
    return _download(content, "application/json", f"{data}-statement-{datetime.now(UTC):%Y-%m-%d}.json")


def _download(content: bytes, kind: str, name: str) -> Response:
    return Response(
        content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
