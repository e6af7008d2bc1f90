// Turns answers into whole numbers, and numbers into answers in words, as survey/questionnaire.py does.
// A question is one of /survey.json.

export const NO_ANSWER = "no answer";
const ALPHABET = "\0abcdefghijklmnopqrstuvwxyz -'";
const DAY = 86400000;
const [FIRST_DAY, LAST_DAY] = [-719162, 2932896]; // 0001-01-01 and 9999-12-31
const DECIMAL = /^-?\d{1,16}(\.\d{1,18})?$/;

export class NotAnswered extends Error {}

/** Returns the options that people choose from, without "no answer". */
export function options(question) {
  const labels = question.labels ?? [];
  return question.no_answer ? labels.slice(0, -1) : labels;
}

/** Returns a decimal text as [digits, places]: exactly digits / 10^places. */
function decimal(text) {
  const found = /^([+-]?)(\d{1,30})(?:\.(\d{1,30}))?$/.exec(String(text).trim().replace(",", "."));
  if (!found) throw new NotAnswered("Please write a number.");
  const [, sign, whole, part = ""] = found;
  return [BigInt(sign === "-" ? `-${whole}${part}` : whole + part), part.length];
}

/** Returns the decimal places of all texts, and their digits with that many places. */
function together(...texts) {
  const numbers = texts.map(decimal);
  const places = Math.max(...numbers.map(([, each]) => each));
  return [places, ...numbers.map(([digits, each]) => digits * 10n ** BigInt(places - each))];
}

function numberCode(question, text) {
  const [, value, low, high, step] = together(text, question.low, question.high, question.step);
  const [from, to] = [question.low, question.high];
  if (value < low || value > high) throw new NotAnswered(`Please write a number from ${from} to ${to}.`);
  if ((value - low) % step) throw new NotAnswered(`Please use steps of ${question.step}, from ${from} on.`);
  return (value - low) / step;
}

const dayText = (day) => new Date(day * DAY).toISOString().slice(0, 10);

const days = (text) => {
  const day = Math.round(Date.parse(`${text}T00:00:00Z`) / DAY);
  const real = /^(?!0000)\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(day) && dayText(day) === text;
  if (!real) throw new NotAnswered("Please choose a day.");
  return day;
};

/** Returns low, high and step of a question about a day, in days. */
export function dayRange({ low, high, step }) {
  if (!/^[1-9]\d{0,4}$/.test(step)) throw new NotAnswered("Please choose a day.");
  return [BigInt(days(low)), BigInt(days(high)), BigInt(step)];
}

/** Returns low, high and step of a question about a number, in one unit. */
export function decimalRange({ low, high, step }) {
  if (![low, high, step].every((text) => DECIMAL.test(text))) throw new NotAnswered("Please write a number.");
  return together(low, high, step).slice(1);
}

function dateCode(question, text) {
  const [day, low, high] = [days(text), days(question.low), days(question.high)];
  if (!(day >= low && day <= high)) {
    throw new NotAnswered(`Please choose a day from ${question.low} to ${question.high}.`);
  }
  return BigInt(Math.floor((day - low) / Number(question.step ?? 1)));
}

