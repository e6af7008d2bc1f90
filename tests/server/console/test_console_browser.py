"""The console in a real browser: no complaint of the console, the policy of content, or axe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from support.server_people import GOOD

from .conftest import PEOPLE, ConsoleDoor
from .test_desk import PAGES

DESKTOP, PHONE, SMALL = (
    {"width": 1280, "height": 900},
    {"width": 390, "height": 844},
    {"width": 320, "height": 640},
)
WARDS = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"


@contextmanager
def looking(
    browser: Browser, address: str, name: str, complaints: list[str], **options: Any
) -> Iterator[Page]:
    """A page of somebody who has signed in. Complaints of the browser are collected."""
    context = browser.new_context(base_url=address, **options)
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda told: _note(told, complaints))
    page.goto("/sign-in")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(GOOD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{address}/")
    yield page
    context.close()


def _note(told: Any, complaints: list[str]) -> None:
    if told.type in ("error", "warning") and "Permissions-Policy" not in told.text:
        complaints.append(told.text)


def faults(page: Page) -> list[str]:
    """What axe finds, and whether the page scrolls sideways."""
    found = [
        f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in Axe().run(page).response["violations"]
    ]
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append(f"{page.url} scrolls sideways")
    return found


def ask(page: Page, sql: str, epsilon: str) -> None:
    """Write a question, and wait until its price is there."""
    page.goto("/d/visits/ask")
    page.get_by_label("SQL").fill(sql)
    expect(page.get_by_text("Can be answered")).to_be_visible()
    page.get_by_label("Price", exact=True).first.fill(epsilon)
    expect(page.locator("[data-release] .cost")).to_have_text(f"ε\N{NO-BREAK SPACE}{epsilon}")


def test_a_question_from_typing_to_its_answer(console: ConsoleDoor, address: str, browser: Browser) -> None:
    complaints: list[str] = []
    before = console.charges()
    with looking(browser, address, "ann", complaints, viewport=DESKTOP, color_scheme="light") as page:
        ask(page, WARDS, "0.2")
        assert faults(page) == []
        page.locator("#slide").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("[data-release] .cost")).to_have_text("ε\N{NO-BREAK SPACE}0.3")
        expect(page.locator("#slide")).to_be_focused()
        page.locator("[data-release]").dblclick(no_wait_after=True)
        page.wait_for_url("**/answers/**")
        expect(page.locator("#answer")).to_be_focused()
        assert faults(page) == []
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("link", name="SQL", exact=True).click()
        expect(page.get_by_role("link", name="Copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.3)")
        page.reload()
        page.go_back()
        expect(page.get_by_role("button", name="Show answer")).to_be_visible()
        page.locator("[data-release]").click()
        page.wait_for_url("**/answers/**")
    assert complaints == []
    assert console.charges() == before + 1


def test_a_refusal_and_the_menu_on_a_phone_in_the_dark(
    console: ConsoleDoor, address: str, browser: Browser
) -> None:
    complaints: list[str] = []
    with looking(browser, address, "bob", complaints, viewport=SMALL, color_scheme="dark") as page:
        page.goto("/d/visits/ask")
        page.get_by_label("SQL").fill("SELECT * FROM visits")
        expect(page.get_by_role("heading", name="Not answered. Nothing was charged.")).to_be_visible()
        assert faults(page) == []
        wrong = "SELECT ward, stay, COUNT(*) AS n\nFROM visits\nGROUP BY ward"
        page.get_by_label("SQL").fill(wrong)
        page.get_by_role("button", name="Use this SQL").first.click()
        expect(page.get_by_text("Can be answered")).to_be_visible()
        expect(page.get_by_label("SQL")).to_be_focused()
        page.keyboard.press("Control+z")
        expect(page.get_by_label("SQL")).to_have_value(wrong)
        page.get_by_text("Menu").click()
        page.get_by_role("link", name="Budget").click()
        expect(page.get_by_role("heading", name="Budget", level=1)).to_be_visible()
        assert faults(page) == []
    assert complaints == []


def test_the_whole_journey_without_a_script(console: ConsoleDoor, address: str, browser: Browser) -> None:
    complaints: list[str] = []
    before = console.charges()
    with looking(browser, address, "bob", complaints, viewport=PHONE, java_script_enabled=False) as page:
        page.goto("/d/visits/ask")
        page.get_by_label("SQL").fill("SELECT COUNT(*) AS n FROM visits")
        page.get_by_role("button", name="Show the price").click()
        expect(page.get_by_text("Can be answered")).to_be_visible()
        page.get_by_role("button", name="Release").click()
        expect(page.get_by_text("Asking this again is free.")).to_be_visible()
        page.get_by_role("link", name="Verify it").click()
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_text("genuine")).to_be_visible()
    assert complaints == []
    assert console.charges() == before + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", PEOPLE)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_of_every_role(  # noqa: PLR0917 (two themes and sizes for each role)
    console: ConsoleDoor, address: str, browser: Browser, name: str, theme: Any, size: Any
) -> None:
    complaints: list[str] = []
    found: list[str] = []
    with looking(browser, address, name, complaints, viewport=size, color_scheme=theme) as page:
        for path in (path for path, who in PAGES.items() if name in who):
            page.goto(path)
            page.wait_for_load_state("networkidle")
            found += faults(page)
        if name == "ann":
            ask(page, WARDS, f"0.2{size['width'] % 7}{len(theme)}")  # a price of its own: no replay
            found += faults(page)
            page.locator("[data-release]").click()
            page.wait_for_url("**/answers/**")
            found += faults(page)
            page.get_by_role("link", name="Verify it").click()
            page.get_by_role("button", name="Verify", exact=True).click()
            expect(page.get_by_text("genuine")).to_be_visible()
            found += faults(page)
        if name == "sue":
            page.goto("/people/ann")
            found += faults(page)
    assert found == []
    assert complaints == []
