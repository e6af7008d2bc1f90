// The respondent's page: shows the survey and the odds, then randomizes, stores and sends.
//
// The order is fixed. First the credential is fetched, which uses the invitation. Texts, odds and price are
// shown before any coin is drawn. Then charging, randomizing and storing are one step. The report is sent at a
// random moment and over another connection than the credential. The message is shown only after the server
// has it: somebody who saw it first could drop out because of it. The true answers are never stored and never
// leave the form.

import * as account from "./account.js";
import { fingerprint, fromHex } from "./blind.js";
import { NotAnswered } from "./coding.js";
import { make, questionForm } from "./form.js";
import { offered } from "./offered.js";
import { UNIT } from "./price.js";
import { BadSurvey, size } from "./recipes.js";
import { ALL, Later, Stop, call, credential, invitedBy, packed, surveyText } from "./sending.js";
import { Coins } from "./randomize.js";
import { inShort, oddsInWords, promise, sentInWords } from "./words.js";

const LIFETIME = 8n * UNIT; // the ε that this device ever sends, at most; a survey can only lower it
const UP = 999999n; // rounds costs up; the rest of the account is rounded down
const [SOON, LATE] = [5000, 20000]; // milliseconds from randomizing to sending the report
const TAB = `lapwing invitation ${location.pathname}`; // in the memory of this tab, until the report is sent

const view = document.getElementById("view");
const status = document.getElementById("status");
const say = (text) => {
  status.textContent = text;
};

function show(...nodes) {
  view.replaceChildren(...nodes);
}

const paragraph = (...words) => make("p", {}, ...words);
const card = (attributes, ...children) => make("section", { class: "card", ...attributes }, ...children);

function action(label, attributes, work) {
  const button = make("button", { type: "button", ...attributes }, label);
  button.addEventListener("click", () => guarded(() => work(button)));
  return button;
}

/** Shows one card alone. If its heading gets the focus, it is read out. */
function showCard({ title, focus = true, ...attributes }, ...children) {
  const heading = make("h2", { tabindex: "-1" }, title);
  show(card(attributes, heading, ...children));
  say("");
  if (focus) heading.focus();
}

/** Returns ε with three decimals, rounded down, or up with `more`. */
function epsilonText(billionths, more = 0n) {
  const thousandths = (billionths + more) / 1000000n;
  return `${thousandths / 1000n}.${(thousandths % 1000n).toString().padStart(3, "0")}`;
}

function checkBrowser() {
  if (!(window.isSecureContext && window.indexedDB && window.crypto?.subtle && keepsTabs())) {
    throw new Stop(
      "This browser cannot keep your answer safe",
      "It needs an address with https, and a memory for this page. Private windows may have none.",
      "Nothing was sent.",
    );
  }
}

function keepsTabs() {
  try {
    return window.sessionStorage !== null;
  } catch {
    return false;
  }
}

