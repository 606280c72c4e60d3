// The messages of a queue where they lie: looked at, searched, and some of them moved, copied,
// deleted or retried. Looking takes nothing; what is not selected stays as it is.

import { html, cx, useEffect, useState } from "../lib/ui.js";
import { at, enc, get, send } from "../lib/api.js";
import { Card, Empty, Field, Form, Problem, confirm, say } from "../lib/parts.js";
import { Payload } from "../lib/payload.js";
import { bytes, count, missing, when } from "../lib/format.js";

const PAGES = [20, 100, 200];
const SHOWN_BYTES = 2000;
const WHOLE_BYTES = 1_000_000;
const EXCERPT = 70;
const SEARCHES_MAX = 50;
const DONE = { move: "moved", copy: "copied", delete: "deleted", retry: "sent back to where it was published", dead_letter: "dead-lettered" };
const LEFT = { gone: "not there any more", unroutable: "could not be routed", same_queue: "would come back to this queue", duplicate: "known already where they would go", without_death: "did not die where x-death says, so there is nowhere to retry", full: "refused by a full queue" };

const nothing = { messages: [], next: null, first: null, end: null };

export default function MessagesPanel({ vhost, name, queue }) {
  const path = `${at("queues", vhost, name)}/messages`;
  const [view, setView] = useState({ from: null, before: [], text: "" });
  const [priority, setPriority] = useState("");
  const [size, setSize] = useState(PAGES[0]);
  const [page, setPage] = useState(null);
  const [error, setError] = useState(null);
  const [chosen, setChosen] = useState(new Set());
  const [open, setOpen] = useState(null);
  const [busy, setBusy] = useState(false);

  const load = async () => {
    setBusy(true);
    setError(null);
    try {
      setPage(await (view.text ? search : look)(path, { ...view, size }, view.priority ?? priority));
    } catch (fault) {
      setError(fault);
      setPage(nothing);
    }
    setBusy(false);
  };
  const begin = (changes) => {
    setChosen(new Set());
    setOpen(null);
    setView({ from: null, before: [], text: "", ...changes });
  };
  useEffect(() => { load(); }, [path, view, priority, size]);

  const act = async (action, target = {}) => {
    const seq_ids = [...chosen].toSorted((a, b) => a - b);
    const of = page.priority ?? (priority === "" ? undefined : Number(priority));
    const answer = await send("POST", `${path}/actions`, { action, seq_ids, ...target, ...(of === undefined ? {} : { priority: of }) });
    say(told(action, answer), answer.done === seq_ids.length ? "good" : "bad");
    setChosen(new Set());
    await load();
  };
  const priorities = queue?.arguments?.["x-max-priority"];
  return html`
    <${Card}>
      <div class="listbar">
        <${Search} text=${view.text} onSearch=${(text) => begin({ text })} />
        ${priorities && html`<${Priority} most=${priorities} value=${priority} onChange=${(value) => { setPriority(value); begin({}); }} />`}
        <label class="tight">rows <select value=${size} onChange=${(event) => { setSize(Number(event.target.value)); begin({}); }}>
          ${PAGES.map((rows) => html`<option key=${rows}>${rows}</option>`)}</select></label>
        <button type="button" onClick=${load} disabled=${busy}>Reload</button>
        <span class="quiet" role="status">${busy ? "reading…" : said(page, view)}</span>
      </div>
      <${Problem} error=${error} />
      ${page && page.messages.length === 0 && !busy && !error && html`<${Empty}>${view.text ? "Nothing was found." : "No message is ready."}<//>`}
      ${page && page.messages.length > 0 && html`
        <${Chosen} count=${chosen.size} act=${act} />
        <${Messages} messages=${page.messages} searched=${view.text !== ""} ...${{ chosen, setChosen, open, setOpen, path, vhost, priority: page.priority }} />`}
      <${Pager} view=${view} page=${page} onMove=${(changes) => { setChosen(new Set()); setOpen(null); setView({ ...view, ...changes, priority: page.priority }); }} />
      <p class="quiet">Looking takes nothing from the queue and marks nothing as redelivered. What consumers hold is not shown.</p>
    <//>`;
}

// -- asking ---------------------------------------------------------------------------------------

const query = (values) => Object.entries(values).filter(([, value]) => value !== null && value !== "" && value !== undefined)
  .map(([key, value]) => `${key}=${enc(value)}`).join("&");

function look(path, { from, size }, priority) {
  return get(`${path}?${query({ from, count: size, truncate: SHOWN_BYTES, priority })}`);
}