function wordCode(question, text) {
  const word = text.toLowerCase().split(/\s+/).filter(Boolean).join(" ");
  if (!word) throw new NotAnswered("Please write a word, or choose “no answer”.");
  if (!/^[a-z '-]+$/.test(word)) {
    throw new NotAnswered("Please use only the letters a to z, space, hyphen and apostrophe.");
  }
  if (word.length > question.letters) {
    throw new NotAnswered(`Please write at most ${question.letters} letters: the first ones.`);
  }
  let number = 0n;
  for (const letter of word.padEnd(question.letters, "\0")) number = number * 32n + BigInt(ALPHABET.indexOf(letter));
  return number;
}

const factorial = (count) => (count < 2n ? 1n : count * factorial(count - 1n));

function rankingCode(order) {
  const left = order.map((_, place) => place);
  let number = 0n;
  for (const option of order) {
    const at = left.indexOf(option);
    if (at < 0) throw new NotAnswered("Please give every place once.");
    number = number * BigInt(left.length) + BigInt(at);
    left.splice(at, 1);
  }
  return number;
}

/**
 * Returns the number of an answer. `answer` is null for no answer; else the place of the chosen label, an
 * array of places (several, ranking), or a text (number, date, word).
 */
export function codeOf(question, answer) {
  const count = options(question).length;
  if (answer === null && !question.no_answer) throw new NotAnswered("This question has to be answered.");
  switch (question.kind) {
    case "several":
      return answer === null ? 1n << BigInt(count) : answer.reduce((sum, place) => sum + (1n << BigInt(place)), 0n);
    case "ranking": return answer === null ? factorial(BigInt(count)) : rankingCode(answer);
    case "number":
    case "date":
      if (answer === null) return steps(question) + 1n;
      return question.kind === "date" ? dateCode(question, answer) : numberCode(question, answer);
    case "word": return answer === null ? 0n : wordCode(question, answer);
    default: return BigInt(answer ?? count);
  }
}

/** Returns the greatest code of an answer to a question about a number or date. */
export function steps(question) {
  if (question.kind === "date") return dateCode(question, question.high);
  const [, low, high, step] = together(question.low, question.high, question.step);
  return (high - low) / step;
}

/** Returns the number of possible answers, to be compared with that of the recipe. */
export function answers(question) {
  const none = question.no_answer ? 1n : 0n;
  const count = BigInt(options(question).length);
  switch (question.kind) {
    case "several": return question.recipe.kind === "bits" ? 1n << (count + none) : (1n << count) + none;
    case "ranking": return factorial(count) + none;
    case "number":
    case "date": return steps(question) + 1n + none;
    case "word": return 1n << BigInt(5 * question.letters);
    default: return count + none;
  }
}

const shortest = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
const floored = (top, bottom) => top / bottom - (top % bottom < 0n ? 1n : 0n);

/** Returns the value top / bottom steps above the lowest, rounded down if it has no short text. */
export function valueAt(question, top, bottom = 1n) {
  if (question.kind === "date") {
    const day = days(question.low) + Number(floored(top * BigInt(question.step ?? 1), bottom));
    return dayText(Math.min(Math.max(day, FIRST_DAY), LAST_DAY));
  }
  const [places, low, step] = together(question.low, question.step);
  if (bottom === 1n) return shortest(decimalText(low + step * top, places));
  return decimalText(10n * low + floored(10n * step * top, bottom), places + 1);
}

/** Returns the distance of top / bottom steps in words, rounded up. */
export function distance(question, top, bottom) {
  const up = (number) => -floored(-number * top, bottom);
  if (question.kind === "date") return `${up(BigInt(question.step ?? 1))} days`;
  const [places, step] = together(question.step);
  return decimalText(up(10n * step), places + 1);
}

function decimalText(digits, places) {
  if (!places) return digits.toString();
  const sign = digits < 0n ? "-" : "";
  const text = (digits < 0n ? -digits : digits).toString().padStart(places + 1, "0");
  return `${sign}${text.slice(0, -places)}.${text.slice(-places)}`;
}

/** Returns the word of a number, with this many letters. A code that is no letter becomes a ?. */
export function spelled(number, letters) {
  let text = "";
  for (let place = letters - 1; place >= 0; place--) {
    text += ALPHABET[Number((number >> BigInt(5 * place)) & 31n)] ?? "?";
  }
  return text.replace(/\0+$/, "").replaceAll("\0", "?");
}

function orderOf(code, count) {
  const digits = [];
  for (let size = 1n; size <= BigInt(count); size++) {
    digits.unshift(Number(code % size));
    code /= size;
  }
  const left = digits.map((_, place) => place);
  return digits.map((digit) => left.splice(digit, 1)[0]);
}

/** Returns an answer in words, from its number. */
export function said(question, code) {
  const labels = options(question);
  const last = answers(question) - 1n;
  if (question.kind === "several") {
    const chosen = labels.filter((_, place) => (code >> BigInt(place)) & 1n);
    if (code >> BigInt(labels.length)) chosen.push(NO_ANSWER);
    return chosen.join(" + ") || "none of them";
  }
  if (question.kind === "word") return spelled(code, question.letters) || NO_ANSWER;
  if (question.no_answer && code === last) return NO_ANSWER;
  if (question.kind === "ranking") return orderOf(code, labels.length).map((place) => labels[place]).join(" > ");
  if (question.kind === "number" || question.kind === "date") return valueAt(question, code);
  return labels[Number(code)];
}
