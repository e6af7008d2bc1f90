"""What a member brings to a run: read into memory, charged on its own ledger, then noised.

Claim    nothing that depends on a row leaves, or is stored, for a run that was not durably charged for all
         of its stages; a run is charged once; each stage's noise is drawn once; what is refused is refused
         before anything is charged. That data could not be read is counted in the ledger, as for a question
         that was charged, and why is told to nobody.
Because  the charge is the gate's, under the run's id as key: the same run again finds that key, and ends
         (`Aborted`), since what was drawn before is in the journal of the member or nowhere. Later stages
         are read only if that key was charged for the same request, the version of the data included; each
         has an entry of its own, at no cost, under the run's id and its number, before it is read. So has
         every reading before the charge, whose numbers stay in memory until the run is charged for the
         version of the data that was read; else they are dropped, and read again after the charge.
Test     tests/parties/test_contribution.py

The ledger stores that the member contributed, not what: in B, C and D one member's noised numbers are not
private by themselves. They go to the member's journal and into the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import Loss, Pure, Relation
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import Aborted, BadParameter, InProgress, KeyReused, WorkEnded
from lapwing.ledger import Ledger, Slices, Unit
from lapwing.ledger.gate import ChargedRelease, Gate
from lapwing.ledger.request_status import RequestState
from lapwing.ledger.spending import Spending, Target, refusal
from lapwing.parties.joint_noise import covers, member_loss
from lapwing.parties.protocols.protocol import LARGEST_VALUE, OpenedSum
from lapwing.parties.protocols.secret_sharing import FIELD
from lapwing.parties.statistics.statistic import Ints, Statistic
from lapwing.sql.dataset import Dataset

CONTRIBUTED = b"contributed"
READ = b"read, and nothing told"
_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class ChargedAccount:
    """Whom numbers that come from no policy are charged to: an account of a ledger, by a principal."""

    ledger: Ledger
    account: str
    principal: str


@dataclass(slots=True, kw_only=True)
class _Charged:
    """A member's part in one run: what is charged, and what was brought so far."""

    statistic: Statistic
    data: Dataset | ChargedAccount
    run: bytes
    consortium: bytes
    _brought: set[int] = field(default_factory=set, init=False, repr=False)
    _read: tuple[int, Ints] | None = field(default=None, init=False, repr=False)  # version, first stage

    def _check(self) -> None:
        if not isinstance(self.run, bytes) or not isinstance(self.consortium, bytes) or not self.run:
            raise BadParameter("run", "and consortium must be the bytes of their digests")
        source = self.statistic.source
        if isinstance(self.data, Dataset) and (source is None or source.dataset is not self.data):
            raise BadParameter("data", "must be the data set that the statistic was bound to")
        if isinstance(self.data, ChargedAccount) and source is not None:
            raise BadParameter("data", "of a policy is charged to its own accounts")

    # What differs between kinds of contributions

    @property
    def _what(self) -> tuple[str, Relation, Loss, dict[str, str | int]]:
        raise NotImplementedError

    def _noised(self, values: Ints) -> Ints:
        raise NotImplementedError

    # The charge

    def check(self) -> None:
        """Whether this run could be charged now. Costs nothing; a member looks before it takes part."""
        spending, gate = self._spending(self._version()), self._gate()
        if gate.find(self.run.hex()) is not None:
            raise Aborted("this run was charged before")
        error = refusal(self._ledger, spending.targets, spending.loss, spending.costs)
        if error is not None:
            raise error

    def read(self) -> None:
        """Read the first stage's numbers before the run begins: nobody's clock runs then. It is no release,
        and costs nothing: they stay in memory, and leave only with noise and after the charge. Whether the
        run could be charged is checked again after it: reading may take hours."""
        version = self._version()

        def run() -> bytes:
            values = self.statistic.exact(0, ())
            if self._version() != version:
                raise BadParameter("source", "changed while it was read")
            self._read = version, values
            return READ

        try:
            self._gate().release(ChargedRelease(self._mark(self._spending(version), "ready"), run))
        except WorkEnded:
            raise Aborted(
                "this member's data could not be read, so it is not ready. It took too long or too much "
                "memory, or the source changed or went away: look at the source, and at [engine] in the "
                "policy",
                was_charged=False,
            ) from None
        self.check()
        if self._version() != version:
            raise Aborted(
                "this member's data changed after it was read, so it is not ready. Give the same command "
                "again: it reads what is there now",
                was_charged=False,
            )

    def __call__(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        """This member's noised numbers of a stage. The first one charges for all."""
        if not 0 <= stage < self.statistic.stages or len(earlier) != stage:
            raise BadParameter("stage", "must come with the sums of all stages before it")
        if stage in self._brought:
            raise Aborted("this stage was contributed to before, and noise is drawn once")
        return self._first() if stage == 0 else self._later(stage, earlier)

    def _later(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        try:
            version = self._version()
            spending = self._spending(version)
            self._require_charged(spending)
            return self._once(self._mark(spending, stage), stage, earlier, version)
        except Aborted:
            raise
        except Exception:  # why may be private
            raise Aborted("this member's data changed on the way, or could not be read") from None

    def _first(self) -> Ints:
        version = self._version()
        return self._once(self._spending(version), 0, (), version)

    def _once(self, spending: Spending, stage: int, earlier: Sequence[OpenedSum], version: int) -> Ints:
        """A stage's numbers, drawn after its entry in the ledger: whoever comes later finds that entry."""
        drawn = list[Ints]()

        def run() -> bytes:
            drawn.append(self._draw(stage, earlier, version))
            return CONTRIBUTED

        self._release(spending, run, key=self._key(stage))
        if not drawn:
            raise Aborted("this run was charged before, and what was drawn then is not at hand")
        return drawn[0]

    def _key(self, stage: int) -> str:
        return f"{self.run.hex()}/{stage}" if stage else self.run.hex()

    def _mark(self, spending: Spending, stage: int | str) -> Spending:
        """An entry at no cost: of a later stage, which the run's first entry paid for, or of a reading of
        which nothing leaves before that."""
        return replace(spending, loss=Pure(Fraction(0)), parameters={**spending.parameters, "stage": stage})

    def _require_charged(self, spending: Spending) -> None:
        """That the first stage paid for this one: the same run, statistic, noise and version of data."""
        found = self._gate().find(self.run.hex())
        if found is None or found.state is not RequestState.ANSWERED:
            raise Aborted("this run was not charged")
        self._release(spending, _never, key=self._key(0))

    def _release(self, spending: Spending, run: Callable[[], bytes], *, key: str) -> None:
        try:
            self._gate().release(ChargedRelease(spending, run), key=key)
        except KeyReused:
            raise Aborted("this run was charged for another request, or for other data") from None
        except InProgress:
            raise Aborted("this run is under way in another process of this member") from None
        except WorkEnded:
            raise Aborted("this run was charged, but its data could not be read") from None

    def _draw(self, stage: int, earlier: Sequence[OpenedSum], version: int) -> Ints:
        self._brought.add(stage)
        read, self._read = self._read, None
        if stage == 0 and read is not None and read[0] == version:
            return self._noised(read[1])
        values = self.statistic.exact(stage, earlier)
        if self._version() != version:  # it may be about people who were not charged
            raise BadParameter("source", "changed while it was read")
        return self._noised(values)

    def _spending(self, version: int) -> Spending:
        mechanism, relation, loss, parameters = self._what
        statistic = self.statistic
        asked = {"spec": statistic.spec, "meaning": statistic.meaning, "version": version}
        who = {"run": self.run.hex(), "consortium": self.consortium.hex()}
        return Spending(
            targets=self._targets(),
            loss=loss,
            unit=self._unit,
            relation=relation,
            mechanism=mechanism,
            parameters={**parameters, **who, "stages": statistic.stages},
            request=json.dumps({**asked, **who}, sort_keys=True).encode(),
        )

    def _version(self) -> int:
        source = self.statistic.source
        return 0 if source is None else source.version()

    def _targets(self) -> tuple[Target, ...]:
        source, data = self.statistic.source, self.data
        if source is not None:
            return source.targets()
        assert isinstance(data, ChargedAccount)
        is_sliced = data.ledger.account(data.account).slices is not Slices.NONE
        return (Target(data.account, everyone=is_sliced),)

    @property
    def _unit(self) -> Unit:
        source, data = self.statistic.source, self.data
        if source is not None:
            return source.unit
        assert isinstance(data, ChargedAccount)
        return data.ledger.account(data.account).unit

    @property
    def _ledger(self) -> Ledger:
        return self.data.ledger

    def _gate(self) -> Gate:
        data = self.data
        principal = data.analyst if isinstance(data, Dataset) else data.principal
        return Gate(data.ledger, principal=principal)


def _never() -> bytes:
    raise AssertionError("what was charged before is not run again")


@dataclass(slots=True, kw_only=True)
class Contribution(_Charged):
    """Numbers of a member with its shares of the noise, one mechanism for each block of a stage.

    Claim    if the sum holds as many honest shares as the mechanisms ask for, all stages together reveal
             `loss` of one unit of this member, and not more.
    Because  each block is noised on its own; blocks and stages add up; `loss` is refused below that.
    Test     tests/parties/test_contribution_loss.py

    `largest` is what numbers are clamped to before noise, so that sums of all members fit.
    """

    shares: Sequence[LaplaceShares | GaussianShares]
    loss: Loss
    largest: int = LARGEST_VALUE

    def __post_init__(self) -> None:
        self._check()
        blocks = self.statistic.blocks
        if len(self.shares) != len(blocks):
            raise BadParameter("shares", "there must be one for each block")
        for share, block in zip(self.shares, blocks, strict=True):
            if isinstance(share, LaplaceShares):
                fits = share.l1 >= block.l1
            else:
                fits = share.l2_squared >= block.l2_squared and share.dimension == block.length
            if not fits:
                raise BadParameter("shares", f'do not cover what one unit can do to "{block.label}"')
        if not covers(self.loss, member_loss(self.shares, self.statistic.stages)):
            raise BadParameter("loss", "is less than what the noise shares reveal")
        if not 0 < self.largest <= LARGEST_VALUE:
            raise BadParameter("largest", "must lie between 1 and 2^52")

    @property
    def _what(self) -> tuple[str, Relation, Loss, dict[str, str | int]]:
        first = self.shares[0]
        noise = "laplace" if isinstance(first, LaplaceShares) else "gaussian"
        parameters: dict[str, str | int] = {"noise": noise, "honest": first.of}
        return "joint statistic", Relation.ADD_REMOVE, self.loss, parameters

    def _noised(self, values: Ints) -> Ints:
        cuts = np.cumsum([block.length for block in self.statistic.blocks])[:-1]
        clamped = np.clip(values, -self.largest, self.largest)
        parts = np.split(clamped, cuts)
        noised = [share.sample(part) for share, part in zip(self.shares, parts, strict=True)]
        return _wrapped(np.concatenate(noised))


@dataclass(slots=True, kw_only=True)
class LocalContribution(_Charged):
    """Protocol L: every row of a member randomizes itself, and the member counts the reports.

    Claim    each row's report is purely ε-private for any two values of that row.
    Because  a report is k-ary randomized response on the row's own value, and a count of reports is
             post-processing. How many rows there are is told: neighbours replace a row, never remove it.
             Fewer than 0 of an option count as 0: what is wrong with rows is told to nobody.
    Test     tests/parties/test_holding.py
    """

    response: RandomizedResponse

    def __post_init__(self) -> None:
        self._check()
        if self.statistic.why_not_local:
            raise BadParameter("protocol", f"L is not possible: {self.statistic.why_not_local}")
        if self.response.options != self.statistic.length:
            raise BadParameter("response", "must have one option for each cell")
        assert isinstance(self.data, ChargedAccount)
        account = self.data.ledger.account(self.data.account)
        if account.relation is not Relation.REPLACE:
            raise BadParameter(
                "account",
                "protocol L tells how many rows there are: its account must be for data of which a "
                "person's answers can be replaced, not added or removed",
            )

    @property
    def _what(self) -> tuple[str, Relation, Loss, dict[str, str | int]]:
        options = self.response.options
        return "randomized response", Relation.REPLACE, self.response.loss, {"options": options}

    def _noised(self, values: Ints) -> Ints:
        tally = np.zeros(len(values), dtype=np.int64)
        for option, rows in enumerate(np.maximum(values, 0).tolist()):
            for start in range(0, rows, _AT_ONCE):
                alike = np.full(min(rows - start, _AT_ONCE), option, dtype=np.int64)
                tally += np.bincount(self.response.sample(alike), minlength=len(values))
        return tally


def _wrapped(values: Ints) -> Ints:
    """Between ±FIELD / 2, as sums are. Only noise of a size that never comes would be wrapped; and, unlike
    clamping, wrapping commutes with adding up: sums stay as private as they are."""
    half = FIELD // 2
    inside: Ints = np.where(np.abs(values) <= half, values, (values + half) % FIELD - half)
    return inside
