// The console works without this script. With it, prices follow typing, and texts can be copied.
"use strict";

const REST = 300; // milliseconds without typing before a price is asked for
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);

function show(inside) {
  for (const one of all("[data-with-script], [data-copy]", inside)) one.hidden = false;
  for (const one of all("[data-without-script]", inside)) one.hidden = true;
}

// Ask: the price follows

function asking(form) {
  const sql = byId("sql");
  let timer = 0;
  let running = null;

  function age() {
    form.classList.add("is-old");
    for (const button of all("[data-release]", form)) button.disabled = true;
  }

  function later(rest = REST) {
    clearTimeout(timer);
    running?.abort();
    age();
    timer = setTimeout(price, rest);
  }

  async function price(more = {}) {
    if (!sql.value.trim()) return;
    const wait = (running = new AbortController());
    const body = new URLSearchParams(new FormData(form));
    for (const [name, value] of Object.entries(more)) body.set(name, value);
    let reply, text;
    try {
      reply = await fetch(form.dataset.price, { method: "POST", body, signal: wait.signal });
      text = await reply.text();
    } catch (error) {
      if (error.name !== "AbortError") say("No price: the server cannot be reached. Nothing was charged.");
      return;
    }
    if (wait !== running) return;
    if (reply.status === 401) return say("You are signed out. Sign in again; your text stays in this page.");
    if (reply.status === 429) return later(Number(reply.headers.get("Retry-After") ?? 2) * 1000);
    if (!reply.headers.get("Content-Type")?.startsWith("text/html")) return say("No price. Try again.");
    put(text);
  }

  function say(words) {
    const foot = byId("foot");
    foot.className = "editor-foot caution";
    foot.textContent = words;
  }

  function put(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const held = document.activeElement?.id ?? "";
    const range = "selectionStart" in (document.activeElement ?? {}) ? document.activeElement.selectionStart : null;
    for (const id of ["foot", "priced", "release"]) {
      const from = fresh.getElementById(id);
      const to = byId(id);
      if (!from || !to) continue;
      if (id === "foot") to.className = from.className;
      show(from);
      to.replaceChildren(...from.childNodes);
    }
    form.classList.remove("is-old");
    const plan = byId("plan").value; // reloading and going back show the same question and price
    if (plan) history.replaceState(null, "", `${form.getAttribute("action")}/${plan}`);
    const again = held && byId(held);
    if (again && again !== document.activeElement) {
      again.focus({ preventScroll: true });
      if (range !== null && again.setSelectionRange) {
        try { again.setSelectionRange(range, range); } catch { /* this kind of field has no selection */ }
      }
    }
  }

  function write(text, everything) {
    sql.focus();
    if (everything) sql.select();
    // The command keeps undo. It is the only way to change a text field and to keep undo.
    if (!document.execCommand("insertText", false, text)) {
      sql.setRangeText(text, everything ? 0 : sql.selectionStart, everything ? sql.value.length : sql.selectionEnd, "end");
      later(0);
    }
  }

  form.addEventListener("input", (event) => {
    const { target } = event;
    if (target.id === "slide") {
      const stop = target.dataset.stops.split(" ")[Number(target.value)];
      byId("epsilon").value = stop;
      target.setAttribute("aria-valuetext", `ε ${stop}`);
      age();
    } else if (target.name) later();
  });
  form.addEventListener("change", (event) => event.target.id === "slide" && later(0));
  form.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.use !== undefined) {
      event.preventDefault();
      write(button.dataset.use, true);
    } else if (button?.dataset.price !== undefined) {
      event.preventDefault();
      byId("epsilon").value = button.dataset.price;
      byId("epsilon").focus();
      later(0);
    } else if (button?.dataset.insert !== undefined) write(button.dataset.insert, false);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.tagName === "INPUT") {
      event.preventDefault();
      later(0);
    }
  });
  if (matchMedia("(max-width: 1080px)").matches)
    for (const table of all(".schema details[open]", form)) table.open = false;
}

// A spending button works once for each press; the server spends once for each plan

addEventListener("submit", (event) => {
  const button = event.submitter;
  if (event.target.dataset.sent) return event.preventDefault();
  if (!button?.matches("[data-release]")) return;
  event.target.dataset.sent = "yes";
  button.dataset.was = button.innerHTML;
  setTimeout(() => {
    button.disabled = true;
    button.textContent = button.dataset.working || "Releasing …";
  });
});
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

// Copy

async function copy(button) {
  let text = button.dataset.copy;
  if (button.dataset.fetch !== undefined) {
    const reply = await fetch(button.href);
    if (!reply.ok) return location.assign(button.href);
    text = await reply.text();
  }
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  const words = button.dataset.words ?? (button.dataset.words = button.textContent);
  button.textContent = "Copied";
  byId("said").textContent = "Copied";
  setTimeout(() => { button.textContent = words; byId("said").textContent = ""; }, 2000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-fetch]");
  if (button) { event.preventDefault(); copy(button); }
  for (const open of all("details.menu[open], details.switch[open]"))
    if (!open.contains(event.target)) open.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const open of all("details.menu[open], details.switch[open]")) {
    open.open = false;
    open.querySelector("summary").focus();
  }
});

document.addEventListener("change", async (event) => {
  const { into } = event.target.dataset;
  if (into && event.target.files[0]) byId(into).value = await event.target.files[0].text();
});

// Progress of long work: asked for again every few seconds while the page is looked at

function following(place) {
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const reply = await fetch(place.dataset.follow);
      if (reply.ok) place.innerHTML = await reply.text();
    } catch { /* the next time */ }
  }, 3000);
}

// A chooser that spends nothing: its page is asked for again, and its card is put in place

function following_fields(form) {
  let timer = 0, running = null;
  async function follow() {
    running?.abort();
    const wait = (running = new AbortController());
    try {
      const query = new URLSearchParams(new FormData(form));
      const reply = await fetch(`${form.getAttribute("action").split("#")[0]}?${query}`, { signal: wait.signal });
      if (!reply.ok || wait !== running) return;
      const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
      for (const field of all("input[name]", form)) {
        const from = fresh.querySelector(`#${form.dataset.follows} [name="${field.name}"]`);
        if (from && field !== document.activeElement) field.value = from.value;
        else if (from) byId(form.dataset.follows).querySelector(`[name="was_${field.name}"]`).value = from.value;
        field.closest(".choice").classList.toggle("leads", Boolean(from?.closest(".leads")));
      }
      const words = form.querySelector("[role=status]");
      words.replaceChildren(...fresh.getElementById(words.id).childNodes);
    } catch { /* the next change */ }
  }
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(follow, REST); });
  form.addEventListener("submit", (event) => { event.preventDefault(); follow(); });
}

// A table that fits is no stop of the Tab key

function stops() {
  for (const one of all(".scroll")) one.tabIndex = one.scrollWidth > one.clientWidth + 1 ? 0 : -1;
}
addEventListener("resize", stops);

show(document);
stops();
for (const form of all("[data-follows]")) following_fields(form);
if (byId("ask")) asking(byId("ask"));
for (const place of all("[data-follow]")) following(place);
if (location.hash) document.querySelector(`#${CSS.escape(location.hash.slice(1))}[tabindex]`)?.focus();
