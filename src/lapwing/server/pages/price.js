// What a survey costs the person who answers it, from the whole numbers of the recipes alone.
//
// The survey's owner is not trusted here: whatever price the survey states, this one is charged. A recipe
// that is not one of those that the page knows, or not in order, is refused. The unit is a billionth of ε,
// rounded up.

import { ODDS, inputs, messages } from "./throw.js";

export const UNIT = 1000000000n;
const PRECISION = 128n;
const MANY = 2 ** 62; // words of 12 letters; powers of two are exact here
const SLACK = 1n << 16n; // more than all roundings of logUp together

export class BadSurvey extends Error {}

function require(condition, why) {
  if (!condition) throw new BadSurvey(why);
}

function whole(recipe, name, least, most = Number.MAX_SAFE_INTEGER) {
  const number = recipe[name];
  const fine = Number.isInteger(number) && number >= least && number <= most;
  require(fine, `a question's recipe has an impossible number (${name})`);
  return number;
}

function coin(recipe, name) {
  return BigInt(whole(recipe, name, 1, Number(ODDS) - 1)); // a certain coin hides nothing
}

function isPrime(number) {
  if (number < 2) return false;
  for (let factor = 2; factor * factor <= number; factor++) if (number % factor === 0) return false;
  return true;
}

const atLeastOne = ([top, bottom]) => (top >= bottom ? [top, bottom] : [bottom, top]);
const larger = (one, other) => (one[0] * other[1] >= other[0] * one[1] ? one : other);

/** T (|Y| - |A|) / ((2^48 - T) |A|), or its inverse where that is above 1. */
function twoLevels(favoured, inside, outside) {
  return atLeastOne([favoured * outside, (ODDS - favoured) * inside]);
}

const RATIOS = {
  choice(recipe) {
    return twoLevels(coin(recipe, "favoured"), 1n, BigInt(whole(recipe, "options", 2)) - 1n);
  },
  subset(recipe) {
    const options = whole(recipe, "options", 2, 1 << 20);
    const chosen = whole(recipe, "chosen", 1, options - 1);
    return twoLevels(coin(recipe, "favoured"), BigInt(chosen), BigInt(options - chosen));
  },
  hadamard(recipe) {
    const bits = whole(recipe, "bits", 1, 1024);
    require(BigInt(whole(recipe, "options", 1, MANY)) < 1n << BigInt(bits), "a recipe has too few codes");
    return twoLevels(coin(recipe, "favoured"), 1n, 1n);
  },
  projective(recipe) {
    const q = BigInt(whole(recipe, "prime", 2, 1 << 24));
    require(isPrime(Number(q)), "a recipe needs a prime number");
    const t = BigInt(whole(recipe, "dimension", 2, 64));
    const all = messages(recipe);
    require(BigInt(whole(recipe, "options", 1, MANY)) <= all, "a recipe has too few codes");
    const inside = (q ** (t - 1n) - 1n) / (q - 1n);
    return twoLevels(coin(recipe, "favoured"), inside, all - inside);
  },
  bits(recipe) {
    const options = BigInt(whole(recipe, "options", 1, 4096));
    const [top, bottom] = twoLevels(coin(recipe, "favoured"), 1n, 1n);
    return [top ** options, bottom ** options];
  },
  unary(recipe) {
    whole(recipe, "options", 2, 1 << 20);
    const [one, zero] = [coin(recipe, "one"), coin(recipe, "zero")];
    return atLeastOne([one * (ODDS - zero), (ODDS - one) * zero]);
  },
  window(recipe) {
    whole(recipe, "steps", 1);
    whole(recipe, "stride", 1);
    whole(recipe, "none", 0, 1);
    const width = BigInt(whole(recipe, "width", 1));
    return twoLevels(coin(recipe, "favoured"), width, messages(recipe) - width);
  },
  duchi(recipe) {
    whole(recipe, "steps", 1);
    return twoLevels(coin(recipe, "favoured"), 1n, 1n + BigInt(whole(recipe, "none", 0, 1)));
  },
  hybrid(recipe) {
    const odds = BigInt(whole(recipe, "odds", 0, Number(ODDS)));
    const { window, duchi } = recipe;
    const kinds = window?.kind === "window" && duchi?.kind === "duchi";
    require(kinds && window.steps === duchi.steps && window.none === duchi.none, "a recipe does not fit");
    const both = [ratio(window), ratio(duchi)];
    if (odds === 0n || odds === ODDS) return both[odds ? 0 : 1]; // the coin never falls the other way
    return larger(...both);
  },
  prefixes(recipe) {
    const letters = whole(recipe, "letters", 1, 12);
    const { levels, inner } = recipe;
    const lists = Array.isArray(levels) && Array.isArray(inner) && levels.length === inner.length;
    require(lists && levels.length >= 1 && levels.length <= 255, "a recipe does not fit");
    const all = inner.map((each, i) => {
      const level = whole(levels, i, i ? levels[i - 1] + 1 : 1, letters);
      require(["prefixes", "hybrid"].includes(each?.kind) === false, "a recipe does not fit");
      const found = ratio(each);
      require(inputs(each) === 1n << BigInt(5 * level), "a recipe does not fit its letters");
      return found;
    });
    return all.reduce(larger);
  },
};

/** The largest ratio of the probabilities of one message under two answers, as [top, bottom]. */
export function ratio(recipe) {
  const known = recipe !== null && typeof recipe === "object" && Object.hasOwn(RATIOS, recipe.kind);
  require(known, "a question is of a kind that this page does not know");
  return RATIOS[recipe.kind](recipe);
}

/** ln(top / bottom) in billionths, rounded up; top >= bottom. */
export function logUp(top, bottom) {
  if (top === bottom) return 0n;
  const one = 1n << PRECISION;
  const twice = BigInt((top / bottom).toString(2).length - 1);
  const doubled = twice ? twice * series(1n, 3n, one) : 0n; // ln 2 = 2 atanh(1/3)
  const below = bottom << twice; // top / below lies in [1, 2)
  const sum = doubled + series(top - below, top + below, one) + SLACK * (twice + 1n);
  return (sum * UNIT + one - 1n) / one;
}

/** 2 atanh(top / bottom) in units of 1 / one, a little too small. */
function series(top, bottom, one) {
  let power = (top * one) / bottom;
  const square = (power * power) / one;
  let sum = 0n;
  for (let odd = 1n; power; odd += 2n) {
    sum += power / odd;
    power = (power * square) / one;
  }
  return 2n * sum;
}

/** What answering costs, in billionths of ε: all questions together, or the dearest if one is asked. */
export function price(survey) {
  const ratios = survey.questions.map((question) => ratio(question.recipe));
  const [top, bottom] =
    survey.ask === "one"
      ? ratios.reduce(larger)
      : ratios.reduce(([a, b], [c, d]) => [a * c, b * d], [1n, 1n]);
  return logUp(top, bottom);
}
