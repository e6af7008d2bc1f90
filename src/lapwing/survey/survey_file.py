"""Read a survey file (TOML). All mistakes are reported together, each with its line.

```toml
[survey]
name = "canteen"
title = "The canteen"
epsilon = 2.0
stop_after = 5000
[[questions]]
name = "vegetarian"
text = "Did you eat a vegetarian meal this week?"
kind = "yes_no"
```
"""

from __future__ import annotations

import os
import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from datetime import date
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast, get_args

from pydantic import AfterValidator, Field, PlainValidator

from lapwing.config.file_table import (
    TEXT_AT_MOST,
    Epsilon,
    FileTable,
    Flag,
    Label,
    LedgerTable,
    Number,
    Text,
    fits,
    needed,
    one_of,
    read_location,
    read_table,
)
from lapwing.config.toml_text import FileMistakes, dotted, quoted, read_toml
from lapwing.config.values import (
    NAME_PATTERN,
    POSTGRES_SCHEMES,
    checked_choice,
    did_you_mean,
    kind_of,
    quoted_choices,
)
from lapwing.errors import BadParameter
from lapwing.survey.questionnaire import (
    LN_3,
    MOST_SET_OPTIONS,
    NO_ANSWER,
    TWO_COINS,
    AnswerCoding,
    AskMode,
    DateScale,
    EstimationTarget,
    NumberScale,
    OneOf,
    Question,
    QuestionKind,
    Questionnaire,
    Ranked,
    Several,
    WordCoding,
    decimal_text,
    two_coins_cost_text,
    two_coins_count,
)

MOST_LABEL_LETTERS = 200
MOST_FILE_BYTES = 64 << 20
MOST_OPTIONS = 1 << 20
MOST_MASK_OPTIONS = 1 << 16  # options of a report that has a bit for each of them
MOST_BITS = 60
MOST_RANKED_OPTIONS = 6
MOST_STEPS = 1 << 16
MOST_LETTERS = 12
DEFAULT_LETTERS = 8
MOST_RATING_VALUES = 100
MOST_QUESTIONS = 100
MOST_REPORTS = 1 << 40
MOST_TITLE_LETTERS = 200
PROTOCOLS: dict[EstimationTarget, tuple[str, ...]] = {
    "shares": ("choice", "subset", "hadamard", "projective", "unary"),
    "mean": ("duchi", "piecewise", "hybrid"),
    "distribution": ("square_wave", "piecewise"),
    "words": (),
}
WRITE_QUESTION = "[[questions]] with name, text and kind"
# One for all surveys of a folder: a copied survey gives nobody a new life.
DEFAULT_LEDGER = "respondents.ledger"
DEFAULT_LIFETIME = Fraction(8)  # the ε of a device over all surveys, unless the file says another


# Values


def _at_most(letters: int) -> AfterValidator:
    return fits(lambda text: len(text) <= letters, f"must have at most {letters:,} letters")


def _options(options: object) -> list[object]:
    if not isinstance(options, list):
        raise ValueError(f'must be a list such as ["blue", "green"], not {kind_of(options)}')
    return options


_NOT_EMPTY = fits(lambda text: bool(text.strip()), "must not be empty")
_VISIBLE = fits(
    lambda text: text.replace("\n", "").isprintable(), "must not have control characters or tabs"
)
_STRIPPED = AfterValidator(lambda text: text.strip())
# Texts for people may have several lines, but no invisible characters.
Prose = Annotated[str, _NOT_EMPTY, _STRIPPED, _at_most(TEXT_AT_MOST), _VISIBLE]
Title = Annotated[str, _NOT_EMPTY, _STRIPPED, _at_most(MOST_TITLE_LETTERS), _VISIBLE]
QuestionName = Annotated[
    Text,
    fits(
        lambda name: bool(NAME_PATTERN.fullmatch(name)),
        "must have letters a-z, digits and _, begin with no digit, and be at most 63 long",
    ),
]
KIND_NAMES: tuple[str, ...] = get_args(QuestionKind)
NumberTarget = Annotated[Text, one_of(("mean", "distribution"))]


