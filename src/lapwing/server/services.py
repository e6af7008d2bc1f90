"""All services of one server process, made once: `request.app.state.services`."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction

import pyarrow as pa

from lapwing.server.data.answers import Answers
from lapwing.server.data.batches import BATCHES, Batches
from lapwing.server.data.budget_notices import BudgetNotices, sender
from lapwing.server.data.plan_file import NAME, PlanFile
from lapwing.server.data.plans import Plans
from lapwing.server.data.records import Records
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.data.signatures import Signatures
from lapwing.server.data.surveys import Surveys
from lapwing.server.data.work_files import WorkFiles
from lapwing.server.jobs.job_queue import Jobs
from lapwing.server.people.people import People
from lapwing.server.settings import ServerSettings
from lapwing.server.state import ServerState


@dataclass(frozen=True, slots=True)
class Services:
    """The services of one process. Threads may share them.

    Args:
        settings: The settings of the server.
        state: The state that all its processes share.
        people: Accounts, sessions and tokens.
        sets: The data sets.
        plans: The plans, and their releases.
        batches: The same of several questions with one price.
        answers: The stored answers.
        records: What was asked and charged.
        signatures: What officers noted that they signed.
        surveys: Surveys in the served folder.
        works: Releases, models and audits in the served folder.
        jobs: Long work.
    """

    settings: ServerSettings
    state: ServerState
    people: People
    sets: ServedDataSets
    plans: Plans
    batches: Batches
    answers: Answers
    records: Records
    signatures: Signatures
    surveys: Surveys
    works: WorkFiles
    jobs: Jobs
    _closing: ExitStack = field(repr=False, compare=False)

    @classmethod
    def open(cls, settings: ServerSettings) -> Services:
        """Open everything that a process needs, and load what the first question needs.

        Raises:
            BadFile: If a policy has mistakes.
            BadParameter: If there is no policy.
            Unavailable: If the state or a ledger cannot be used.
            Tampered: If a ledger is not what it was.
        """
        with ExitStack() as opened:
            state = ServerState.open(settings.state_folder)
            opened.callback(state.close)
            sets = ServedDataSets.open(settings.folder)
            opened.callback(sets.close)
            file = PlanFile(settings.state_folder / NAME)
            opened.callback(file.close)
            threading.Thread(target=_load_arrow, daemon=True).start()
            for data in sets:
                data.warm()
            people, answers = People.of(state, settings.open_id), Answers(sets)
            opened.callback(people.close)
            plans = Plans(sets, file, answers, people.tokens)
            notices = BudgetNotices(state, sender(settings.webhook, settings.command))
            opened.callback(notices.close)
            for data in sets:
                notices.look(data)  # what a restart interrupted
            plans.after_release = notices.look
            batch_file = PlanFile(settings.state_folder / BATCHES)
            opened.callback(batch_file.close)
            batches = Batches(sets, batch_file, people.tokens)
            batches.after_release = plans.after_release
            jobs = Jobs(settings, state, sets)
            opened.callback(jobs.close)
            return cls(
                settings,
                state,
                people,
                sets,
                plans,
                batches,
                answers,
                Records(sets),
                Signatures(state, sets),
                Surveys(settings.folder, sets),
                WorkFiles(settings.folder, sets),
                jobs,
                opened.pop_all(),
            )

    @property
    def slot(self) -> Fraction:
        """The seconds of the grid on which replies of releases leave."""
        return self.settings.reply_slot

    def close(self) -> None:
        """Close everything, after the answers that are paid for are stored."""
        self._closing.close()


def _load_arrow() -> None:
    """Let Arrow look for pandas now: it does at its first array, which takes half a second of a page."""
    pa.array(())
