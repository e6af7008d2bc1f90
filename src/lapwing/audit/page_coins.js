// Runs the page's own scripts for the auditor: all ways in which coins can fall, real draws, and prices.
//
// Reads one JSON job from standard input and writes one JSON answer. page_script.py copies the page's scripts
// beside this file, so that the code that browsers run is the code that is imported here.

import { readFileSync } from "node:fs";
import { price } from "./price.js";
import { Coins, randomize } from "./randomize.js";

class Cut extends Error {}

/** Coins that fall as they are told to, and the first way where they are not. */
class CoinTree {
  constructor(told, most) {
    Object.assign(this, { told, most, path: [], round: 0 });
  }

  odds(of) {
    this.round = 0;
    return this.next("odds", of, 2n) === 1n;
  }

  below(bound) {
    if (this.round === this.most) throw new Cut();
    this.round++;
    return this.next("below", bound, bound);
  }

  next(kind, size, outcomes) {
    const at = this.path.length;
    const fell = at < this.told.length ? this.told[at] : 0n;
    this.path.push({ kind, size, fell, outcomes });
    return fell;
  }
}

const hex = (bytes) => Buffer.from(bytes).toString("hex");

function walk({ recipe, answer, most, limit, told: given }) {
  const found = [];
  const fixed = given.length;
  let told = given.map(BigInt);
  while (told !== null) {
    const tree = new CoinTree(told, most);
    let message = null;
    try {
      message = hex(randomize(recipe, BigInt(answer), tree));
    } catch (error) {
      if (!(error instanceof Cut)) throw error;
    }
    found.push([tree.path.map(({ kind, size, fell }) => [kind, String(size), String(fell)]), message]);
    if (found.length > limit) throw new Error("the coins fall in far more ways than in Python");
    let last = tree.path.length - 1;
    while (last >= fixed && tree.path[last].fell + 1n >= tree.path[last].outcomes) last--;
    told = last < fixed ? null : [...tree.path.slice(0, last).map((step) => step.fell), tree.path[last].fell + 1n];
  }
  return found;
}

/** Gives bytes that were fixed before. A second round ends the run. */
const fixedBytes = (given) => (count) => {
  if (count > given.length) throw new Cut();
  return given.splice(0, count);
};

const bytesOf = (number, count) => Array.from({ length: count }, (_, k) => Number((number >> BigInt(8 * (count - 1 - k))) & 255n));

function below({ bound, size }) {
  const counts = {};
  for (let number = 0n; number < 1n << BigInt(8 * size); number++) {
    try {
      const drawn = new Coins(fixedBytes(bytesOf(number, size))).below(BigInt(bound));
      counts[drawn] = (counts[drawn] ?? 0) + 1;
    } catch (error) {
      if (!(error instanceof Cut)) throw error;
    }
  }
  return counts;
}

function odds({ of, numbers }) {
  return numbers.map((number) => new Coins(fixedBytes(bytesOf(BigInt(number), 6))).odds(BigInt(of)));
}

/** Draws messages with the coins that a browser uses. */
function draw({ recipe, answer, size }) {
  const coins = new Coins();
  return Array.from({ length: size }, () => hex(randomize(recipe, BigInt(answer), coins))).join("");
}

/** Returns what the page charges a device for a report, in billionths of ε. */
const charged = ({ ask, recipes }) => price({ ask, questions: recipes.map((recipe) => ({ recipe })) }).toString();

const WORK = { walk, below, odds, draw, charged };

const answers = JSON.parse(readFileSync(0, "utf8")).map((job) => {
  try {
    return { found: WORK[job.work](job) };
  } catch (error) {
    return { error: String(error) };
  }
});
process.stdout.write(JSON.stringify(answers));