def label_problem(labels: Sequence[object]) -> str | None:
    """Return why these cannot be options, with the first bad one; None if they can."""
    seen: dict[str, int] = {}
    for number, label in enumerate(labels, 1):
        if not isinstance(label, str):
            return f"option {number} must be a text in quotes, not {kind_of(label)}"
        if why := _one_label_problem(label, number, seen):
            return f"option {number}, {quoted(label, at_most=40)}, {why}"
    return None


def _one_label_problem(label: str, number: int, seen: dict[str, int]) -> str | None:
    if not label or label != label.strip() or not label.isprintable() or len(label) > MOST_LABEL_LETTERS:
        most = f"of at most {MOST_LABEL_LETTERS} letters"
        return f"must be printable, on one line, without spaces around it, {most}"
    key = unicodedata.normalize("NFKC", label).casefold()
    if key == NO_ANSWER:
        return "is there already: write no_answer = false to have it not"
    if seen.setdefault(key, number) != number:
        return f"is the same as option {seen[key]}"
    return None


# Questions


class QuestionTable(FileTable):
    """A question of any kind. Each kind has a model of its own, with the keys that it may have."""

    name: QuestionName | None = needed('name = "sleep": one word')
    text: Prose | None = needed('text = "How many hours do you sleep?": what respondents read')
    kind: Annotated[Text, one_of(KIND_NAMES)] | None = needed(f"kind = {quoted_choices(KIND_NAMES)}")
    no_answer: Flag = True
    protocol: Text | None = None
    default_about: ClassVar[EstimationTarget] = "shares"  # where a question of the kind cannot choose

    @abstractmethod
    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the possible answers; None if something is wrong, which is noted."""

    def question(self, path: Path) -> Question | None:
        """Return the question of the survey file `path`; None if something is wrong, which is noted."""
        coding = self.coding(path)
        about = cast(EstimationTarget | None, getattr(self, "about", self.default_about))
        if coding is None or about is None:
            return None
        self._check_protocol(coding, about)
        if self.name is None or self.text is None:
            return None
        return Question(self.name, self.text, cast(QuestionKind, self.kind), coding, about, self.protocol)

    def _check_protocol(self, coding: AnswerCoding, about: EstimationTarget) -> None:
        """Note it if the question cannot have the protocol that the owner forces."""
        if self.protocol is None:
            return
        in_bits = isinstance(coding, Several) and not coding.as_set
        known: tuple[str, ...] = () if in_bits else PROTOCOLS[about]
        if in_bits or about == "shares":
            known = (TWO_COINS, *known)
        if not known:
            self.wrong("protocol", "cannot be chosen for words: remove this line")
            return
        protocol = self.attempt(lambda: checked_choice(str(self.protocol), known, "protocol"))
        if protocol == TWO_COINS and not in_bits and coding.inputs != 2:
            extra = ": write no_answer = false" if coding.inputs == 3 and coding.no_answer else ""
            self.wrong("protocol", f"two coins need exactly two options, here are {coding.inputs:,}{extra}")
        if protocol in ("subset", "unary") and coding.inputs > MOST_MASK_OPTIONS:
            self.wrong(
                "protocol", f"has a bit for each option: at most {MOST_MASK_OPTIONS:,}. Remove this line"
            )


class UnknownQuestion(QuestionTable):
    """A question whose kind is missing or wrong."""

    def coding(self, path: Path) -> None:
        """Return None: its answers are not known."""


class YesNoQuestion(QuestionTable):
    """A question of kind "yes_no", and the base of the others with options."""

    options: Annotated[list[object], PlainValidator(_options)] | None = None

    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the two options; "yes" and "no" if there are none."""
        labels = self.labels(2) if self.has("options") else ("yes", "no")
        return None if labels is None else OneOf(labels, bool(self.no_answer))

    def labels(self, most: int) -> tuple[str, ...] | None:
        """Return the options as labels; None if they are wrong, which is noted."""
        self.require(options='options = ["blue", "green"]')
        return None if self.options is None else self.checked(self.options, most, "options")

    def checked(self, labels: Sequence[object], most: int, name: str) -> tuple[str, ...] | None:
        """Return the labels; None if there are too few or too many, or one is wrong, which is noted."""
        if not 2 <= len(labels) <= most:
            self.wrong(name, f"must be 2 to {most:,} options, not {len(labels):,}")
        elif why := label_problem(labels):
            self.wrong(name, why)
        else:
            return tuple([str(label) for label in labels])
        return None