/** The server looks at some thousand messages a call; so it is asked until a page is full. */
async function search(path, { from, text, size }, priority) {
  const found = [];
  let next = from;
  let looked = 0;
  let answer = nothing;
  for (let call = 0; call < SEARCHES_MAX; call += 1) {
    // Priorities are numbered apart: the one the first answer is of stays the one.
    const asked = query({ text, from: next, count: size - found.length, truncate: SHOWN_BYTES, priority: answer.priority ?? priority });
    answer = await get(`${path}/search?${asked}`);
    found.push(...answer.messages);
    looked += answer.looked_at;
    next = answer.next;
    if (next === null || found.length >= size) break;
  }
  return { ...answer, messages: found, looked_at: looked, next };
}

function said(page, { text }) {
  if (!page || page.end === null) return "";
  if (text) return `${count(page.messages.length)} found in ${count(page.looked_at)} messages looked at${page.next === null ? ", to the end" : ""}`;
  const { messages } = page;
  if (messages.length === 0) return "";
  return `positions ${count(messages[0].seq_id)} to ${count(messages.at(-1).seq_id)}; the queue's are ${count(page.first)} to ${count(page.end - 1)}`;
}

function told(action, answer) {
  const left = Object.entries(LEFT).filter(([key]) => answer[key]).map(([key, text]) => `${count(answer[key])} ${text}`);
  return [`${count(answer.done)} ${DONE[action]}`, ...left, answer.trouble].filter(Boolean).join("; ") + ".";
}

// -- above the list ---------------------------------------------------------------------------------

function Search({ text, onSearch }) {
  const [typed, setTyped] = useState(text);
  const submit = (event) => {
    event.preventDefault();
    onSearch(typed.trim());
  };
  return html`
    <form class="actions" role="search" onSubmit=${submit}>
      <input type="search" aria-label="Search bodies and headers" placeholder="in bodies, headers, keys" value=${typed}
        maxlength="1000" onInput=${(event) => setTyped(event.target.value)} />
      <button type="submit">Search</button>
      ${text && html`<button type="button" onClick=${() => { setTyped(""); onSearch(""); }}>Show all</button>`}
    </form>`;
}

function Priority({ most, value, onChange }) {
  const levels = Array.from({ length: Math.min(most, 255) + 1 }, (_, level) => level);
  return html`<label class="tight">Priority <select value=${value} onChange=${(event) => onChange(event.target.value)}>
    <option value="">the highest there is</option>${levels.map((level) => html`<option key=${level} value=${level}>${level}</option>`)}</select></label>`;
}

function Chosen({ count: number, act }) {
  const [form, setForm] = useState(null);
  useEffect(() => { if (number === 0) setForm(null); }, [number]);
  const sure = async (action, title, text) => {
    if (!await confirm({ title, text, action: title.replace(/ .*/, "") })) return;
    try {
      await act(action);
    } catch (error) {
      say(error.message, "bad");
    }
  };
  const off = number === 0;
  const some = `${count(number)} message${number === 1 ? "" : "s"}`;
  const choose = (action) => setForm(form === action ? null : action);
  return html`
    <div class="chosen" role="group" aria-label="What to do with the selected messages">
      <b aria-live="polite">${count(number)} selected</b>
      <button type="button" disabled=${off} aria-expanded=${String(form === "move")} onClick=${() => choose("move")}>Move…</button>
      <button type="button" disabled=${off} aria-expanded=${String(form === "copy")} onClick=${() => choose("copy")}>Copy…</button>
      <button type="button" disabled=${off} onClick=${() => sure("retry", `Retry ${some}?`, "They go to the exchange and with the routing key of their newest death (x-death), and leave this queue. What never died stays.")}>Retry…</button>
      <button type="button" disabled=${off} onClick=${() => sure("dead_letter", `Dead-letter ${some}?`, "They leave the queue as if a consumer had rejected them.")}>Dead-letter…</button>
      <button type="button" class="danger" disabled=${off} onClick=${() => sure("delete", `Delete ${some}?`, "They are gone for good. The others stay.")}>Delete…</button>
    </div>
    ${form && !off && html`<${Target} key=${form} action=${form} some=${some} act=${act} />`}`;
}

function Target({ action, some, act }) {
  const submit = async ({ queue, exchange, routing_key }) => {
    if (!queue && !exchange) throw new Error("Say where to: a queue, or an exchange.");
    await act(action, queue ? { queue } : { exchange, routing_key });
  };
  return html`
    <${Form} inline onSubmit=${submit} submit=${`${action === "move" ? "Move" : "Copy"} ${some}`} reset=${false}>
      <${Field} name="queue" label="To the queue" />
      <${Field} name="exchange" label="or to the exchange" />
      <${Field} name="routing_key" label="with the routing key" />
    <//>`;
}

