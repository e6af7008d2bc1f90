"""Joining a run: the choice of the run's number, one member's whole part, and its answer.

A member's folder of runs, its journals and its ledger decide which run comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.ledger.gate import Gate
from lapwing.parties.consortium import Consortium
from lapwing.parties.contribution import Contribution
from lapwing.parties.draft import require_coalition, require_same_meaning
from lapwing.parties.identity import MemberKeys
from lapwing.parties.journals import MemberJournal, RelayJournal, RunEnding
from lapwing.parties.member import take_part
from lapwing.parties.messages import ProgressCallback, ignore_progress
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.relay_server import relay_in_thread
from lapwing.parties.run_configuration import RunConfiguration
from lapwing.parties.statistics import JointAnswer, Statistic, statistic_of
from lapwing.sql.dataset import Dataset

WasCharged = Callable[[bytes], bool]  # the run's id -> whether the member's ledger has a charge for it


def runs_folder(keys: MemberKeys) -> Path:
    """Return the folder of a member's journals and transcripts. Make it if there is none."""
    folder = keys.folder / "runs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run that a member can join, and how far the member is in it.

    `has_begun` tells whether noise was drawn, or was about to be. `ending` is None before the end. `lost`
    are the numbers of runs that were charged and cannot continue, as their journals are gone.
    """

    config: RunConfiguration
    has_begun: bool
    ending: RunEnding | None
    lost: tuple[int, ...] = ()


def find_run(
    consortium: Consortium, keys: MemberKeys, number: int | None, *, was_charged: WasCharged
) -> RunStatus:
    """Return the run of this number, or for None the first that this member can join or see the end of."""
    me, folder = consortium.number_of(keys), runs_folder(keys)
    tried, lost = number or 1, list[int]()
    while True:
        config = consortium.run_configuration(tried)
        path, has_begun, ending = MemberJournal.path_of(folder, config), False, None
        if path.exists():
            with MemberJournal(path, config, me) as journal:
                has_begun, ending = journal.has_begun(), journal.outcome()
        is_lost = not has_begun and was_charged(config.run_id)
        if is_lost:
            lost.append(tried)
        is_open = ending is None or ending.stopped is None
        if number is not None or (is_open and not is_lost):
            return RunStatus(config, has_begun, ending, tuple(lost))
        tried += 1


def charges_of(data: Dataset) -> WasCharged:
    """Return a function that tells whether the ledger of this data has a charge for a run."""
    gate = Gate(data.ledger, principal=data.analyst)
    return lambda run: gate.find(run.hex()) is not None


@dataclass(frozen=True, slots=True)
class RunResult:
    """One member's result of a run."""

    consortium: Consortium
    number: int
    answer: JointAnswer
    transcript: Path
    left: str  # of this member's budget, in words
    is_replay: bool  # whether the run had ended before: then nothing was charged now
    truncation: tuple[str, ...]  # how many rows of a person each member's numbers use


def join_run(
    consortium: Consortium,
    keys: MemberKeys,
    data: Dataset,
    status: RunStatus,
    *,
    confidence: Fraction,
    listen: str | None = None,
    watch: ProgressCallback | None = None,
    watch_relay: ProgressCallback = ignore_progress,
    show: Callable[[RunResult], None] = lambda _: None,
) -> RunResult:
    """Take part in a run with a policy's data, and return the answer. The host also runs the relay.

    Args:
        consortium: the consortium, signed by all members.
        keys: this member's keys.
        data: this member's data set. Its ledger is charged.
        status: the run, from `find_run`.
        confidence: of each interval in the answer.
        listen: where the host's relay listens, if not at the consortium's address.
        watch: is called with each event of the run; None reports nothing.
        watch_relay: is called with each event of the relay, if this member is the host.
        show: is called with the result before the host's relay has ended: the host then stays until the
            other members have the sums.

    Returns:
        The result. After the end of a run, the same result for nothing.

    Raises:
        Aborted: the run ended without all sums.
        Unavailable: the relay, the ledger or a file cannot be used.
        BadParameter: the consortium, the policy and the keys do not belong together, or the run is lost.
        OverBudget: the ledger refuses the charge.
    """
    me, folder, config = consortium.number_of(keys), runs_folder(keys), status.config
    statistic = statistic_of(dict(consortium.statistic), data)
    require_same_meaning(consortium, statistic)
    if config.number in status.lost:
        raise BadParameter(
            "number",
            f"run {config.number} was charged before, but {folder} has no journal of it: it cannot go on, "
            "and would need new noise. Say another number, at every member",
        )
    contribute = contribution_for(consortium, config, statistic, data)
    if not status.has_begun:  # a journal alone means nothing: it exists since the lobby
        require_coalition(consortium, data.policy.least_coalition)
        contribute.check()  # so that nobody waits for a member whose ledger would refuse
    is_replay = status.ending is not None
    is_host = keys.card == config.host and not is_replay
    relay = relay_in_thread(config, keys, folder=folder, listen=listen, watch=watch_relay)
    with relay if is_host else nullcontext():
        outcome = take_part(
            config, me, keys, folder=folder, contribute=contribute, read=contribute.read, watch=watch
        )
        result = RunResult(
            consortium=consortium,
            number=config.number,
            answer=answer_from(consortium, statistic, outcome.opened, confidence=confidence),
            transcript=outcome.transcript,
            left=data.left(),
            is_replay=is_replay,
            truncation=() if statistic.source is None else statistic.source.truncation,
        )
        show(result)
    return result


def contribution_for(
    consortium: Consortium, config: RunConfiguration, statistic: Statistic, data: Dataset
) -> Contribution:
    """Return this member's contribution to a run. Raises `BadParameter` in the local model."""
    plan = consortium.plan
    if plan.is_local:
        raise BadParameter("protocol", f"local model: {statistic.why_not_local}")
    return Contribution(
        statistic=statistic,
        data=data,
        run=config.run_id,
        consortium=config.digest,
        shares=plan.shares,
        loss=plan.loss,
        largest=config.setting(0).largest,
    )


def answer_from(
    consortium: Consortium, statistic: Statistic, opened: Sequence[OpenedSum], *, confidence: Fraction
) -> JointAnswer:
    """Return the answer that follows from the opened sums and the noise in them."""
    shares = consortium.plan.shares
    noises = [[share.total(len(each.contributors)) for share in shares] for each in opened]
    return statistic.answer(opened, noises, confidence=confidence)


# The host's runs


def next_relay_run(consortium: Consortium, folder: Path) -> int:
    """Return the number of the first run that the relay of this folder has not brought to its end."""
    number = 1
    while _relay_status(consortium.run_configuration(number), folder)[0]:
        number += 1
    return number


def members_without_result(config: RunConfiguration, folder: Path) -> tuple[str, ...]:
    """Return the members that began a run whose sums are open, and may not know the sums yet."""
    return _relay_status(config, folder)[1]


def _relay_status(config: RunConfiguration, folder: Path) -> tuple[bool, tuple[str, ...]]:
    """Return whether the relay's run has ended, and the members that may not know its sums."""
    if not RelayJournal.path_of(folder, config).exists():
        return False, ()
    with RelayJournal(folder, config) as journal:
        is_over = len(journal.rounds()) == config.stages * len(config.rounds)
        begun, served = journal.begun() or {}, journal.served()
        unserved = tuple(config.names[i] for i in begun if i not in served)
        return journal.has_ended(), unserved if is_over else ()
