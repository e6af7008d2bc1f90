"""The respondent's page for all eyes and hands: labels, headings, contrast, size, keyboard, focus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from support.browser import SUBMIT, Visit, fill
from support.survey_site import EVERY_KIND, Site

FOCUS_RING = """() => {
  const focus = document.activeElement;
  const ring = focus.parentElement.matches(".choice") ? focus.nextElementSibling : focus;
  return getComputedStyle(ring).outlineWidth;
}"""
CHECKS = """() => {
  const TEXTS = "p, li, label, h1, h2, h3, dt, dd, button, a, td, th, span, summary";
  const TOUCHED = ".choice label, button, select, input[type=text], input[type=date], summary";
  const problems = [];
  const labelled = ({ labels }) => labels?.length && [...labels].every((label) => label.innerText.trim());
  for (const control of document.querySelectorAll("input, select, textarea")) {
    if (!labelled(control)) problems.push(`no label: ${control.id}`);
  }
  for (const button of document.querySelectorAll("button, a")) {
    if (!button.innerText.trim()) problems.push("a button without text");
  }
  for (const each of document.querySelectorAll("meter")) {
    if (!each.getAttribute("aria-label")) problems.push("a meter without a name");
  }
  for (const each of document.querySelectorAll("fieldset")) {
    if (each.firstElementChild.tagName !== "LEGEND") problems.push("a fieldset without a legend");
  }
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  if (new Set(ids).size !== ids.length) problems.push("an id comes twice");
  for (const each of document.querySelectorAll("[aria-describedby], [for], [list]")) {
    for (const name of ["aria-describedby", "for", "list"]) {
      const target = each.getAttribute(name);
      if (target && !document.getElementById(target)) problems.push(`nothing is called ${target}`);
    }
  }
  let last = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const level = Number(heading.tagName[1]);
    if (level > last + 1) problems.push(`a heading is skipped before: ${heading.innerText}`);
    last = level;
  }
  if (document.querySelectorAll("h1").length !== 1) problems.push("there must be one h1");
  if (!document.documentElement.lang) problems.push("no language");
  if (!document.title) problems.push("no title");
  if (!document.querySelector("main")) problems.push("no main part");
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map((part) => Number(part) / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  for (const each of document.querySelectorAll(TEXTS)) {
    if (!each.innerText.trim() || each.disabled) continue;
    const [one, other] = [light(getComputedStyle(each).color), light(behind(each))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) problems.push(`too little contrast: ${each.innerText}`);
    if (parseFloat(getComputedStyle(each).fontSize) < 14) problems.push(`too small: ${each.innerText}`);
  }
  for (const each of document.querySelectorAll(TOUCHED)) {
    if (each.getBoundingClientRect().height < 44) problems.push(`too small to touch: ${each.outerHTML}`);
  }
  return problems;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("every_kind"), EVERY_KIND).start()
    yield found
    found.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_people_with_other_eyes_and_hands_can_use_it(
    visit: Visit, site: Site, scheme: str, tmp_path: Path
) -> None:
    visitor = visit(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = visitor.open(site.link())
    assert page.evaluate(CHECKS) == []
    for odds in page.locator("summary").all():
        odds.click()
    assert page.evaluate(CHECKS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    visitor.submit()
    assert page.evaluate(CHECKS) == []
    page.screenshot(path=tmp_path / f"missing_{scheme}.png", full_page=True)
    fill(page)
    visitor.submit()
    expect(page.get_by_text("Sent. Thank you!")).to_be_visible()
    assert page.evaluate(CHECKS) == []
    page.goto(f"{site.address}by-hand")
    assert page.evaluate(CHECKS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.screenshot(path=tmp_path / f"by_hand_{scheme}.png", full_page=True)


def test_a_missing_answer_is_shown_and_gets_the_focus(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open(site.link())
    visitor.submit()
    expect(page.locator("#q0-error")).to_have_text("Please choose one; “No answer” is a choice too.")
    expect(page.locator("#q0-0")).to_be_focused()
    expect(page.get_by_role("status")).to_contain_text("Not sent.")
    assert page.locator("#q0-0").get_attribute("aria-describedby") == "q0-error"
    assert visitor.reports() == []


KEYS = {
    "q0-0": ["Space", "ArrowDown"], "q1-0": ["Space"], "q2-0": ["Space"], "q3-none": ["Space"],
    "q4-0": ["Space", "ArrowRight", "ArrowRight"], "q5-0": ["3"], "q5-1": ["1"], "q5-2": ["2"],
    "q6-value": ["7", ".", "5"], "q7-none": ["Space"], "q8-value": ["t", "e", "a"], "q9-none": ["Space"],
}  # fmt: skip


def test_it_is_done_with_the_keyboard_alone(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open(site.link())
    for wanted, keys in KEYS.items():
        for _ in range(8):  # a date has parts of its own
            page.keyboard.press("Tab")
            focus = page.evaluate("document.activeElement.id")
            assert page.evaluate(FOCUS_RING) == "3px", focus
            if focus == wanted:
                break
        assert focus == wanted
        for key in keys:
            page.keyboard.press(key)
    expect(page.locator("#q0-1")).to_be_checked()
    expect(page.locator("#q4-2")).to_be_checked()
    page.keyboard.press("Tab")
    expect(page.locator("#q9-short")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#q9-odds ul")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name=SUBMIT)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Sent. Thank you!")).to_be_focused()
    expect(page.get_by_role("status")).to_have_text("Your report was sent.")