/** Returns the invitation of the link. It leaves the address and the history at once; this tab keeps it. */
function invitationOfTab() {
  if (location.hash.length > 1) {
    sessionStorage.setItem(TAB, location.hash.slice(1));
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(TAB) ?? "";
}

async function load() {
  const invitation = invitationOfTab();
  const survey = await offered(await surveyText());
  const lifetime = survey.lifetime < LIFETIME ? survey.lifetime : LIFETIME;
  return { ...survey, lifetime, invitation, invited: await invitedBy(invitation) };
}

/** Returns the places of the questions that this device answers: all, or the one that was drawn. */
async function asked({ survey, digest }) {
  if (survey.ask !== "one") return survey.questions.map((_, place) => place);
  const draw = () => Number(new Coins().below(BigInt(survey.questions.length)));
  const { question } = await account.drawQuestion(digest, draw);
  return [question];
}

async function send(state, memo) {
  say("Sending …");
  const { prepared, signature, report } = memo;
  let reply;
  try {
    reply = await call("report", { digest: state.digest, token: prepared, signature, report });
  } catch (problem) {
    if (!(problem instanceof Later)) throw problem;
    showWaiting(state, memo, problem.message);
    return;
  }
  if (reply.accepted !== true) {
    throw new Stop("The server did not say that it has the report", "Please send it again.");
  }
  await account.note(state.digest, { sent: true });
  sessionStorage.removeItem(TAB); // the invitation was used: a later user of this tab does not find it
  await showSent(state);
}

function meter(spent, lifetime, cost = 0n) {
  const left = lifetime > spent ? lifetime - spent : 0n;
  const share = (part) => String(Number((part * 1000n) / (lifetime || 1n)) / 1000);
  const label = `${epsilonText(left)} of ${epsilonText(lifetime)} left`;
  const name = `Your device's account: ${label}`;
  return make(
    "div",
    { class: "account" },
    make("meter", { max: 1, value: share(left), low: share(cost), optimum: 1, "aria-label": name }, label),
    make("span", { "aria-hidden": "true" }, label),
  );
}

/** Shows only that a report was sent: somebody without the invitation of the report may use this device. */
function showOthers() {
  showCard(
    { id: "answered", title: "This device has already answered this survey" },
    paragraph("A device answers for one person, once. To see what it sent, open the link of the invitation that was used."),
    paragraph("If you have an invitation of your own, open it on a device or in a browser profile of your own."),
  );
}

async function showSent(state) {
  const { memo, spent } = await account.look(state.digest);
  if (!state.invited || memo.invited !== state.invited) {
    showOthers();
    return;
  }
  const report = fromHex(memo.report);
  const places = report[0] === ALL ? state.survey.questions.map((_, place) => place) : [report[0]];
  let at = 1;
  const lines = places.flatMap((place) => {
    const question = state.survey.questions[place];
    const message = report.slice(at, (at += size(question.recipe)));
    return [make("dt", {}, question.text), make("dd", {}, sentInWords(question, message))];
  });
  const heading = make("h2", { tabindex: "-1" }, "Sent. Thank you!");
  const again = action("Send the same report again", { class: "quiet" }, () => send(state, memo));
  show(
    card(
      {},
      heading,
      paragraph("This is what the coins made of it, and all that the survey got from you:"),
      make("dl", {}, ...lines),
      make("p", { class: "hint" }, "It may differ from what you answered: so the coins fell."),
    ),
    card(
      {},
      make("h2", {}, "Your device's account"),
      meter(spent, state.lifetime),
      make("p", { class: "hint" }, "Every survey that you answer at this address uses some of it. Nothing fills it up again."),
      again,
    ),
  );
  say("Your report was sent.");
  heading.focus();
}

/** Shows that the report is stored and not sent. `why` is the reason, if sending was tried. */
function showWaiting(state, memo, why) {
  showCard(
    { id: "waiting", title: "Your report is not sent yet", focus: Boolean(why) },
    why && paragraph(`${why}. Nothing is lost.`),
    paragraph("The coins were thrown and the report is stored on this device. It will be sent as it is."),
    action("Send it now", {}, (button) => {
      button.disabled = true;
      return send(state, memo);
    }),
  );
}

/** Waits until a random moment: then the time of a report tells less about whose it is. */
function showLeaving() {
  showCard(
    { id: "leaving", title: "Your report is about to be sent" },
    paragraph(`The coins were thrown. The report leaves at a random moment within ${LATE / 1000} seconds, so ` +
      "that its time tells less about you. Please leave this page open. If you close it, open it again to send."),
  );
  const wait = SOON + Number(new Coins().below(BigInt(LATE - SOON + 1)));
  return new Promise((done) => setTimeout(done, wait));
}

async function showForm(state, spent) {
  const { survey, cost, lifetime } = state;
  const places = await asked(state);
  const forms = places.map((place) => {
    const question = survey.questions[place];
    return questionForm(question, place, inShort(question), oddsInWords(question));
  });
  const button = make("button", { type: "submit" }, "Throw the coins and send");
  const one = survey.ask === "one" && survey.questions.length > 1;
  const form = make(
    "form",
    { novalidate: true, autocomplete: "off" },
    make(
      "section",
      { class: "card promise" },
      make("h2", {}, "Your device throws coins before it answers"),
      make("p", { id: "promise" }, "Answer truthfully. Your device then throws coins, and what it sends may differ " +
        `from your answer. ${promise(survey)}`),
      paragraph("The owner sees that you took part: opening this page has used your invitation. It now works in " +
        "this browser alone."),
      one && paragraph(`By coin, you are asked one of the ${survey.questions.length} questions of this survey.`),
    ),
    ...forms.map(({ element }) => element),
    card(
      {},
      make("h2", {}, "What it costs"),
      paragraph(`This survey takes ${epsilonText(cost, UP)} (ε) from your device's account. ` +
        "The coins are thrown once. If you come back, the same report is sent again."),
      meter(spent, lifetime, cost),
      paragraph("The fingerprint of this survey and its key is ",
        make("code", { id: "fingerprint" }, await fingerprint(state.digest, state.key)),
        ". Compare this with others who were invited: it must be the same. " +
        "With a survey or a key of your own you could be told apart."),
      survey.stops && make("p", { class: "hint" }, `The survey ends ${survey.stops}.`),
      button,
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(() => answer(state, places, forms, button));
  });
  show(form);
}

async function answer(state, places, forms, button) {
  const codes = collected(forms);
  if (!codes) return;
  button.disabled = true;
  try {
    navigator.storage?.persist?.().catch(() => {}); // asks the browser not to tidy its memory away
    const { memo: known } = await account.look(state.digest);
    await credential(state, known);
    let mine = false;
    const memo = await account.commit(state.digest, state.cost, state.lifetime, () => {
      mine = true;
      return { report: packed(state, places, codes) };
    });
    if (mine) state.invited = memo.invited; // also for a respondent who came back without the link
    await showLeaving();
    await send(state, memo);
  } finally {
    button.disabled = false;
  }
}

/** Returns the answers as numbers; or null if one is missing, and that question gets the focus. */
function collected(forms) {
  const problems = [];
  const codes = forms.map(({ code }) => {
    try {
      return code();
    } catch (problem) {
      if (!(problem instanceof NotAnswered)) throw problem;
      problems.push(problem);
      return null;
    }
  });
  if (!problems.length) return codes;
  say(`Not sent. ${problems[0].message}`);
  problems[0].focus();
  return null;
}

function refusal(title, ...paragraphs) {
  const again = action("Try again", { class: "quiet" }, start);
  showCard({ id: "refusal", class: "card refusal", title }, ...paragraphs.map((words) => paragraph(words)), again);
}

function overLifetime({ cost, lifetime }, spent) {
  return [
    "Your device's account is used up",
    `This survey costs ${epsilonText(cost, UP)}, and ${epsilonText(lifetime > spent ? lifetime - spent : 0n)} of ` +
      `${epsilonText(lifetime)} is left. So nothing is sent, and nothing can fill it up again.`,
    "Many small answers about one person add up. This limit is what protects you.",
  ];
}

async function guarded(work) {
  try {
    await work();
  } catch (problem) {
    if (problem instanceof Stop) refusal(problem.message, ...problem.paragraphs);
    else if (problem instanceof account.OverLifetime) {
      const { spent } = await account.look(current.digest);
      refusal(...overLifetime(current, spent));
    } else if (problem instanceof account.NoStorage) {
      refusal("This browser cannot remember your report", problem.message,
        "Without a memory it could answer twice with new coins, so nothing is sent. Private windows may have none.");
    } else if (problem instanceof BadSurvey) {
      refusal("This survey is not in order", `Your device does not answer it: ${problem.message}.`);
    } else {
      refusal("Something went wrong", "Nothing more was sent.");
      console.error(problem);
    }
  }
}

let current;
let starts = 0;

async function start() {
  const mine = ++starts;
  checkBrowser();
  const found = await load();
  if (mine !== starts) return; // another link was opened meanwhile
  current = found;
  const { survey, digest, cost, lifetime } = current;
  document.title = survey.title;
  document.getElementById("title").textContent = survey.title;
  document.getElementById("text").textContent = survey.text;
  const { memo, spent } = await account.look(digest);
  if (memo?.sent) await showSent(current);
  else if (memo?.report) showWaiting(current, memo);
  else if (spent + cost > lifetime) refusal(...overLifetime(current, spent));
  else {
    say("Getting a one-time credential …");
    await credential(current, memo);
    if (mine !== starts) return;
    say("");
    await showForm(current, spent);
  }
}

guarded(start);
// A link that is pasted over this page loads nothing: only the part after # changes.
addEventListener("hashchange", () => {
  if (location.hash.length > 1 && invitationOfTab() !== current?.invitation) guarded(start);
});