class ChoiceQuestion(YesNoQuestion):
    """A question of kind "choice"."""

    options_file: Text | None = None

    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the options, from `options` or from the lines of `options_file`."""
        most = MOST_OPTIONS - bool(self.no_answer)
        if not self.has("options_file"):
            labels = self.labels(most)
        elif self.has("options"):
            self.wrong("options_file", "must not stand beside options: write one of them")
            return None
        else:
            named = self.options_file
            lines = None if named is None else self.attempt(lambda: _lines_of(path.parent, str(named)))
            labels = None if lines is None else self.checked(lines, most, "options_file")
        return None if labels is None else OneOf(labels, bool(self.no_answer))


def _lines_of(folder: Path, name: str) -> list[str]:
    def wrong(why: str) -> BadParameter:
        return BadParameter("options_file", why)

    if not os.path.isfile(folder / name):
        raise wrong(f"{quoted(name, at_most=80)} is no file beside the survey")
    try:
        with (folder / name).open("rb") as file:
            raw = file.read(MOST_FILE_BYTES + 1)
        if len(raw) > MOST_FILE_BYTES:
            raise wrong("is larger than 64 MiB")
        return raw.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except OSError as error:
        raise wrong(f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise wrong("is not UTF-8. Save the file as UTF-8, one option on each line") from None


class SeveralQuestion(YesNoQuestion):
    """A question of kind "several"."""

    form: Annotated[Text, one_of(("bits", "set"))] | None = Field(default="bits", alias="as")

    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the options: each one a bit, or all of them a set."""
        labels = self.labels(MOST_SET_OPTIONS if self.form == "set" else MOST_BITS)
        if labels is None or self.form is None:
            return None
        return Several(labels, bool(self.no_answer), as_set=self.form == "set")


class RankingQuestion(YesNoQuestion):
    """A question of kind "ranking"."""

    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the options in any order."""
        labels = self.labels(MOST_RANKED_OPTIONS)
        return None if labels is None else Ranked(labels, bool(self.no_answer))


class RatingQuestion(QuestionTable):
    """A question of kind "rating"."""

    low: int | None = Field(default=1, ge=-1000, le=1000)
    high: int | None = Field(default=5, ge=-1000, le=1000)

    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the numbers from low to high."""
        low, high = self.low, self.high
        if low is None or high is None:
            return None
        if not low < high < low + MOST_RATING_VALUES:
            self.wrong("high", f"must be above low, {low}, and below {low + MOST_RATING_VALUES}")
            return None
        labels = tuple([str(number) for number in range(low, high + 1)])
        assert label_problem(labels) is None
        return OneOf(labels, bool(self.no_answer))


class NumberQuestion(QuestionTable):
    """A question of kind "number"."""

    low: Number | None = needed("low = 0, or what fits: bounds are public")
    high: Number | None = needed("high = 24, or what fits: bounds are public")
    step: Number | None = needed("step = 0.5, or what fits: bounds are public")
    about: NumberTarget | None = "mean"

    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the numbers from low to high, in steps."""
        low, high, step = self.low, self.high, self.step
        if low is None or high is None or step is None:
            return None
        if not low < high:
            self.wrong("high", "must be above low")
        elif step <= 0:
            self.wrong("step", "must be above 0")
        elif any(abs(value) > 10**15 or value.denominator > 10**15 for value in (low, high, step)):
            self.wrong("low", "and high and step must have at most 15 digits on either side of the point")
        elif (high - low) % step:
            self.wrong("step", f"must divide high - low, {decimal_text(high - low)}, without a rest")
        elif (high - low) / step > MOST_STEPS:
            least = Fraction(high - low) / MOST_STEPS
            self.wrong(
                "step", f"is too small: {MOST_STEPS:,} steps at most. Write {float(least):.3g} or more"
            )
        else:
            return NumberScale(low, high, step, bool(self.no_answer))
        return None


class DateQuestion(QuestionTable):
    """A question of kind "date"."""

    low: date | None = needed("low = 2020-01-01, or what fits: bounds are public")
    high: date | None = needed("high = 2026-12-31, or what fits: bounds are public")
    step: int | None = Field(default=1, ge=1, le=36_525)  # days
    about: NumberTarget | None = "distribution"

    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the days from low to high, in steps."""
        low, high, step = self.low, self.high, self.step
        if low is None or high is None or step is None:
            return None
        if not low < high:
            self.wrong("high", "must be after low")
        elif (high - low).days < step:
            self.wrong("step", "must be a number of days that fits between low and high")
        elif (high - low).days // step > MOST_STEPS:
            self.wrong("step", f"is too small: {MOST_STEPS:,} steps at most")
        else:
            return DateScale(low, high, step, bool(self.no_answer))
        return None


