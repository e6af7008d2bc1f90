// Talking to the survey's server: a signature under a blinded token, then the report.
//
// Requests have no cookies, no time and nothing about the device; for one survey all are of one size.

import * as account from "./account.js";
import { blind, finalize, fromHex, newToken, toHex } from "./blind.js";
import { Coins, throwCoins } from "./throw.js";

export const ALL = 255; // the first byte of a report that answers every question

/** Why it does not go on, in words for the respondent. */
export class Stop extends Error {
  constructor(title, ...paragraphs) {
    super(title);
    this.paragraphs = paragraphs;
  }
}

export async function call(path, body) {
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: body ? { "Content-Type": "application/json" } : {},
      body: body && JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch {
    throw new Stop("The server cannot be reached", "Please try again later.");
  }
  if (response.ok) return response.json();
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
  throw new Stop(...texts);
}

/** The report: which question (255: all), then the messages, filled up with zeros. */
export function packed({ survey }, places, codes) {
  const report = new Uint8Array(survey.report_size);
  report[0] = survey.ask === "one" ? places[0] : ALL;
  let at = 1;
  places.forEach((place, i) => {
    const message = throwCoins(survey.questions[place].recipe, codes[i], new Coins());
    report.set(message, at);
    at += message.length;
  });
  return toHex(report);
}

/** A signature for a token of this device. The token is stored before it is shown to the server. */
export async function credential({ digest, key }, memo) {
  if (memo?.signature) return memo;
  const invitation = location.hash.slice(1);
  if (!invitation) {
    throw new Stop("The invitation is missing", "Please open the whole link of your invitation. Nothing was sent.");
  }
  if (!memo?.blinded) {
    const prepared = newToken();
    const { blinded, inverse } = await blind(prepared, key);
    memo = await account.note(digest, {
      key: key.n.toString(16),
      prepared: toHex(prepared),
      blinded: toHex(blinded),
      inverse: toHex(inverse),
    });
  }
  if (memo.key !== key.n.toString(16)) throw new Stop("The survey's key has changed", "Nothing was sent.");
  const { signature } = await call("sign", { invitation, blinded: memo.blinded });
  const signed = await finalize(fromHex(memo.prepared), fromHex(signature), fromHex(memo.inverse), key);
  return account.note(digest, { signature: toHex(signed) });
}
