"""What the page believes of a survey: nothing. It refuses what Python refuses, and has the same prices."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from lapwing.errors import BadValue, LapwingError
from lapwing.survey.credentials import PublicKey
from lapwing.survey.designing import design
from lapwing.survey.offered import (
    billionths,
    exact_json,
    fingerprint,
    parse_exact_json,
    read_offered,
    survey_digest,
)
from lapwing.survey.randomizers import from_recipe
from lapwing.survey.survey_file import load
from support.clocks import within_seconds
from support.hostile_recipes import hostile_recipes
from support.spoiled_surveys import SPOILED, spoiled
from support.survey_site import EVERY_KIND, one_question

RFC = json.loads((Path(__file__).parents[2] / "survey" / "rfc9474.json").read_text())
KEY = {"n": RFC["n"], "e": "010001"}
MANY = 6000
WORDS = (
    one_question()
    + """
[[questions]]
name = "word"
text = "Ein Wort? \u2713 \U0001f600"
kind = "word"
letters = 12
"""
)
OFFERED = """async (texts) => {
  const { offered } = await import("/offered.js");
  const { BadSurvey } = await import("/recipes.js");
  const { fingerprint } = await import("/blind.js");
  return Promise.all(texts.map(async (text) => {
    try {
      const { digest, key, cost } = await offered(text);
      return [digest, cost.toString(), await fingerprint(digest, key)];
    } catch (problem) {
      return problem instanceof BadSurvey ? "refused" : `${problem.name}: ${problem.message}`;
    }
  }));
}"""


def public_of(folder: Path, content: str) -> dict[str, Any]:
    file = folder / "survey.toml"
    file.write_text(content)
    return design(load(file)).public()


def reply(public: Any, **more: Any) -> str:
    """What a server says. The digest is that of the text as it is, in order or not."""
    text = json.dumps(public, sort_keys=True, separators=(",", ":"))
    named = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"survey": public, "digest": named, "key": KEY, "version": 1, **more})


@pytest.mark.parametrize("content", [EVERY_KIND, WORDS, one_question(text="Stra\u00dfe \u2603 \U0001f600")])
def test_digest_price_and_fingerprint_are_those_of_python(page: Page, tmp_path: Path, content: str) -> None:
    public = public_of(tmp_path, content)
    survey = read_offered(public)
    shown = fingerprint(survey.digest, PublicKey.from_json(KEY))
    assert page.evaluate(OFFERED, [reply(public)]) == [[survey.digest, str(survey.price), shown]]
    assert [len(group) for group in shown.split(" ")] == [4] * 8


def test_the_canonical_text_is_that_of_python(page: Page) -> None:
    script = """async (text) => {
      const { canonical, exactJson } = await import("/offered.js");
      return canonical(exactJson(text));
    }"""
    every = "".join(map(chr, range(0x3000))) + "\ud800 \udfff \U0001f600\uffff"
    value = {"b": [1, 1 << 60, 0, -5, True, False], "a": every, "A": {"_": '"\\/'}}
    assert page.evaluate(script, json.dumps(value)) == exact_json(value)


@pytest.mark.parametrize(
    "number", ["1.0", "1e0", "0.5", "1e400", "-1e400", str((1 << 53) + 1), str(3 << 53)]
)
def test_numbers_that_a_browser_would_round_are_refused_by_both(
    page: Page, tmp_path: Path, number: str
) -> None:
    public = public_of(tmp_path, one_question())
    text = reply(public).replace('"report_size": 2', f'"report_size": {number}')
    assert number in text
    assert page.evaluate(OFFERED, [text]) == ["refused"]
    with pytest.raises(BadValue):
        read_offered(parse_exact_json(text.encode())["survey"])


@pytest.mark.parametrize("how", SPOILED)
def test_what_python_refuses_the_page_refuses(page: Page, tmp_path: Path, how: str) -> None:
    public = spoiled(public_of(tmp_path, one_question()), SPOILED[how])
    assert within_seconds(2, lambda: page.evaluate(OFFERED, [reply(public)])) == ["refused"]


def test_a_digest_that_is_not_the_survey_s_own_is_refused(page: Page, tmp_path: Path) -> None:
    public = public_of(tmp_path, one_question())
    good = survey_digest(public)
    wrong = ["0" * 64, [good], good.upper(), None, ""]
    texts = [reply(public, digest=each) for each in wrong]
    texts += [
        reply({**public, "text": "another"}, digest=good),
        reply(public, version=2),
        reply(public, x=1),
    ]
    texts += ["", "[", "[" * 300_000, "null", "7", '"text"', "[]", "{}", reply(None), reply([public])]
    assert page.evaluate(OFFERED, texts) == ["refused"] * len(texts)
    assert page.evaluate(OFFERED, [reply(public)])[0][0] == good


def test_a_key_that_is_none_or_weak_is_a_survey_out_of_order(page: Page, tmp_path: Path) -> None:
    public = public_of(tmp_path, one_question())
    keys: list[Any] = [
        None, {}, [], "key", {"n": RFC["n"]}, {**KEY, "d": "1"}, {"n": "zz", "e": "010001"},
        {"n": 7, "e": 7}, {"n": "f" * 256, "e": "010001"}, {"n": "f" * 511 + "e", "e": "010001"},
        {"n": RFC["n"], "e": "03"}, {"n": RFC["n"], "e": "01"}, {"n": "", "e": ""},
        {"n": "f" * 4_000_000, "e": "010001"},
    ]  # fmt: skip
    texts = [reply(public, key=key) for key in keys]
    assert page.evaluate(OFFERED, texts) == ["refused"] * len(keys)


def test_hostile_recipes_are_refused_by_both_or_have_one_price(page: Page) -> None:
    # The browser has a second for each thousand; a recipe that makes it hang fails the test.
    script = """async (texts) => {
      const { exactJson } = await import("/offered.js");
      const { BadSurvey, inputs, size } = await import("/recipes.js");
      const { price } = await import("/price.js");
      return texts.map((text) => {
        try {
          const recipe = exactJson(text);
          const cost = price({ ask: "all", questions: [{ recipe }] });
          return `${cost} ${inputs(recipe)} ${size(recipe)}`;
        } catch (problem) {
          return problem instanceof BadSurvey ? "refused" : `${problem.name}: ${problem.message}`;
        }
      });
    }"""
    texts = list(hostile_recipes(MANY, seed=5))
    found = within_seconds(MANY / 1000, lambda: page.evaluate(script, texts))
    expected = [_python(text) for text in texts]
    differ = [each for each in zip(texts, found, expected, strict=True) if each[1] != each[2]]
    assert differ == []
    taken = sum(each != "refused" for each in expected)
    assert MANY / 5 < taken < MANY * 4 / 5  # both are tried often


def _python(text: str) -> str:
    try:
        recipe = parse_exact_json(text.encode())
        exact_json(recipe)
        randomizer = from_recipe(recipe)
    except LapwingError:
        return "refused"
    return f"{billionths(randomizer.loss.epsilon)} {randomizer.inputs} {randomizer.size}"


def test_every_way_into_a_recipe_checks_it_first(page: Page) -> None:
    script = """async (recipe) => {
      const recipes = await import("/recipes.js");
      const { ratio } = await import("/price.js");
      const { Coins, randomize } = await import("/randomize.js");
      const { oddsInWords, sentInWords } = await import("/words.js");
      const range = { low: "0", high: "1", step: "1" };
      const question = { kind: "number", ...range, labels: [], no_answer: false, recipe };
      const ways = [
        () => recipes.checkedRecipe(recipe), () => recipes.inputs(recipe), () => recipes.messages(recipe),
        () => recipes.size(recipe), () => ratio(recipe), () => randomize(recipe, 1n, new Coins()),
        () => oddsInWords(question), () => sentInWords(question, new Uint8Array(1)),
      ];
      return ways.map((way) => {
        try {
          return String(way());
        } catch (problem) {
          return problem instanceof recipes.BadSurvey ? "refused" : String(problem);
        }
      });
    }"""
    sizes = {"steps": 1, "stride": 7, "width": 1, "none": 0, "favoured": 1 << 47}
    assert page.evaluate(script, {"kind": ["window"], **sizes, "options": 2}) == ["refused"] * 8
    assert "refused" not in page.evaluate(script, {"kind": "window", **sizes})


def test_a_recipe_cannot_change_after_it_was_checked(page: Page) -> None:
    script = """async (recipe) => {
      "use strict";
      const { checkedRecipe, inputs } = await import("/recipes.js");
      checkedRecipe(recipe);
      for (const change of [() => { recipe.letters = 3; }, () => { recipe.inner[0].options = 3; },
        () => recipe.levels.push(3), () => { recipe.inner.length = 0; }]) {
        try {
          change();
          return "changed";
        } catch {}
      }
      return inputs(recipe).toString();
    }"""
    inner = {"kind": "subset", "options": 32, "chosen": 1, "favoured": 1 << 44}
    recipe = {"kind": "prefixes", "letters": 2, "levels": [1], "inner": [inner]}
    assert page.evaluate(script, recipe) == str(1 << 10)
