// Bindings: a table that can unbind, and a form that binds.

import { html } from "./ui.js";
import { at, enc, send } from "./api.js";
import { Field, Form, Table, attempt, confirm, say } from "./parts.js";
import { link } from "./router.js";
import { ShownTable, TableField, parseTable } from "./tables.js";

const DEFAULT = "(default exchange)";

const exchangeLink = (vhost, name) =>
  html`<a href=${link(["exchanges", vhost, name || "amq.default"])}>${name || DEFAULT}</a>`;

function placeOf({ vhost, source, destination, destination_type, properties_key }) {
  const kind = destination_type === "exchange" ? "e" : "q";
  return `${at("bindings", vhost)}/e/${enc(source)}/${kind}/${enc(destination)}/${enc(properties_key)}`;
}

async function unbind(binding) {
  const text = `${binding.source} no longer routes “${binding.routing_key}” to ${binding.destination}.`;
  if (!await confirm({ title: "Unbind?", text, action: "Unbind" })) return;
  await attempt(() => send("DELETE", placeOf(binding)), "Unbound.");
}

/** show: which end is in the table, "source" or "destination". */
export function BindingsTable({ bindings, show, empty }) {
  const other = show === "source"
    ? { id: "source", title: "From", sort: (row) => row.source, cell: (row) => exchangeLink(row.vhost, row.source) }
    : { id: "destination", title: "To", sort: (row) => row.destination, cell: (row) => (row.destination_type === "exchange"
        ? html`${exchangeLink(row.vhost, row.destination)} <small>exchange</small>`
        : html`<a href=${link(["queues", row.vhost, row.destination])}>${row.destination}</a>`) };
  return html`<${Table} caption="Bindings" rows=${bindings} empty=${empty}
    rowKey=${(row) => [row.source, row.destination, row.properties_key].join("\n")} columns=${[
      other,
      { id: "key", title: "Routing key", sort: (row) => row.routing_key, cell: (row) => html`<code>${row.routing_key}</code>` },
      { id: "arguments", title: "Arguments", cell: (row) => html`<${ShownTable} table=${row.arguments} />` },
      { id: "unbind", title: html`<span class="unseen">Unbind</span>`, number: true, cell: (row) => row.source !== "" && html`
        <button type="button" class="small danger" aria-label=${`Unbind ${row.routing_key} of ${row.source}`} onClick=${() => unbind(row)}>Unbind</button>` },
    ]} />`;
}

// -- the picture ----------------------------------------------------------------------------------

const SIDE_MAX = 10;
const ROW = 34;
const BOX = { width: 190, height: 26 };
const MIDDLE = 350;
const WIDTH = 2 * MIDDLE + BOX.width;

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** One box per neighbour, with the keys of all its bindings on the line. */
function neighbours(bindings, end) {
  const found = new Map();
  for (const binding of bindings) {
    const kind = end === "source" ? "exchange" : binding.destination_type;
    const key = `${kind} ${binding[end]}`;
    const entry = found.get(key) ?? { name: binding[end], kind, keys: [] };
    entry.keys.push(binding.routing_key || "(no key)");
    found.set(key, entry);
  }
  return [...found.values()];
}

function Neighbour({ vhost, one, x, y, ends }) {
  const href = link([one.kind === "exchange" ? "exchanges" : "queues", vhost, one.name]);
  const middle = (ends[0] + ends[1]) / 2;
  const keys = one.keys.length > 2 ? `${one.keys.slice(0, 2).join(", ")} and ${one.keys.length - 2} more` : one.keys.join(", ");
  return html`
    <path d=${`M${ends[0]} ${ends[2]} C${middle} ${ends[2]} ${middle} ${ends[3]} ${ends[1]} ${ends[3]}`} />
    <text class="key" x=${x > MIDDLE ? x - 8 : x + BOX.width + 8} y=${y + BOX.height / 2 - 5} text-anchor=${x > MIDDLE ? "end" : "start"}>${cut(keys, 21)}<title>${one.keys.join(", ")}</title></text>
    <a href=${href} tabindex="-1"><rect class=${one.kind} x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="5" />
      <text x=${x + 10} y=${y + 17}>${cut(one.name, 25)}<title>${one.name}</title></text></a>`;
}

/** What is bound to an exchange on the left, what it is bound to on the right; the tables have all of it. */
export function BindingGraph({ vhost, name, into, from }) {
  const left = neighbours(into, "source");
  const right = neighbours(from, "destination");
  if (left.length + right.length === 0) return null;
  const rows = Math.max(1, Math.min(SIDE_MAX, Math.max(left.length, right.length)));
  const height = rows * ROW;
  const centre = height / 2;
  const edge = left.length ? 0 : MIDDLE - 2;
  const top = (side, row) => (height - Math.min(side.length, SIDE_MAX) * ROW) / 2 + row * ROW + (ROW - BOX.height) / 2;
  const more = Math.max(0, left.length - SIDE_MAX) + Math.max(0, right.length - SIDE_MAX);
  return html`
    <svg class="bindings" width=${WIDTH - edge} height=${height} viewBox=${`${edge} 0 ${WIDTH - edge} ${height}`} role="group" aria-label=${`${name}: bound to ${left.length} sources and ${right.length} destinations, as the tables say`}>
      ${left.slice(0, SIDE_MAX).map((one, row) => html`<${Neighbour} key=${`< ${one.name}`} vhost=${vhost} one=${one} x=${0} y=${top(left, row)}
        ends=${[BOX.width, MIDDLE, top(left, row) + BOX.height / 2, centre]} />`)}
      ${right.slice(0, SIDE_MAX).map((one, row) => html`<${Neighbour} key=${`> ${one.kind} ${one.name}`} vhost=${vhost} one=${one} x=${2 * MIDDLE} y=${top(right, row)}
        ends=${[MIDDLE + BOX.width, 2 * MIDDLE, centre, top(right, row) + BOX.height / 2]} />`)}
      <rect class="here" x=${MIDDLE} y=${centre - BOX.height / 2} width=${BOX.width} height=${BOX.height} rx="5" />
      <text class="here" x=${MIDDLE + BOX.width / 2} y=${centre + 4} text-anchor="middle">${cut(name, 25)}</text>
    </svg>
    ${more > 0 && html`<p class="quiet">${more} more are in the tables.</p>`}`;
}

/** Either end may be given: destination and its kind ("q", "e"), or source. */
export function BindForm({ vhost, source, destination, kind }) {
  const bind = async (values) => {
    const from = source ?? values.source;
    const to = destination ?? values.destination;
    const body = { routing_key: values.routing_key, arguments: parseTable(values.arguments) };
    await send("POST", `${at("bindings", vhost)}/e/${enc(from)}/${kind ?? values.kind}/${enc(to)}`, body);
    say(`${from} is bound to ${to}.`);
  };
  return html`
    <${Form} onSubmit=${bind} submit="Bind">
      ${source === undefined && html`<${Field} label="From exchange" name="source" required />`}
      ${destination === undefined && html`
        <${Field} label="To" name="kind" kind="select" options=${[["q", "queue"], ["e", "exchange"]]} />
        <${Field} label="Name" name="destination" required />`}
      <${Field} label="Routing key" name="routing_key" />
      <${TableField} label="Arguments" name="arguments" />
    <//>`;
}
