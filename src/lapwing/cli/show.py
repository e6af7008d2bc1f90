"""`lapwing show`: the ideas of the field, one command each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from lapwing.cli import console
from lapwing.errors import BadParameter, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from rich.table import Table

    from lapwing.show.booklet import ShownTopic
    from lapwing.show.topic import Chapter, NumberTable, Topic

BOOKLET = "booklet.html"
BAR_WIDTH = 24
# Numbers differ from topic to topic, so typer does not know them: they come with the words.
OWN_NUMBERS = {"ignore_unknown_options": True}


def show(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="TOPIC --NAME NUMBER",
            help="A topic, or all; and numbers that it takes, such as --epsilon 0.5.",
        ),
    ] = None,
    full: Annotated[
        bool, Option("--full", help="The long version of a topic that has one. It takes minutes.")
    ] = False,
    plot: console.PlotPath = None,
    out: Annotated[
        Path | None, Option(help=f"With all: the folder that {BOOKLET} is written into.")
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Show an idea of the field: computed now, in words, numbers and a picture.

    Without a topic it lists all topics. Each topic says which numbers it takes, such as --epsilon or --n.
    No data of yours is read, and nothing is charged.
    """
    from lapwing.show.chapters import chapters

    every = chapters()
    name, texts = _parsed(words or [])
    if name is None:
        _require_nothing_else(texts, full=full, plot=plot, out=out)
        _list(every, as_json=as_json)
    elif name == "all":
        if plot is not None:
            raise BadParameter("plot", "is for one topic. The booklet has all pictures: give --out DIR")
        if (out is None) is not as_json:
            raise BadParameter("out", "give either --out DIR, for the booklet, or --json, for the numbers")
        _show_all(every, texts, out, full=full)
    else:
        if out is not None:
            raise BadParameter("out", "is the folder of the booklet. For one picture, give --plot FILE")
        from lapwing.show.given_values import topic_named

        topics = {topic.name: topic for chapter in every for topic in chapter.topics}
        _show_one(topic_named(name, topics), texts, full=full, plot=plot, as_json=as_json)


