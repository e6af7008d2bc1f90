"""Requests and entries of the ledger as lines of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lapwing.ledger.request_log import ANSWERED, FAILED, HELD, OPEN, LoggedRequest, LogLine, PriceInWords
from lapwing.server.console.parts import Outcome
from lapwing.server.console.words import SPACE, moment, price_text, title_of, when_text

OUTCOMES = {
    ANSWERED: Outcome("answered"),
    OPEN: Outcome("running", "soft"),
    HELD: Outcome("budget reserved", "soft"),
    FAILED: Outcome("held after its charge", "caution"),
}
NOTED = Outcome("noted")


@dataclass(frozen=True, slots=True)
class EntryView:
    """A line about a request or an entry."""

    number: str
    href: str
    time: str
    who: str
    what: str
    sql: str
    price: str
    outcome: Outcome


def price_words(price: PriceInWords) -> str:
    """Return a price, with ε and its number kept together."""
    if price.epsilon is not None and (price.epsilon or price.delta):
        return price_text(price.epsilon, price.delta)
    return price.words.replace("ε ", f"ε{SPACE}").replace("δ ", f"δ{SPACE}").replace("ρ ", f"ρ{SPACE}")


def request_view(one: LoggedRequest, data: str, now: datetime) -> EntryView:
    """Return the line of a request. Where the question is not to be seen, its mechanism stands instead."""
    line = one.line
    return EntryView(
        number=str(line.number),
        href=f"/answers/{data}.{line.number}" if one.state == ANSWERED else "",
        time=when_text(moment(line.time), now),
        who=line.principal,
        what=title_of(one.question) if one.question else mechanism_words(line.what),
        sql=" ".join(one.question.split()) if one.question else "",
        price=price_words(one.price),
        outcome=OUTCOMES[one.state],
    )


def mechanism_words(what: str) -> str:
    """Return a mechanism without its settings, for whoever does not see questions."""
    name = what.partition(" (")[0]
    return f"a question, {name}" if name else "a question"


_KINDS = {
    "genesis": "the ledger was opened",
    "account": "an account was opened",
    "blocks": "blocks were opened",
    "data": "a version of the data was registered",
    "version": "a version of the data was registered",
    "answer": "its answer was stored",
    "failed": "it failed after its charge",
    "recovered": "the ledger was recovered",
    "check": "the curator saw exact counts",
    "policy": "another policy was used",
}


def entry_view(line: LogLine, now: datetime) -> EntryView:
    """Return the line of an entry."""
    outcome = NOTED
    if line.kind == "failed":
        outcome = OUTCOMES[FAILED]
    elif line.kind in ("charge", "reserve", "step"):
        outcome = Outcome("charged")
    return EntryView(
        number=str(line.number),
        href="",
        time=when_text(moment(line.time), now),
        who=line.principal,
        what=line.what or _KINDS.get(line.kind, line.kind),
        sql="",
        price=line.price.replace("ε ", f"ε{SPACE}").replace("δ ", f"δ{SPACE}") or "–",
        outcome=outcome,
    )