// -- the list -------------------------------------------------------------------------------------

function Messages({ messages, searched, chosen, setChosen, open, setOpen, path, vhost, priority }) {
  const all = messages.every(({ seq_id }) => chosen.has(seq_id));
  const toggle = (seq_id) => {
    const next = new Set(chosen);
    if (!next.delete(seq_id)) next.add(seq_id);
    setChosen(next);
  };
  const toggleAll = () => setChosen(all ? new Set() : new Set(messages.map(({ seq_id }) => seq_id)));
  return html`
    <div class="scroll" tabindex="0" role="group" aria-label="Messages">
      <table class="messages">
        <caption class="unseen">Messages</caption>
        <thead><tr>
          <th scope="col"><input type="checkbox" aria-label="Select all of this page" checked=${all} onChange=${toggleAll} /></th>
          <th scope="col" class="number">Position</th><th scope="col" class="not-narrow">Exchange</th><th scope="col">Routing key</th>
          <th scope="col" class="number not-narrow">Size</th><th scope="col" class="not-narrow">Since</th>
          ${searched && html`<th scope="col">Found in</th>`}<th scope="col">Body</th></tr></thead>
        <tbody>${messages.map((message) => html`
          <${Line} key=${message.seq_id} message=${message} searched=${searched} chosen=${chosen.has(message.seq_id)}
            onToggle=${() => toggle(message.seq_id)} open=${open === message.seq_id}
            onOpen=${() => setOpen(open === message.seq_id ? null : message.seq_id)} path=${path} vhost=${vhost} priority=${priority} />`)}
        </tbody>
      </table>
    </div>`;
}

function Line({ message, searched, chosen, onToggle, open, onOpen, ...where }) {
  const { seq_id, exchange, routing_key, payload, payload_encoding, payload_bytes, redelivered } = message;
  const excerpt = payload_encoding === "string" ? payload.slice(0, EXCERPT) : "binary";
  return html`
    <tr class=${cx(chosen && "selected")} data-seq-id=${seq_id}>
      <td><input type="checkbox" aria-label=${`Select message ${seq_id}`} checked=${chosen} onChange=${onToggle} /></td>
      <td class="number">${count(seq_id)}${redelivered && html` <span class="tag" title="handed out before, or may have been">again</span>`}</td>
      <td class="not-narrow">${exchange || html`<span class="quiet">default</span>`}</td><td>${routing_key}</td>
      <td class="number not-narrow">${bytes(payload_bytes)}</td><td class="nowrap not-narrow">${when(message.enqueued_at_ms)}</td>
      ${searched && html`<td>${message.matched ?? missing}</td>`}
      <td><button type="button" class="plain mono" aria-expanded=${String(open)} aria-label=${`Message ${seq_id}: ${excerpt}`} onClick=${onOpen}>
        ${excerpt || html`<span class="quiet">empty</span>`}</button></td>
    </tr>
    ${open && html`<tr class="opened"><td colspan=${searched ? 8 : 7}><${Opened} message=${message} ...${where} /></td></tr>`}`;
}

function Opened({ message, path, vhost, priority }) {
  const [whole, setWhole] = useState(message);
  const [error, setError] = useState(null);
  const load = async () => {
    try {
      const asked = query({ from: message.seq_id, count: 1, truncate: WHOLE_BYTES, priority });
      const [first] = (await get(`${path}?${asked}`)).messages;
      if (first?.seq_id !== message.seq_id) throw new Error("It is not there any more.");
      setWhole(first);
    } catch (fault) {
      setError(fault);
    }
  };
  return html`<${Problem} error=${error} /><${Payload} message=${whole} vhost=${vhost} onWhole=${load} />`;
}

function Pager({ view, page, onMove }) {
  const last = page?.messages.at(-1)?.seq_id;
  const back = () => onMove({ from: view.before.at(-1), before: view.before.slice(0, -1) });
  const on = () => onMove({ from: page.next ?? last + 1, before: [...view.before, view.from] });
  return html`
    <nav class="pager" aria-label="Pages of messages">
      <button type="button" disabled=${view.before.length === 0} onClick=${back}>Back</button>
      <button type="button" disabled=${!page || page.next === null} onClick=${on}>${view.text ? "Search on" : "Next"}</button>
    </nav>`;
}
