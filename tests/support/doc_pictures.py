"""The script that draws the pictures of the documentation, as a module."""

from __future__ import annotations

from support.scripts import load_script

draw_pictures = load_script("docs/draw_pictures.py")
