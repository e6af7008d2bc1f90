// Computes the price of a survey for the person who answers it, from the whole numbers of the recipes alone.
//
// The survey's owner is not trusted here: whatever price the survey states, this one is charged. An incorrect
// recipe is refused (recipes.js). The unit is a billionth of ε, rounded up.

import { ODDS, checkedRecipe, messages, points, require } from "./recipes.js";

export const UNIT = 1000000000n;
const PRECISION = 128n;
const SLACK = 1n << 16n; // more than all roundings of logUp together

const larger = (one, other) => (one[0] * other[1] >= other[0] * one[1] ? one : other);

/** Returns T (|Y| - |A|) / ((2^48 - T) |A|) as [top, bottom]. */
function twoLevels(recipe, inside, outside) {
  require(inside > 0n && outside > 0n, "a recipe has no other message to hide among");
  const favoured = BigInt(recipe.favoured);
  return [favoured * outside, (ODDS - favoured) * inside];
}

const RATIOS = {
  choice: (recipe) => twoLevels(recipe, 1n, BigInt(recipe.options) - 1n),
  subset: (recipe) => twoLevels(recipe, BigInt(recipe.chosen), BigInt(recipe.options - recipe.chosen)),
  hadamard: (recipe) => twoLevels(recipe, 1n, 1n),
  projective: (recipe) => twoLevels(recipe, points(recipe, 1), points(recipe) - points(recipe, 1)),
  bits(recipe) {
    const [top, bottom] = twoLevels(recipe, 1n, 1n);
    return [top ** BigInt(recipe.options), bottom ** BigInt(recipe.options)];
  },
  unary(recipe) {
    const [one, zero] = [BigInt(recipe.one), BigInt(recipe.zero)];
    return [one * (ODDS - zero), (ODDS - one) * zero];
  },
  window: (recipe) => twoLevels(recipe, BigInt(recipe.width), messages(recipe) - BigInt(recipe.width)),
  duchi: (recipe) => twoLevels(recipe, 1n, messages(recipe) - 1n),
  hybrid(recipe) {
    const odds = BigInt(recipe.odds);
    if (odds === 0n) return ratio(recipe.duchi); // the window is never drawn
    return odds === ODDS ? ratio(recipe.window) : larger(ratio(recipe.window), ratio(recipe.duchi));
  },
  prefixes: (recipe) => recipe.inner.map(ratio).reduce(larger),
};

/** Returns the greatest ratio of a message's probabilities under two answers, as [top, bottom]. */
export function ratio(recipe) {
  return RATIOS[checkedRecipe(recipe).kind](recipe);
}

/** Returns ln(top / bottom) in billionths, rounded up, for top >= bottom > 0. */
export function logUp(top, bottom) {
  require(bottom > 0n && top >= bottom, "a recipe's odds are impossible");
  if (top === bottom) return 0n;
  const one = 1n << PRECISION;
  const twice = BigInt((top / bottom).toString(2).length - 1);
  const doubled = twice ? twice * series(1n, 3n, one) : 0n; // ln 2 = 2 atanh(1/3)
  const below = bottom << twice; // top / below lies in [1, 2)
  const sum = doubled + series(top - below, top + below, one) + SLACK * (twice + 1n);
  return (sum * UNIT + one - 1n) / one;
}

/** Returns 2 atanh(top / bottom) in units of 1 / one, a little too small. */
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

/** Returns the greatest ratio of a whole report's probabilities: of all questions together, or of one. */
export function worstRatio(survey) {
  const ratios = survey.questions.map(({ recipe }) => ratio(recipe));
  if (survey.ask === "one") return ratios.reduce(larger);
  return ratios.reduce(([a, b], [c, d]) => [a * c, b * d], [1n, 1n]);
}

/** Returns the price of answering, in billionths of ε. */
export function price(survey) {
  return logUp(...worstRatio(survey));
}
