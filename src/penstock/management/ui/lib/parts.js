// The pieces pages are built of. Tables are real tables, dialogs real dialogs, tabs real tabs:
// the keyboard and a screen reader get along without a word of ours.

import { html, cx, signal, useEffect, useErrorBoundary, useId, useLayoutEffect, useRef, useState } from "./ui.js";
import { route, setQuery } from "./router.js";
import { line } from "./api.js";
import { missing, typable, when } from "./format.js";

// -- boxes ----------------------------------------------------------------------------------------

export function Card({ title, actions, children, wide, className }) {
  const id = useId();
  return html`
    <section class=${cx("card", wide && "wide", className)} aria-labelledby=${title && id}>
      ${title && html`<header><h2 id=${id}>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</header>`}
      ${children}
    </section>`;
}

/** facts: [[name, value, "wide"?] …]; what is undefined is left out. */
export function Facts({ facts }) {
  const known = facts.filter((fact) => fact && fact[1] !== undefined && fact[1] !== "");
  return html`
    <dl class="facts">
      ${known.map(([name, value, size]) => html`<div key=${name} class=${size}><dt>${name}</dt><dd>${value ?? missing}</dd></div>`)}
    </dl>`;
}

/** One number that matters, with its name below. */
export function Figure({ label, value, hint, tone, href }) {
  const body = html`<b class="value">${value}</b><span class="label">${label}</span>`;
  return href
    ? html`<a class=${cx("figure", tone)} href=${href} title=${hint}>${body}</a>`
    : html`<div class=${cx("figure", tone)} title=${hint}>${body}</div>`;
}

const UNREACHED = "The broker cannot be reached; this is shown when it answers again.";
const TONES = {
  running: "good", ok: "good", live: "good", up: "good",
  flow: "warn", syncing: "warn", blocking: "warn", waiting: "warn", idle: "idle", silent: "idle", paused: "warn",
  blocked: "bad", stopped: "bad", failed: "bad", down: "bad", crashed: "bad", lost: "bad", alarm: "bad",
};

/** A state as a word with a coloured mark; the word carries the meaning. */
export function State({ value, title }) {
  if (!value) return html`<span class="quiet">${missing}</span>`;
  return html`<span class=${cx("state", TONES[value] ?? "idle")} title=${title}>${value}</span>`;
}

export const Tag = ({ children, title, tone }) =>
  html`<span class=${cx("tag", tone)} title=${title}>${children}</span>`;

/** A bar of value against limit, with words. */
export function Meter({ value, limit, text, warn = 0.7, bad = 0.9, label }) {
  const share = limit > 0 ? Math.min(1, value / limit) : 0;
  const tone = share >= bad ? "bad" : share >= warn ? "warn" : "good";
  return html`
    <div class="meter">
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=${`${label ?? ""} ${text}`}>
        <rect class="track" width="100" height="6" rx="2" />
        <rect class=${tone} width=${(share * 100).toFixed(1)} height="6" rx="2" />
      </svg>
      <span>${text}</span>
    </div>`;
}

/** Why something that was tried did not work. */
export function Problem({ error }) {
  if (!error) return null;
  return html`<p class="problem" role="alert">${error.message}</p>`;
}

/** What became of a question to the broker: under way, out of reach, not allowed, not there, failed;
 *  with an answer of before, how old that is. Nothing where it is answered. */
export function Asked({ data, error, gone = "It is not there (any more)." }) {
  if (!error) return data === undefined ? html`<p class="empty" role="status">${line.value === "lost" ? UNREACHED : "Asking the broker …"}</p>` : null;
  const text = error.status === 0 ? UNREACHED
    : error.status === 401 || error.status === 403 ? `Your user may not see this: ${error.message}`
    : error.status === 404 ? gone
    : error.status === 503 ? `The broker did not answer: ${error.message}`
    : `The broker answered with an error: ${error.message}`;
  return html`<p class="problem" role="alert">${text}${data !== undefined && error.last && ` What is shown is of ${when(error.last)}.`}</p>`;
}

export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/** What one panel throws does not take the page with it. */
export function Guarded({ children }) {
  const [error, again] = useErrorBoundary((fault) => console.error(fault));
  if (!error) return children;
  return html`<div class="problem" role="alert">This part could not be drawn: ${error.message}
    <button type="button" onClick=${again}>Try again</button></div>`;
}

