// Talks to the survey's server: fetches the signature of a blinded token, and much later sends the report.
//
// The page adds no cookies, no time and nothing about the device; for one survey all requests are of one
// size. But a browser adds headers of its own. The page replaces Accept-Language; it cannot replace
// User-Agent and its like everywhere: a rare one links the two requests. The server ends the connections
// of the first two replies and resumes none, so that the report comes over another one.

import * as account from "./account.js";
import { blind, finalize, fromHex, newToken, toHex } from "./blind.js";
import { Coins, randomize } from "./randomize.js";

export const ALL = 255; // the first byte of a report that answers every question
const [LARGEST_SURVEY, LARGEST_REPLY] = [16 << 20, 64 << 10]; // bytes
const PATIENCE = 60000; // milliseconds

/** An error that ends the work, with its reason in words for the respondent. */
export class Stop extends Error {
  constructor(title, ...paragraphs) {
    super(title);
    this.paragraphs = paragraphs;
  }
}

/** Such an error after which trying again may help. */
export class Later extends Stop {}

/** Such an error because the invitation signs no token of this device. */
class Refused extends Stop {}

/** Returns the text of a reply, or throws an error if it is longer than `most` bytes. */
async function textOf(response, most) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let [text, size] = ["", 0];
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    if ((size += value.length) > most) {
      await reader.cancel();
      throw new TypeError("the reply is too long");
    }
    text += decoder.decode(value, { stream: true });
  }
}

/** Fetches the text of /survey.json. */
export async function surveyText() {
  const response = await answered("survey.json");
  try {
    return await textOf(response, LARGEST_SURVEY);
  } catch {
    throw new Stop("The survey cannot be read", "It is not whole, or too large. Nothing was sent.");
  }
}

/** Sends a request and returns the reply, an object. */
export async function call(path, body) {
  const response = await answered(path, body);
  try {
    const found = JSON.parse(await textOf(response, LARGEST_REPLY));
    if (found !== null && typeof found === "object") return found;
  } catch {
    // A malformed reply is treated like an empty one.
  }
  throw new Stop("The server's answer is not in order", "Please try again later.");
}

async function answered(path, body) {
  let response;
  try {
    response = await fetch(path, {
      signal: AbortSignal.timeout(PATIENCE),
      method: body ? "POST" : "GET",
      headers: { "Accept-Language": "*", ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch {
    throw new Later("The server cannot be reached", "Please try again later.");
  }
  if (response.ok) return response;
  const status = path === "sign" && response.status === 422 ? 403 : response.status; // not even of the right form
  const why = {
    403: ["This invitation is not known", "Please open the link exactly as you got it."],
    404: ["This invitation is not known", "Please open the link exactly as you got it."],
    409: [
      "This invitation was used already",
      "It was used on another device, or before this browser's memory was cleared.",
    ],
    410: ["The survey is closed", "It takes no more reports."],
    429: ["The server is busy", "Please try again in a minute."],
  };
  const texts = why[status] ?? ["The server did not accept this", `It answered with the code ${status}.`];
  if (status === 429 || status >= 500) throw new Later(...texts);
  throw new (path === "sign" && [403, 404, 409].includes(status) ? Refused : Stop)(...texts);
}

/** Makes the report: the question's number (255: all), then the messages, filled up with zeros. */
export function packed({ survey }, places, codes) {
  const report = new Uint8Array(survey.report_size);
  report[0] = survey.ask === "one" ? places[0] : ALL;
  let at = 1;
  places.forEach((place, i) => {
    const message = randomize(survey.questions[place].recipe, codes[i], new Coins());
    report.set(message, at);
    at += message.length;
  });
  return toHex(report);
}

/** Returns the hash of an invitation: enough to recognise it, and useless for the survey. */
export async function invitedBy(invitation) {
  if (!invitation) return undefined;
  const bytes = new TextEncoder().encode(`lapwing invitation ${invitation}`);
  return toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}

/**
 * Fetches the signature of a token of this device. The token and the hash of its invitation are stored before
 * the server sees it: if the reply is lost, the same invitation gets the same signature, and no other one is
 * used up for this token.
 */
export async function credential({ digest, key, invitation, invited }, memo) {
  if (memo?.signature) return ownedBy(invited, memo);
  if (!invitation) {
    throw new Stop("The invitation is missing", "Please open the whole link of your invitation. Nothing was sent.");
  }
  const prepared = newToken();
  const { blinded, inverse } = await blind(prepared, key);
  const token = ownedBy(invited, await account.note(digest, {
    key: key.n.toString(16),
    prepared: toHex(prepared),
    blinded: toHex(blinded),
    inverse: toHex(inverse),
    invited,
  })); // what is stored already stays
  if (token.key !== key.n.toString(16)) throw new Stop("The survey's key has changed", "Nothing was sent.");
  let reply;
  try {
    reply = await call("sign", { invitation, blinded: token.blinded });
  } catch (problem) {
    if (problem instanceof Refused) await account.forget(digest, token.blinded);
    throw problem;
  }
  let signature;
  try {
    signature = await finalize(fromHex(token.prepared), fromHex(reply.signature), fromHex(token.inverse), key);
  } catch {
    throw new Stop("The server's signature is not in order", "Without one your report would not be counted. " +
      "Nothing more was sent.");
  }
  memo = await account.signed(digest, token.blinded, toHex(signature));
  if (memo.blinded !== token.blinded) throw new Later("Another tab has changed this", "Please try again.");
  return memo;
}

function ownedBy(invited, memo) {
  if (!invited || memo.invited === invited) return memo;
  throw new Stop("Somebody else has begun to answer on this device",
    "Another invitation was opened here first, and one device answers for one person. Please open that link again, " +
    "or use a device or a browser profile of your own. Nothing was sent.");
}
