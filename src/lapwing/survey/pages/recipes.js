// Checks recipes from the server in one place, before any other script uses them.
//
// The survey's owner is not trusted here. A recipe has exactly the names of its kind, its kind is a text,
// and every number is whole and within the same limits as in survey/randomizers. A checked recipe is frozen,
// so that it cannot change afterwards.

export const ODDS = 1n << 48n;
const LETTER_BITS = 5n;
const MOST_LETTERS = 12;
const MOST = 2 ** 62;

/** The error for a survey that this device does not answer. */
export class BadSurvey extends Error {}

export function require(condition, why) {
  if (!condition) throw new BadSurvey(why);
}

export function bitLength(number) {
  return number === 0n ? 0 : number.toString(2).length;
}

/** Returns whether a number is whole and read exactly: small enough, or a power of two. */
export function isExact(number) {
  if (Number.isSafeInteger(number)) return true;
  if (!Number.isInteger(number) || number < 0 || number > MOST) return false;
  const large = BigInt(number);
  return (large & (large - 1n)) === 0n; // the words of 12 letters are 2^60
}

/** Returns whether a value is a plain object with exactly these names. */
export function hasExactly(value, names) {
  if (value === null || typeof value !== "object" || Object.getPrototypeOf(value) !== Object.prototype) return false;
  const found = Reflect.ownKeys(value);
  return found.length === names.length && names.every((name) => Object.hasOwn(value, name));
}

function isWithin(number, least, most) {
  return typeof number === "number" && isExact(number) && number >= least && number <= most;
}

function whole(recipe, name, least, most = MOST) {
  require(isWithin(recipe[name], least, most), `a question's recipe has an impossible number (${name})`);
  return BigInt(recipe[name]);
}

/** Checks T: below 2^48, since a certain coin hides nothing, and likelier than by chance, |A| of |Y|. */
function favoured(recipe, inside, all) {
  const coin = whole(recipe, "favoured", 1, Number(ODDS) - 1);
  require(inside > 0n && all > inside && coin * all > ODDS * inside, "a recipe's coin is not likelier than chance");
}

function isPrime(number) {
  for (let factor = 2; factor * factor <= number; factor++) if (number % factor === 0) return false;
  return number > 1;
}

function steps(recipe) {
  whole(recipe, "steps", 1, 2 ** 40);
  whole(recipe, "none", 0, 1);
}

const NAMES = {
  choice: ["options", "favoured"],
  subset: ["options", "chosen", "favoured"],
  hadamard: ["bits", "options", "favoured"],
  projective: ["prime", "dimension", "options", "favoured"],
  bits: ["options", "favoured"],
  unary: ["options", "one", "zero"],
  window: ["steps", "stride", "width", "none", "favoured"],
  duchi: ["steps", "none", "favoured"],
  hybrid: ["odds", "window", "duchi"],
  prefixes: ["letters", "levels", "inner"],
};