// -- tabs -----------------------------------------------------------------------------------------

/** tabs: [{id, title, count?, draw: () => vnode}]; the open one is in the address. */
export function Tabs({ tabs, label }) {
  const open = tabs.find((tab) => tab.id === route.value.query.tab) ?? tabs[0];
  const buttons = useRef(null);
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (tabs.indexOf(open) + step + tabs.length) % tabs.length;
    setQuery({ tab: tabs[next].id });
    buttons.current.children[next].focus();
  };
  return html`
    <div class="tabs" role="tablist" aria-label=${label} ref=${buttons} onKeyDown=${move}>
      ${tabs.map((tab) => html`
        <button type="button" role="tab" key=${tab.id} id=${`tab-${tab.id}`}
          aria-selected=${String(tab === open)} aria-controls="tab-panel"
          tabindex=${tab === open ? 0 : -1} onClick=${() => setQuery({ tab: tab.id })}>
          ${tab.title}${tab.count !== undefined && html` <span class="count">${tab.count}</span>`}
        </button>`)}
    </div>
    <div role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${open.id}`} class="panel">
      <${Guarded} key=${open.id}>${open.draw()}<//>
    </div>`;
}

// -- tables ---------------------------------------------------------------------------------------

export const cellClass = ({ number, minor }) => cx(number && "number", minor && "not-narrow");

/** columns: [{id, title, cell: row => vnode, sort?: row => value, number?: bool, hint?, minor?: not on a phone}]
 *  Sorted here; for lists that the server sorts see lib/listing.js. */
export function Table({ columns, rows, empty = "None.", rowKey = (row) => row.name, caption, sort: first }) {
  const [sort, setSort] = useState(first ?? { id: null, reverse: false });
  const by = columns.find((column) => column.id === sort.id);
  const sorted = by?.sort && rows ? rows.toSorted((a, b) => compare(by.sort(a), by.sort(b)) * (sort.reverse ? -1 : 1)) : rows;
  if (!rows) return null; // <Asked> says why
  if (rows.length === 0) return html`<${Empty}>${empty}<//>`;
  return html`
    <div class="scroll" tabindex="0" role="group" aria-label=${caption ?? "table"}>
      <table>
        ${caption && html`<caption class="unseen">${caption}</caption>`}
        <thead><tr>${columns.map((column) => html`
          <${Head} key=${column.id} column=${column} sortable=${!!column.sort} sort=${sort} onSort=${setSort} />`)}</tr></thead>
        <tbody>${sorted.map((row, index) => html`
          <tr key=${rowKey(row) ?? index}>${columns.map((column) => html`
            <td key=${column.id} class=${cellClass(column)}>${column.cell(row)}</td>`)}</tr>`)}
        </tbody>
      </table>
    </div>`;
}

export function Head({ column, sortable, sort, onSort }) {
  const mine = sort.id === column.id;
  const direction = mine ? (sort.reverse ? "descending" : "ascending") : undefined;
  const next = { id: column.id, reverse: mine ? !sort.reverse : !!column.number };
  return html`
    <th scope="col" class=${cellClass(column)} aria-sort=${direction} title=${column.hint}>
      ${sortable
        ? html`<button type="button" class=${cx("sort", mine && (sort.reverse ? "down" : "up"))}
            onClick=${() => onSort(next)}>${column.title}</button>`
        : column.title}
    </th>`;
}

export function compare(a, b) {
  if (a === b) return 0;
  if (a === undefined || a === null) return -1;
  if (b === undefined || b === null) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a < b ? -1 : 1;
}

// -- forms ----------------------------------------------------------------------------------------

