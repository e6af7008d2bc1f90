"""Names that people chose, as they can be drawn: not too wide, in known letters, never as a formula."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

LABEL_LETTERS, TITLE_LETTERS = 16, 40
EM_A_LETTER = 0.6  # of usual text
WIDER_AT_MOST = 1.5  # em: so much wider than usual a name may be in a title, which is broken by letters


def fitting(text: str, letters: int = LABEL_LETTERS) -> str:
    """As much of a name as is not wider than so many usual letters."""
    room, shown = letters * EM_A_LETTER, ""
    for letter in text:
        known = letter if _width(letter) else "?"
        room -= _width(known)
        if room < 0:
            shown += "…"
            break
        shown += known
    return shown.replace("$", r"\$")  # else two of them make a formula


def in_title(text: str) -> str:
    """A name at the beginning of a title, unless its letters are too wide to be counted as letters."""
    shown = fitting(text, TITLE_LETTERS)
    is_wide = sum(map(_width, shown)) > len(shown) * EM_A_LETTER + WIDER_AT_MOST
    return "This account" if is_wide else shown


@cache
def _font() -> FT2Font:
    from matplotlib import get_data_path  # noqa: PLC0415 (an extra)
    from matplotlib.ft2font import FT2Font  # noqa: PLC0415 (an extra)

    font = FT2Font(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf")
    font.set_size(100, 72)
    return font


@cache
def _width(letter: str) -> float:
    """In em; 0 for what the font does not have."""
    font = _font()
    if not font.get_char_index(ord(letter)):
        return 0.0
    return float(font.load_char(ord(letter)).linearHoriAdvance) / 65536 / 100
