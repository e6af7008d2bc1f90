"""Draw the pictures of the console: `python docs/draw_console.py FOLDER`.

They are of `lapwing demo --serve`, in Chromium, with the light theme. Numbers have fresh noise in each run.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

WIDTH, COLOURS = 1280, 64
LINK = re.compile(r"^ +(\w+) \([\w-]+\): (http\S+)$")
PRICED = "SELECT ward, COUNT(*) AS visits\nFROM visits\nWHERE stay > 5\nGROUP BY ward"
# The pages of each role: the name of the picture, the address, and the height that is shown.
SHOWN = {
    "sue": (
        ("steward-home", "/", 800),
        ("steward-people", "/people", 760),
        ("steward-budget", "/d/visits/budget", 900),
    ),
    "olga": (("officer-home", "/", 760), ("officer-ledger", "/d/visits/ledger", 900)),
    "otto": (("owner-surveys", "/surveys", 860),),
}


def main(arguments: Sequence[str]) -> int:
    """Draw every picture into the folder that the one argument names."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python docs/draw_console.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as name, demo(Path(name, "demo")) as links, sync_playwright() as playing:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playing.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with looking(browser, links["ann"]) as page:
            draw_questions(page, folder)
        for who, pages in SHOWN.items():
            with looking(browser, links[who]) as page:
                for picture, address, height in pages:
                    page.goto(address)
                    draw(page, folder / f"{picture}.png", height)
        browser.close()
    return 0


@contextmanager
def demo(folder: Path) -> Iterator[dict[str, str]]:
    """Run the demo, and lend the start link of each account."""
    command = [sys.executable, "-m", "lapwing", "demo", "--serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 (our own command)
    links = {}
    try:
        for line in process.stdout or ():
            if found := LINK.match(line):
                links[found[1].lower()] = found[2]
            if line.startswith("Ctrl-C"):
                break
        yield links
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@contextmanager
def looking(browser: Browser, link: str) -> Iterator[Page]:
    """Open a start link in a browser of its own."""
    size = {"width": WIDTH, "height": 800}
    base = link.partition("/start")[0]
    context = browser.new_context(
        viewport=size, color_scheme="light", reduced_motion="reduce", base_url=base
    )
    page = context.new_page()
    page.goto(link)
    yield page
    context.close()


def draw_questions(page: Page, folder: Path) -> None:
    """Draw the first page, a question with its price, and its answer."""
    draw(page, folder / "analyst-home.png", 900)
    page.get_by_role("button", name="Skip the guide").click()
    page.goto("/d/visits/ask")
    page.get_by_label("SQL").fill(PRICED)
    expect(page.get_by_text("Can be answered")).to_be_visible()
    page.get_by_label("Price", exact=True).first.fill("0.25")
    expect(page.locator("[data-release] .cost")).to_contain_text("0.25")
    draw(page, folder / "analyst-ask.png", 900)
    page.locator("[data-release]").click()
    page.wait_for_url("**/answers/**")
    draw(page, folder / "analyst-answer.png", 900)


def draw(page: Page, path: Path, height: int) -> None:
    """Store the upper part of a page as a small picture."""
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_load_state("networkidle")
    page.evaluate("() => window.scrollTo(0, 0)")
    page.screenshot(path=path)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
