"""`Respondent`: answers surveys for one person, and never says more than their device's lifetime allows."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lapwing.errors import BadParameter, BadValue, OverBudget, Unavailable
from lapwing.exact import Number, positive
from lapwing.noise import random_bytes
from lapwing.survey.planning.report_file import MARK_BYTES
from lapwing.survey.questionnaire.scales import decimal_text
from lapwing.survey.respondent.device import UNIT, Device, Memo, State
from lapwing.survey.respondent.offered import Offered, fingerprint, read
from lapwing.survey.throwing import Coins, throw

if TYPE_CHECKING:
    from lapwing.survey.respondent.sending import Server

WAIT = 20.0  # seconds from the throw to the report, at most
LONGEST_WAIT = 86_400


class Respondent:
    """One person's device: a folder with a memo of what was sent and an account of what it cost.

    Claim    all reports of all surveys together cost at most `lifetime` (pure ε, replacing all answers);
             to one survey always the same bytes are sent, whatever is answered later.
    Because  the price comes from the coins of the recipes. Price and report are stored in one step, only
             if they fit, before the report is handed out; from then on the stored report is.
    Test     tests/survey/test_respondent.py

    A survey that was changed has another digest: answering it is charged anew. One folder is one person's:
    to a survey it has one report, and whoever comes with another invitation must not be shown that one.
    """

    def __init__(self, folder: str | Path, *, lifetime: Number | None = None) -> None:
        """`lifetime` is the ε that this device may ever send: 8 unless given when it is first used."""
        cap = None if lifetime is None else int(positive(lifetime, "lifetime") * UNIT)
        self._device = Device(folder, cap)

    @property
    def lifetime(self) -> Fraction:
        """The ε that this device may ever send."""
        with self._device.turn() as state:
            return Fraction(state.lifetime or 0, UNIT)

    @property
    def spent(self) -> Fraction:
        """The ε of all reports so far, to all surveys of all owners."""
        with self._device.turn() as state:
            return Fraction(state.spent, UNIT)

    @property
    def left(self) -> Fraction:
        """The ε that may still be sent."""
        return self.lifetime - self.spent

    def asked(self, public: Mapping[str, Any]) -> tuple[int, ...]:
        """Which questions this device is asked: all, or one that is drawn once and stays."""
        survey = read(public)
        if survey.asks_all:
            return tuple(range(len(survey.questions)))
        with self._device.turn() as state:
            return (_drawn(state, survey),)

    def answered(self, public: Mapping[str, Any]) -> bytes | None:
        """The stored report to this survey, if there is one."""
        survey = read(public)
        with self._device.turn() as state:
            return _report(state.memos.get(survey.digest, {}))

    def answer(self, public: Mapping[str, Any], answers: Mapping[str, object]) -> bytes:
        """The report for these answers (by question's name; None is no answer), charged and stored.

        If there is a report already, it is returned as it is, and nothing is charged or thrown.
        """
        survey = read(public)
        with self._device.turn() as state:
            stored = _report(state.memos.get(survey.digest, {}))
            if stored is not None:
                return stored
            places = range(len(survey.questions)) if survey.asks_all else [_drawn(state, survey)]
            codes = {place: _code(survey, place, answers) for place in places}
            _afford(state, survey)
            coins = Coins()
            recipes = {place: survey.questions[place].recipe for place in places}
            report = survey.pack({place: throw(recipes[place], codes[place], coins) for place in places})
            memo = state.memos.setdefault(survey.digest, {})
            memo.update(price=survey.price, report=report.hex())
            state.store()  # nobody gets to see the report before this
            return report

    def mark(self, public: Mapping[str, Any]) -> bytes:
        """16 random bytes for the file with the report to this survey, the same each time.

        Two people may have equal reports; with these their files differ, and both are counted.
        """
        survey = read(public)
        with self._device.turn() as state:
            memo = state.memos.setdefault(survey.digest, {})
            if "mark" not in memo:
                memo["mark"] = random_bytes(MARK_BYTES).hex()
                state.store()
            return bytes.fromhex(memo["mark"])

    def is_of(self, public: Mapping[str, Any], invitation: str) -> bool:
        """Whether this invitation brought the credential of the report: else it is somebody else's."""
        with self._device.turn() as state:
            memo = state.memos.get(read(public).digest, {})
            return "signature" in memo and memo.get("invited") == _hashed(invitation)

    def authorize(self, url: str, invitation: str, *, shown: str | None = None) -> None:
        """Fetch the credential for a report, and store it: it uses the invitation. `send` may follow later.

        The longer the time between the two, the less the times tell which report is whose. `shown` is the
        fingerprint that the respondent saw: another survey or key than that is refused. So is a survey that
        this device cannot afford, and one that another invitation was used for here.
        """
        # Whoever only answers needs no HTTP: it is an extra.
        from lapwing.survey.respondent.sending import Server  # noqa: PLC0415

        self._authorize(Server(url), invitation, shown)

    def send(self, url: str, invitation: str, *, shown: str | None = None, wait: float = WAIT) -> None:
        """Send the stored report to the survey at `url`, under a credential that cannot be traced.

        It leaves at a random moment, after a quarter of `wait` seconds at least and all of them at most:
        the time of a report then tells less about whose it is. `authorize` long before does more. It may
        be called again at any time: the same bytes go out, and the survey counts them once. `shown` is as
        in `authorize`. The device is not locked while the server is awaited.
        """
        from lapwing.survey.respondent.sending import Server  # noqa: PLC0415

        if not 0 <= wait <= LONGEST_WAIT:
            raise BadParameter("wait", f"must be 0 to {LONGEST_WAIT:,} seconds")
        digest, memo = self._authorize(Server(url), invitation, shown, answered=True)
        if not memo.get("sent"):
            time.sleep(_moment(wait))
        Server(url).report(digest, memo)
        with self._device.turn() as state:
            state.memos[digest]["sent"] = True
            state.store()

    def _authorize(
        self, server: Server, invitation: str, shown: str | None, *, answered: bool = False
    ) -> tuple[str, Memo]:
        """The digest, and the memo with its credential. An invitation signs one token: the stored one.

        Both are stored before the server sees them: if its reply is lost, the same invitation gets the same
        signature, and no other one is used up for this token.
        """
        public, key = server.survey()
        survey, invited = read(public), _hashed(invitation)
        digest = survey.digest
        if shown is not None and fingerprint(digest, key) != shown:
            raise BadParameter("survey", "or its key has changed since its fingerprint was shown")
        with self._device.turn() as state:
            memo = state.memos.setdefault(digest, {})
            _only(invited, memo)
            if "report" not in memo:
                if answered:
                    raise BadParameter("survey", "was not answered on this device yet: answer it first")
                _afford(state, survey)  # else the invitation would be used for nothing
            if memo.get("key", key.to_json()) != key.to_json():
                raise BadParameter("key", "of this survey has changed since its token was made")
            if "signature" in memo:
                return digest, memo
            if not {"token", "invited"} <= memo.keys():
                token = memo.get("token") or server.new_token(key)
                memo.update(key=key.to_json(), token=token, invited=invited)
                state.store()  # the same token is shown after a crash, and by other processes meanwhile
            token = memo["token"]
        try:
            signature = server.sign(key, token, invitation)
        except BadParameter:  # this invitation signs no token of this device: the next one gets a new token
            self._forget(digest, token)
            raise
        with self._device.turn() as state:
            memo = state.memos[digest]
            if memo.get("token") != token:
                raise Unavailable("the token was given up meanwhile, by another process: try again")
            if "signature" not in memo:
                memo["signature"] = signature
                state.store()
            return digest, memo

    def _forget(self, digest: str, token: dict[str, str]) -> None:
        with self._device.turn() as state:
            memo = state.memos[digest]
            if memo.get("token") == token and "signature" not in memo:
                for name in ("key", "token", "invited"):
                    memo.pop(name, None)
                state.store()


def _only(invited: str, memo: Memo) -> None:
    """`BadParameter` if another invitation was begun with, unless nothing is left to sign or to answer."""
    if memo.get("invited", invited) != invited and not {"report", "signature"} <= memo.keys():
        raise BadParameter(
            "invitation",
            "is not the one that was begun with on this device: one device, one person. It was not used. "
            "Use the first one again, or another folder",
        )


def _moment(wait: float) -> float:
    """A random part of so many seconds, a quarter of them at least."""
    most = int(wait * 1000)
    return (most // 4 + Coins().below(most - most // 4 + 1)) / 1000


def _hashed(invitation: str) -> str:
    """What is kept of an invitation: enough to know it again, and nothing that would open the survey."""
    return hashlib.sha256(f"lapwing invitation {invitation}".encode(errors="replace")).hexdigest()


def _report(memo: Memo) -> bytes | None:
    return bytes.fromhex(memo["report"]) if "report" in memo else None


def _drawn(state: State, survey: Offered) -> int:
    """The place of the one question that is asked. It is drawn before any answer, and stored."""
    memo = state.memos.setdefault(survey.digest, {})
    if "question" not in memo:
        memo["question"] = Coins().below(len(survey.questions))
        state.store()
    return int(memo["question"])


def _code(survey: Offered, place: int, answers: Mapping[str, object]) -> int:
    question = survey.questions[place]
    if question.name not in answers:
        raise BadValue(f"{question.name}: an answer is needed; None is no answer")
    try:
        return question.coding.code(answers[question.name])
    except BadValue as error:
        raise BadValue(f"{question.name}: {error}") from None


def _afford(state: State, survey: Offered) -> None:
    lifetime = min(state.lifetime or 0, int(survey.lifetime * UNIT))
    left = max(0, lifetime - state.spent)
    if survey.price > left:
        raise OverBudget(
            f"ε = {decimal_text(Fraction(survey.price, UNIT))}",
            f"ε = {decimal_text(Fraction(left, UNIT))}",
            "Nothing was sent, and nothing fills the account up again.",
            where="this device",
        )
