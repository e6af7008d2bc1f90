// Blind RSA signatures after RFC 9474 (RSABSSA-SHA384-PSS-Randomized), the client's side.
//
// The server signs a number that hides the token. So it knows that an invited person sends the report, but
// not which one.

import { bitLength, hasExactly, require } from "./recipes.js";
import { freshBytes, fromBytes, inverse, toBytes } from "./randomize.js";

const HASH = "SHA-384";
const HASH_BYTES = 48;
const PREFIX_BYTES = 32;
const TOKEN_BYTES = 32;
const [LEAST_BITS, MOST_BITS] = [2048, 8192];
const EXPONENT = 65537n; // one for all: nothing about a key may tell respondents apart
const EXPONENT_BYTES = 3;

export const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function fromHex(text) {
  if (!/^([0-9a-f]{2})*$/.test(text)) throw new Error("not hexadecimal");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

const joined = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const hashed = async (bytes) => new Uint8Array(await crypto.subtle.digest(HASH, bytes));

/** Returns the public key of /survey.json, once its size and exponent are checked. */
export function publicKey(found) {
  const written = hasExactly(found, ["n", "e"]) && [found.n, found.e].every((text) => typeof text === "string");
  require(written && /^[0-9a-f]{1,2048}$/.test(found.n) && /^[0-9a-f]{1,16}$/.test(found.e), "its key is not a key");
  const key = { n: BigInt(`0x${found.n}`), e: BigInt(`0x${found.e}`) };
  const bits = bitLength(key.n);
  key.size = Math.ceil(bits / 8);
  const sound = bits >= LEAST_BITS && bits <= MOST_BITS && key.n & 1n && key.e === EXPONENT;
  require(sound, "the server's key is too weak");
  return key;
}

/** Returns 128 bits of a survey and its key, to compare by eye. survey/offered.py returns the same. */
export async function fingerprint(digest, { n, e, size }) {
  const bytes = joined(fromHex(digest), toBytes(n, size), toBytes(e, EXPONENT_BYTES));
  const hash = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
  return hash.slice(0, 32).match(/.{4}/g).join(" ");
}

function power(base, exponent, n) {
  let result = 1n;
  for (base %= n; exponent; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % n;
    base = (base * base) % n;
  }
  return result;
}

async function mask(seed, length) {
  const blocks = [];
  for (let counter = 0; counter * HASH_BYTES < length; counter++) {
    blocks.push(...(await hashed(joined(seed, toBytes(BigInt(counter), 4)))));
  }
  return Uint8Array.from(blocks.slice(0, length));
}

/** Encodes a message by EMSA-PSS-ENCODE of RFC 8017, with a given salt. */
async function encoded(message, bits, salt) {
  const length = Math.ceil(bits / 8);
  const hash = await hashed(joined(new Uint8Array(8), await hashed(message), salt));
  const plain = new Uint8Array(length - HASH_BYTES - 1);
  plain[plain.length - salt.length - 1] = 1;
  plain.set(salt, plain.length - salt.length);
  const masks = await mask(hash, plain.length);
  const hidden = plain.map((byte, at) => byte ^ masks[at]);
  hidden[0] &= 255 >> (8 * length - bits);
  return joined(hidden, hash, [0xbc]);
}

/** Returns whether `number` encodes the message (EMSA-PSS-VERIFY). It contains the salt. */
async function encodes(number, message, bits) {
  const length = Math.ceil(bits / 8);
  if (bitLength(number) > bits) return false;
  const bytes = toBytes(number, length);
  const hidden = bytes.slice(0, length - HASH_BYTES - 1);
  const masks = await mask(bytes.slice(length - HASH_BYTES - 1, length - 1), hidden.length);
  const salt = hidden.map((byte, at) => byte ^ masks[at]).slice(-HASH_BYTES);
  return toHex(await encoded(message, bits, salt)) === toHex(bytes);
}

/** Returns a new token in the form that is signed: a random prefix, then the token itself. */
export function newToken(take = freshBytes) {
  return joined(take(PREFIX_BYTES), take(TOKEN_BYTES));
}

/** Returns { blinded, inverse }: the number to be signed, and the inverse of the factor that blinds it. */
export async function blind(prepared, key, take = freshBytes) {
  const bits = bitLength(key.n) - 1;
  const message = fromBytes(await encoded(prepared, bits, take(HASH_BYTES)));
  if (inverse(message, key.n) === null) throw new Error("the server's key is broken");
  for (;;) {
    const spare = BigInt(8 * key.size - bitLength(key.n));
    const factor = fromBytes(take(key.size)) >> spare; // uniform below n: a larger one is drawn again
    const back = factor > 0n && factor < key.n ? inverse(factor, key.n) : null;
    if (back === null) continue;
    const blinded = (message * power(factor, key.e, key.n)) % key.n;
    return { blinded: toBytes(blinded, key.size), inverse: toBytes(back, key.size) };
  }
}

/** Returns the signature of the token, verified, or throws an error if the server signed something else. */
export async function finalize(prepared, blindSignature, back, key) {
  if (blindSignature.length !== key.size) throw new Error("the server's signature has a wrong size");
  const signature = (fromBytes(blindSignature) * fromBytes(back)) % key.n;
  const opened = power(signature, key.e, key.n);
  if (!(await encodes(opened, prepared, bitLength(key.n) - 1))) throw new Error("the signature is wrong");
  return toBytes(signature, key.size);
}
