"""Every idea that `lapwing show` must cover has a topic: a command, numbers, a picture, an argument."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.show.chapters import chapters, topics
from lapwing.show.given_values import given_values
from lapwing.show.topic import Chapter, Shown, Topic
from support.shell import Shell
from support.shown import SMALL, shown, small
from support.slowly import slow

ROOT = Path(__file__).parents[3]
IDEAS = {
    "One answer": {
        "the Laplace law and its scale": "laplace",
        "two shifted curves whose ratio never passes e^ε": "ratio",
        "pointwise ratios suffice": "pointwise",
        "e^ε is about 1 + ε": "small-epsilon",
        "the mean absolute noise is the scale": "mean-noise",
        "sensitivity: count, complaints, mean, deviation; insensitive and sensitive": "sensitivity",
    },
    "Rare failures": {
        "δ as the area above e^ε": "delta-area",
        "the event that tells two data sets apart": "telling-event",
        "Gaussian √k against Laplace k for k answers": "many-numbers",
    },
    "Choosing": {
        "the exponential mechanism on a real choice": "exponential",
        "noise that ruins a network's weights, and a private choice that does not": "network-choice",
    },
    "Many answers": {
        "ε adds up": "adding-up",
        "adaptive composition and ε(δ) as questions are asked": "adaptive",
        "what each person has lost": "per-person",
        "trials that together expose somebody": "trials",
        "a budget that resets every day against one for life": "daily-reset",
    },
    "People": {
        "smoking and Mary: what a study reveals of those who stayed out": "smoking",
        "from prior to posterior odds": "odds",
        "plausible deniability": "deniability",
    },
    "Nobody is trusted": {
        "two coins and their estimator": "two-coins",
        "m·ln 3": "many-questions",
        "curator 1/n against local 1/√n, with the lower bound": "curator-and-local",
    },
    "Several parties": {
        "the exact view of any coalition, under both inputs": "coalition-view",
        "t <= m - 1": "coalition-size",
        "error against m": "parties-error",
    },
    "Learning": {
        "bad models accepted without correction": "bad-models",
        "data needed against ε": "data-needed",
        "hours to release under load": "release-time",
    },
    "Society": {
        "privacy against accuracy, with where others stood": "choice",
    },
}  # fmt: skip
EVERY = [topic for ideas in IDEAS.values() for topic in ideas.values()]
SENTENCES = range(3, 8)


@pytest.mark.parametrize("title", IDEAS)
def test_a_chapter_has_a_topic_for_each_idea(title: str) -> None:
    found = {chapter.title: [topic.name for topic in chapter.topics] for chapter in chapters()}
    missing = {idea: name for idea, name in IDEAS[title].items() if name not in found.get(title, ())}
    assert missing == {}


@pytest.mark.parametrize("topic", list(topics().values()), ids=lambda topic: topic.name)
def test_a_topic_has_an_argument_and_defaults_that_it_takes_itself(topic: Topic) -> None:
    assert topic.name in EVERY, "name its idea in IDEAS"
    assert (ROOT / "docs" / "arguments" / topic.argument).is_file()
    assert topic.question.endswith("?")
    assert len({parameter.name for parameter in topic.parameters}) == len(topic.parameters)
    assert all(parameter.name.isidentifier() for parameter in topic.parameters)
    for parameter in topic.parameters:
        assert parameter.least <= parameter.default <= parameter.most
        written = str(parameter.default) if parameter.is_whole else str(float(parameter.default))
        assert given_values(topic, {parameter.name: written})[parameter.name] == parameter.default


def test_chapters_are_in_order_and_names_are_used_once() -> None:
    every = chapters()
    assert [chapter.title for chapter in every] == list(IDEAS)
    assert all(isinstance(chapter, Chapter) for chapter in every)
    assert len(topics()) == sum(len(chapter.topics) for chapter in every)


def test_the_list_of_topics_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'matplotlib', 'flint', 'pyarrow', 'torch', 'sklearn', 'duckdb'} & set(sys.modules)"
    program = f"import sys; from lapwing.show.chapters import topics; topics(); print({heavy})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def _check(found: Shown) -> None:
    texts = [found.headline, *found.sentences]
    assert not found.headline.endswith(".")  # it is a title
    assert all(sentence.endswith((".", "?", ".)")) for sentence in found.sentences)
    assert len(found.sentences) in SENTENCES
    assert not [
        text for text in texts if re.search(r"[{}]|\bnan\b|\binf\b|e[+]\d|\bNone\b|\b1 times", text)
    ]
    assert found.tables
    for table in found.tables:
        assert len(set(table.heads)) == len(table.heads), "JSON would lose a column"
        assert table.rows
        assert all(0 <= share <= 1 for share in table.shares())
    figure = found.picture()
    assert figure.get_label()  # its title, for those who cannot see it
    figure.draw_without_rendering()


@pytest.mark.parametrize(
    "name",
    [slow(name) if name in ("release-time", "bad-models", "data-needed") else name for name in EVERY],
)
def test_a_topic_has_a_text_numbers_and_a_picture(name: str) -> None:
    _check(small(name).shown)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("end", ["least", "most"])
def test_it_has_them_at_the_ends_of_each_parameter_too(name: str, end: str) -> None:
    for parameter in topics()[name].parameters:
        with suppress(BadParameter):  # a coalition that a protocol cannot serve
            _check(shown(name, **(SMALL.get(name, {}) | {parameter.name: getattr(parameter, end)})))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_topic_is_a_command(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(capsys)
    picture = tmp_path / "picture.png"
    assert topics()[name].question in shell("show", name, "--plot", picture).out
    assert picture.stat().st_size > 5000
    assert shell("show", name, "--json").json["topic"] == name
