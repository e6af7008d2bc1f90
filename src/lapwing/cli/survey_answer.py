"""`lapwing survey answer`: the respondent's side without a browser.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from lapwing.cli.console import new_file, os_errors_told, require_file
from lapwing.errors import BadParameter, BadValue

if TYPE_CHECKING:
    from lapwing.survey.credentials import PublicKey
    from lapwing.survey.offered import OfferedQuestion, OfferedSurvey
    from lapwing.survey.respondent import Respondent

LISTS = ("several", "ranking")
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn")
_LISTED = 40


def answer(
    survey: Annotated[
        str,
        Argument(
            metavar="SURVEY", help="The link of your invitation, a survey file, or a saved survey.json."
        ),
    ],
    *,
    answers: Annotated[
        list[str] | None,
        Option("--answer", help='NAME=VALUE, for each question; "no answer" is a value, too.'),
    ] = None,
    send: Annotated[str | None, Option(help="The link of your invitation, if SURVEY is a file.")] = None,
    out: Annotated[
        Path | None, Option(help="Instead of sending, write the report into this new file.")
    ] = None,
    folder: Annotated[
        Path | None, Option(envvar="LAPWING_DEVICE", help="Where this device keeps its memo and account.")
    ] = None,
    wait: Annotated[
        float, Option(help="Send at a random moment within so many seconds.", min=0, max=86400)
    ] = 20.0,
    yes: Annotated[bool, Option("--yes", help="Throw the coins without asking again.")] = False,
) -> None:
    """Answer a survey on this device: it shows the odds, throws the coins, then sends the report.

    The invitation is used before the first question is asked: what comes long after tells less about you.

    The device remembers what it sent and what that cost. It never sends more than its lifetime allows, and
    to one survey always the same report.
    """
    from lapwing.survey.offered import fingerprint, read_offered
    from lapwing.survey.respondent import Respondent

    link = survey if _is_link(survey) else send
    if (link is None) == (out is None):
        raise BadParameter("out", "give either the link of your invitation or --out FILE, and not both")
    if out is not None and out.exists():
        raise BadParameter("out", f"{out} exists: nothing is written over. Give another name")
    url, invitation = _address(link) if link is not None else ("", "")
    with _seen():
        public, key = _public(survey, url)
        offered = read_offered(public)
        device = Respondent(folder or Path(typer.get_app_dir("lapwing")) / "device")
        shown = None if key is None else fingerprint(offered.digest, key)
        if device.answered(public) is None:
            asked = [offered.questions[place] for place in device.asked(public)]
            _show(device, offered, asked, shown)
            values = _written(offered, asked, answers or [])
            if out is None:
                device.authorize(url, invitation, shown=shown)
                print("\nYour invitation is used now, and works on this device alone. The owner sees that.")
            for question in asked:
                if question.name not in values:
                    values[question.name] = _asked_for(question)
            if not yes and not answers and not typer.confirm("\nThrow the coins and send?"):
                print("Nothing was thrown and no report was sent. You may come back.")
                return
            report = device.answer(public, values)
            if out is None and wait:
                print(f"The report leaves at a random moment within {wait:g} seconds.", flush=True)
        else:
            print("This device has answered this survey. Its report is used again as it is.")
            report = device.answer(public, {})
        if out is not None:
            _write(out, offered, report, device.mark(public))
            print(f"The report is in {out}. It says nothing about you that the odds do not allow.")
        else:
            device.send(url, invitation, shown=shown, wait=wait)
            _tell(offered, report, mine=device.is_of(public, invitation))
    print(f"Left of this device's account: ε {_rounded(device.left)} of {_rounded(device.lifetime)}.")


def _clean(text: str) -> str:
    """Replace characters of a survey's text that would steer a terminal or hide something."""
    return "".join(
        letter
        if letter == "\n" or unicodedata.category(letter) not in UNSEEN
        else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


@contextmanager
def _seen() -> Iterator[None]:
    """Clean error messages, too: they may quote a survey's options."""
    try:
        yield
    except BadValue as error:
        raise BadValue(_clean(str(error))) from None


def _is_link(text: str) -> bool:
    return text.startswith(("https://", "http://"))


def _address(link: str) -> tuple[str, str]:
    url, _, invitation = link.partition("#")
    if not _is_link(url) or not invitation:
        raise BadParameter("send", "must be the whole link of your invitation, https://…#…")
    return url, invitation


def _public(survey: str, url: str) -> tuple[dict[str, Any], PublicKey | None]:
    """Return the survey's public description, from a file or a server, and the server's key, if any."""
    key: PublicKey | None = None
    served: dict[str, Any] | None = None
    if url:
        from lapwing.survey.survey_client import SurveyClient

        served, key = SurveyClient(url).survey()
    if _is_link(survey):
        assert served is not None
        return served, key
    read = _from_file(Path(survey))
    if served is not None and served != read:
        raise BadParameter("send", "leads to another survey than this file, or to an earlier form of it")
    return read, key


def _from_file(path: Path) -> dict[str, Any]:
    if path.suffix == ".toml":
        from lapwing.survey.designing import design
        from lapwing.survey.survey_file import load

        return design(load(path)).public()
    from lapwing.survey.designing import LARGEST_SURVEY
    from lapwing.survey.offered import parse_exact_json

    with os_errors_told():
        require_file(path, "survey")
        with path.open("rb") as file:
            raw = file.read(LARGEST_SURVEY + 1)
    try:
        value = parse_exact_json(raw)
    except BadValue as error:
        raise BadParameter("survey", f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise BadParameter("survey", f"{path} must be a survey file (.toml) or a saved survey.json")
    inner = value.get("survey", value)
    return inner if isinstance(inner, dict) else value


def _rounded(epsilon: Fraction) -> str:
    return f"{float(epsilon):.4g}"


def _show(
    device: Respondent, offered: OfferedSurvey, asked: Sequence[OfferedQuestion], shown: str | None
) -> None:
    """Show everything that a respondent should know before a coin is thrown.

    `shown` is the fingerprint, or None if it is not known.
    """
    from lapwing.survey.message_words import odds_in_words, promise_in_words
    from lapwing.survey.offered import grouped_digits

    print(_clean(f"{offered.title}\n\n{offered.text}"))
    print("\nThis device throws coins, and what it sends may differ from your answer.")
    print(promise_in_words(offered))
    if not offered.asks_all:
        print(f"\nBy coin, you are asked one of the {len(offered.questions)} questions of this survey.")
    for question in asked:
        print(_clean(f"\n{question.name}: {question.text}"))
        print(_clean(f"  Answer: {_how(question)}"))
        print("  What can be sent, and how likely it is:")
        for sentence in odds_in_words(question):
            print(_clean(f"  - {sentence}"))
    price = Fraction(offered.price, 10**9)
    if shown is None:
        print(f"\nThe digest of this survey: {grouped_digits(offered.digest[:32])}")
    else:
        print(f"\nThe fingerprint of this survey and its key: {shown}")
    print("Compare this with others who were invited: it must be the same.")
    print(f"\nIt costs ε {_rounded(price)}. This device has ε {_rounded(device.left)} left, for life.")


def _separator(question: OfferedQuestion) -> str:
    return ";" if any("," in label for label in question.coding.labels) else ","


def _how(question: OfferedQuestion) -> str:
    """Return how an answer may be written."""
    from lapwing.survey.questionnaire import DateScale, NumberScale, WordCoding

    coding = question.coding
    none = ', or "no answer"' if coding.no_answer else ""
    match coding:
        case NumberScale():
            return f"a number from {coding.text_of(0)} to {coding.text_of(coding.steps)}{none}"
        case DateScale():
            return f"a day such as {coding.low}, at most {coding.high}{none}"
        case WordCoding():
            return f"a word of at most {coding.letters} letters{none}"
    labels = coding.labels
    listed = " | ".join(labels) if len(labels) <= _LISTED else f"one of {len(labels):,} options"
    if question.kind == "several":
        return f"any of {listed}; write {_separator(question)} between them, nothing for none of them"
    if question.kind == "ranking":
        return f"all of {listed} in your order; write {_separator(question)} between them"
    return listed


def _given(question: OfferedQuestion, text: str) -> object:
    """Return an answer as the question takes it, from the text that a person wrote."""
    if text.strip() == "no answer":
        return None
    if question.kind not in LISTS:
        return text.strip()
    return [part.strip() for part in text.split(_separator(question)) if part.strip()]


def _written(
    offered: OfferedSurvey, asked: Sequence[OfferedQuestion], written: list[str]
) -> dict[str, object]:
    """Check the answers that are written in the command; all of them, if nobody can be asked."""
    named: dict[str, str] = {}
    for each in written:
        name, equals, value = each.partition("=")
        if not equals or name.strip() not in {question.name for question in offered.questions}:
            raise BadParameter("answer", "must be NAME=VALUE, with the name of a question")
        named[name.strip()] = value
    values: dict[str, object] = {}
    for question in asked:
        if question.name in named:
            values[question.name] = _given(question, named[question.name])
            try:
                question.coding.code(values[question.name])
            except BadValue as error:
                raise BadValue(f"{question.name}: {error}") from None
        elif not sys.stdin.isatty():
            raise BadParameter(
                "answer", f"{question.name} is not answered: write --answer {question.name}=…"
            )
    return values


def _asked_for(question: OfferedQuestion) -> object:
    """Ask until there is a possible answer."""
    while True:
        value = _given(question, input(f"\n{question.name}: "))
        try:
            question.coding.code(value)
        except BadValue as error:
            print(_clean(f"  {error}"))
        else:
            return value


def _write(path: Path, offered: OfferedSurvey, report: bytes, mark: bytes) -> None:
    """Write a file of one report, as `lapwing survey collect` takes it."""
    from lapwing.survey.report_file import report_file_header

    with new_file(path, option="out", mode=0o600) as file:
        file.write(report_file_header(offered.digest, mark) + report)


def _tell(offered: OfferedSurvey, report: bytes, *, mine: bool) -> None:
    """Say in words what was sent. Only after it was sent: the coin must not decide who takes part."""
    from lapwing.survey.message_words import sent_in_words

    if not mine:
        print("It was sent for another invitation, so what it says is not shown: one device, one person.")
        return
    print("Sent. This is what the coins made of it:")
    for question, message in offered.parts(report):
        print(_clean(f"  {question.name}: {sent_in_words(question, message)}"))
