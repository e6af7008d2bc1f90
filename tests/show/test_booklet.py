"""The booklet: one page without scripts, whose links lead somewhere and whose pictures are in it."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from lapwing.show.booklet import ShownTopic, booklet
from lapwing.show.chapters import chapters, topics
from lapwing.show.given_values import given_values
from lapwing.show.topic import Chapter, NumberTable, Shown, Topic
from support.shown import shown

SHOWN = ("laplace", "ratio", "delta-area")


class Seen(HTMLParser):
    """The tags of a page, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all_of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def _found(*names: str) -> dict[str, ShownTopic]:
    every = topics()
    return {name: ShownTopic(every[name], given_values(every[name], {}), shown(name)) for name in names}


def test_a_booklet_is_one_page_without_scripts() -> None:
    page = booklet(chapters(), _found(*SHOWN), ["other is left out: it needs an extra"]).decode()
    seen = Seen(page)
    assert not seen.all_of("script")
    assert not seen.all_of("link")
    assert not any(name.startswith("on") for _, attributes in seen.tags for name in attributes)
    anchors = {one["id"] for _, one in seen.tags if "id" in one}
    links = [str(one["href"]) for one in seen.all_of("a")]
    assert set(SHOWN) <= anchors
    assert all(link.removeprefix("#") in anchors for link in links)
    assert "#docs/arguments/laplace.md" in links
    assert "other is left out" in page
    for picture in seen.all_of("img"):
        kind, _, data = str(picture["src"]).partition(",")
        assert kind == "data:image/svg+xml;base64"
        svg = base64.b64decode(data)
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert b"<script" not in svg
        assert picture["alt"]
    assert len(seen.all_of("img")) == len(SHOWN)
    assert "lapwing show laplace --epsilon 1 --sensitivity 1" in page


def test_a_command_in_a_text_leads_to_its_topic_if_it_is_there() -> None:
    page = booklet(chapters(), _found("laplace", "ratio"), []).decode()
    assert '<a href="#ratio"><code>lapwing show ratio</code></a>' in page
    alone = booklet(chapters(), _found("laplace"), []).decode()
    assert "<code>lapwing show ratio</code>" in alone
    assert 'href="#ratio"' not in alone


def test_texts_are_escaped() -> None:
    evil = "<script>alert(1)</script>"
    [real] = _found("laplace").values()
    table = NumberTable(evil, (evil, "n"), ((evil, 1),), bars=1)
    topic = Topic("evil", f"{evil}?", (), evil, real.topic.compute)
    one = ShownTopic(topic, {}, Shown(evil, (f"{evil} `{evil}`",), (table,), real.shown.picture))
    page = booklet([Chapter(evil, (topic,))], {"evil": one}, [evil]).decode()
    assert "<script" not in page
    assert len(re.findall("&lt;script&gt;", page)) >= 8
