"""A survey file: what it says becomes a survey, and every mistake in it is told with its line."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapwing.config.toml_text import KeyScan
from lapwing.errors import BadFile, BadParameter
from lapwing.survey.questionnaire import (
    DateScale,
    NumberScale,
    OneOf,
    Question,
    Questionnaire,
    Ranked,
    Several,
    WordCoding,
)
from lapwing.survey.survey_file import (
    QUESTION_KEYS,
    QUESTION_TABLES,
    SurveyFile,
    SurveyTable,
    load,
)
from support.cases import each

HEAD = """\
[survey]
name = "canteen"
epsilon = 2.0
stop_after = 5000
"""
QUESTION_TEXT = """\
[[questions]]
name = "meal"
text = "Did you eat?"
kind = "yes_no"
"""
GOOD = HEAD + QUESTION_TEXT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "words.txt").write_text("tea\ncoffee\nwater\n", encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"\xff\n")
    (tmp_path / "same.txt").write_text("tea\nTea\n", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded(text: str) -> Questionnaire:
    Path("canteen.toml").write_text(text, encoding="utf-8")
    return load("canteen.toml")


def mistakes(text: str) -> list[str]:
    with pytest.raises(BadFile) as caught:
        loaded(text)
    return [found.removeprefix("canteen.toml:") for found in caught.value.mistakes]


def question(kind: str, keys: str = "", name: str = "q") -> str:
    return f'[[questions]]\nname = "{name}"\ntext = "What?"\nkind = "{kind}"\n{keys}'


def asked(kind: str, keys: str = "") -> Question:
    return loaded(HEAD + question(kind, keys)).questions[0]


def test_the_least_that_a_survey_says(folder: Path) -> None:
    survey = loaded(GOOD)
    assert (survey.name, survey.title, survey.text) == ("canteen", "canteen", "")
    assert (survey.epsilon, survey.lifetime) == (Fraction(2), Fraction(8))
    assert survey.ask == "auto"
    assert (survey.stop_after, survey.until, survey.honest, survey.shuffled) == (5000, None, None, False)
    assert survey.ledger == str(folder / "respondents.ledger")
    assert survey.reports == str(folder / "canteen.reports")
    assert (survey.ledger_keys, survey.ledger_anchor) == ("", "")
    assert survey.stops == "after 5,000 reports"
    (only,) = survey.questions
    assert only == Question("meal", "Did you eat?", "yes_no", OneOf(("yes", "no"), True), "shares")
    assert only.labels == ("yes", "no", "no answer")
    assert (only.inputs, only.no_answer, only.code("no"), only.coding.text_of(2)) == (
        3,
        True,
        1,
        "no answer",
    )


def test_everything_that_can_be_said(folder: Path) -> None:
    survey = loaded(
        '[survey]\nname = "canteen"\ntitle = "The canteen"\ntext = """\nTwo\nlines.\n"""\nepsilon = 0.1\n'
        'ask = "one"\nstop_after = 10\nuntil = 2027-01-31\nhonest = 9\nshuffled = true\nlifetime = 0.5\n'
        '[ledger]\nurl = "postgresql://db/x#c"\nkeys = "k"\nanchor = "https://example.org/a"\n'
        '[store]\nurl = "books/r.db"\n' + QUESTION_TEXT
    )
    assert (survey.title, survey.text) == ("The canteen", "Two\nlines.")
    assert (survey.epsilon, survey.lifetime) == (Fraction(1, 10), Fraction(1, 2))
    assert (survey.ask, survey.until, survey.honest, survey.shuffled) == ("one", date(2027, 1, 31), 9, True)
    assert survey.stops == "after 10 reports or at the end of 2027-01-31 (UTC), whichever comes first"
    assert survey.ledger == "postgresql://db/x#c"
    assert survey.ledger_keys == str(folder / "k")
    assert survey.ledger_anchor == "https://example.org/a"
    assert survey.reports == str(folder / "books" / "r.db")


def test_every_kind_has_its_answers() -> None:
    assert asked("yes_no", 'options = ["A", "B"]\nno_answer = false').coding == OneOf(("A", "B"), False)
    assert asked("choice", 'options_file = "words.txt"').coding == OneOf(("tea", "coffee", "water"), True)
    assert asked("rating").labels == ("1", "2", "3", "4", "5", "no answer")
    assert asked("rating", "low = 0\nhigh = 10\nno_answer = false").inputs == 11
    assert asked("several", 'options = ["a", "b"]').coding == Several(("a", "b"), True, as_set=False)
    assert asked("several", 'options = ["a", "b"]\nas = "set"').inputs == 5
    assert asked("ranking", 'options = ["a", "b", "c"]').coding == Ranked(("a", "b", "c"), True)
    number = asked("number", "low = -1\nhigh = 2.5\nstep = 0.5\nno_answer = false")
    assert number.coding == NumberScale(Fraction(-1), Fraction(5, 2), Fraction(1, 2), False)
    assert (number.about, number.inputs, number.labels) == ("mean", 8, ())
    assert asked("number", 'low = 0\nhigh = 1\nstep = 0.1\nabout = "distribution"').about == "distribution"
    day = asked("date", "low = 2026-01-01\nhigh = 2026-01-31\nstep = 7")
    assert (day.coding, day.about) == (
        DateScale(date(2026, 1, 1), date(2026, 1, 31), 7, True),
        "distribution",
    )
    assert asked("date", "low = 2026-01-01\nhigh = 2026-01-02").inputs == 3
    assert asked("word", "letters = 12").coding == WordCoding(12, True)
    assert (asked("word").inputs, asked("word").about) == (2**40, "words")


def test_a_question_is_found_by_its_name() -> None:
    survey = loaded(GOOD + question("rating", name="taste"))
    assert survey.question("taste").kind == "rating"
    with pytest.raises(BadParameter, match='Did you mean "taste"'):
        survey.question("tastes")


def test_the_bundled_survey_has_every_kind() -> None:
    path = Path(str(files("lapwing.examples").joinpath("data", "wellbeing.toml")))
    survey = load(path)
    assert {found.kind for found in survey.questions} == set(QUESTION_TABLES)
    assert len(survey.questions) == 8


def test_a_mistake_in_the_third_question_has_that_questions_own_line() -> None:
    text = (
        GOOD
        + question("rating", name="a")
        + question("yes_no", "colour = 1\n", name="b")
        + question("word")
    )
    assert mistakes(text) == [
        "17: questions.3.colour: unknown key. Known here: kind, name, no_answer, options, protocol, text"
    ]
    assert mistakes(text.replace("colour = 1\n", "").replace('name = "b"\n', "")) == [
        '13: questions.3.name: is missing. Write name = "sleep": one word'
    ]


def test_all_mistakes_are_told_together_in_the_order_of_the_file() -> None:
    found = mistakes(
        '[survey]\nname = ""\nepsilon = "2"\n[[questions]]\nname = "a b"\nkind = "chioce"\n'
        '[[questions]]\nname = "x"\ntext = "X?"\nkind = "number"\nlow = 5\nhigh = 1\nstep = 1\n'
    )
    expected = [
        "1: survey.stop_after: is missing. Write stop_after = 5000 or until = 2027-01-31",
        "2: survey.name: must not be empty",
        "3: survey.epsilon: must be a number, not a text. Remove the quotes",
        '4: questions.1.text: is missing. Write text = "How many hours do you sleep?"',
        "5: questions.1.name: must have letters a-z, digits and _, begin with no digit",
        '6: questions.1.kind: must be "yes_no", "choice", "several", "rating", "ranking"',
        "12: questions.2.high: must be above low",
    ]
    assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected
    assert found[5].endswith('Did you mean "choice"?')


@each(
    ("text", "expected"),
    [
        ("", "1: survey: is missing"),
        ("", "1: questions: is missing. Write [[questions]] with name, text and kind"),
        (HEAD + "questions = 3\n", "5: survey.questions: unknown key"),
        ("questions = 3\n" + HEAD, "1: questions: must be a list of tables, not a whole number"),
        ("questions = []\n" + HEAD, "1: questions: is missing"),
        ("questions = [\n{}, 5]\n" + HEAD, "1: questions.2: must be a table, not a whole number"),
        (
            "questions = [\n5,\n {kid = 1}]\n" + HEAD,
            '3: questions.2.kid: unknown key. Did you mean "kind"?',
        ),
        ("survey = 1\n" + QUESTION_TEXT, "1: survey: must be a table"),
        ("servey = 1\n" + GOOD, '1: servey: unknown key. Did you mean "survey"?'),
        (HEAD + "[questions.meal]\n", "5: questions: must be a list of tables, not a table"),
        (GOOD.replace('name = "canteen"\n', ""), "1: survey.name: is missing"),
        (GOOD.replace("epsilon = 2.0\n", ""), "1: survey.epsilon: is missing"),
        (GOOD.replace("2.0", "0"), "3: survey.epsilon: must be above 0"),
        (GOOD.replace("2.0", "nan"), "3: survey.epsilon: is not a finite number"),
        (
            GOOD.replace("2.0", "8.5"),
            "3: survey.epsilon: must be at most the lifetime of a respondent, ε 8",
        ),
        (GOOD.replace("2.0", "2.0\nlifetime = 1"), "3: survey.epsilon: must be at most the lifetime"),
        (GOOD.replace("2.0", "2.0\nlifetime = -1"), "4: survey.lifetime: must be above 0"),
        (
            GOOD.replace("2.0", '2.0\nask = "al"'),
            '4: survey.ask: must be "auto", "all" or "one". Did you mean',
        ),
        (GOOD.replace("5000", "0"), "4: survey.stop_after: must lie between 1 and"),
        (
            GOOD.replace("stop_after = 5000", 'until = "2027"'),
            "4: survey.until: must be a date without quotes",
        ),
        (GOOD.replace("5000", "9\nuntil = 2027-01-01T00:00:00"), "5: survey.until: must be a date without"),
        (GOOD.replace("5000", "9\nshuffled = true"), "1: survey.honest: is missing"),
        (GOOD.replace("5000", "9\nhonest = 5"), "5: survey.honest: is used with shuffled = true alone"),
        (
            GOOD.replace("5000", "9\nshuffled = true\nhonest = 10"),
            "6: survey.honest: must be at most stop_after, 9",
        ),
        (GOOD.replace("5000", "9\nshuffled = 1"), "5: survey.shuffled: must be true or false"),
        (GOOD.replace("5000", "9\ntitle = 5"), "5: survey.title: must be a text in quotes"),
        (GOOD.replace("5000", '9\ntitle = ""'), "5: survey.title: must not be empty"),
        (
            GOOD.replace("5000", '9\ntitle = "a\\u0007"'),
            "5: survey.title: must not have control characters",
        ),
        (
            GOOD.replace("5000", '9\ntext = "a\\tb"'),
            "5: survey.text: must not have control characters or tabs",
        ),
        (
            GOOD.replace("5000", f'9\ntitle = "{"x" * 201}"'),
            "5: survey.title: must have at most 200 letters",
        ),
        (
            GOOD + "[ledger]\nurl = 'canteen.toml'\n",
            '10: ledger.url: must be a file of its own, such as "resp',
        ),
        (GOOD + "[ledger]\nkeys = 'postgresql://x'\n", "10: ledger.keys: must be the path of a file"),
        (
            GOOD + "[ledger]\nurl = 'mysql://x'\n",
            "10: ledger.url: must be a path, or begin with postgresql://",
        ),
        (GOOD + "[store]\nurl = 'folder'\n", "10: store.url: must be a file of its own"),
        (
            GOOD + "[store]\nurl = 'respondents.ledger'\n",
            "10: store.url: must be another file than the ledger",
        ),
        (
            GOOD + question("rating", name="Meal"),
            "10: questions.2.name: must differ from that of questions.1",
        ),
        (GOOD + question("rating", name="1a"), "10: questions.2.name: must have letters a-z"),
        (GOOD.replace('"Did you eat?"', '""'), "7: questions.1.text: must not be empty"),
        (GOOD.replace('"Did you eat?"', '"\\u202e?"'), "7: questions.1.text: must not have control"),
        (GOOD + QUESTION_TEXT * 100, "5: questions: must be at most 100"),
    ],
)
def test_mistakes_about_the_survey(text: str, expected: str) -> None:
    assert any(found.startswith(expected) for found in mistakes(text)), mistakes(text)


@each(
    ("kind", "keys", "expected"),
    [
        ("yes_no", "no_answer = 1", "9: no_answer: must be true or false"),
        ("yes_no", "step = 1", '9: step: is not for a question of kind "yes_no". It has options'),
        ("yes_no", 'options = ["a"]', "9: options: must be 2 to 2 options, not 1"),
        ("choice", "", '5: options: is missing. Write options = ["blue", "green"]'),
        ("choice", 'options = "a"', '9: options: must be a list such as ["blue", "green"]'),
        ("choice", "options = [1, 2]", "9: options: option 1 must be a text in quotes, not a whole"),
        ("choice", 'options = ["a", "A"]', '9: options: option 2, "A", is the same as option 1'),
        ("choice", 'options = ["a", " b"]', '9: options: option 2, " b", must be printable'),
        ("choice", 'options = ["a", ""]', '9: options: option 2, "", must be printable'),
        ("choice", 'options = ["a", "\\u001b"]', '9: options: option 2, "\\u001b", must be'),
        ("choice", f'options = ["a", "{"b" * 201}"]', "9: options: option 2, "),
        ("choice", 'options = ["a", "No answer"]', '9: options: option 2, "No answer", is there al'),
        ("choice", 'options_file = "gone"', '9: options_file: "gone" is no file beside the survey'),
        ("choice", 'options_file = "folder"', '9: options_file: "folder" is no file'),
        ("choice", 'options_file = "bad.txt"', "9: options_file: is not UTF-8"),
        ("choice", 'options_file = "same.txt"', '9: options_file: option 2, "Tea", is the same'),
        ("choice", 'options_file = "words.txt"\noptions = ["a", "b"]', "9: options_file: must not"),
        ("several", f"options = {[str(n) for n in range(61)]}", "9: options: must be 2 to 60"),
        ("several", f'as = "set"\noptions = {[str(n) for n in range(13)]}', "10: options: must be 2 to 12"),
        ("several", 'options = ["a", "b"]\nas = "sets"', '10: as: must be "bits" or "set"'),
        ("several", 'options = ["a", "b"]\nprotocol = "subset"', '10: protocol: must be "two_coins"'),
        ("ranking", f"options = {list('abcdefg')}", "9: options: must be 2 to 6 options, not 7"),
        ("rating", "low = 5", "5: high: must be above low, 5"),
        ("rating", "high = 101", "9: high: must be above low, 1, and below 101"),
        ("rating", "high = 4.5", "9: high: must be a whole number"),
        ("number", "low = 0\nhigh = 1", "5: step: is missing. Write step = 0.5"),
        ("number", 'low = 0\nhigh = "1"\nstep = 1', "10: high: must be a number, not a text"),
        ("number", "low = 0\nhigh = 1\nstep = 0", "11: step: must be above 0"),
        ("number", "low = 0\nhigh = 1\nstep = 0.3", "11: step: must divide high - low, 1, without"),
        ("number", "low = 0\nhigh = 65537\nstep = 1", "11: step: is too small: 65,536 steps at most"),
        ("number", "low = 0\nhigh = 1e300\nstep = 1e299", "9: low: and high and step must have at"),
        ("number", "low = 0\nhigh = inf\nstep = 1", "10: high: is not a finite number"),
        ("number", 'low = 0\nhigh = 1\nstep = 1\nabout = "median"', '12: about: must be "mean" or'),
        ("date", "low = 2026-01-01", "5: high: is missing. Write high = 2026-12-31"),
        ("date", 'low = 2026-01-01\nhigh = "2027"', "10: high: must be a date without quotes"),
        ("date", "low = 2026-01-01\nhigh = 2025-01-01", "10: high: must be after low"),
        ("date", "low = 2026-01-01\nhigh = 2026-01-03\nstep = 5", "11: step: must be a number of days"),
        ("date", "low = 1700-01-01\nhigh = 2026-01-03", "5: step: is too small: 65,536 steps"),
        ("word", "letters = 13", "9: letters: must lie between 1 and 12"),
        ("word", 'protocol = "subset"', "9: protocol: cannot be chosen for words"),
        ("yes_no", 'protocol = "coins"', '9: protocol: must be "two_coins", "choice", "subset", "had'),
        (
            "yes_no",
            'protocol = "two_coins"',
            "9: protocol: two coins need exactly two options, here are 3: write no_answer = false",
        ),
        ("rating", 'protocol = "two_coins"', "9: protocol: two coins need exactly two options, here"),
        ("number", 'low = 0\nhigh = 1\nstep = 1\nprotocol = "square_wave"', '12: protocol: must be "du'),
    ],
)
def test_mistakes_in_a_question(kind: str, keys: str, expected: str) -> None:
    found = mistakes(HEAD + question(kind, keys))
    assert len(found) == 1
    assert found[0].replace("questions.1.", "").startswith(expected), found


@pytest.mark.slow
def test_a_vocabulary_may_have_a_million_words_but_then_no_report_has_a_bit_for_each() -> None:
    Path("words.txt").write_text("\n".join(str(n) for n in range((1 << 20) - 1)), encoding="utf-8")
    assert asked("choice", 'options_file = "words.txt"').inputs == 1 << 20
    forced = question("choice", 'options_file = "words.txt"\nprotocol = "subset"')
    assert mistakes(HEAD + forced) == [
        "10: questions.1.protocol: has a bit for each option: at most 65,536. Remove this line"
    ]
    Path("words.txt").write_text("\n".join(str(n) for n in range(1 << 20)), encoding="utf-8")
    (found,) = mistakes(HEAD + question("choice", 'options_file = "words.txt"'))
    assert found == "9: questions.1.options_file: must be 2 to 1,048,575 options, not 1,048,576"


COINS = 'no_answer = false\nprotocol = "two_coins"\n'


def test_coins_cost_ln_3_each_and_must_fit() -> None:
    one = question("yes_no", COINS, "a")
    two = one + question("yes_no", COINS, "b")
    assert mistakes(HEAD.replace("2.0", "1.0986") + one) == [
        "3: survey.epsilon: the two coins cost ln 3 = 1.0986. Write epsilon = 1.099 or more"
    ]
    assert loaded(HEAD.replace("2.0", "1.099") + one).questions[0].protocol == "two_coins"
    ask_all = HEAD.replace("5000", '5000\nask = "all"')
    assert mistakes(ask_all + two) == [
        "3: survey.epsilon: the two coins cost 2 ln 3 = 2.1972. Write epsilon = 2.198 or more"
    ]
    assert loaded(HEAD + two).ask == "auto", "one at random costs ln 3 alone"
    bits = question("several", f'options = ["x", "y"]\n{COINS}')
    assert "2 ln 3 = 2.1972" in mistakes(HEAD + bits)[0]
    beside = one + question("rating", name="b")
    assert mistakes(ask_all.replace("2.0", "1.09") + beside) == [
        "3: survey.epsilon: the two coins cost ln 3 = 1.0986. Write epsilon = 1.1 or more"
    ]


def test_what_is_no_file_is_told_with_the_command_that_makes_one() -> None:
    with pytest.raises(
        BadFile, match=r"gone.toml: there is no such file. `lapwing survey example` drafts one"
    ):
        load("gone.toml")


def test_items_of_lists_of_tables_have_lines_of_their_own() -> None:
    text = (
        "a = 1\n[[q]]\nn = 1\nx.y = 2\n[[q]]\nn = [ {a = 1},\n  [{b = 2}], {c = 3}]\n[q.sub]\nz = 1\n"
        "[[q.in]]\n[[q.in]]\nk = 1\n[[q]]\n[[q.in]]\n"
    )
    assert KeyScan().run(text).items == {
        ("q", "1"): 2, ("q", "1", "n"): 3, ("q", "1", "x", "y"): 4, ("q", "2"): 5, ("q", "2", "n"): 6,
        ("q", "2", "n", "1"): 6, ("q", "2", "n", "1", "a"): 6, ("q", "2", "n", "2", "1"): 7,
        ("q", "2", "n", "2", "1", "b"): 7, ("q", "2", "n", "3"): 7, ("q", "2", "n", "3", "c"): 7,
        ("q", "2", "sub"): 8, ("q", "2", "sub", "z"): 9, ("q", "2", "in", "1"): 10,
        ("q", "2", "in", "2"): 11, ("q", "2", "in", "2", "k"): 12, ("q", "3"): 13,
        ("q", "3", "in", "1"): 14,
    }  # fmt: skip


LEAVES = st.one_of(
    st.booleans().map(lambda value: str(value).lower()),
    st.integers(-(1 << 62), 1 << 62).map(str),
    st.floats().map(str),
    st.sampled_from(
        [*QUESTION_TABLES, *SurveyTable.by_key(), "bits", "set", "one", "words.txt", "two_coins", "1e-400"]
    ).map(repr),
    st.sampled_from(["2026-01-01", "07:00:00", "[]", "{}", "['a', 'b']", "[1, {x = 1}]", "9999-12-31"]),
)
LINES = st.one_of(
    st.tuples(st.sampled_from([*SurveyTable.by_key(), *sorted(QUESTION_KEYS), "odd"]), LEAVES).map(
        " = ".join
    ),
    st.sampled_from(
        [*(f"[{name}]" for name in SurveyFile.by_key()), "[[questions]]", "[[survey]]", "[questions.x]"]
    ),
    st.sampled_from([f"kind = {kind!r}" for kind in QUESTION_TABLES]),
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINES, max_size=12), st.booleans())
def test_whatever_a_file_says_only_its_mistakes_are_raised(lines: list[str], beginning: bool) -> None:
    Path("canteen.toml").write_text("\n".join([GOOD * beginning, *lines]), encoding="utf-8")
    found: tuple[str, ...] = ()
    try:
        load("canteen.toml")
    except BadFile as error:
        found = error.mistakes
    assert all(line.startswith("canteen.toml:") and line.isprintable() for line in found)
