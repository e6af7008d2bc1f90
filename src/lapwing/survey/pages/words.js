// Says the possible messages and their odds in plain words, and the message that was sent.
//
// The words come from the recipe's whole numbers, never from the owner's text. They are the same as in
// survey/message_words.py; only `inShort` has no twin there.

import { distance, said, valueAt, NO_ANSWER } from "./coding.js";
import { ratio, worstRatio } from "./price.js";
import { ODDS, checkedRecipe, messages, points, size as sizeOf } from "./recipes.js";
import { fromBytes } from "./randomize.js";

const LISTED = 12;

/** Returns a chance of top / bottom as 73.1 %, or 1 in 512. */
export function chance(top, bottom) {
  if (top * 100n < bottom) return top ? `1 in ${grouped((2n * bottom + top) / (2n * top))}` : "none";
  const tenths = (top * 2000n + bottom) / (2n * bottom);
  if (tenths >= 1000n && top < bottom) return "more than 99.9 %";
  return `${tenths / 10n}.${tenths % 10n} %`;
}

export const grouped = (number) => number.toString().replace(/\B(?=(\d{3})+$)/g, ",");

/** Returns the chance of a coin with T chances in 2^48. */
const coin = (favoured) => chance(BigInt(favoured), ODDS);

const quoted = (label) => `“${label}”`;

function choice(question, recipe) {
  const count = BigInt(recipe.options);
  const favoured = BigInt(recipe.favoured);
  const listed =
    count <= LISTED
      ? Array.from({ length: Number(count) }, (_, code) => quoted(said(question, BigInt(code)))).join(", ")
      : `the ${grouped(count)} possible answers`;
  const others = count === 2n ? "The other one" : "Each other one";
  return [
    `The message is one of ${listed}.`,
    `It is your own answer: chance ${coin(favoured)}. ` +
      `${others}: chance ${chance(ODDS - favoured, ODDS * (count - 1n))}.`,
  ];
}

function onList(first, mine, other) {
  return [first, `Your own answer is on the list: chance ${mine}. Each other one is on it: chance ${other}.`];
}

function subset(question, recipe) {
  const [count, chosen, favoured] = [BigInt(recipe.options), BigInt(recipe.chosen), BigInt(recipe.favoured)];
  const other = favoured * (chosen - 1n) + (ODDS - favoured) * chosen;
  return onList(
    `The message is a list of ${chosen} out of the ${grouped(count)} possible answers.`,
    coin(favoured),
    chance(other, ODDS * (count - 1n)),
  );
}

function unary(question, recipe) {
  return onList(
    `The message is a list. For each of the ${grouped(BigInt(recipe.options))} possible answers ` +
      "a coin decides whether it is on it.",
    coin(recipe.one),
    coin(recipe.zero),
  );
}

/** Returns the numbers of codes that fit one answer, that fit both of two answers, and of all codes. */
function codes(recipe) {
  const all = messages(recipe);
  if (recipe.kind === "hadamard") return [2n, 1n, 4n];
  return [points(recipe, 1), points(recipe, 2), all];
}

function numbered(question, recipe) {
  const favoured = BigInt(recipe.favoured);
  const [inside, both, all] = codes(recipe);
  const outside = all - inside;
  const other = favoured * both * outside + (ODDS - favoured) * (inside - both) * inside;
  return [
    `The message is a number from 0 to ${grouped(messages(recipe) - 1n)}. Every number fits many answers.`,
    `It fits your own answer: chance ${coin(favoured)}. ` +
      `It fits some other given answer: chance ${chance(other, ODDS * inside * outside)}.`,
  ];
}

function bits(question, recipe) {
  const favoured = BigInt(recipe.favoured);
  return [
    "The message is the list with its ticks. For every line a coin of its own is thrown.",
    `A line is sent as you left it: chance ${coin(favoured)}. ` +
      `It is sent the other way round: chance ${coin(ODDS - favoured)}.`,
  ];
}

const orNone = (recipe) => (recipe.none ? `, or ${quoted(NO_ANSWER)}` : "");

function noneOdds(favoured, other, all) {
  return (
    `${quoted(NO_ANSWER)} is sent if you give none: chance ${coin(favoured)}; ` +
    `if you give an answer: chance ${chance(other, all)}.`
  );
}

