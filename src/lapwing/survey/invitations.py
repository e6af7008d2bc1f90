"""Invitations: each is charged its worst case when it is issued, whether it will be answered or not.

Claim    an invited person has lost at most the lifetime ε of the owner's ledger to all surveys that share
         it, as far as the owner can know; and no invitation leaves that was not durably charged.
Because  a person is a block of one account, by a keyed hash of the id; an invitation charges that block the
         design's worst case through the gate; and links are given out only after the charge.
Test     tests/survey/test_invitations.py

The binding limit is the account on the respondent's own device. The owner's ledger cannot know that two
invitations without an id, or two spellings of one id, went to the same person.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lapwing.config.values import is_postgres
from lapwing.core.losses import Pure, Relation
from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, OverBudget
from lapwing.ledger import Account, ChargedRelease, Gate, Ledger, Slices, Spending, Target, Unit
from lapwing.ledger.unit_ids import normal_id
from lapwing.survey.credentials import new_invitation
from lapwing.survey.designing import LARGEST_SURVEY, Design
from lapwing.survey.questionnaire import Questionnaire
from lapwing.survey.report_store import ReportStore

RESPONDENTS_ACCOUNT = "respondents"
OWNER = "survey owner"
RESPONDENTS_RULE = "who was invited: a keyed hash of the id, or else the invitation itself"
BATCH_SIZE = 5000  # invitations to a charge
MOST_INVITATIONS = 10_000_000
MOST_OPTIONS_SHOWN = 20_000  # of all questions together, so that a phone shows them in seconds
RESERVED_BYTES = 1 << 14  # for the key and other fields around a survey
InvitationProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Invitation:
    """A secret to be put into a link. `person` is the id it was made for, if one was given."""

    secret: str
    person: str = ""

    def link(self, base: str) -> str:
        """Return the link. A browser sends nothing after # to any server."""
        return f"{base.rstrip('/')}/#{self.secret}"


def open_ledger(survey: Questionnaire, tell: Callable[[str], None] = lambda _: None) -> Ledger:
    """Open the survey's ledger with the account of its respondents. Both are made at the first use.

    `tell` is called with a message about everything that is made for ever.
    """
    where = survey.ledger
    keys = Path(survey.ledger_keys) if survey.ledger_keys else None
    anchor = survey.ledger_anchor or None
    if is_postgres(where) and keys is not None and not keys.exists():
        raise BadParameter(
            "ledger", "is not made yet, or its keys lie elsewhere. See `lapwing ledger init`"
        )
    if is_postgres(where) or Path(where).exists():
        ledger = Ledger.open(where, keys=keys, anchor=anchor, registry=survey.ledger_registry)
    else:
        ledger = Ledger.create(
            where, keys=keys, anchor=anchor, registry=survey.ledger_registry, notify=tell
        )
    try:
        require_account(ledger, survey.lifetime, tell)
    except BaseException:
        ledger.close()
        raise
    return ledger


def require_account(
    ledger: Ledger, lifetime: Fraction, tell: Callable[[str], None] = lambda _: None
) -> Account:
    """Return the account of respondents. Raise `BadParameter` if it was opened on other terms."""
    relation, slices, rule = Relation.REPLACE, Slices.IDENTITIES, RESPONDENTS_RULE
    if RESPONDENTS_ACCOUNT not in {account.label for account in ledger.accounts()}:
        made = ledger.open_account(
            RESPONDENTS_ACCOUNT, epsilon=lifetime, delta=0, unit=Unit.PERSON, relation=relation,
            slices=slices, rule=rule,
        )  # fmt: skip
        tell(made.notice)
    account = ledger.account(RESPONDENTS_ACCOUNT)
    if account.terms.epsilon != lifetime:
        raise BadParameter(
            "lifetime",
            f"respondents of this ledger have ε {float(account.terms.epsilon):g} for life. Write that into "
            "the survey, or raise it with `lapwing ledger raise`",
        )
    if (account.relation, account.slices, account.rule) != (relation, slices, rule):
        raise BadParameter("ledger", f'its account "{RESPONDENTS_ACCOUNT}" was opened for something else')
    return account


def require_answerable(design: Design) -> None:
    """Raise `BadParameter` if a survey is too large for a respondent's device."""
    options = sum(len(part.question.labels) for part in design.parts)
    if options > MOST_OPTIONS_SHOWN:
        raise BadParameter(
            "options",
            f"there are {options:,} in all questions together, and a page shows at most "
            f"{MOST_OPTIONS_SHOWN:,}. "
            'Offer fewer, or ask for a word (kind = "word")',
        )
    size = len(json.dumps(design.public()))
    if size > LARGEST_SURVEY - RESERVED_BYTES:
        raise BadParameter(
            "survey",
            f"its texts and options take {size:,} bytes, and a device reads at most "
            f"{LARGEST_SURVEY - RESERVED_BYTES:,}. Write shorter ones, or offer fewer options",
        )


