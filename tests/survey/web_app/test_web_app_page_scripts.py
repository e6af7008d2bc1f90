"""The page's scripts in a real browser: the same messages, law, price and words as in Python."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from lapwing.errors import BadParameter
from lapwing.survey.message_words import promise_in_words
from lapwing.survey.offered import read_offered
from lapwing.survey.randomizers import from_recipe
from support.coins import SMALL, law_of, most_coins
from support.estimated import designed
from support.slowly import slow

SURVEY = Path(__file__).parents[2] / "survey"
VECTORS = json.loads((SURVEY / "vectors.json").read_text())
RFC = json.loads((SURVEY / "rfc9474.json").read_text())
WALK = """async ([recipe, answer, most]) => {
  const { randomize } = await import("/randomize.js");
  const found = [];
  let told = [];
  while (told) {
    const path = [];
    const next = (kind, size) => {
      if (most !== null && path.length === most) throw "too deep";
      const fell = told[path.length] ?? 0;
      path.push([kind, size.toString(), fell]);
      return fell;
    };
    const source = { odds: (of) => next("odds", of) === 1, below: (bound) => BigInt(next("below", bound)) };
    let message = null;
    try {
      message = Array.from(randomize(recipe, BigInt(answer), source));
    } catch (problem) {
      if (problem !== "too deep") throw problem;
    }
    found.push([path, message]);
    let at = path.length - 1;
    while (at >= 0 && path[at][2] + 1 >= (path[at][0] === "odds" ? 2 : Number(path[at][1]))) at--;
    told = at < 0 ? null : [...path.slice(0, at).map((step) => step[2]), path[at][2] + 1];
  }
  return found;
}"""


@pytest.mark.parametrize(
    "recipe",
    [slow(recipe) if recipe["kind"] == "prefixes" else recipe for recipe in SMALL],
    ids=lambda recipe: f"{recipe['kind']}",
)
def test_every_branch_together_is_exactly_the_stated_law(page: Page, recipe: dict[str, Any]) -> None:
    randomizer = from_recipe(recipe)
    every = from_recipe(recipe).inputs
    for answer in range(every) if every <= 32 else (0, 33, every - 1):
        found = page.evaluate(WALK, [recipe, str(answer), most_coins(recipe)])
        walked = [
            (
                [(kind, int(size), fell) for kind, size, fell in path],
                None if message is None else bytes(message),
            )
            for path, message in found
        ]
        law = law_of(walked)
        assert sum(law.values()) == 1
        assert law == {message: randomizer.probability(answer, message) for message in law}


def test_the_vectors_hold(page: Page) -> None:
    script = """async (questions) => {
      const { Coins, randomize } = await import("/randomize.js");
      const { fromHex, toHex } = await import("/blind.js");
      const { said } = await import("/coding.js");
      const { sentInWords } = await import("/words.js");
      return questions.map(({ question, throws }) => throws.map(({ answer, coins }) => {
        const bytes = fromHex(coins);
        let at = 0;
        const source = new Coins((count) => bytes.slice(at, (at += count)));
        const message = randomize(question.recipe, BigInt(answer), source);
        return {
          answer,
          said: said(question, BigInt(answer)),
          coins: at === bytes.length ? coins : "not all taken",
          message: toHex(message),
          sent: sentInWords(question, message),
        };
      }));
    }"""
    found = page.evaluate(script, VECTORS["questions"])
    assert found == [question["throws"] for question in VECTORS["questions"]]


def test_prices_and_words_are_those_of_python(page: Page) -> None:
    script = """async (questions) => {
      const { price } = await import("/price.js");
      const { oddsInWords } = await import("/words.js");
      const every = questions.map(({ question }) => question);
      return {
        all: price({ ask: "all", questions: every }).toString(),
        one: price({ ask: "one", questions: every }).toString(),
        each: every.map((each) => [price({ ask: "all", questions: [each] }).toString(), oddsInWords(each)]),
      };
    }"""
    found = page.evaluate(script, VECTORS["questions"])
    assert found["each"] == [[each["price"], each["odds"]] for each in VECTORS["questions"]]
    assert found["all"] == VECTORS["all"]
    assert int(found["one"]) == max(int(each["price"]) for each in VECTORS["questions"])


# Case C9.
def test_the_promise_is_that_of_python_and_follows_the_odds(page: Page, tmp_path: Path) -> None:
    script = """async (surveys) => {
      const { promise } = await import("/words.js");
      return surveys.map(promise);
    }"""
    binary = 'kind = "yes_no"\nno_answer = false'
    surveys = [
        designed(tmp_path, *[binary] * count, epsilon=epsilon, ask=ask).public()
        for count, epsilon, ask in [
            (1, "1", "all"), (1, "2", "all"), (8, "2", "one"), (8, "4", "all"), (1, "4", "all"),
            (1, "5", "all"), (1, "8", "all"), (20, "8", "all"),
        ]
    ]  # fmt: skip
    found = page.evaluate(script, surveys)
    assert found == [promise_in_words(read_offered(survey)) for survey in surveys]
    assert found[0] == (
        "So nobody can be sure what you answered. If two answers seem equally likely before, one of them "
        "may be up to 73.2 % likely afterwards."
    )
    for text, likely in zip(found[1:], ("88.1 %", "88.1 %", "98.3 %", "98.3 %", "99.4 %"), strict=False):
        assert f"up to {likely}" in text
        assert "nobody can be sure" not in text
    assert "two sets of answers to all 8 questions" in found[3]
    assert found[6].startswith(
        "But what is sent can all but settle what you answered: the coins hide little."
    )
    assert "up to 99.97 % likely" in found[6]


def test_each_question_is_told_in_one_sentence_with_its_own_chance(page: Page) -> None:
    script = """async (questions) => {
      const { inShort } = await import("/words.js");
      return questions.map(({ question }) => inShort(question));
    }"""
    found = page.evaluate(script, VECTORS["questions"])
    for short, each in zip(found, VECTORS["questions"], strict=True):
        assert len(short) <= 110
        chances = re.findall(r"chance (?:more than )?[\d.]+ %|chance 1 in [\d,]+", short)
        assert all(chance in " ".join(each["odds"]) for chance in chances)
        assert chances


def test_the_one_sentence_for_a_number_leaves_out_no_message(page: Page, tmp_path: Path) -> None:
    """Of those that are few: the ends of the range, and "no answer" wherever that may be sent."""
    script = """async (questions) => {
      const { inShort, sentInWords } = await import("/words.js");
      return questions.map((question) => {
        const duchi = question.recipe.duchi ?? question.recipe;
        const messages = Array.from({ length: 2 + duchi.none }, (_, at) => new Uint8Array([at]));
        return [inShort(question), messages.map((each) => sentInWords(question, each, duchi))];
      });
    }"""
    wanted = [
        designed(tmp_path, f'kind = "number"\nlow = 0\nhigh = 10\nstep = 1{more}', epsilon=epsilon)
        for epsilon in ("0.5", "2")
        for more in ("", "\nno_answer = false")
    ]
    numbers = [question for each in wanted for question in each.public()["questions"]]
    numbers += [each["question"] for each in VECTORS["questions"]]
    numbers = [each for each in numbers if each["recipe"]["kind"] in ("duchi", "hybrid")]
    assert {each["recipe"]["kind"] for each in numbers} == {"duchi", "hybrid"}
    for (short, messages), question in zip(page.evaluate(script, numbers), numbers, strict=True):
        named = [message.removeprefix("the value ") for message in messages]
        assert f"nly {', '.join(named[:-1])} or {named[-1]}" in short, question


def test_logarithms_are_rounded_up_to_the_next_billionth(page: Page) -> None:
    script = """async (pairs) => {
      const { logUp } = await import("/price.js");
      return pairs.map(([top, bottom]) => logUp(BigInt(top), BigInt(bottom)).toString());
    }"""
    pairs = [(1, 1), (2, 1), (3, 1), (3, 2), (10**30 + 1, 10**30), (7**200, 1), (1 << 96, (1 << 96) - 1)]
    found = page.evaluate(script, [[str(top), str(bottom)] for top, bottom in pairs])
    exactly = [0, 693147181, 1098612289, 405465109, 1, 389182029812, 1]
    assert [int(each) for each in found] == exactly


def test_answers_are_numbered_as_in_python(page: Page) -> None:
    script = """async ([questions, given]) => {
      const { answers, codeOf } = await import("/coding.js");
      return {
        codes: given.map((each) => codeOf(questions[each.question].question, each.given).toString()),
        counts: questions.map(({ question }) => answers(question).toString()),
      };
    }"""
    found = page.evaluate(script, [VECTORS["questions"], VECTORS["answers"]])
    assert found["codes"] == [each["code"] for each in VECTORS["answers"]]
    counts = [str(from_recipe(each["question"]["recipe"]).inputs) for each in VECTORS["questions"]]
    assert found["counts"] == counts


WRONG: tuple[Any, ...] = (
    None, "choice", {"kind": "toString"}, {"kind": "__proto__"}, {"kind": "unknown"},
    {"kind": "choice", "options": 2, "favoured": 1 << 48}, {"kind": "choice", "options": 2, "favoured": 0},
    {"kind": "choice", "options": 2, "favoured": 1.5}, {"kind": "choice", "options": 2, "favoured": "9"},
    {"kind": "choice", "options": 1, "favoured": 9},
    {"kind": "subset", "options": 4, "chosen": 4, "favoured": 9},
    {"kind": "hadamard", "bits": 2, "options": 4, "favoured": 9},
    {"kind": "projective", "prime": 9, "dimension": 3, "options": 4, "favoured": 9},
    {"kind": "projective", "prime": 2, "dimension": 2, "options": 4, "favoured": 9},
    {"kind": "unary", "options": 4, "one": 1 << 47, "zero": 0},
    {"kind": "unary", "options": 4, "one": 1 << 47, "zero": 1 << 47},
    {"kind": "choice", "options": 4, "favoured": 1 << 46},
    {"kind": "bits", "options": 2, "favoured": 1 << 47},
    {"kind": "projective", "prime": 2147483647, "dimension": 4, "options": 2, "favoured": 9 << 44},
    {"kind": "window", "steps": 3, "stride": 0, "width": 2, "none": 0, "favoured": 9},
    {"kind": "duchi", "steps": 3, "none": 2, "favoured": 9},
    {"kind": "hybrid", "odds": 9, "window": {"kind": "duchi", "steps": 3, "none": 0, "favoured": 9}},
    {
        "kind": "prefixes", "letters": 2, "levels": [2],
        "inner": [{"kind": "choice", "options": 9, "favoured": 9}],
    },
)  # fmt: skip


def test_recipes_that_are_out_of_order_are_refused(page: Page) -> None:
    script = """async (recipes) => {
      const { BadSurvey } = await import("/recipes.js");
      const { ratio } = await import("/price.js");
      return recipes.map((recipe) => {
        try {
          ratio(recipe);
          return "taken";
        } catch (problem) {
          return problem instanceof BadSurvey ? "refused" : String(problem);
        }
      });
    }"""
    assert page.evaluate(script, list(WRONG)) == ["refused"] * len(WRONG)
    for recipe in WRONG:
        with pytest.raises(BadParameter):
            from_recipe(recipe)


def test_the_browser_coins_take_bytes_as_in_python(page: Page) -> None:
    script = """async (bounds) => {
      const { Coins } = await import("/randomize.js");
      return bounds.map((bound) => Array.from({ length: 256 }, (_, byte) => {
        const bytes = [byte, 0];
        const fell = new Coins((count) => bytes.splice(0, count)).below(BigInt(bound));
        return [Number(fell), bytes.length];
      }));
    }"""
    bounds = [2, 3, 5, 8, 100, 200, 255, 256]
    for bound, found in zip(bounds, page.evaluate(script, bounds), strict=True):
        firsts = [fell for fell, left in found if left == 1]
        every = {each: firsts.count(each) for each in range(bound)}
        assert set(every.values()) == {1 << (8 - (bound - 1).bit_length())}


def test_randomness_comes_from_the_browser_and_long_pieces_are_whole(page: Page) -> None:
    script = """async () => {
      const { freshBytes } = await import("/randomize.js");
      const before = crypto.getRandomValues;
      const sizes = [];
      crypto.getRandomValues = (bytes) => { sizes.push(bytes.length); return before.call(crypto, bytes); };
      const ends = Array.from(freshBytes(70000).slice(-64));
      crypto.getRandomValues = before;
      return [sizes, ends.some((byte) => byte)];
    }"""
    assert page.evaluate(script) == [[65536, 4464], True]


def test_coins_of_the_browser_follow_their_odds(page: Page) -> None:
    script = """async () => {
      const { Coins } = await import("/randomize.js");
      const coins = new Coins();
      let heads = 0;
      for (let i = 0; i < 40000; i++) heads += coins.odds(3n << 46n);
      return heads;
    }"""
    share = Fraction(page.evaluate(script), 40000)
    assert abs(share - Fraction(3, 4)) < Fraction(1, 50)  # 9 standard errors


def test_blind_signatures_are_those_of_the_standard(page: Page) -> None:
    # RFC 9474, appendix A, RSABSSA-SHA384-PSS-Randomized: the blinding is r, the inverse of "inv".
    n = int(RFC["n"], 16)
    factor = pow(int(RFC["inv"], 16), -1, n).to_bytes(len(RFC["n"]) // 2, "big")
    script = """async ([rfc, factor]) => {
      const { blind, finalize, fromHex, publicKey, toHex } = await import("/blind.js");
      const key = publicKey({ n: rfc.n, e: rfc.e });
      const draws = [fromHex(rfc.salt), fromHex(factor)];
      const prepared = fromHex(rfc.prepared_msg);
      const { blinded, inverse } = await blind(prepared, key, () => draws.shift());
      const signature = await finalize(prepared, fromHex(rfc.blind_sig), inverse, key);
      const forged = fromHex(rfc.blind_sig);
      forged[9] ^= 1;
      const refused = await finalize(prepared, forged, inverse, key).catch((problem) => problem.message);
      return [toHex(blinded), toHex(inverse), toHex(signature), refused];
    }"""
    found = page.evaluate(script, [RFC, factor.hex()])
    assert found == [RFC["blinded_msg"], RFC["inv"], RFC["sig"], "the signature is wrong"]


def test_a_weak_key_is_refused(page: Page) -> None:
    script = """async (keys) => {
      const { publicKey } = await import("/blind.js");
      return keys.map((key) => {
        try {
          return String(publicKey(key));
        } catch (problem) {
          return problem.message;
        }
      });
    }"""
    weak = [
        {"n": "f" * 256, "e": "010001"},
        {"n": "f" * 511 + "e", "e": "010001"},
        {"n": RFC["n"], "e": "03"},
    ]
    assert page.evaluate(script, weak) == ["the server's key is too weak"] * 3