function inWindow(question, recipe) {
  const favoured = BigInt(recipe.favoured);
  const [steps, stride, width] = [BigInt(recipe.steps), BigInt(recipe.stride), BigInt(recipe.width)];
  const [low, high] = [shown(question, recipe, 0n), shown(question, recipe, steps * stride + width - 1n)];
  const outside = messages(recipe) - width;
  const words = [
    `The message is a value between ${low} and ${high}${orNone(recipe)}.`,
    `It lies at most ${reach(question, recipe)} away from your answer: chance ${coin(favoured)}. ` +
      `It is anything else: chance ${coin(ODDS - favoured)}.`,
  ];
  if (recipe.none) words.push(noneOdds(favoured, (ODDS - favoured) * width, ODDS * outside));
  return words;
}

/** Returns the value of a window's message: the middle of the answers that favour it. */
function shown(question, recipe, message) {
  return valueAt(question, 2n * message - (BigInt(recipe.width) - 1n), 2n * BigInt(recipe.stride));
}

/** Returns the greatest distance of a window's messages from the answer, in words. */
function reach(question, { stride, width }) {
  return distance(question, BigInt(width) - 1n, 2n * BigInt(stride));
}

function duchi(question, recipe) {
  const favoured = BigInt(recipe.favoured);
  const [low, high] = [valueAt(question, 0n), valueAt(question, BigInt(recipe.steps))];
  const others = ODDS * (1n + BigInt(recipe.none));
  const words = [
    `The message is only ${low} or ${high}${orNone(recipe)}.`,
    `If your answer is ${low}, it is ${low}: chance ${coin(favoured)}, ` +
      `and ${high}: chance ${chance(ODDS - favoured, others)}. ` +
      `The higher your answer, the more often it is ${high}.`,
  ];
  if (recipe.none) words.push(noneOdds(favoured, ODDS - favoured, others));
  return words;
}

/** Returns the only part of a hybrid that is ever used, if its coin is certain; else undefined. */
function onlyWay(recipe) {
  if (recipe.odds === 0) return recipe.duchi;
  return BigInt(recipe.odds) === ODDS ? recipe.window : undefined;
}

function hybrid(question, recipe) {
  const [wide, only] = [BigInt(recipe.odds), onlyWay(recipe)];
  if (only) return ODDS_WORDS[only.kind](question, only);
  return [
    "First a coin chooses one of two ways. Which one is sent along.",
    `First way, chance ${coin(wide)}: ${inWindow(question, recipe.window).join(" ")}`,
    `Second way, chance ${coin(ODDS - wide)}: ${duchi(question, recipe.duchi).join(" ")}`,
  ];
}

function prefixes(question, recipe) {
  const levels = recipe.levels.join(", ");
  return [
    `First it is drawn how many letters of your word count: ${levels}, all equally likely. How many is sent along.`,
    ...recipe.levels.map((level, i) => {
      const inner = ODDS_WORDS[recipe.inner[i].kind](letters(level), recipe.inner[i]);
      return `If ${level} count: ${inner.join(" ")}`;
    }),
  ];
}

/** A question whose answer is a word of `level` letters. */
const letters = (level) => ({ kind: "word", letters: level, no_answer: true });

const ODDS_WORDS = {
  choice, subset, unary, hadamard: numbered, projective: numbered, bits, window: inWindow, duchi, hybrid, prefixes,
};

/** Returns the possible messages and their odds, as sentences. */
export function oddsInWords(question) {
  const [top, bottom] = ratio(question.recipe);
  const tenths = (top * 10n + bottom - 1n) / bottom;
  return [
    ...ODDS_WORDS[checkedRecipe(question.recipe).kind](question, question.recipe),
    `No message is more than ${grouped(tenths / 10n)}.${tenths % 10n} times as likely ` +
      "with one answer as with another.",
  ];
}

/** Returns how likely one of two equally likely answers can become: rounded up, below 100 %. */
export function likely(top, bottom) {
  for (let unit = 10n; ; unit *= 10n) {
    const parts = (top * 100n * unit + top + bottom - 1n) / (top + bottom);
    if (parts < 100n * unit) return `${parts / unit}.${(parts % unit).toString().padStart(`${unit}`.length - 1, "0")} %`;
  }
}

const LEADS = [
  [3n, 1n, "So nobody can be sure what you answered."],
  [7389057n, 1000000n, "So what is sent hints at what you answered, and does not settle it."], // ε 2
  [99n, 1n, "But what is sent can show what you answered."],
];
const LITTLE = "But what is sent can all but settle what you answered: the coins hide little.";

/** Returns the privacy of all questions together, in two sentences. */
export function promise(survey) {
  const [top, bottom] = worstRatio(survey);
  const [, , lead] = LEADS.find(([most, of]) => top * of <= bottom * most) ?? [0n, 0n, LITTLE];
  const count = survey.ask === "one" ? 1 : survey.questions.length;
  const two = count > 1 ? `two sets of answers to all ${count} questions` : "two answers";
  return `${lead} If ${two} seem equally likely before, one of them may be up to ${likely(top, bottom)} likely afterwards.`;
}