const CHECKS = {
  choice(recipe) {
    favoured(recipe, 1n, whole(recipe, "options", 2, 2 ** 31));
  },
  subset(recipe) {
    const options = whole(recipe, "options", 2, 2 ** 16);
    favoured(recipe, whole(recipe, "chosen", 1, Number(options) - 1), options);
  },
  hadamard(recipe) {
    const all = 1n << whole(recipe, "bits", 1, 62);
    require(whole(recipe, "options", 1) < all, "a recipe has too few codes");
    favoured(recipe, 1n, 2n);
  },
  projective(recipe) {
    whole(recipe, "prime", 2, 2 ** 31 - 1);
    require(isPrime(recipe.prime), "a recipe needs a prime number");
    whole(recipe, "dimension", 2, 62);
    const all = countOf(recipe);
    require(all <= BigInt(MOST), "a recipe has too many codes");
    require(whole(recipe, "options", 2) <= all, "a recipe has too few codes");
    favoured(recipe, points(recipe, 1), all);
  },
  bits(recipe) {
    whole(recipe, "options", 1, 62);
    favoured(recipe, 1n, 2n);
  },
  unary(recipe) {
    whole(recipe, "options", 2, 2 ** 16);
    const [one, zero] = [whole(recipe, "one", 1, Number(ODDS) - 1), whole(recipe, "zero", 1)];
    require(zero < one, "a recipe's coin is not likelier than chance");
  },
  window(recipe) {
    steps(recipe);
    whole(recipe, "stride", 1);
    const width = whole(recipe, "width", 1);
    const all = countOf(recipe);
    require(all <= ODDS, "a recipe has too many messages");
    favoured(recipe, width, all);
  },
  duchi(recipe) {
    steps(recipe);
    favoured(recipe, 1n, countOf(recipe));
  },
  hybrid(recipe) {
    whole(recipe, "odds", 0, Number(ODDS));
    const { window, duchi } = recipe;
    check(window, ["window"]);
    check(duchi, ["duchi"]);
    require(window.steps === duchi.steps && window.none === duchi.none, "a recipe does not fit");
  },
  prefixes(recipe) {
    const letters = Number(whole(recipe, "letters", 1, MOST_LETTERS));
    const { levels, inner } = recipe;
    for (const list of [levels, inner]) {
      require(Array.isArray(list) && list.length >= 1 && list.length <= MOST_LETTERS, "a recipe does not fit");
    }
    require(levels.length === inner.length, "a recipe does not fit");
    inner.forEach((each, i) => {
      require(isWithin(levels[i], i ? levels[i - 1] + 1 : 1, letters), "a recipe does not fit its letters");
      check(each, ["subset", "hadamard", "projective"]);
      require(inputsOf(each) === 1n << (LETTER_BITS * BigInt(levels[i])), "a recipe does not fit its letters");
    });
    Object.freeze(levels);
    Object.freeze(inner);
  },
};

function check(recipe, kinds) {
  const kind = recipe?.kind;
  // A list of one text would pass for that text in a table, and for something else in a comparison.
  require(typeof kind === "string" && kinds.includes(kind), "a question is of a kind that this page does not know");
  require(hasExactly(recipe, ["kind", ...NAMES[kind]]), "a question's recipe has other names than its kind");
  CHECKS[kind](recipe);
  known.add(Object.freeze(recipe));
}

const known = new WeakSet();
const KINDS = Object.keys(NAMES);

/** Returns the recipe if it is correct, or throws `BadSurvey`. */
export function checkedRecipe(recipe) {
  const isObject = recipe !== null && typeof recipe === "object";
  if (!isObject || !known.has(recipe)) check(recipe, KINDS);
  return recipe;
}

function inputsOf(recipe) {
  switch (recipe.kind) {
    case "bits": return 1n << BigInt(recipe.options);
    case "window":
    case "duchi": return BigInt(recipe.steps) + 1n + BigInt(recipe.none);
    case "hybrid": return inputsOf(recipe.window);
    case "prefixes": return 1n << (LETTER_BITS * BigInt(recipe.letters));
    default: return BigInt(recipe.options);
  }
}

/** Returns the number of points of a projective space with `less` coordinates fewer. */
export function points(recipe, less = 0) {
  const q = BigInt(recipe.prime);
  return (q ** BigInt(recipe.dimension - less) - 1n) / (q - 1n);
}

function countOf(recipe) {
  switch (recipe.kind) {
    case "hadamard": return 1n << BigInt(recipe.bits);
    case "projective": return points(recipe);
    case "window": {
      const blocks = 1n + BigInt(recipe.none);
      return BigInt(recipe.steps) * BigInt(recipe.stride) + BigInt(recipe.width) * blocks;
    }
    case "duchi": return 2n + BigInt(recipe.none);
    default: return BigInt(recipe.options);
  }
}

function sizeOf(recipe) {
  switch (recipe.kind) {
    case "subset":
    case "bits":
    case "unary": return Math.ceil(recipe.options / 8);
    case "hybrid": return 1 + Math.max(sizeOf(recipe.window), sizeOf(recipe.duchi));
    case "prefixes": return 1 + Math.max(...recipe.inner.map(sizeOf));
    default: return Math.max(1, Math.ceil(bitLength(countOf(recipe) - 1n) / 8));
  }
}

/** Returns the number of possible answers. */
export const inputs = (recipe) => inputsOf(checkedRecipe(recipe));

/** Returns the number of possible messages, for the kinds that send the number of a message. */
export const messages = (recipe) => countOf(checkedRecipe(recipe));

/** Returns the bytes of every message of a recipe. */
export const size = (recipe) => sizeOf(checkedRecipe(recipe));
