// The last lines of the node's log, as they come; an administrator sets which are written.

import { html, cx, useState } from "../lib/ui.js";
import { isAdministrator, send, useLive } from "../lib/api.js";
import { Asked, Card, Empty, Field, Form, say } from "../lib/parts.js";
import { count } from "../lib/format.js";

const LINES = 500;
const LEVELS = ["debug", "info", "warning", "error", "critical"];
/** 2026-11-28 02:00:00.123456+00:00 [info] <connection> text; with log_format = "json" an object. */
const LINE = /^(\S+ \S+) \[(\w+)\] <([^>]*)> ([^]*)$/;

function parsed(line) {
  const found = LINE.exec(line);
  if (found) return { at: found[1], level: found[2], category: found[3], text: found[4] };
  try {
    const { time, level, category, message, traceback = "" } = JSON.parse(line);
    return { at: time, level, category, text: `${message}\n${traceback}`.trim() };
  } catch {
    return { at: "", level: "", category: "", text: line };
  }
}

const TONES = { warning: "warn", error: "bad", critical: "bad" };

export default function Logs() {
  const { data, error } = useLive(`/api/penstock/log?lines=${LINES}`);
  const [text, setText] = useState("");
  const [least, setLeast] = useState("debug");
  const all = data?.lines.map(parsed);
  const rank = (level) => (LEVELS.includes(level) ? LEVELS.indexOf(level) : LEVELS.length);
  const shown = all?.filter((line) => rank(line.level) >= rank(least)
    && `${line.category} ${line.text}`.toLowerCase().includes(text.toLowerCase())).toReversed();
  return html`
    <div class="head"><h1>Log</h1></div>
    <div class="listbar" role="search">
      <input type="search" aria-label="Filter lines" placeholder="Filter lines" onInput=${(event) => setText(event.target.value)} />
      <label class="tight">From level <select value=${least} onChange=${(event) => setLeast(event.target.value)}>
        ${LEVELS.map((level) => html`<option key=${level}>${level}</option>`)}</select></label>
      <span class="quiet" role="status">${shown && `${count(shown.length)} of the last ${count(all.length)} lines, the newest first; times are UTC`}</span>
    </div>
    <${Asked} data=${data} error=${error} />
    ${shown && html`<${Card}>
      ${shown.length === 0 && html`<${Empty}>${all.length ? "No line fits." : "Nothing is logged yet."}<//>`}
      ${shown.length > 0 && html`<ol class="log" tabindex="0" aria-label="Lines of the log">${shown.map((line, index) => html`
        <li key=${all.length - index} class=${cx(TONES[line.level])}><time>${line.at.replace(/\.\d+\+00:00$/, "")}</time>
          <b>${line.level}</b> <span class="quiet">${line.category}</span> <span>${line.text}</span></li>`)}</ol>`}
    <//>`}
    ${isAdministrator() && html`<${Levels} />`}`;
}

function Levels() {
  const { data, error } = useLive("/api/penstock/log-level");
  const set = async ({ level, category }) => {
    await send("PUT", "/api/penstock/log-level", category ? { level, category } : { level });
    say(`${category || "Everything"}: lines from ${level} on are logged until the next start.`);
  };
  return html`
    <${Card} title="What is logged">
      <${Asked} data=${data} error=${error} />
      ${data && html`<p>From ${data.level} on${Object.entries(data.categories).map(([name, level]) => `; ${name} from ${level} on`).join("")}.</p>`}
      <${Form} inline onSubmit=${set} submit="Set level" reset=${false}>
        <${Field} label="Level" name="level" kind="select" options=${[...LEVELS, "none"]} value=${data?.level} />
        <${Field} label="Of the category" name="category" hint="empty: all that have no level of their own" />
      <//>
    <//>`;
}
