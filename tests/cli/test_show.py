"""`lapwing show`."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from lapwing.cli.show import BOOKLET
from lapwing.errors import BadParameter, MissingExtra
from lapwing.show.chapters import chapters, topics
from lapwing.show.topic import Chapter, Topic
from support.shell import Shell


def test_the_list_has_every_topic_under_its_chapter(shell: Shell) -> None:
    done = shell.good("show")
    for chapter in chapters():
        for topic in chapter.topics:
            assert topic.name in done.out
    assert "What is Laplace noise, and how large is it?" in done.out
    listed = shell.good("show", "--json").json
    assert [one["topic"] for one in listed] == list(topics())


def test_a_topic_has_a_text_tables_bars_and_the_numbers_to_change(shell: Shell, tmp_path: Path) -> None:
    done = shell.good("show", "laplace", "--plot", tmp_path / "l.svg", "--epsilon", "0.5")
    assert "At ε = 0.5 the noise has scale 2" in done.out
    assert "▇▇▇" in done.out
    assert "--epsilon 0.5" in done.out
    assert "docs/arguments/laplace.md" in done.out
    assert "The picture is in" in done.out
    ElementTree.parse(tmp_path / "l.svg")
    assert all(len(line) <= 100 for line in done.out.splitlines() if "The picture is in" not in line)


def test_json_has_numbers_and_no_text_of_them(shell: Shell) -> None:
    found = shell.good("show", "--epsilon=2", "ratio", "--json").json  # numbers may come first
    assert found["parameters"] == {"epsilon": 2, "sensitivity": 3}
    assert all(isinstance(row["with / without"], float) for row in found["tables"][0]["rows"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["laplas"], 'topic: there is no "laplas". Did you mean "laplace"?'),
        (["laplace", "ratio"], "topic: name one topic, not 2"),
        (["laplace", "--k", "3"], "k: laplace does not take it. It takes --epsilon, --sensitivity"),
        (["laplace", "--epsilon", "0"], "epsilon: must lie between 0.01 and 10"),
        (["laplace", "--epsilon"], "epsilon: has no value"),
        (["laplace", "--epsilon", "1", "--epsilon=2"], "epsilon: is given twice"),
        (["laplace", "--sensitivity", "1.5"], "sensitivity: must be a whole number"),
        (["laplace", "-x"], "there is no option -x"),
        (["laplace", "--plot", "x.gif"], "plot: must end in .svg"),
        (
            ["laplace", "--plot", "gone/x.svg"],
            "plot: gone/x.svg cannot be written (there is no folder gone)",
        ),
        (["laplace", "--full"], "full: laplace has no longer version"),
        (["laplace", "--out", "folder"], "out: is the folder of the booklet"),
        (["--epsilon", "1"], "topic: --epsilon needs a topic"),
        (["--full"], "topic: --full needs a topic"),
        (["all"], "out: give either --out DIR"),
        (["all", "--out", "folder", "--json"], "out: give either --out DIR"),
        (["all", "--out", "folder", "--plot", "x.svg"], "plot: is for one topic"),
        (["all", "--out", "folder", "--unknown", "1"], "unknown: no topic takes it"),
        (["all", "--out", "folder", "--epsilon", "1e9"], "epsilon: must lie between"),
        (["all", "--out", "a-file"], "out: a-file cannot be a folder"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_computed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").touch()
    monkeypatch.setattr("lapwing.cli.show._computed", None)
    done = shell("show", *arguments)
    assert done.code == 2
    assert error in done.error
    assert len(done.error.splitlines()) == 1
    assert done.out == "" or done.json["error"]["code"] == "bad-parameter"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three topics: one needs an extra that is missing, one cannot be computed with its numbers."""

    def compute(*_: object) -> None:
        raise MissingExtra("learn", "This topic")

    def refuse(*_: object) -> None:
        raise BadParameter("n", "does not fit the other numbers")

    needy = Topic("needy", "Why?", (), "laplace.md", compute, extra="learn")  # type: ignore[arg-type]
    picky = Topic("picky", "Why?", (), "laplace.md", refuse)  # type: ignore[arg-type]
    laplace = topics()["laplace"]
    monkeypatch.setattr(
        "lapwing.show.chapters.chapters", lambda: (Chapter("Few", (laplace, needy, picky)),)
    )


@pytest.mark.usefixtures("few")
def test_a_booklet_says_which_topics_are_left_out(shell: Shell, tmp_path: Path) -> None:
    for _ in range(2):  # the second booklet replaces the first
        done = shell("show", "all", "--out", tmp_path / "new" / "folder", "--epsilon", "2")
        assert done.code == 0, done.error
        assert "needy is left out: This topic needs an extra: pip install 'lapwing[learn]'" in done.error
    page = (tmp_path / "new" / "folder" / BOOKLET).read_text(encoding="utf-8")
    assert "<script" not in page
    assert "At ε = 2 the noise" in page
    assert "needy is left out" in page
    assert "picky is left out: n: does not fit the other numbers" in page
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == [BOOKLET]
    assert [one["topic"] for one in shell("show", "all", "--json").json] == ["laplace"]


@pytest.mark.usefixtures("few")
def test_one_topic_without_its_extra_is_an_error(shell: Shell) -> None:
    done = shell("show", "needy")
    assert done.code == 1
    assert "pip install 'lapwing[learn]'" in done.error


@pytest.mark.slow
def test_the_booklet_of_all_topics(shell: Shell, tmp_path: Path) -> None:
    done = shell("show", "all", "--out", tmp_path)
    assert done.code == 0, done.error
    page = (tmp_path / BOOKLET).read_text(encoding="utf-8")
    assert "<script" not in page
    for topic in topics().values():
        assert f'id="{topic.name}"' in page
