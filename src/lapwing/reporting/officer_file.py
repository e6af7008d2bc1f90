"""The officer's file: questions that no program can answer. It is kept beside the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from lapwing.config.toml_text import dotted, read_toml
from lapwing.config.values import did_you_mean, kind_of
from lapwing.errors import BadParameter

SUFFIX = ".report.toml"
NOT_ANSWERED = "Not answered yet"
LONGEST_ANSWER = 20_000
JOINERS = "\u200c\u200d\u00ad"  # letters of some scripts need them, and soft hyphens do no harm


@dataclass(frozen=True, slots=True)
class OfficerQuestion:
    """A question for the officer: its table and key in the file, its words, and its section."""

    table: str
    key: str
    words: str
    section: str

    @property
    def name(self) -> str:
        """The key with its table."""
        return f"{self.table}.{self.key}"


# Table and key in the file, the section of the report, and the words.
_QUESTIONS = """
deployment.title summary What is the release called in public?
deployment.curator summary Which organisation publishes it?
deployment.description summary What is released, in a few sentences?
deployment.intended_use summary What are the answers used for?
deployment.region summary Which region do the data describe, and whose laws apply?
deployment.published summary When was it first published? (YYYY-MM-DD)
deployment.author summary Who wrote this file?
choice.epsilon parameters Why this ε? Who decided it, and what else was considered?
choice.delta parameters Why this δ? About how many people are in the data?
choice.unit unit Why is this the right unit: can one person have several ids?
choice.bounds bias Where do bounds and rows per unit come from? Not from these data?
choice.groups bias Which small groups get less accurate answers, and does it harm them?
data.other_releases not_protected What else was published from the same data, without this ledger?
trust.keys trust Who holds the ledger's keys, the curator's key and the anchors?
trust.machine side_channels Who runs the machine, and who can read its memory and logs?
access.who access Who may ask questions, and how are they told apart?
access.data access Who can read the raw data, and how is that controlled?
data.collection collection How were the data collected? Did people agree?
data.minimal collection Which parts of the raw data are not needed, and were they deleted?
data.retention collection When are the raw data deleted?
"""


def _question(line: str) -> OfficerQuestion:
    name, section, words = line.split(maxsplit=2)
    table, _, key = name.partition(".")
    return OfficerQuestion(table, key, words, section)


QUESTIONS = tuple(map(_question, _QUESTIONS.strip().splitlines()))


def officer_path(path: Path) -> Path:
    """Return the officer's file of a policy, survey, consortium, pipeline, release or bundle."""
    whole = path.absolute()
    return whole.with_name(f"{whole.stem if whole.suffix and not whole.is_dir() else whole.name}{SUFFIX}")


def template() -> str:
    """Return an officer's file without answers."""
    lines = [
        '# For the privacy officer. Write your answers between the quotes; """three quotes""" hold several',
        "# lines. `lapwing report` shows them as they are, with every other number from the ledger. An "
        "empty",
        f'# answer is shown as "{NOT_ANSWERED}". Write no private value here: the report is for others to '
        "read.",
    ]
    for table in dict.fromkeys(question.table for question in QUESTIONS):
        lines += ["", f"[{table}]"]
        for question in QUESTIONS:
            if question.table == table:
                lines += [f"# {question.words}", f'{question.key} = ""']
    return "\n".join(lines) + "\n"


def read_officer(path: Path) -> dict[str, str]:
    """Return the answers by name (`data.collection`). Empty ones are left out; no file has none.

    Raises:
        BadFile: The file has mistakes, each with its line.
    """
    if not path.exists():
        return {}
    values, mistakes = read_toml(
        path, what="officer's file", example=f"visits{SUFFIX}", draft="lapwing report POLICY --template"
    )
    known = {question.name for question in QUESTIONS}
    given: dict[str, str] = {}
    for table, answers in values.items():
        if not isinstance(answers, dict):
            mistakes.add((table,), "must be a table, such as [data]")
            continue
        for key, answer in answers.items():
            name = f"{table}.{key}"
            if name not in known:
                mistakes.add((table, key), f"is no question. {did_you_mean(name, sorted(known))}")
            elif not isinstance(answer, str) or len(answer) > LONGEST_ANSWER:
                mistakes.add((table, key), f"must be a text in quotes, not too long, not {kind_of(answer)}")
            elif not all(
                letter.isprintable() or letter.isspace() or letter in JOINERS for letter in answer
            ):
                mistakes.add((table, key), "has a control character. Remove it")
            elif answer.strip():
                given[name] = " ".join(answer.split())
    published = given.get("deployment.published")
    if published is not None and not _is_day(published):
        mistakes.add(("deployment", "published"), 'must be a day such as "2026-01-31"')
    mistakes.complain()
    return given


def checked_day(text: str, option: str) -> str:
    """Return a day of the form YYYY-MM-DD. Raises BadParameter for another text."""
    if not _is_day(text):
        raise BadParameter(option, f"{dotted((text,))} is no day: write it as 2026-01-31")
    return text


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def answers_in(section: str, answers: Mapping[str, Any]) -> list[tuple[OfficerQuestion, str]]:
    """Return the questions of a section with their answers."""
    return [
        (question, str(answers.get(question.name, NOT_ANSWERED)))
        for question in QUESTIONS
        if question.section == section
    ]
