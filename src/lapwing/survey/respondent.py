"""`Respondent`: answers surveys for one person, and never sends more than the device's lifetime ε allows.

The device's own file records its reports, their surveys and their prices.

Claim    whatever the owner of a survey does, and wherever the device crashes, a stored report is never
         replaced, and the prices of all stored reports are counted.
Because  a change is one new file, synced and renamed over the old one, while the lock is held. A second
         file, the seal, has the hash of the newest content and is written after it. On opening, the
         content must be the sealed one, or its direct successor (a crash came between the two).
Test     tests/survey/test_respondent.py::test_a_kill_at_any_point_forgets_nothing

A file that was edited, restored from a backup, or lost is refused, never replaced by an empty one. So is a
copy of the folder: the content names the seal's own place on the disk. People who restore *both* files in
place, or start with a new folder, deceive only themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lapwing.core.exact import Number, positive
from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, BadValue, OverBudget, Tampered, Unavailable
from lapwing.storage.private_file import replaced_private_file
from lapwing.survey.offered import OfferedSurvey, fingerprint, read_offered
from lapwing.survey.questionnaire import decimal_text
from lapwing.survey.randomize import ByteCoins
from lapwing.survey.report_file import MARK_BYTES

if TYPE_CHECKING:
    from lapwing.survey.survey_client import SurveyClient


EPSILON_UNIT: Final = 10**9  # prices are whole billionths of ε, rounded up
ACCOUNT_VERSION = 1
_LARGEST_SEAL = 256

Memo = dict[str, Any]


class DeviceAccount:
    """A folder with the account (`account.json`) and its seal (`account.seal`)."""

    def __init__(self, folder: str | Path, lifetime: int | None) -> None:
        """Open the folder. Its first use fixes `lifetime` (billionths of ε); None: as fixed, or 8 ε."""
        self.folder = Path(folder)
        self._content, self._seal = self.folder / "account.json", self.folder / "account.seal"
        self._lock = threading.Lock()
        with _plainly():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.turn() as state:
            if state.lifetime is None:
                state.lifetime = 8 * EPSILON_UNIT if lifetime is None else lifetime
                state.store()
            elif lifetime not in (None, state.lifetime):
                raise BadParameter(
                    "lifetime", "was fixed when this folder was first used, and never changes"
                )

    @contextlib.contextmanager
    def turn(self) -> Iterator[DeviceState]:
        """Lock the account and give its state. `DeviceState.store` makes changes durable."""
        with self._lock, _plainly():
            seal = os.open(self._seal, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(seal, fcntl.LOCK_EX)
                yield DeviceState(self._content, seal)
            finally:
                os.close(seal)


class DeviceState:
    """The content of the account: `lifetime` (billionths of ε), and a memo for each survey's digest."""

    def __init__(self, path: Path, seal: int) -> None:
        self._path, self._seal = path, seal
        sealed = os.pread(seal, _LARGEST_SEAL, 0).decode("ascii", "replace")
        self._newest = sealed
        self.lifetime: int | None = None
        self.memos: dict[str, Memo] = {}
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            if sealed:
                raise Tampered([f"{path} is lost, but its seal is there"]) from None
            return
        self._read(raw, sealed)

    def _read(self, raw: bytes, sealed: str) -> None:
        newest = hashlib.sha256(raw).hexdigest()
        content = _object(raw)
        if content.get("version", ACCOUNT_VERSION) != ACCOUNT_VERSION:
            raise Tampered([f"{self._path} is of another version of Lapwing"])
        if newest != sealed and content.get("before") != sealed:
            raise Tampered(
                [f"{self._path} is not what was last written: edited, or put back from a backup"]
            )
        if content.get("seal") != os.fstat(self._seal).st_ino:
            raise Tampered([f"{self._path} is a copy: one device has one account. Move the folder instead"])
        self.lifetime, self.memos = content["lifetime"], content["memos"]
        if newest != sealed:  # the crash came after the content and before the seal
            self._stamp(newest)
        self._newest = newest

    @property
    def spent(self) -> int:
        """The prices of all reports, in billionths of ε."""
        return sum(memo.get("price", 0) for memo in self.memos.values())

    def store(self) -> None:
        """Write the state to the disk. It is durable when this returns."""
        content = {
            "version": ACCOUNT_VERSION, "before": self._newest, "seal": os.fstat(self._seal).st_ino,
            "lifetime": self.lifetime, "memos": self.memos,
        }  # fmt: skip
        raw = json.dumps(content, indent=1).encode()
        with replaced_private_file(self._path) as file:
            file.write(raw)
        self._stamp(hashlib.sha256(raw).hexdigest())

    def _stamp(self, newest: str) -> None:
        os.pwrite(self._seal, newest.encode(), 0)  # 64 letters in place of 64, in one sector
        os.fsync(self._seal)
        self._newest = newest


