// What is in a message, for people: as text, as JSON with indents, or byte by byte.

import { html, useState } from "./ui.js";
import { bytes, count, plain } from "./format.js";
import { Facts } from "./parts.js";

const HEX_WIDTH = 16;
const HEX_MAX = 4096;

/** The bytes of a row's payload, whatever spelling it came in. */
export function payloadBytes({ payload, payload_encoding }) {
  if (payload_encoding !== "base64") return new TextEncoder().encode(payload);
  return Uint8Array.from(atob(payload), (letter) => letter.charCodeAt(0));
}

/** Indented, or null when it is no JSON. Numbers are left as they are written: 2^53 and more, too. */
export function prettyJson(text) {
  try {
    const value = JSON.parse(text);
    if (typeof value !== "object" || value === null) return null;
    return indented(text);
  } catch {
    return null;
  }
}

function indented(text) {
  let depth = 0;
  const line = (more) => "\n" + "  ".repeat(depth + more);
  const pieces = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  return pieces.map((piece, index) => {
    const next = pieces[index + 1];
    if (piece === "{" || piece === "[") {
      if (next === "}" || next === "]") return piece;
      depth += 1;
      return piece + line(0);
    }
    if (piece === "}" || piece === "]") {
      if (pieces[index - 1] === "{" || pieces[index - 1] === "[") return piece;
      depth -= 1;
      return line(0) + piece;
    }
    return piece === "," ? piece + line(0) : piece === ":" ? ": " : piece;
  }).join("");
}

export function hexDump(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, HEX_MAX); at += HEX_WIDTH) {
    const part = [...data.slice(at, at + HEX_WIDTH)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(HEX_WIDTH * 3 - 1)}  ${text}`);
  }
  if (data.length > HEX_MAX) lines.push(`… ${count(data.length - HEX_MAX)} bytes more`);
  return lines.join("\n");
}

export function Payload({ message, onWhole }) {
  const json = message.payload_encoding === "string" ? prettyJson(message.payload) : null;
  const kinds = [json !== null && "JSON", message.payload_encoding === "string" && "text", "hex"].filter(Boolean);
  const [chosen, choose] = useState(kinds[0]);
  const kind = kinds.includes(chosen) ? chosen : kinds[0];
  const loaded = payloadBytes(message);
  const shown = kind === "JSON" ? json : kind === "text" ? message.payload : hexDump(loaded);
  return html`
    <div class="payload">
      <div class="actions" role="group" aria-label="Show the body as">
        ${kinds.map((one) => html`<button type="button" class="small" key=${one} aria-pressed=${String(one === kind)} onClick=${() => choose(one)}>${one}</button>`)}
        <span class="quiet">${bytes(message.payload_bytes)}</span>
        ${loaded.length < message.payload_bytes && html`<span class="quiet">the first ${bytes(loaded.length)} are shown</span>
          <button type="button" class="small" onClick=${onWhole}>Load more</button>`}
      </div>
      <pre class="content" tabindex="0" aria-label="Body">${shown}</pre>
      <${Facts} facts=${Object.entries(message.properties).filter(([name]) => name !== "headers").map(([name, value]) => [name, plain(value)])} />
      <${Headers} headers=${message.properties.headers} />
    </div>`;
}

function Headers({ headers }) {
  const entries = Object.entries(headers ?? {});
  if (entries.length === 0) return null;
  return html`<h3 class="gap">Headers</h3>
    <${Facts} facts=${entries.map(([name, value]) => [name, typeof value === "object" && value !== null
      ? html`<pre>${JSON.stringify(value, null, 2)}</pre>` : plain(value)])} />`;
}
