// Randomizes one answer: a recipe and an answer in, one message (Uint8Array) out.
//
// The same algorithm as the `draw` methods in survey/randomizers, draw by draw. All numbers are BigInt:
// nothing is rounded, so every message has exactly the probability that the page states. The only randomness
// is crypto.getRandomValues. The order of the draws is part of the format (tests/survey/vectors.json).

import { bitLength, checkedRecipe, inputs, messages, size } from "./recipes.js";

const ODDS_BYTES = 6;
const LETTER_BITS = 5n;

/** Returns fresh random bytes from the browser, or throws an error if there are none. */
export function freshBytes(count) {
  const bytes = new Uint8Array(count);
  const most = 65536; // what getRandomValues gives at once
  for (let at = 0; at < count; at += most) crypto.getRandomValues(bytes.subarray(at, at + most));
  return bytes;
}

/** Exact draws from a function that returns uniform random bytes. */
export class Coins {
  constructor(take = freshBytes) {
    this.take = take;
  }

  /** Returns true with probability of / 2^48: six bytes, as one number, are below `of`. */
  odds(of) {
    return fromBytes(this.take(ODDS_BYTES)) < of;
  }

  /** Draws 0n .. bound - 1n, all equally likely. A number that is too large is drawn again. */
  below(bound) {
    const bits = bitLength(bound - 1n);
    if (bits === 0) return 0n;
    for (;;) {
      const drawn = fromBytes(this.take(Math.ceil(bits / 8))) & ((1n << BigInt(bits)) - 1n);
      if (drawn < bound) return drawn;
    }
  }
}

/** Returns the message to send for `answer`. All messages of a recipe have one size. */
export function randomize(recipe, answer, source) {
  const coded = BigInt(answer);
  if (coded < 0n || coded >= inputs(recipe)) throw new RangeError("the answer is not one of this question");
  return KINDS[checkedRecipe(recipe).kind](recipe, coded, source);
}

export function fromBytes(bytes) {
  let number = 0n;
  for (const byte of bytes) number = (number << 8n) | BigInt(byte);
  return number;
}

export function toBytes(number, count) {
  const bytes = new Uint8Array(count);
  for (let at = count - 1; at >= 0; at--) {
    bytes[at] = Number(number & 255n);
    number >>= 8n;
  }
  return bytes;
}

const numbered = (recipe, message) => toBytes(message, size(recipe));

/** Returns a set of options as bytes: option j is bit j % 8 of byte j // 8. */
function masked(recipe, options) {
  const bytes = new Uint8Array(size(recipe));
  for (const option of options) bytes[option >> 3] |= 1 << (option & 7);
  return bytes;
}

function oneOf(options, favoured, answer, source) {
  if (source.odds(BigInt(favoured))) return answer;
  const other = source.below(options - 1n);
  return other >= answer ? other + 1n : other;
}

function choice(recipe, answer, source) {
  return numbered(recipe, oneOf(BigInt(recipe.options), recipe.favoured, answer, source));
}

function subset(recipe, answer, source) {
  const told = source.odds(BigInt(recipe.favoured));
  const wanted = recipe.chosen - (told ? 1 : 0);
  const others = recipe.options - 1;
  const mine = Number(answer);
  const taken = new Set();
  for (let last = others - wanted; last < others; last++) { // Floyd: all sets are equally likely
    const drawn = Number(source.below(BigInt(last + 1)));
    taken.add(taken.has(drawn) ? last : drawn);
  }
  const sent = [...taken].map((other) => (other >= mine ? other + 1 : other));
  return masked(recipe, told ? [...sent, mine] : sent);
}

function oddParity(number) {
  let odd = false;
  for (; number; number &= number - 1n) odd = !odd;
  return odd;
}

function hadamard(recipe, answer, source) {
  const odd = !source.odds(BigInt(recipe.favoured));
  const row = answer + 1n;
  let drawn = source.below(1n << BigInt(recipe.bits));
  if (oddParity(drawn & row) !== odd) drawn ^= row & -row; // one bit more or less changes the parity
  return numbered(recipe, drawn);
}

/** Returns the inverse of `number` modulo n, or null if there is none. */
export function inverse(number, n) {
  let [r0, r1, s0, s1] = [n, number % n, 0n, 1n];
  while (r1) {
    const whole = r0 / r1;
    [r0, r1, s0, s1] = [r1, r0 - whole * r1, s1, s0 - whole * s1];
  }
  return r0 === 1n ? ((s0 % n) + n) % n : null;
}

