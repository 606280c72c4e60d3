// What is in a message, for people: as JSON with indents, as what Avro or MessagePack hold, as text, or
// byte by byte.

import { html, useState } from "./ui.js";
import { bytes, count, plain, when } from "./format.js";
import { avro, messagePack } from "./binary.js";
import { Facts } from "./parts.js";
import { link } from "./router.js";

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

const written = (value) => (value === null ? null : JSON.stringify(value, null, 2));

export function Payload({ message, onWhole, vhost }) {
  const loaded = payloadBytes(message);
  const isWhole = loaded.length >= message.payload_bytes;
  const views = {
    JSON: message.payload_encoding === "string" ? prettyJson(message.payload) : null,
    Avro: isWhole ? written(avro(loaded)) : null,
    MessagePack: isWhole ? written(messagePack(loaded)) : null,
    text: message.payload_encoding === "string" ? message.payload : null,
    hex: hexDump(loaded),
  };
  const kinds = Object.keys(views).filter((one) => views[one] !== null);
  const [chosen, choose] = useState(kinds[0]);
  const kind = kinds.includes(chosen) ? chosen : kinds[0];
  return html`
    <div class="payload">
      <div class="actions" role="group" aria-label="Show the body as">
        ${kinds.map((one) => html`<button type="button" class="small" key=${one} aria-pressed=${String(one === kind)} onClick=${() => choose(one)}>${one}</button>`)}
        <span class="quiet">${bytes(message.payload_bytes)}</span>
        ${!isWhole && html`<span class="quiet">the first ${bytes(loaded.length)} are shown</span>
          ${onWhole && html`<button type="button" class="small" onClick=${onWhole}>Load more</button>`}`}
      </div>
      <pre class="content" tabindex="0" aria-label="Body">${views[kind]}</pre>
      <${Facts} facts=${Object.entries(message.properties).filter(([name]) => name !== "headers").map(([name, value]) => [name, plain(value)])} />
      <${Headers} headers=${message.properties.headers} vhost=${vhost} />
    </div>`;
}

function Headers({ headers, vhost }) {
  const { "x-death": deaths, ...others } = headers ?? {};
  const entries = Object.entries(Array.isArray(deaths) ? others : headers ?? {});
  return html`
    ${Array.isArray(deaths) && html`<${Deaths} deaths=${deaths} vhost=${vhost} />`}
    ${entries.length > 0 && html`<h3 class="gap">Headers</h3>
      <${Facts} facts=${entries.map(([name, value]) => (typeof value === "object" && value !== null
        ? [name, html`<pre>${JSON.stringify(value, null, 2)}</pre>`, "wide"] : [name, plain(value)]))} />`}`;
}

/** x-death as the way it tells: the oldest death first, each with what led to its queue. */
function Deaths({ deaths, vhost }) {
  const times = (number) => (number > 1 ? `, ${count(number)} times` : "");
  return html`<h3 class="gap">Dead-letter history</h3>
    <ol class="deaths">${deaths.toReversed().map(({ queue, exchange, reason, count: number, time, "routing-keys": keys, ...rest }, index) => html`
      <li key=${index}><span>${exchange ? `exchange ${exchange}` : "the default exchange"}, ${(keys ?? []).length === 1 ? "key" : "keys"} <code>${(keys ?? []).join(", ")}</code></span>
        <a href=${link(["queues", vhost, queue ?? ""])}>${queue}</a>
        <b>${reason}${times(number)}</b> <span class="quiet">${typeof time === "number" ? when(time * 1000) : plain(time)}</span>
        ${Object.entries(rest).map(([key, value]) => html` <span class="quiet" key=${key}>${key}: ${plain(value)}</span>`)}</li>`)}
      <li><span>then to where it is now</span></li></ol>`;
}
