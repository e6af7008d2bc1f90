"""Lapwing: differential privacy for every trust model, on one lifetime ledger.

These are the public names. Each is imported at its first use, so that `import lapwing` stays fast and a
program loads only the extras that it needs. More names of one part are in its package: `lapwing.ledger`,
`lapwing.survey`, `lapwing.parties`, `lapwing.learn`, `lapwing.publish`, `lapwing.noise`,
`lapwing.mechanisms`, `lapwing.losses`, `lapwing.questions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lapwing.lazy import lazy_names

if TYPE_CHECKING:
    from lapwing import losses as losses
    from lapwing import mechanisms as mechanisms
    from lapwing import noise as noise
    from lapwing import questions as questions
    from lapwing.client.connecting import connect as connect
    from lapwing.core.experiment_budget import Budget as Budget
    from lapwing.core.explanation import explain as explain
    from lapwing.errors import LapwingError as LapwingError
    from lapwing.errors import OverBudget as OverBudget
    from lapwing.learn.pipelines.pipeline import Pipeline as Pipeline
    from lapwing.learn.pipelines.training import train as train
    from lapwing.learn.stream import Stream as Stream
    from lapwing.ledger.gate import Gate as Gate
    from lapwing.ledger.ledger import Ledger as Ledger
    from lapwing.ledger.verification import verify as verify
    from lapwing.parties.consortium import Consortium as Consortium
    from lapwing.parties.member import take_part as take_part
    from lapwing.sql.answering.answers import Answer as Answer
    from lapwing.sql.curator import Curator as Curator
    from lapwing.sql.dataset import Dataset as Dataset
    from lapwing.sql.opening import open as open  # noqa: A004
    from lapwing.sql.policy.policy_in_code import Policy as Policy
    from lapwing.sql.policy.policy_in_code import Table as Table
    from lapwing.sql.policy.policy_in_code import between as between
    from lapwing.sql.pricing.plan import Plan as Plan
    from lapwing.sql.question.refusal import Refused as Refused
    from lapwing.survey.respondent import Respondent as Respondent
    from lapwing.survey.survey import Survey as Survey

    __version__: str

_HOMES = {
    "Answer": "sql.answering.answers",
    "Budget": "core.experiment_budget",
    "Consortium": "parties.consortium",
    "Curator": "sql.curator",
    "Dataset": "sql.dataset",
    "Gate": "ledger.gate",
    "LapwingError": "errors",
    "Ledger": "ledger.ledger",
    "OverBudget": "errors",
    "Pipeline": "learn.pipelines.pipeline",
    "Plan": "sql.pricing.plan",
    "Policy": "sql.policy.policy_in_code",
    "Refused": "sql.question.refusal",
    "Respondent": "survey.respondent",
    "Stream": "learn.stream",
    "Survey": "survey.survey",
    "Table": "sql.policy.policy_in_code",
    "__version__": "",  # of the distribution: see `__getattr__`
    "between": "sql.policy.policy_in_code",
    "connect": "client.connecting",
    "explain": "core.explanation",
    "losses": "",
    "mechanisms": "",
    "noise": "",
    "open": "sql.opening",
    "questions": "",
    "take_part": "parties.member",
    "train": "learn.pipelines.training",
    "verify": "ledger.verification",
}
__all__ = list(_HOMES)


_find = lazy_names(__name__, {**_HOMES, "load_ipython_extension": "notebook"})  # for `%load_ext lapwing`


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 (slow)

        return version("lapwing")
    return _find(name)


def __dir__() -> list[str]:
    return __all__