def person_mark(ledger: Ledger, person: str) -> str:
    """Return the block of a person: a keyed hash. Without the ledger's key nobody can test ids."""
    content = normal_id(person)
    if not content:
        raise BadParameter("people", "an id must not be empty")
    keyed = hashlib.blake2b(content, key=ledger.keys.people, digest_size=16, person=b"lapwing invited")
    return keyed.hexdigest()


def invite(
    design: Design,
    ledger: Ledger,
    store: ReportStore,
    *,
    people: Sequence[str] | None = None,
    count: int | None = None,
    again: bool = False,
    progress: InvitationProgress | None = None,
) -> Iterator[list[Invitation]]:
    """Issue invitations in batches, for people by their ids, or for a number of unnamed people.

    Each batch is charged when the iterator is asked for it. It stays charged even if nobody uses the links.

    Raises `OverBudget` if one of the people has too little left, and `BadParameter` if one was invited to
    this survey before, unless `again`, or if the survey is too large for a device. Everybody is checked
    before the first invitation is issued.
    """
    if (people is None) == (count is None):
        raise BadParameter("invite", "needs ids of people, or a count")
    require_answerable(design)
    if people is not None:
        marks = {person_mark(ledger, person): person for person in people}
        if not marks:
            raise BadParameter("people", "there is nobody to invite")
        if not again and (known := store.known_people(list(marks))):
            raise BadParameter(
                "people",
                f"{len(known):,} of them were invited to this survey before. Leave them out, or charge "
                "them once more with --again",
            )
    else:
        assert count is not None
        if isinstance(count, bool) or not 1 <= count <= MOST_INVITATIONS:
            raise BadParameter("count", f"must be 1 to {MOST_INVITATIONS:,}")
        marks = {random_bytes(16).hex(): "" for _ in range(count)}
    _require_room(ledger, design, list(marks), is_new=people is None)
    return _issue(design, ledger, store, marks, progress or (lambda *_: None))


def _issue(
    design: Design, ledger: Ledger, store: ReportStore, marks: dict[str, str], progress: InvitationProgress
) -> Iterator[list[Invitation]]:
    names = list(marks)
    _open_blocks(ledger, names)
    for start in range(0, len(names), BATCH_SIZE):
        some = names[start : start + BATCH_SIZE]
        made = [Invitation(new_invitation(), marks[name]) for name in some]

        def admit(some: list[str] = some, made: list[Invitation] = made) -> bytes:
            named = [name for name in some if marks[name]]
            store.admit([invitation.secret for invitation in made], named)
            return b"%d invitations" % len(made)

        _charge(design, ledger, some, admit)
        progress(start + len(some), len(names))
        yield made


def charge_uninvited(
    design: Design, ledger: Ledger, count: int, progress: InvitationProgress | None = None
) -> None:
    """Charge reports that came without an invitation, each to a new block."""
    names = [random_bytes(16).hex() for _ in range(count)]
    _open_blocks(ledger, names)
    for start in range(0, count, BATCH_SIZE):
        some = names[start : start + BATCH_SIZE]
        _charge(design, ledger, some, lambda some=some: b"%d reports" % len(some))  # type: ignore[misc]
        if progress is not None:
            progress(start + len(some), count)


def _open_blocks(ledger: Ledger, names: Sequence[str]) -> None:
    there = {block.label for block in ledger.blocks(RESPONDENTS_ACCOUNT)}
    missing = [name for name in names if name not in there]
    if missing:
        ledger.open_blocks(RESPONDENTS_ACCOUNT, missing)


def _charge(design: Design, ledger: Ledger, names: list[str], run: Callable[[], bytes]) -> None:
    """Charge a whole batch at once: all of it, or nothing."""
    spending = Spending(
        targets=(Target(RESPONDENTS_ACCOUNT, names),),
        loss=Pure(design.epsilon),
        unit=Unit.PERSON,
        relation=Relation.REPLACE,
        mechanism="survey invitation",
        parameters={"survey": design.digest, "invitations": len(names)},
        request=design.digest.encode(),
    )
    Gate(ledger, principal=OWNER).release(ChargedRelease(spending, run))


def _require_room(ledger: Ledger, design: Design, names: list[str], *, is_new: bool) -> None:
    """Raise `OverBudget` if one person of a list has too little left for an invitation."""
    account = ledger.account(RESPONDENTS_ACCOUNT)
    epsilon = design.epsilon
    looked_at = [] if is_new else ledger.look_at(account, names)
    short = [left for owner, block in looked_at if (left := block.left(owner.terms)) < epsilon]
    if account.terms.epsilon < epsilon:
        short.append(account.terms.epsilon)
    if short:
        raise OverBudget(
            f"ε {float(epsilon):.4g} of each of {len(names):,} people",
            f"ε {float(min(short)):.4g}",
            f"{len(short):,} of them have less than that left for life. Leave them out, or ask for less",
            where=RESPONDENTS_ACCOUNT,
        )