const product = (one, other) => one.reduce((sum, x, j) => sum + x * other[j], 0n);

/** The number of the first point with `after` coordinates after the leading 1. */
const firstPoint = (q, after) => (q ** BigInt(after) - 1n) / (q - 1n);

/** Returns the vector of a point, numbered as in survey/randomizers/index_oracles.py. */
function vectorOf(q, t, number) {
  let after = 0;
  while (after + 1 < t && firstPoint(q, after + 1) <= number) after++;
  let rest = number - firstPoint(q, after);
  const vector = Array(t).fill(0n);
  vector[t - 1 - after] = 1n;
  for (let place = t - 1; place > t - 1 - after; place--) {
    vector[place] = rest % q;
    rest /= q;
  }
  return vector;
}

/** Returns the number of the point through a vector that is not 0. */
function numberOf(q, vector) {
  const lead = vector.findIndex((x) => x !== 0n);
  const scale = inverse(vector[lead], q);
  const after = vector.slice(lead + 1);
  return after.reduce((number, x) => number * q + ((x * scale) % q), 0n) + firstPoint(q, after.length);
}

function projective(recipe, answer, source) {
  const orthogonal = source.odds(BigInt(recipe.favoured));
  const [q, t] = [BigInt(recipe.prime), recipe.dimension];
  const point = vectorOf(q, t, answer);
  const last = point.findLastIndex((x) => x !== 0n);
  const factor = inverse(point[last], q);
  for (;;) {
    const vector = Array.from({ length: t }, () => source.below(q));
    if (orthogonal) {
      vector[last] = 0n;
      vector[last] = (q - (product(point, vector) * factor) % q) % q;
    }
    const zero = vector.every((x) => x === 0n);
    if (!zero && (product(point, vector) % q === 0n) === orthogonal) {
      return numbered(recipe, numberOf(q, vector));
    }
  }
}

function bits(recipe, answer, source) {
  const sent = [];
  for (let option = 0; option < recipe.options; option++) {
    const told = source.odds(BigInt(recipe.favoured));
    const ticked = ((answer >> BigInt(option)) & 1n) === 1n;
    if (ticked === told) sent.push(option);
  }
  return masked(recipe, sent);
}

function unary(recipe, answer, source) {
  const sent = [];
  for (let option = 0; option < recipe.options; option++) {
    if (source.odds(BigInt(BigInt(option) === answer ? recipe.one : recipe.zero))) sent.push(option);
  }
  return masked(recipe, sent);
}

function inWindow(recipe, answer, source) {
  const [width, all] = [BigInt(recipe.width), messages(recipe)];
  const none = answer > BigInt(recipe.steps);
  const start = none ? all - width : answer * BigInt(recipe.stride);
  if (source.odds(BigInt(recipe.favoured))) return numbered(recipe, start + source.below(width));
  const outside = source.below(all - width);
  return numbered(recipe, outside >= start ? outside + width : outside);
}

function duchi(recipe, answer, source) {
  const steps = BigInt(recipe.steps);
  let end = 2n;
  if (answer <= steps) end = source.below(steps) < answer ? 1n : 0n;
  return numbered(recipe, oneOf(messages(recipe), recipe.favoured, end, source));
}

/** Returns a message whose first byte says which part was drawn. */
function marked(recipe, mark, inner) {
  const bytes = new Uint8Array(size(recipe));
  bytes[0] = mark;
  bytes.set(inner, 1);
  return bytes;
}

function hybrid(recipe, answer, source) {
  const wide = source.odds(BigInt(recipe.odds));
  return marked(recipe, wide ? 1 : 0, randomize(wide ? recipe.window : recipe.duchi, answer, source));
}

function prefixes(recipe, answer, source) {
  const level = Number(source.below(BigInt(recipe.levels.length)));
  const kept = LETTER_BITS * BigInt(recipe.letters - recipe.levels[level]);
  return marked(recipe, level, randomize(recipe.inner[level], answer >> kept, source));
}

const KINDS = {
  choice, subset, hadamard, projective, bits, unary, window: inWindow, duchi, hybrid, prefixes,
};
