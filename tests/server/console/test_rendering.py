"""Templates escape, name what they need, and hold neither styles nor scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from lapwing.server.console.desk import ErrorView
from lapwing.server.console.rendering import FILES, PAGES, Pages

MOST_SCRIPT = 20_000  # bytes


@pytest.fixture(scope="module")
def pages() -> Pages:
    return Pages()


def test_texts_are_escaped(pages: Pages) -> None:
    page = pages.html("error.html", view=ErrorView("<b>", '"><script>'), more="", code="")
    assert "<script>" not in page.replace('<script src="', "")
    assert "&lt;b&gt;" in page


def test_a_name_that_is_not_there_is_an_error(pages: Pages) -> None:
    with pytest.raises(UndefinedError):
        pages.html("error.html", view=ErrorView("a", "b"))


@pytest.mark.parametrize("path", sorted(PAGES.iterdir()), ids=lambda path: path.name)
def test_a_template_has_no_style_and_no_script_inside(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\sstyle\s*=|<style|\son[a-z]+\s*=|javascript:|data:", text)
    assert not re.search(r"<script(?! src=)", text)
    assert "|safe" not in text.replace(" ", "")


def test_files_have_addresses_of_their_content(pages: Pages) -> None:
    for one in pages.files.values():
        found = pages.file(one.address)
        assert found is not None
        assert found.body == one.content
        assert "immutable" in found.headers["cache-control"]
        assert pages.file(one.address.replace("/files/", "/files/0")) is None


def test_the_script_is_small_and_the_only_one() -> None:
    scripts = list(FILES.glob("*.js"))
    assert [script.name for script in scripts] == ["script.js"]
    assert scripts[0].stat().st_size <= MOST_SCRIPT


def _tokens(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", text))


def _contrast(one: str, other: str) -> float:
    light = sorted(_luminance(colour) for colour in (one, other))
    return (light[1] + 0.05) / (light[0] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_has_a_contrast_of_5_8_and_edges_of_3_3(theme: int) -> None:
    roots = (FILES / "style.css").read_text().split(":root {")[1:3]
    colours = _tokens(roots[theme].split("}")[0])
    for ink, grounds in {
        "ink": ("paper", "card", "sunk", "tint", "caution-tint"),
        "soft": ("paper", "card", "sunk", "tint"),
        "accent": ("paper", "card", "tint", "sunk"),
        "on-accent": ("accent",),
        "caution": ("card", "caution-tint", "sunk"),
        "bad": ("card", "bad-tint"),
    }.items():
        for ground in grounds:
            assert _contrast(colours[ink], colours[ground]) >= 5.8, (ink, ground)
    for edge in ("card", "paper"):
        assert _contrast(colours["edge"], colours[edge]) >= 3.3
