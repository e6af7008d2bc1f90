// Reads a survey. The owner's statements about price, odds or sizes are not believed.
//
// Only fields that the digest covers are used. The digest is computed here, and a survey with an unknown field
// is refused: so nothing in a survey can mark one respondent unseen. survey/offered.py does the same.

import { publicKey, toHex } from "./blind.js";
import { NO_ANSWER, NotAnswered, answers, dayRange, decimalRange, options } from "./coding.js";
import { UNIT, price } from "./price.js";
import { BadSurvey, hasExactly, inputs, isExact, require, size } from "./recipes.js";

const REPLY = ["survey", "digest", "key", "version"];
const SURVEY = [
  "format", "name", "title", "text", "ask", "epsilon", "lifetime", "stops", "report_size", "questions",
];
const QUESTION = [
  "name", "text", "kind", "about", "labels", "no_answer", "inputs", "epsilon", "protocol", "odds", "size", "recipe",
];
const RANGE = ["low", "high", "step"];
// The further fields of each kind, and the least and most options to choose from.
const KINDS = {
  yes_no: { more: [], least: 2, most: 2 },
  choice: { more: [], least: 2, most: 1 << 20 },
  several: { more: ["as"], least: 2, most: 60 },
  rating: { more: [], least: 2, most: 100 },
  ranking: { more: [], least: 2, most: 6 },
  number: { more: RANGE, least: 0, most: 0 },
  date: { more: RANGE, least: 0, most: 0 },
  word: { more: ["letters"], least: 0, most: 0 },
};
const MOST_QUESTIONS = 100;
const MOST_IN_SETS = 12;
const MOST_STEPS = 1n << 16n;
const MOST_LETTERS = 12;
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;
const EPSILON = /^(\d{1,18})(?:\.(\d{1,9}))?$/;
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
const WHOLE = /^-?\d+$/;

/** Parses JSON whose numbers are all whole and read exactly, or throws `BadSurvey`. */
export function exactJson(text) {
  let found;
  try {
    found = JSON.parse(text);
    for (const [token] of text.matchAll(TOKENS)) {
      if (token[0] === '"') continue;
      const exact = WHOLE.test(token) && isExact(Number(token)) && BigInt(token) === BigInt(Number(token));
      require(exact, "a number in it is not whole, or too large");
    }
  } catch (problem) {
    throw problem instanceof BadSurvey ? problem : new BadSurvey("its text cannot be read");
  }
  return found;
}

/** Returns the text that is hashed: names sorted, no spaces, and only ASCII, as Python's json writes it. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const names = Object.keys(value).sort(); // all names are known, so they are ASCII
    return `{${names.map((name) => `${canonical(name)}:${canonical(value[name])}`).join(",")}}`;
  }
  if (typeof value === "number") {
    require(isExact(value), "a number in it is not whole, or too large");
    return BigInt(value).toString();
  }
  const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, escaped);
}

/** Returns the digest of a survey: the SHA-256 of its canonical text. */
export async function digestOf(survey) {
  const bytes = new TextEncoder().encode(canonical(survey));
  return toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}

function requireTexts(value, names) {
  require(names.every((name) => typeof value[name] === "string"), "one of its texts is none");
}

function checkLabels(question) {
  const { labels, no_answer: none, kind } = question;
  const fine = Array.isArray(labels) && labels.every((label) => typeof label === "string" && label !== "");
  require(fine && typeof none === "boolean", "the options of a question are not texts");
  require(new Set(labels).size === labels.length, "an option of a question comes twice");
  const { least, most } = KINDS[kind];
  if (most === 0) {
    require(labels.length === 0, "a question has options that it cannot have");
    return;
  }
  require(labels.includes(NO_ANSWER) === none && (!none || labels.at(-1) === NO_ANSWER),
    "a question is not clear about “no answer”");
  const count = options(question).length;
  const limit = question.as === "set" ? MOST_IN_SETS : most;
  require(count >= least && count <= limit, "a question has too few or too many options");
}

function checkRange(question) {
  requireTexts(question, RANGE);
  const [low, high, step] = question.kind === "date" ? dayRange(question) : decimalRange(question);
  require(step > 0n && low < high && high - low >= step, "the range of a question is impossible");
  require(question.kind === "date" || (high - low) % step === 0n, "the steps of a question do not fit its range");
  require((high - low) / step <= MOST_STEPS, "a question has too many steps");
}

function checkQuestion(question) {
  const kind = question?.kind;
  require(typeof kind === "string" && Object.hasOwn(KINDS, kind), "a question is of a kind that this page does not know");
  require(hasExactly(question, [...QUESTION, ...KINDS[kind].more]), "a question has other fields than its kind");
  requireTexts(question, ["name", "text", "about", "epsilon", "protocol", "odds"]);
  require(NAME.test(question.name), "a question has an impossible name");
  const { recipe } = question;
  const takes = inputs(recipe); // the recipe is checked by this
  if (kind === "several") require(question.as === (recipe.kind === "bits" ? "bits" : "set"), "a recipe does not fit");
  checkLabels(question);
  if (KINDS[kind].more === RANGE) checkRange(question);
  if (kind === "word") {
    const { letters } = question;
    require(Number.isSafeInteger(letters) && letters >= 1 && letters <= MOST_LETTERS, "a word has impossible letters");
  }
  const counted = [question.inputs, question.size].every((each) => typeof each === "number" && isExact(each));
  const fits = counted && answers(question) === takes && BigInt(question.inputs) === takes;
  require(fits && question.size === size(recipe), "a recipe does not fit its question");
}

function checkSurvey(survey) {
  require(hasExactly(survey, SURVEY), "it has other fields than a survey has");
  requireTexts(survey, ["name", "title", "text", "ask", "epsilon", "lifetime", "stops"]);
  require(survey.format === 1, "it is of a newer kind than this page");
  require(survey.ask === "all" || survey.ask === "one", "it asks neither all questions nor one");
  const { questions } = survey;
  const some = Array.isArray(questions) && questions.length >= 1 && questions.length <= MOST_QUESTIONS;
  require(some, "it has no questions, or too many");
  questions.forEach(checkQuestion);
  require(new Set(questions.map(({ name }) => name)).size === questions.length, "two questions have one name");
  const sizes = questions.map(({ recipe }) => size(recipe));
  const wanted = 1 + (survey.ask === "all" ? sizes.reduce((a, b) => a + b, 0) : Math.max(...sizes));
  require(survey.report_size === wanted, "its reports cannot be of the size that it says");
}

/** Returns ε, a decimal text, in billionths. */
function billionths(text) {
  const [, whole, part = ""] = EPSILON.exec(text) ?? [];
  require(whole !== undefined, "its lifetime is not a number");
  return BigInt(whole) * UNIT + BigInt(part.padEnd(9, "0"));
}

/** Returns { survey, digest, key, cost, lifetime } from the text of /survey.json, or throws `BadSurvey`. */
export async function offered(text) {
  const found = exactJson(text);
  require(hasExactly(found, REPLY), "the server's reply has other fields than it should");
  const { survey, digest, key, version } = found;
  require(version === 1, "it is of a newer kind than this page");
  try {
    checkSurvey(survey);
  } catch (problem) {
    throw problem instanceof NotAnswered ? new BadSurvey("the range of a question is impossible") : problem;
  }
  require(digest === (await digestOf(survey)), "it is not what its digest says");
  return { survey, digest, key: publicKey(key), cost: price(survey), lifetime: billionths(survey.lifetime) };
}
