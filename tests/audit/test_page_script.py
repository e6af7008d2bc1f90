"""The page's script is run in a JavaScript engine: mistakes in it are found, and a lost engine is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lapwing.audit import page_script
from lapwing.audit.audit_run import run_audit
from lapwing.audit.case import AuditCase, Stage, StageBudget
from lapwing.audit.page_script import NO_ENGINE, check_page
from lapwing.audit.registry.randomizers import randomizer_cases
from lapwing.survey.randomizers import from_recipe
from lapwing.survey.web_app import PAGES
from support.coins import SMALL

QUICK = StageBudget(seconds=5, is_thorough=False)
NAMED = [(recipe["kind"], from_recipe(recipe)) for recipe in SMALL if recipe["kind"] != "prefixes"]
MISTAKES = (
    ("randomize.js", "recipe.favoured));\n  const wanted", "recipe.favoured)) || true;\n  const wanted"),
    ("randomize.js", "source.below(options - 1n)", "source.below(options)"),
    ("randomize.js", "fromBytes(this.take(ODDS_BYTES)) < of", "fromBytes(this.take(ODDS_BYTES)) <= of"),
    ("randomize.js", "if (drawn < bound) return drawn;", "return drawn % bound;"),
    ("randomize.js", "source.below(steps) < answer", "source.below(steps) <= answer"),
    ("randomize.js", "? recipe.one : recipe.zero", "? recipe.one : recipe.one"),
    ("randomize.js", "if (ticked === told) sent", "if (ticked) sent"),
    ("randomize.js", "const odd = !source.odds(", "const odd = source.odds("),
    ("randomize.js", "(q - (product(point, vector) * factor) % q) % q", "0n"),
    ("randomize.js", "outside >= start ? outside + width : outside", "outside"),
    ("price.js", "reduce(([a, b], [c, d]) => [a * c, b * d], [1n, 1n])", "reduce(larger)"),
    ("price.js", "return ratios.reduce(larger);", "return ratios[0];"),
    ("price.js", "return [one * (ODDS - zero), (ODDS - one) * zero];", "return [one, zero];"),
)  # fmt: skip


def page_case_of_registry() -> AuditCase:
    return next(one for one in randomizer_cases() if one.name == "survey: the page's script")


def test_the_page_has_the_stated_laws() -> None:
    found = page_case_of_registry().stages[Stage.EXACT](QUICK)
    assert found.holds
    assert found.checks > 1000


@pytest.mark.parametrize(("file", "right", "wrong"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_in_the_script_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    pages = Path(shutil.copytree(PAGES, tmp_path / "pages"))
    text = (pages / file).read_text()
    assert text.count(right) == 1
    (pages / file).write_text(text.replace(right, wrong))
    monkeypatch.setattr(page_script, "PAGES", pages)
    assert check_page(NAMED, 3000, 1.0).witness is not None


def test_without_an_engine_an_audit_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_script, "engine", lambda: None)
    report = run_audit([page_case_of_registry()], QUICK)
    assert not report.passed
    [case] = report.cases
    assert all(NO_ENGINE in why for why in case.unable)
    assert len(case.unable) == 2
