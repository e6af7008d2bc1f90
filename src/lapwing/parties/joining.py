"""Joining a run: the checks before it, one member's whole part, its answer, and the host's relay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.core.spread import checked_confidence
from lapwing.errors import Aborted, BadParameter, LapwingError, Unavailable
from lapwing.parties import run_status
from lapwing.parties.consortium import Consortium
from lapwing.parties.contribution import Contribution
from lapwing.parties.draft import require_coalition, require_same_meaning
from lapwing.parties.identity import MemberKeys
from lapwing.parties.member import take_part
from lapwing.parties.messages import Progress, ProgressCallback
from lapwing.parties.relay_server import relay_in_thread, serve_relay
from lapwing.parties.run_status import RunStatus
from lapwing.parties.statistics import JointAnswer, Statistic, statistic_of
from lapwing.sql.dataset import Dataset
from lapwing.sql.opening import open as open_dataset

Tell = Callable[[str], None]  # a remark for the member's user


@contextmanager
def open_statistic(
    spec: Mapping[str, Any], policy: Path, *, tell: Tell
) -> Iterator[tuple[Dataset, Statistic]]:
    """Open a policy's data, and bind a statistic to it. Nothing is read or charged by that."""
    with open_dataset(policy) as data:
        data.curator.notify = tell
        yield data, statistic_of(spec, data)


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
    statistic: Statistic,
    *,
    number: int | None = None,
    confidence: Fraction | str,
    listen: str | None = None,
    watch: ProgressCallback | None = None,
    tell: Tell = lambda _: None,
    show: Callable[[RunResult], None] = lambda _: None,
) -> RunResult:
    """Take part in a run with a policy's data, and return the result. The host also runs the relay.

    Args:
        consortium: the consortium, signed by all members.
        keys: this member's keys.
        data: this member's data set. Its ledger is charged.
        statistic: the consortium's statistic, bound to the data.
        number: of the run. None: the first that this member can join, or see the end of.
        confidence: of each interval in the answer.
        listen: where the host's relay listens, if not at the consortium's address.
        watch: is called with each event of the run; None reports nothing.
        tell: is called with remarks for the user, such as members that the host waits for.
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
    level, me = checked_confidence(confidence), consortium.number_of(keys)
    folder = run_status.runs_folder(keys)
    require_same_meaning(consortium, statistic)
    status = run_status.find_run(consortium, keys, number, was_charged=run_status.charges_of(data))
    config, is_replay = status.config, status.ending is not None
    if not status.has_begun:  # a journal alone means nothing: it exists since the lobby
        require_coalition(consortium, data.policy.least_coalition)
    _tell_lost(status, folder, tell)
    contribute = contribution_for(consortium, config.number, statistic, data)
    if not status.has_begun:
        contribute.check()  # so that nobody waits for a member whose ledger would refuse

    def tell_unserved(event: Progress) -> None:  # the member itself watches everything else
        if event.kind == "unserved":
            tell(
                f"{', '.join(event.names)} may not know the sums: {event.why}. You may stop this: the same "
                "command shows them again"
            )

    is_host = keys.card == config.host
    relay = relay_in_thread(config, keys, folder=folder, listen=listen, watch=tell_unserved)
    with relay if is_host and not is_replay else nullcontext():
        outcome = take_part(
            config, me, keys, folder=folder, contribute=contribute, read=contribute.read, watch=watch
        )
        noises = [consortium.plan.noises(len(each.contributors)) for each in outcome.opened]
        result = RunResult(
            consortium=consortium,
            number=config.number,
            answer=statistic.answer(outcome.opened, noises, confidence=level),
            transcript=outcome.transcript,
            left=str(data.left()),
            is_replay=is_replay,
            truncation=() if statistic.source is None else statistic.source.truncation,
        )
        show(result)
    if is_host and is_replay:
        _serve_end_again(status, keys, listen, tell)
    return result


def advice_after_abort(
    consortium: Consortium, keys: MemberKeys, data: Dataset, error: Aborted, number: int | None = None
) -> str:
    """Return which run is next for this member, and how all members come to the same one.

    `number` is the one that was asked for. A run that goes on without this member is passed over.
    """
    asked, was_charged = number if error.goes_on else None, run_status.charges_of(data)
    try:
        status = run_status.find_run(consortium, keys, asked, was_charged=was_charged)
    except LapwingError:  # the reason of the abort matters more
        return ""
    if error.goes_on:
        this = status.config.number
        return (
            f"run {this} is too late to join. The transcript of any of the others shows its sums: lapwing "
            f"party verify. The next run with {keys.name} is --number {this + 1}, at every member"
        )
    return (
        f"the next run of {keys.name} is number {status.config.number}: give the same command again. "
        "Members who are at different numbers say one with --number"
    )


def advice_after_disconnect(consortium: Consortium, keys: MemberKeys, number: int | None) -> str:
    """Return what to do about a run that has begun for this member; "" if none has."""
    try:
        status = run_status.find_run(consortium, keys, number, was_charged=lambda _: False)
    except Unavailable:  # it was told already
        return ""
    if not status.has_begun or status.ending is not None:
        return ""
    this = status.config.number
    return (
        f"run {this} has begun for {keys.name}: the same command goes on with it. If it is over for the "
        f"others, {consortium.host.name} shows its end again with --number {this}, and the transcript of "
        f"any of them shows the sums: lapwing party verify. A new run is --number {this + 1} at every "
        "member, and is charged again"
    )


def relay_run(
    consortium: Consortium, keys: MemberKeys, number: int | None, *, listen: str | None, tell: Tell
) -> tuple[str, Callable[[ProgressCallback], None]]:
    """Return in words which run a host relays, and a function that relays it to its end.

    Raises BadParameter if these are not the keys of the host. Earlier runs whose sums members may have
    missed are told.
    """
    if keys.card != consortium.host:
        raise BadParameter("me", f"this is {keys.name}, but {consortium.host.name} is the host")
    folder = run_status.runs_folder(keys)
    config = consortium.run_configuration(number or run_status.next_relay_run(consortium, folder))
    for before in range(1, config.number):
        if names := run_status.members_without_result(consortium.run_configuration(before), folder):
            tell(
                f"run {before} ended, and {', '.join(names)} may not know its sums: --number {before} "
                "shows the end again"
            )
    words = f"run {config.number} of {consortium.name} at {listen or config.address}"
    return words, lambda watch: serve_relay(config, keys, folder=folder, listen=listen, watch=watch)


def _serve_end_again(status: RunStatus, keys: MemberKeys, listen: str | None, tell: Tell) -> None:
    """Serve the end of a run again, if other members may have missed it."""
    config, folder = status.config, run_status.runs_folder(keys)
    names = [name for name in run_status.members_without_result(config, folder) if name != keys.name]
    if names:
        seconds = max(config.lobby_seconds, config.round_seconds)
        tell(
            f"{', '.join(names)} may not know the sums: for {seconds:g} seconds the end of run "
            f"{config.number} is shown again to every member that asks"
        )
        serve_relay(config, keys, folder=folder, listen=listen)


def _tell_lost(status: RunStatus, folder: Path, tell: Tell) -> None:
    """Tell of charged runs that cannot go on. Raise `BadParameter` if one was asked for by its number."""
    number = status.config.number
    for lost in status.lost:
        why = f"run {lost} was charged before, but {folder} has no journal of it: it cannot go on"
        if lost == number:
            raise BadParameter(
                "number", f"{why}, and would need new noise. Say another number, at every member"
            )
        tell(f"{why}. This is run {number}; the others must say --number {number}, too")


def contribution_for(
    consortium: Consortium, number: int, statistic: Statistic, data: Dataset
) -> Contribution:
    """Return this member's contribution to a run. Raises `BadParameter` in the local model."""
    plan, config = consortium.plan, consortium.run_configuration(number)
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