const sendsList = (top) => `A list is sent. Your own answer is on it: chance ${coin(top)}.`;
const sendsCode = ({ favoured }) => `A code is sent that fits many answers. It fits yours: chance ${coin(favoured)}.`;

/** Returns the messages of Duchi's method in words. */
function ends(question, { steps, none }) {
  const all = [valueAt(question, 0n), valueAt(question, BigInt(steps)), ...(none ? [quoted(NO_ANSWER)] : [])];
  return `${all.slice(0, -1).join(", ")} or ${all.at(-1)}`;
}

const SHORT = {
  choice: (question, { favoured }) => `Your own answer is sent: chance ${coin(favoured)}.`,
  subset: (question, { favoured }) => sendsList(favoured),
  unary: (question, { one }) => sendsList(one),
  hadamard: (question, recipe) => sendsCode(recipe),
  projective: (question, recipe) => sendsCode(recipe),
  bits: (question, { favoured }) => `Each line is sent as you left it: chance ${coin(favoured)}.`,
  window: (question, recipe) =>
    `What is sent lies at most ${reach(question, recipe)} away from your answer: chance ${coin(recipe.favoured)}.`,
  duchi(question, recipe) {
    const most = `chance ${coin(recipe.favoured)}`;
    return `Only ${ends(question, recipe)} is sent, by a coin that your answer tilts: each ${most} at most.`;
  },
  hybrid(question, recipe) {
    const only = onlyWay(recipe);
    if (only) return SHORT[only.kind](question, only);
    const { window, duchi } = recipe;
    return `First way, chance ${coin(recipe.odds)}: at most ${reach(question, window)} from your answer, ` +
      `chance ${coin(window.favoured)}. Second: only ${ends(question, duchi)}.`;
  },
  prefixes(question, { inner }) {
    const least = inner.map(({ favoured }) => BigInt(favoured)).reduce((a, b) => (a < b ? a : b));
    return `A code for the first letters is sent. It fits yours: chance ${coin(least)} or more.`;
  },
};

/** Returns the most important odds in one sentence. `oddsInWords` says the rest. */
export function inShort(question) {
  return SHORT[checkedRecipe(question.recipe).kind](question, question.recipe);
}

/** Returns the options in a set: option j is bit j % 8 of byte j // 8. */
function optionsIn(bytes, count) {
  const every = Array.from({ length: count }, (_, option) => option);
  return every.filter((option) => (bytes[option >> 3] >> (option & 7)) & 1);
}

function several(names) {
  const first = names.slice(0, LISTED).map(quoted).join(", ");
  return names.length > LISTED ? `${first} and ${grouped(names.length - LISTED)} more` : first;
}

/** Returns the content of a message in words. */
export function sentInWords(question, bytes, recipe = question.recipe) {
  switch (checkedRecipe(recipe).kind) {
    case "choice": return quoted(said(question, fromBytes(bytes)));
    case "subset":
    case "unary": {
      const codes = optionsIn(bytes, recipe.options);
      const names = codes.map((code) => said(question, BigInt(code)));
      return names.length ? `the list ${several(names)}` : "an empty list";
    }
    case "bits": {
      const ticked = optionsIn(bytes, recipe.options).map((place) => question.labels[place]);
      return ticked.length ? `the list with ticks at ${several(ticked)}` : "the list without ticks";
    }
    case "window": {
      const message = fromBytes(bytes);
      const values = BigInt(recipe.steps) * BigInt(recipe.stride) + BigInt(recipe.width);
      return message < values ? `the value ${shown(question, recipe, message)}` : quoted(NO_ANSWER);
    }
    case "duchi":
      if (bytes[0] === 2) return quoted(NO_ANSWER);
      return `the value ${valueAt(question, bytes[0] ? BigInt(recipe.steps) : 0n)}`;
    case "hybrid": {
      const inner = bytes[0] ? recipe.window : recipe.duchi;
      const words = sentInWords(question, bytes.slice(1, 1 + sizeOf(inner)), inner);
      return onlyWay(recipe) ? words : `the ${bytes[0] ? "first" : "second"} way, and ${words}`;
    }
    case "prefixes": {
      const [level, inner] = [recipe.levels[bytes[0]], recipe.inner[bytes[0]]];
      const message = bytes.slice(1, 1 + sizeOf(inner));
      return `${level} letters count, and ${sentInWords(letters(level), message, inner)}`;
    }
    default: return `the number ${grouped(fromBytes(bytes))}`;
  }
}
