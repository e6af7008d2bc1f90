"""A member's contribution to a run: read into memory, charged on the member's own ledger, then noised.

Claim    no result that depends on a row leaves, or is stored, for a run that was not durably charged for
         all of its stages; a run is charged once; each stage's noise is drawn once; a refusal comes before
         any charge. Failed reads are counted in the ledger, as for a charged question, and the reason is
         told to nobody.
Because  the gate charges, under the run's id as key: the same run again finds that key, and ends
         (`Aborted`), since the earlier draw is in the member's journal or nowhere. Later stages are read
         only if that key was charged for the same request, including the version of the data; each has an
         entry of its own, at no cost, under the run's id and its number, before it is read. So has every
         read before the charge. Its numbers stay in memory until the run is charged for the version of the
         data that was read; else they are dropped, and read again after the charge.
Test     tests/parties/test_contribution.py

The ledger stores that the member contributed, but not the numbers: in protocols B, C and D one member's
noised numbers are not private by themselves. They go to the member's journal and into the protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.canonical_json import canonical_json
from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import Loss, Pure, Relation
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import Aborted, BadParameter, InProgress, KeyReused, WorkEnded
from lapwing.ledger import ChargedRead, Gate, Ledger, Slices, Spending, Target, Unit
from lapwing.ledger.spending import refusal
from lapwing.parties.joint_noise import covers, member_loss
from lapwing.parties.protocols.protocol import LARGEST_VALUE, Ints, OpenedSum
from lapwing.parties.protocols.secret_sharing import FIELD
from lapwing.parties.statistics.statistic import Statistic
from lapwing.sql.dataset import Dataset

CONTRIBUTED = b"contributed"
READ = b"read, and nothing told"
_ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class ChargedAccount:
    """The account that pays for numbers without a policy, and the principal in whose name it is charged."""

    ledger: Ledger
    account: str
    principal: str


@dataclass(slots=True, kw_only=True)
class _Charged(ABC):
    """Base of contributions: the charge, and the stages that were contributed so far."""

    statistic: Statistic
    data: Dataset | ChargedAccount
    run: bytes
    consortium: bytes
    _drawn: set[int] = field(default_factory=set, init=False, repr=False)  # stages
    _read: tuple[int, Ints] | None = field(default=None, init=False, repr=False)  # version, numbers

    def _check(self) -> None:
        if not isinstance(self.run, bytes) or not isinstance(self.consortium, bytes) or not self.run:
            raise BadParameter("run", "and consortium must be the bytes of their digests")
        source = self.statistic.source
        if isinstance(self.data, Dataset) and (source is None or source.dataset is not self.data):
            raise BadParameter("data", "must be the data set that the statistic was bound to")
        if isinstance(self.data, ChargedAccount) and source is not None:
            raise BadParameter("data", "of a policy is charged to its own accounts")

    # The differences between kinds of contributions

    @property
    @abstractmethod
    def _mechanism(self) -> tuple[str, Relation, Loss, dict[str, str | int]]:
        """The mechanism's name, its neighbours, its loss and its parameters, as the ledger records them."""

    @abstractmethod
    def _noised(self, values: Ints) -> Ints:
        """Return the numbers with noise."""

    # The charge

    def check(self) -> None:
        """Raise the error that a charge of this run would raise now. This costs nothing."""
        charged = self._charged_read(self._version())
        if charged.find() is not None:
            raise Aborted("this run was charged before")
        spending = charged.spending
        error = refusal(self.data.ledger, spending.targets, spending.loss, spending.costs)
        if error is not None:
            raise error

    def read(self) -> None:
        """Read the first stage's numbers into memory, before the run begins.

        This is no release, and costs nothing: the numbers leave only with noise and after the charge.
        Reading may take hours, so it ends with a new check whether the run could be charged. Raises
        `Aborted`.
        """
        version = self._version()
        ready = replace(self._free_read(version, "ready"), key=None)

        def keep(values: Ints) -> bytes:
            self._read = version, values
            return READ

        try:
            ready.release(lambda: self.statistic.exact(0, ()), keep)
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
        """Return this member's noised numbers of a stage. The first stage charges for all of them.

        `earlier` are the opened sums of the stages before. Raises `Aborted`.
        """
        if not 0 <= stage < self.statistic.stages or len(earlier) != stage:
            raise BadParameter("stage", "must come with the sums of all stages before it")
        if stage in self._drawn:
            raise Aborted("this stage was contributed to before, and noise is drawn once")
        if stage:
            return self._later(stage, earlier)
        return self._once(self._charged_read(self._version()), 0, ())

    def _later(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        try:
            version = self._version()
            self._require_charged(self._charged_read(version))
            return self._once(self._free_read(version, stage), stage, earlier)
        except Aborted:
            raise
        except Exception:  # the reason may be private
            raise Aborted("this member's data changed on the way, or could not be read") from None

    def _once(self, charged: ChargedRead, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        """Return a stage's numbers, drawn after its entry in the ledger. A second call finds that entry."""
        drawn = list[Ints]()
        version, values = self._read or (0, None)
        in_memory = values if stage == 0 and version == charged.version else None
        if in_memory is not None:  # read before the charge, from the version that is charged
            charged = replace(charged, current_version=lambda: version)

        def read() -> Ints:
            self._drawn.add(stage)
            self._read = None
            return self.statistic.exact(stage, earlier) if in_memory is None else in_memory

        def finish(values: Ints) -> bytes:
            drawn.append(self._noised(values))
            return CONTRIBUTED

        self._release(charged, read, finish)
        if not drawn:
            raise Aborted(
                "this run was charged before, and the noised numbers of that time are not at hand"
            )
        return drawn[0]

    def _free_read(self, version: int, stage: int | str) -> ChargedRead:
        """Return a read at no cost: of a later stage, which the first entry paid for, or before the run."""
        charged = self._charged_read(version)
        spending = charged.spending
        parameters = {**spending.parameters, "stage": stage}
        free = replace(spending, loss=Pure(Fraction(0)), parameters=parameters)
        return replace(charged, key=f"{self.run.hex()}/{stage}", spending=free)

    def _require_charged(self, charged: ChargedRead) -> None:
        """Raise `Aborted` unless the first stage paid for the same run, statistic, noise and data."""
        if not charged.is_stored:
            raise Aborted("this run was not charged")
        self._release(charged, _never, _never)

    def _release(
        self, charged: ChargedRead, read: Callable[[], Ints], finish: Callable[[Ints], bytes]
    ) -> None:
        try:
            charged.release(read, finish)
        except KeyReused:
            raise Aborted("this run was charged for another request, or for other data") from None
        except InProgress:
            raise Aborted("this run is under way in another process of this member") from None
        except WorkEnded:
            raise Aborted("this run was charged, but its data could not be read") from None

    def _charged_read(self, version: int) -> ChargedRead:
        """Return the read of the first stage, which pays for all stages."""
        mechanism, relation, loss, parameters = self._mechanism
        statistic = self.statistic
        asked = {"spec": statistic.spec, "meaning": statistic.meaning, "version": version}
        who = {"run": self.run.hex(), "consortium": self.consortium.hex()}
        targets, unit = self._charged()
        spending = Spending(
            targets=targets,
            loss=loss,
            unit=unit,
            relation=relation,
            mechanism=mechanism,
            parameters={**parameters, **who, "stages": statistic.stages},
            request=canonical_json({**asked, **who}, spaces=True).encode(),
        )
        return ChargedRead(
            gate=self._gate(),
            spending=spending,
            key=self.run.hex(),
            version=version,
            current_version=self._version,
        )

    def _gate(self) -> Gate:
        source, data = self.statistic.source, self.data
        if isinstance(data, Dataset):
            return data.curator.gate(data.analyst, None if source is None else source.question)
        return Gate(data.ledger, principal=data.principal)

    def _version(self) -> int:
        source = self.statistic.source
        return 0 if source is None else source.version()

    def _charged(self) -> tuple[tuple[Target, ...], Unit]:
        """Return the accounts that are charged, and the privacy unit of the charge."""
        source, data = self.statistic.source, self.data
        if source is not None:
            return source.targets(), source.unit
        assert isinstance(data, ChargedAccount)
        account = data.ledger.account(data.account)
        return (Target(data.account, everyone=account.slices is not Slices.NONE),), account.unit


def _never(*_: object) -> Any:
    raise AssertionError("a charged request is not run again")


@dataclass(slots=True, kw_only=True)
class Contribution(_Charged):
    """A member's numbers with its shares of the noise, one mechanism for each block of a stage.

    Claim    if the sum holds as many honest shares as the mechanisms need, all stages together reveal
             `loss` of one unit of this member, and not more.
    Because  each block is noised on its own; losses of blocks and stages add up; a smaller `loss` is
             refused.
    Test     tests/parties/test_contribution_loss.py

    Numbers are clamped to `largest` before noise, so that sums of all members fit.
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
    def _mechanism(self) -> tuple[str, Relation, Loss, dict[str, str | int]]:
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
    """Contribution for protocol L: every row is randomized by itself, and the member counts the reports.

    Claim    each row's report is purely ε-private for any two values of that row.
    Because  a report is k-ary randomized response on the row's own value, and a count of reports is
             post-processing. The number of rows is public: neighbours replace a row, never remove it. A
             negative count of an option counts as 0, so that an error reveals nothing about rows.
    Test     tests/parties/test_contribution_holding.py
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
    def _mechanism(self) -> tuple[str, Relation, Loss, dict[str, str | int]]:
        options = self.response.options
        return "randomized response", Relation.REPLACE, self.response.loss, {"options": options}

    def _noised(self, values: Ints) -> Ints:
        tally = np.zeros(len(values), dtype=np.int64)
        for option, rows in enumerate(np.maximum(values, 0).tolist()):
            for start in range(0, rows, _ROWS_AT_ONCE):
                alike = np.full(min(rows - start, _ROWS_AT_ONCE), option, dtype=np.int64)
                tally += np.bincount(self.response.sample(alike), minlength=len(values))
        return tally


def _wrapped(values: Ints) -> Ints:
    """Wrap numbers to ±FIELD / 2, as sums are.

    In practice noise is never that large. Unlike clamping, wrapping commutes with addition, so that sums
    stay as private as they are.
    """
    half = FIELD // 2
    inside: Ints = np.where(np.abs(values) <= half, values, (values + half) % FIELD - half)
    return inside
