"""A real Chromium, the one that the system has. Nothing is downloaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

from lapwing.survey.web_app import PAGES
from lapwing.web.replies import TYPES

HOME = "https://page.test/"
# The page waits some seconds before a report leaves. For whoever is in a hurry they are milliseconds.
HURRIED = """
const waiting = window.setTimeout;
window.setTimeout = (work, time, ...more) => waiting(work, time / 1000, ...more);
"""
SUBMIT = "Throw the coins and send"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    place = shutil.which("chromium") or shutil.which("chromium-browser")
    if place is None:
        pytest.fail("there is no Chromium on this machine: `make browser` installs it")
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=place, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def _serve(route: Route) -> None:
    path = PAGES / route.request.url.removeprefix(HOME)
    if path.is_file():
        route.fulfill(body=path.read_bytes(), content_type=TYPES[path.suffix])
    else:
        route.fulfill(body="<!DOCTYPE html><title>empty</title>", content_type="text/html")


def scripts_page(browser: Browser) -> Page:
    """An empty page beside the page's scripts, which can import them."""
    page = browser.new_page()
    page.route("**/*", _serve)
    page.goto(HOME + "empty")
    return page


class Visitor:
    """A browser of its own, which notes all that it asks for and all that it complains about."""

    def __init__(self, context: BrowserContext, *, hurried: bool = True) -> None:
        self.context = context
        self.page = context.new_page()
        if hurried:
            self.page.add_init_script(HURRIED)
        self.complaints: list[str] = []
        self.hosts: set[str | None] = set()
        self.posted: list[tuple[str, str]] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        # A feature that this Chromium does not know is switched off all the same.
        if message.type in ("error", "warning") and "Permissions-Policy" not in message.text:
            self.complaints.append(message.text)

    def _asked(self, request: Any) -> None:
        self.hosts.add(urlsplit(request.url).hostname)
        if request.method == "POST":
            self.posted.append((urlsplit(request.url).path, request.post_data))

    def open(self, link: str) -> Page:
        self.page.goto("about:blank")  # a link that differs only after the # would not load the page anew
        self.page.goto(link)
        self.page.wait_for_selector("form, .refusal, dl, #answered, #view button")
        return self.page

    def submit(self) -> None:
        self.page.get_by_role("button", name=SUBMIT).click()

    def answer_one(self, link: str) -> None:
        self.open(link).get_by_label("yes", exact=True).check()
        self.submit()
        expect(self.page.get_by_text("Sent. Thank you!")).to_be_visible()

    def paths(self) -> list[str]:
        return [path for path, _ in self.posted]

    def reports(self) -> list[str]:
        return [json.loads(body)["report"] for path, body in self.posted if path == "/report"]


Visit = Callable[..., Visitor]


@contextmanager
def visiting(browser: Browser) -> Iterator[Visit]:
    """Makes visitors, each with a memory of its own."""
    contexts: list[BrowserContext] = []

    def new(*, hurried: bool = True, **options: Any) -> Visitor:
        contexts.append(browser.new_context(**options))
        return Visitor(contexts[-1], hurried=hurried)

    yield new
    for context in contexts:
        context.close()


def fill(page: Page) -> None:
    """Answers to every question of the survey with every kind."""
    page.locator("#q0").get_by_label("yes").check()
    page.locator("#q1").get_by_label("outdoors").check()
    page.locator("#q2").get_by_label("reading").check()
    page.locator("#q3").get_by_label("No answer").check()
    page.locator("#q4").get_by_label("4").check()
    for place, rank in enumerate("312"):
        page.locator(f"#q5-{place}").select_option(rank)
    page.locator("#q6").get_by_label("A number").fill("7.25")
    page.locator("#q7").get_by_label("A day").fill("2026-03-04")
    page.locator("#q8").get_by_label("A word").fill("tea")
    page.locator("#q9").get_by_label("Type to search").fill("room 17")