/** A labelled field. kind: text, number, password, textarea, select (options), checkbox. */
export function Field({ label, name, kind = "text", options, hint, value, ...rest }) {
  const id = useId();
  const hintId = hint && `${id}-hint`;
  const same = { id, name, "aria-describedby": hintId, ...rest };
  if (kind === "checkbox") {
    return html`<div class="field check"><input type="checkbox" defaultChecked=${value} ...${same} />
      <label for=${id}>${label}</label>${hint && html`<small id=${hintId}>${hint}</small>`}</div>`;
  }
  const input = kind === "select"
    ? html`<select ...${same}>${options.map((option) => {
        const [key, text] = Array.isArray(option) ? option : [option, option];
        return html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`;
      })}</select>`
    : kind === "textarea"
      ? html`<textarea spellcheck=${false} defaultValue=${value ?? ""} ...${same}></textarea>`
      : html`<input type=${kind} autocomplete="off" spellcheck=${false} defaultValue=${value ?? ""} ...${same} />`;
  return html`<div class="field"><label for=${id}>${label}</label>${input}
    ${hint && html`<small id=${hintId}>${hint}</small>`}</div>`;
}

const hasNothingToChooseFrom = (input) => input.tagName === "SELECT" && input.length === 0;

/** A form that says what went wrong. onSubmit(values) may throw; values by name, checkboxes as booleans.
 *  It cannot be sent before every list in it came from the server. */
export function Form({ onSubmit, submit, children, danger, inline, reset = true }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [early, setEarly] = useState(true);
  const itself = useRef(null);
  useLayoutEffect(() => setEarly([...itself.current.elements].some(hasNothingToChooseFrom)));
  const run = async (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    setBusy(true);
    setError(null);
    try {
      await onSubmit(valuesOf(form));
      if (reset) form.reset();
    } catch (fault) {
      setError(fault);
    }
    setBusy(false);
  };
  return html`
    <form class=${cx("form", inline && "inline")} onSubmit=${run} ref=${itself}>
      ${children}
      <div class="buttons"><button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy || early}>${submit}</button></div>
      <${Problem} error=${error} />
    </form>`;
}

export function valuesOf(form) {
  const values = {};
  for (const input of form.elements) {
    if (!input.name) continue;
    if (input.type === "checkbox") values[input.name] = input.checked;
    else if (input.type === "file") values[input.name] = input.files[0];
    else if (input.type !== "radio" || input.checked) values[input.name] = input.value;
  }
  return values;
}

// -- words to the user ----------------------------------------------------------------------------

export const notices = signal([]);
let noticeNumber = 0;

/** Says that something was done (or not), read aloud politely; goes away by itself. */
export function say(text, tone = "good") {
  noticeNumber += 1;
  const id = noticeNumber;
  notices.value = [...notices.value, { id, text, tone }];
  setTimeout(() => forget(id), tone === "bad" ? 12_000 : 5000);
}

function forget(id) {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

export function Notices() {
  return html`
    <div class="notices" role="status" aria-live="polite">
      ${notices.value.map(({ id, text, tone }) => html`
        <p key=${id} class=${cx("notice", tone)}>${text}
          <button type="button" class="plain" aria-label="Dismiss" onClick=${() => forget(id)}>×</button></p>`)}
    </div>`;
}

/** Does it, and says how it went. → true when it worked */
export async function attempt(action, done) {
  try {
    const result = await action();
    if (done) say(typeof done === "function" ? done(result) : done);
    return true;
  } catch (error) {
    say(error.message, "bad");
    return false;
  }
}

export const question = signal(null);

/** Asks before something that cannot be undone. → promise of true or false */
export function confirm({ title, text, action = "OK", danger = true, type }) {
  return new Promise((answer) => {
    question.value = { title, text, action, danger, type, answer };
  });
}

export function Question() {
  const asked = question.value;
  const dialog = useRef(null);
  const [typed, setTyped] = useState("");
  useEffect(() => {
    setTyped("");
    if (asked) dialog.current?.showModal();
  }, [asked]);
  if (!asked) return null;
  const close = (yes) => {
    question.value = null;
    asked.answer(yes);
  };
  const spelt = asked.type && typable(asked.type);
  const ready = !asked.type || typed === asked.type || typed === spelt;
  return html`
    <dialog ref=${dialog} onClose=${() => question.value && close(false)} aria-labelledby="question">
      <h2 id="question">${asked.title}</h2>
      <p>${asked.text}</p>
      ${asked.type && html`<div class="field"><label for="typed">Type <b>${spelt}</b> to go on</label>
        <input id="typed" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></div>`}
      <div class="buttons">
        <button type="button" autofocus onClick=${() => close(false)}>Cancel</button>
        <button type="button" class=${asked.danger ? "danger" : "primary"} disabled=${!ready}
          onClick=${() => close(true)}>${asked.action}</button>
      </div>
    </dialog>`;
}
