// A question as form controls with labels, and its answer as a whole number.
//
// All texts of the survey are set as textContent: nothing in a survey can become part of the page's code.

import { NO_ANSWER, NotAnswered, codeOf, options } from "./coding.js";

const LISTED = 40; // more options than this are typed, with suggestions

/** Returns an element with attributes and children. Strings become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

const shownLabel = (label) => (label === NO_ANSWER ? "No answer" : label);

function tickBox(type, name, id, label, value) {
  const input = make("input", { type, name, id, value, autocomplete: "off" });
  return [input, make("div", { class: "choice" }, input, make("label", { for: id }, shownLabel(label)))];
}

/** Returns radio buttons. The answer is the place of the chosen one. */
function radios(question, id) {
  const pairs = question.labels.map((label, place) => tickBox("radio", id, `${id}-${place}`, label, place));
  const read = () => {
    const place = pairs.findIndex(([input]) => input.checked);
    if (place < 0) throw new NotAnswered("Please choose one; “No answer” is a choice too.");
    return place;
  };
  const rows = pairs.map(([, row]) => row);
  const nodes = question.kind === "rating" ? [make("div", { class: "row" }, ...rows)] : rows;
  return { nodes, inputs: pairs.map(([input]) => input), read };
}

/** Returns a text field with suggestions, for too many options to list. */
function typed(question, id) {
  const labels = options(question);
  const list = make("datalist", { id: `${id}-list` });
  for (const label of labels) list.append(make("option", { value: label })); // too many for one call
  const input = make("input", { type: "text", id: `${id}-text`, list: `${id}-list`, autocomplete: "off" });
  const label = make("label", { for: input.id, class: "hint" }, `Type to search among ${labels.length} options`);
  const read = () => {
    const place = labels.indexOf(input.value.trim());
    if (place < 0) throw new NotAnswered("Please choose one of the suggested options, exactly as written.");
    return place;
  };
  return { nodes: [label, input, list], inputs: [input], read };
}

/** Adds "no answer" to other controls. Choosing it switches those off. */
function withNone(question, id, part) {
  if (!question.no_answer) return part;
  const [box, row] = tickBox("checkbox", id, `${id}-none`, NO_ANSWER, "none");
  box.addEventListener("change", () => {
    for (const input of part.inputs) input.disabled = box.checked;
  });
  return {
    nodes: [...part.nodes, row],
    inputs: [...part.inputs, box],
    read: () => (box.checked ? null : part.read()),
  };
}

function several(question, id) {
  const pairs = options(question).map((label, place) => tickBox("checkbox", id, `${id}-${place}`, label, place));
  const hint = make("p", { class: "hint" }, "Tick all that hold. No tick at all says: none of them.");
  const read = () => pairs.flatMap(([input], place) => (input.checked ? [place] : []));
  return { nodes: [hint, ...pairs.map(([, row]) => row)], inputs: pairs.map(([input]) => input), read };
}

function ranking(question, id) {
  const labels = options(question);
  const selects = labels.map((label, place) =>
    make(
      "select",
      { id: `${id}-${place}`, autocomplete: "off" },
      make("option", { value: "" }, "–"),
      ...labels.map((_, rank) => make("option", { value: rank + 1 }, `${rank + 1}`)),
    ),
  );
  const rows = labels.map((label, place) =>
    make("div", { class: "rank" }, selects[place], make("label", { for: `${id}-${place}` }, label)),
  );
  const read = () => {
    const order = labels.map(() => -1);
    selects.forEach((select, place) => {
      if (select.value === "") throw new NotAnswered("Please give every line a place.");
      order[Number(select.value) - 1] = place;
    });
    return order;
  };
  const hint = make("p", { class: "hint" }, `Give every line its place: 1 is the first, ${labels.length} the last.`);
  return { nodes: [hint, ...rows], inputs: selects, read };
}

function field(question, id, attributes, hint) {
  const input = make("input", { id: `${id}-value`, autocomplete: "off", ...attributes });
  const label = make("label", { for: input.id, class: "hint" }, hint);
  const read = () => {
    if (!input.value.trim()) throw new NotAnswered("Please answer; “No answer” is a choice too.");
    return input.value.trim();
  };
  return { nodes: [label, input], inputs: [input], read };
}

function controls(question, id) {
  const { low, high, step } = question;
  switch (question.kind) {
    case "several": return withNone(question, id, several(question, id));
    case "ranking": return withNone(question, id, ranking(question, id));
    case "number": {
      const attributes = { type: "text", inputmode: Number(low) < 0 ? "text" : "decimal", class: "short" };
      const hint = `A number from ${low} to ${high}, in steps of ${step}`;
      return withNone(question, id, field(question, id, attributes, hint));
    }
    case "date": {
      const hint = `A day from ${low} to ${high}`;
      return withNone(question, id, field(question, id, { type: "date", min: low, max: high }, hint));
    }
    case "word": {
      const attributes = { type: "text", maxlength: question.letters, autocapitalize: "none", spellcheck: "false" };
      const hint = `A word of at most ${question.letters} letters: a to z, space, hyphen, apostrophe`;
      return withNone(question, id, field(question, id, attributes, hint));
    }
    default:
      if (question.labels.length <= LISTED) return radios(question, id);
      return withNone(question, id, typed(question, id));
  }
}

/** Returns the pieces of a sentence, with its chances in bold. */
function withChances(sentence) {
  const pieces = sentence.split(/(chance (?:[\d.]+ %|1 in [\d,]+|more than [\d.]+ %))/);
  return pieces.map((piece, place) => (place % 2 ? make("strong", {}, piece) : piece));
}

/** Returns { element, code() } of a question. code() throws NotAnswered and marks the controls. */
export function questionForm(question, place, short, odds) {
  const id = `q${place}`;
  const { nodes, inputs, read } = controls(question, id);
  const error = make("p", { class: "error", id: `${id}-error`, hidden: true });
  const oddsBox = make(
    "details",
    { class: "odds", id: `${id}-odds` },
    make("summary", { id: `${id}-short` }, ...withChances(short)),
    make("ul", {}, ...odds.map((sentence) => make("li", {}, ...withChances(sentence)))),
  );
  const element = make(
    "fieldset",
    { id, "aria-describedby": `${id}-short` },
    make("legend", {}, make("h2", {}, question.text)),
    make("div", { class: "controls" }, ...nodes),
    error,
    oddsBox,
  );
  const clear = () => {
    error.hidden = true;
    for (const input of inputs) {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    }
  };
  element.addEventListener("input", clear);
  const code = () => {
    clear();
    try {
      return codeOf(question, read());
    } catch (problem) {
      if (!(problem instanceof NotAnswered)) throw problem;
      error.textContent = problem.message;
      error.hidden = false;
      for (const input of inputs) {
        input.setAttribute("aria-invalid", "true");
        input.setAttribute("aria-describedby", error.id);
      }
      problem.focus = () => inputs.find((input) => !input.disabled)?.focus();
      throw problem;
    }
  };
  return { element, code };
}