def _object(raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except ValueError:
        content = None
    return content if isinstance(content, dict) else {"before": None}


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"the device's account cannot be used: {error.strerror}") from None


DEFAULT_WAIT = 20.0  # the most seconds between drawing the coins and sending the report
LONGEST_WAIT = 86_400


class Respondent:
    """One person's device: a folder with the reports that were sent, and an account of their cost.

    Claim    all reports of all surveys together cost at most `lifetime` (pure ε, replacing all answers);
             one survey always gets the same bytes, whatever is answered later.
    Because  the price comes from the coins of the recipes. Price and report are stored in one step, only
             if they fit, before the report is returned; later calls return the stored report.
    Test     tests/survey/test_respondent.py

    A survey that was changed has another digest: answering it is charged anew. One folder is one person's:
    it has one report to a survey, and a person with another invitation must not see that report.

    Args:
        folder: The device's folder. It is made at the first use.
        lifetime: The ε that this device may ever send; None: the one that is fixed already, or 8.

    Raises:
        BadParameter: Another lifetime was fixed when the folder was first used.
        Tampered: The account was edited, restored, copied or lost.
        Unavailable: The folder cannot be used.

    Example:
        >>> mine = Respondent("device", lifetime=2)
        >>> report = mine.answer(design(load("tea.toml")).public(), {"tea": "yes"})
        >>> float(mine.left)
        1.0
    """

    def __init__(self, folder: str | Path, *, lifetime: Number | None = None) -> None:
        """Open the device's folder."""
        cap = None if lifetime is None else int(positive(lifetime, "lifetime") * EPSILON_UNIT)
        self._device = DeviceAccount(folder, cap)

    @property
    def lifetime(self) -> Fraction:
        """The ε that this device may ever send."""
        with self._device.turn() as state:
            return Fraction(state.lifetime or 0, EPSILON_UNIT)

    @property
    def spent(self) -> Fraction:
        """The ε of all reports so far, to all surveys of all owners."""
        with self._device.turn() as state:
            return Fraction(state.spent, EPSILON_UNIT)

    @property
    def left(self) -> Fraction:
        """The ε that may still be sent."""
        return self.lifetime - self.spent

    def asked(self, public: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the places of the questions that this device is asked: all, or one that is drawn once."""
        survey = read_offered(public)
        if survey.asks_all:
            return tuple(range(len(survey.questions)))
        with self._device.turn() as state:
            return (_drawn(state, survey),)

    def answered(self, public: Mapping[str, Any]) -> bytes | None:
        """Return the stored report to this survey, or None."""
        survey = read_offered(public)
        with self._device.turn() as state:
            return _report(state.memos.get(survey.digest, {}))

    def answer(self, public: Mapping[str, Any], answers: Mapping[str, object]) -> bytes:
        """Make, charge and store the report for these answers.

        If there is a report already, it is returned unchanged, and nothing is charged or drawn.

        Args:
            public: The public part of the survey, as `Design.public()` or /survey.json has it.
            answers: The answers by question's name; None is "no answer".

        Returns:
            The report.

        Raises:
            BadValue: The survey is not in order, or an answer is impossible or missing.
            OverBudget: The report costs more ε than is left.
        """
        survey = read_offered(public)
        with self._device.turn() as state:
            stored = _report(state.memos.get(survey.digest, {}))
            if stored is not None:
                return stored
            places = range(len(survey.questions)) if survey.asks_all else [_drawn(state, survey)]
            codes = {place: _code(survey, place, answers) for place in places}
            _afford(state, survey)
            coins, asked = ByteCoins(), survey.questions
            sent = {at: asked[at].randomizer.randomize(codes[at], coins) for at in places}
            report = survey.layout.pack(sent)
            memo = state.memos.setdefault(survey.digest, {})
            memo.update(price=survey.price, report=report.hex())
            state.store()  # nobody gets to see the report before this
            return report

    def mark(self, public: Mapping[str, Any]) -> bytes:
        """Return 16 random bytes for the file with the report to this survey, the same each time.

        Two people may have equal reports. With these bytes their files differ, and both are counted.
        """
        survey = read_offered(public)
        with self._device.turn() as state:
            memo = state.memos.setdefault(survey.digest, {})
            if "mark" not in memo:
                memo["mark"] = random_bytes(MARK_BYTES).hex()
                state.store()
            return bytes.fromhex(memo["mark"])

    def is_of(self, public: Mapping[str, Any], invitation: str) -> bool:
        """Return whether the report's credential came by this invitation. Else it is somebody else's."""
        with self._device.turn() as state:
            memo = state.memos.get(read_offered(public).digest, {})
            return "signature" in memo and memo.get("invited") == _hashed(invitation)

    def authorize(self, url: str, invitation: str, *, shown: str | None = None) -> None:
        """Fetch and store the credential for a report. This uses the invitation. `send` may follow later.

        The longer the time between the two, the less the times say about whose report it is. `shown` is the
        fingerprint that the respondent saw: another survey or key is refused. So is a survey that this
        device cannot afford, and one for which another invitation was used here.
        """
        # HTTP is an extra that answering alone does not need.
        from lapwing.survey.survey_client import SurveyClient  # noqa: PLC0415

        self._authorize(SurveyClient(url), invitation, shown)

    def send(
        self, url: str, invitation: str, *, shown: str | None = None, wait: float = DEFAULT_WAIT
    ) -> None:
        """Send the stored report to the survey at `url`, under a credential that cannot be traced.

        The report leaves at a random moment, after at least a quarter of `wait` seconds and at most all of
        them, so that its time says less about whose it is. Calling `authorize` long before does more.
        `send` may be called again at any time: it sends the same bytes, and the survey counts them once.
        `shown` is as in `authorize`. The device is not locked while the server is awaited.
        """
        from lapwing.survey.survey_client import SurveyClient  # noqa: PLC0415

        if not 0 <= wait <= LONGEST_WAIT:
            raise BadParameter("wait", f"must be 0 to {LONGEST_WAIT:,} seconds")
        digest, memo = self._authorize(SurveyClient(url), invitation, shown, answered=True)
        if not memo.get("sent"):
            time.sleep(_moment(wait))
        SurveyClient(url).report(digest, memo)
        with self._device.turn() as state:
            state.memos[digest]["sent"] = True
            state.store()

    def _authorize(
        self, server: SurveyClient, invitation: str, shown: str | None, *, answered: bool = False
    ) -> tuple[str, Memo]:
        """Return the digest, and the memo with its credential. An invitation signs the stored token alone.

        Both are stored before the server sees them. If its reply is lost, the same invitation gets the same
        signature, and no other one is used for this token.
        """
        public, key = server.survey()
        survey, invited = read_offered(public), _hashed(invitation)
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
    """Raise `BadParameter` if another invitation was used here, unless the report and signature exist."""
    if memo.get("invited", invited) != invited and not {"report", "signature"} <= memo.keys():
        raise BadParameter(
            "invitation",
            "is not the one that was begun with on this device: one device, one person. It was not used. "
            "Use the first one again, or another folder",
        )


def _moment(wait: float) -> float:
    """Draw a random part of these seconds, at least a quarter of them."""
    most = int(wait * 1000)
    return (most // 4 + ByteCoins().below(most - most // 4 + 1)) / 1000


def _hashed(invitation: str) -> str:
    """Return the hash of an invitation: enough to recognise it, and useless for the survey."""
    return hashlib.sha256(f"lapwing invitation {invitation}".encode(errors="replace")).hexdigest()


def _report(memo: Memo) -> bytes | None:
    return bytes.fromhex(memo["report"]) if "report" in memo else None


def _drawn(state: DeviceState, survey: OfferedSurvey) -> int:
    """Return the place of the one question that is asked. It is drawn before any answer, and stored."""
    memo = state.memos.setdefault(survey.digest, {})
    if "question" not in memo:
        memo["question"] = ByteCoins().below(len(survey.questions))
        state.store()
    return int(memo["question"])


def _code(survey: OfferedSurvey, place: int, answers: Mapping[str, object]) -> int:
    question = survey.questions[place]
    if question.name not in answers:
        raise BadValue(f"{question.name}: an answer is needed; None is no answer")
    try:
        return question.coding.code(answers[question.name])
    except BadValue as error:
        raise BadValue(f"{question.name}: {error}") from None


def _afford(state: DeviceState, survey: OfferedSurvey) -> None:
    lifetime = min(state.lifetime or 0, int(survey.lifetime * EPSILON_UNIT))
    left = max(0, lifetime - state.spent)
    if survey.price > left:
        raise OverBudget(
            f"ε = {decimal_text(Fraction(survey.price, EPSILON_UNIT))}",
            f"ε = {decimal_text(Fraction(left, EPSILON_UNIT))}",
            "Nothing was sent, and nothing fills the account up again.",
            where="this device",
        )