def _parsed(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Return the topic, if there is one, and the texts of the numbers by name."""
    rest, names, texts = list(words), [], {}
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            names.append(word)
            continue
        option, has_value, value = word.partition("=")
        name = option.removeprefix("--")
        if not option.startswith("--") or not name.isidentifier():
            raise BadParameter("show", f"there is no option {option}. `lapwing show --help` lists them")
        if not has_value:
            if not rest:
                raise BadParameter(name, f"has no value: write --{name} NUMBER")
            value = rest.pop(0)
        if name in texts:
            raise BadParameter(name, "is given twice")
        texts[name] = value
    if len(names) > 1:
        raise BadParameter("topic", f"name one topic, not {len(names)}: {', '.join(names)}")
    return (names[0] if names else None), texts


def _require_nothing_else(
    texts: Mapping[str, str], *, full: bool, plot: Path | None, out: Path | None
) -> None:
    given = [f"--{name}" for name in texts]
    given += [f"--{name}" for name, value in (("full", full), ("plot", plot), ("out", out)) if value]
    if given:
        raise BadParameter(
            "topic", f"{given[0]} needs a topic, such as `lapwing show laplace`. `lapwing show` lists them"
        )


def _list(every: Sequence[Chapter], *, as_json: bool) -> None:
    if as_json:
        topics = [(chapter.title, topic) for chapter in every for topic in chapter.topics]
        told = (
            {"chapter": title, "topic": topic.name, "question": topic.question} for title, topic in topics
        )
        console.print_json(list(told))
        return
    with console.page() as out:
        width = max(len(topic.name) for chapter in every for topic in chapter.topics)
        for chapter in every:
            if chapter.topics:
                out.heading(chapter.title)
                out.pairs(*((topic.name.ljust(width), topic.question) for topic in chapter.topics))
        out.print()
        out.indented("One of them: lapwing show TOPIC. All in one file: lapwing show all --out DIR.")


def _show_one(
    topic: Topic, texts: Mapping[str, str], *, full: bool, plot: Path | None, as_json: bool
) -> None:
    from lapwing.show.given_values import given_values
    from lapwing.show.topic import to_json

    values = given_values(topic, texts)
    if full and not topic.has_full_version:
        raise BadParameter("full", f"{topic.name} has no longer version")
    console.check_plot(plot)
    computed = _computed(topic, values, full=full)
    if plot is not None:
        console.write_plot(plot, computed.shown.picture(), quiet=True)
    if as_json:
        console.print_json(to_json(topic, values, computed.shown))
        return
    with console.page() as out:
        _print(out, computed)
    if plot is not None:
        print(f"\nThe picture is in {plot}")


def _computed(topic: Topic, values: Mapping[str, Fraction], *, full: bool) -> ShownTopic:
    from lapwing.show.booklet import ShownTopic

    with console.working(topic.name) as progress:
        return ShownTopic(topic, values, topic.compute(values, full, progress))


def _print(out: console.Page, computed: ShownTopic) -> None:
    from lapwing.show.booklet import given_options
    from lapwing.show.given_values import limits
    from lapwing.show.topic import argument_page

    out.title(computed.topic.question)
    out.print()
    out.indented(computed.shown.headline)
    out.print()
    out.indented(*computed.shown.sentences)
    for numbers in computed.shown.tables:
        out.heading(numbers.title)
        out.print(_table(numbers))
    if computed.topic.parameters:
        out.heading("Numbers that you can change")
        options = zip(computed.topic.parameters, given_options(computed), strict=True)
        out.pairs(*((option, f"{known.meaning} ({limits(known)})") for known, option in options))
    out.print()
    more = " The long version: --full." if computed.topic.has_full_version else ""
    why = f"Why it holds: {argument_page(computed.topic)} of the source."
    out.indented(f"{why} The picture: --plot FILE.{more}")


def _table(numbers: NumberTable) -> Table:
    from lapwing.show.topic import cell_text

    heads = list(numbers.heads)
    rows = [[cell_text(cell) for cell in row] for row in numbers.rows]
    right = {
        place for place in range(len(heads)) if all(not isinstance(row[place], str) for row in numbers.rows)
    }
    if numbers.bars is not None:
        heads.append("")
        for row, share in zip(rows, numbers.shares(), strict=True):
            row.append("▇" * round(BAR_WIDTH * share))
    made = console.table(*heads, right=right, rows=rows)
    made.columns[-1].no_wrap = numbers.bars is not None
    return made


def _show_all(every: Sequence[Chapter], texts: Mapping[str, str], out: Path | None, *, full: bool) -> None:
    """Show all topics: as a booklet in the folder `out`, or their numbers as JSON if that is None."""
    from lapwing.show.given_values import values_of_all
    from lapwing.show.topic import to_json

    topics = [topic for chapter in every for topic in chapter.topics]
    values = values_of_all(topics, texts)
    if out is not None:
        _check_folder(out)
    shown, left_out = {}, []
    for topic in topics:
        try:
            computed = _computed(topic, values[topic.name], full=full and topic.has_full_version)
        except (MissingExtra, BadParameter) as error:  # numbers of all topics may not fit together in one
            left_out.append(f"{topic.name} is left out: {error}")
            console.tell(left_out[-1])
            continue
        shown[topic.name] = computed
        console.tell(f"{len(shown) + len(left_out)} of {len(topics)}: {topic.name}")
    if out is None:
        console.print_json(
            [to_json(computed.topic, computed.values, computed.shown) for computed in shown.values()]
        )
        return
    from lapwing.show.booklet import booklet

    path = out / BOOKLET
    with console.os_errors_told():
        # Two commands at once: each leaves a whole page.
        replaced = path.with_name(f".{BOOKLET}.{os.getpid()}")
        replaced.write_bytes(booklet(every, shown, left_out))
        replaced.replace(path)
    print(f"The booklet is in {path}")


def _check_folder(out: Path) -> None:
    """Make the folder, and raise MissingExtra, before minutes are spent on topics."""
    from lapwing.plots.style import style

    with style():
        pass
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadParameter(
            "out", f"{out} cannot be a folder ({error.strerror}). Give another one"
        ) from None
