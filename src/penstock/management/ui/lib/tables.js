// Argument tables as lines of text: "x-max-length = 1000". A value that reads as JSON is that,
// anything else is a text; quotes make a text of a number. Buttons write the usual keys.

import { html, useRef } from "./ui.js";
import { options } from "./api.js";
import { Field } from "./parts.js";
import { missing } from "./format.js";

export function parseTable(text) {
  const table = {};
  for (const line of (text ?? "").split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`"${line.trim()}": a line is a key, =, and a value`);
    table[line.slice(0, at).trim()] = parseValue(line.slice(at + 1).trim());
  }
  return table;
}

function parseValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function writeTable(table) {
  return Object.entries(table ?? {}).map(([key, value]) => `${key} = ${written(value)}`).join("\n");
}

function written(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  return typeof parseValue(value) === "string" ? value : JSON.stringify(value);
}

/** hints: [[key, example, what it does]] */
export function TableField({ label, name, value, hints = [], hint = "one “key = value” a line" }) {
  const box = useRef(null);
  const write = (key, example) => {
    const area = box.current.querySelector("textarea");
    const before = area.value.trimEnd();
    area.value = `${before}${before ? "\n" : ""}${key} = ${example}`;
    area.focus();
    area.setSelectionRange(area.value.length - String(example).length, area.value.length);
  };
  return html`
    <div class="full" ref=${box}>
      <${Field} kind="textarea" label=${label} name=${name} value=${writeTable(value)} hint=${hint} />
      ${hints.length > 0 && html`<div class="hints">${hints.map(([key, example, what]) => html`
        <button type="button" class="small" key=${key} title=${what} onClick=${() => write(key, example)}>${key}</button>`)}</div>`}
    </div>`;
}

/** A table to look at: short lines, one for each key. */
export function ShownTable({ table }) {
  const entries = Object.entries(table ?? {});
  if (entries.length === 0) return html`<span class="quiet">${missing}</span>`;
  return html`<span class="shown-table">${entries.map(([key, value]) => html`
    <span key=${key}><span class="quiet">${key}:</span> ${typeof value === "object" ? JSON.stringify(value) : String(value)}</span>`)}</span>`;
}

const hint = (key, { example, doc, words, kind }) => [key, example, `${doc} (${words.join(", ") || kind})`];

/** Hints for the arguments of a "queue" or an "exchange". */
export const argumentHints = (of) => options.value
  .filter((one) => one.argument && one.applies_to === of).map((one) => hint(one.argument, one));

/** Hints for the definition of a "policy" or an "operator_policy". */
export const policyHints = (of) => options.value.filter((one) => one[of]).map((one) => hint(one.name, one));

/** What marks an argument in a list. */
export const labelOf = (key) => options.value.find(({ argument }) => argument === key)?.label ?? "Args";