class WordQuestion(QuestionTable):
    """A question of kind "word"."""

    letters: int | None = Field(default=DEFAULT_LETTERS, ge=1, le=MOST_LETTERS)
    default_about: ClassVar[EstimationTarget] = "words"

    def coding(self, path: Path) -> AnswerCoding | None:
        """Return the words of at most so many letters."""
        return None if self.letters is None else WordCoding(self.letters, bool(self.no_answer))


QUESTION_TABLES: dict[str, type[QuestionTable]] = {
    "yes_no": YesNoQuestion,
    "choice": ChoiceQuestion,
    "several": SeveralQuestion,
    "rating": RatingQuestion,
    "ranking": RankingQuestion,
    "number": NumberQuestion,
    "date": DateQuestion,
    "word": WordQuestion,
}
QUESTION_KEYS = {key for model in QUESTION_TABLES.values() for key in model.by_key()}


# The survey


class SurveyTable(FileTable):
    """The table [survey]."""

    name: Label | None = needed('name = "wellbeing": how the ledger calls this survey')
    title: Title | None = None
    text: Prose | None = ""
    epsilon: Epsilon | None = needed("epsilon = 2.0: what a respondent loses at most, by all questions")
    ask: Annotated[Text, one_of(get_args(AskMode))] | None = "auto"
    stop_after: int | None = Field(default=None, ge=1, le=MOST_REPORTS)
    until: date | None = None
    honest: int | None = Field(default=None, ge=1, le=MOST_REPORTS)
    shuffled: Flag = False
    lifetime: Epsilon | None = DEFAULT_LIFETIME

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `Questionnaire` that this table gives. What does not fit is noted."""
        if not (self.has("stop_after") or self.has("until")):
            self.missing("stop_after", "stop_after = 5000 or until = 2027-01-31: when the survey ends")
        lifetime, stop_after, honest = self.lifetime, self.stop_after, self.honest
        if self.epsilon is not None and lifetime is not None and self.epsilon > lifetime:
            self.wrong("epsilon", f"must be at most the lifetime of a respondent, ε {float(lifetime):g}")
        if self.shuffled:
            self.require(honest="honest = 1000: so many reports will be honest, you believe")
        if self.shuffled is False and self.has("honest"):
            self.wrong("honest", "is used with shuffled = true alone: add that, or remove this")
        if honest is not None and stop_after is not None and honest > stop_after:
            self.wrong("honest", f"must be at most stop_after, {stop_after:,}")
        return {**dict(self), "title": self.title or self.name}


class StoreTable(FileTable):
    """The table [store]."""

    url: Text | None = None


class SurveyFile(FileTable):
    """A survey file as it is written."""

    survey: SurveyTable = needed("[survey] with name, epsilon and stop_after")
    ledger: LedgerTable = Field(default_factory=LedgerTable.model_construct)
    reports: StoreTable = Field(default_factory=StoreTable.model_construct, alias="store")
    questions: (
        Annotated[
            list[Any],
            fits(bool, f"is missing. Write {WRITE_QUESTION}"),
            fits(lambda all_: len(all_) <= MOST_QUESTIONS, f"must be at most {MOST_QUESTIONS}"),
        ]
        | None
    ) = needed(WRITE_QUESTION)


def load(path: str | Path) -> Questionnaire:
    r"""Read and check the questionnaire of a survey file.

    Args:
        path: The TOML file.

    Returns:
        The questionnaire. `design` and `Survey` take it from there.

    Raises:
        BadFile: The file cannot be read, or something in it is wrong. All mistakes are listed.

    Example:
        >>> from pathlib import Path
        >>> lines = ['[survey]', 'name = "tea"', 'epsilon = 1.0', 'stop_after = 100', '[[questions]]',
        ...          'name = "tea"', 'text = "Tea?"', 'kind = "yes_no"']
        >>> written = Path("tea.toml").write_text("\n".join(lines))
        >>> load("tea.toml").questions[0].labels
        ('yes', 'no', 'no answer')
    """
    path = Path(path)
    values, mistakes = read_toml(
        path, what="survey", example="wellbeing.toml", draft="lapwing survey example"
    )
    file = read_table(SurveyFile, values, mistakes)
    path = path.absolute()
    head = file.survey.fields()
    # The default must not be the survey itself.
    ledger_name = DEFAULT_LEDGER if path.name != DEFAULT_LEDGER else f"{DEFAULT_LEDGER}.ledger"
    ledger = file.ledger.locations(path, default=str(path.with_name(ledger_name)), example=DEFAULT_LEDGER)
    reports = _reports(file.reports, path, ledger["ledger"])
    questions = _questions(file.questions or [], path, mistakes)
    _check_coins(file.survey, questions)
    mistakes.complain()
    return Questionnaire(path=path, questions=questions, reports=reports, **ledger, **head)


def _reports(table: StoreTable, path: Path, ledger: str) -> str:
    stem = path.stem if path.suffix != ".reports" else path.name  # so that it is not the survey itself
    usual = str(path.with_name(f"{stem}.reports"))
    reports = read_location(table, "url", path, example="wellbeing.reports") or usual
    if table.has("url") and reports == ledger and not reports.startswith(POSTGRES_SCHEMES):
        table.wrong("url", "must be another file than the ledger")
    return reports


def _questions(questions: list[Any], path: Path, mistakes: FileMistakes) -> tuple[Question, ...]:
    made = []
    seen: dict[str, str] = {}
    for number, values in enumerate(questions, 1):
        key = ("questions", str(number))
        if not isinstance(values, dict):
            mistakes.add(key, f"must be a table, not {kind_of(values)}")
            continue
        name = values.get("name")
        table = _question_table(values, mistakes, key)
        if isinstance(name, str) and seen.setdefault(name.lower(), dotted(key)) != dotted(key):
            table.wrong("name", f"must differ from that of {seen[name.lower()]}; capitals do not count")
        made.append(table.question(path))
    return tuple([question for question in made if question is not None])


def _question_table(values: dict[str, Any], mistakes: FileMistakes, key: tuple[str, ...]) -> QuestionTable:
    kind = values.get("kind")
    model = QUESTION_TABLES.get(kind) if isinstance(kind, str) else None
    own = UnknownQuestion.by_key() if model is None else model.by_key()
    for name in [name for name in values if name not in own]:
        del values[name]
        if name not in QUESTION_KEYS:
            known = QUESTION_KEYS if model is None else own
            mistakes.add((*key, name), f"unknown key. {did_you_mean(name, list(known))}")
        elif model is not None:
            only = ", ".join(allowed for allowed in own if allowed not in UnknownQuestion.by_key())
            mistakes.add((*key, name), f'is not for a question of kind "{kind}". It has {only}')
    return read_table(model or UnknownQuestion, values, mistakes, key)


def _check_coins(table: SurveyTable, questions: tuple[Question, ...]) -> None:
    """Note it if the two coins, which cost ln 3 each, do not fit the survey's ε."""
    coins = [two_coins_count(question) for question in questions]
    epsilon, ask = table.epsilon, table.ask
    if epsilon is None or not any(coins):
        return
    most = sum(coins) if ask == "all" else max(coins)
    free = any(not count for count in coins) and ask == "all"  # others need a share too
    if most * LN_3 > epsilon or (free and most * LN_3 >= epsilon):
        need = Fraction(ceil(most * LN_3 * 1000) + free, 1000)
        table.wrong(
            "epsilon",
            f"the two coins cost {two_coins_cost_text(most)}. Write epsilon = {float(need):g} or more",
        )
