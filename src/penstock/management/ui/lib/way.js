// The way of a message as a picture and in words: exchanges, bindings, queues, what holds it up there.

import { html } from "./ui.js";
import { Drawing } from "./drawing.js";
import { Card, Empty, Table } from "./parts.js";
import { count, missing } from "./format.js";
import { link } from "./router.js";

const BOX = { width: 190, height: 28 };
const COLUMN = 360;
const ROW = 44;
const DRAWN_MAX = 40;
const LEAST_WIDTH = 960;

const nameOf = (name) => name || "(default exchange)";
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const idOf = (kind, name) => `${kind} ${name}`;
const shownBinding = ({ routing_key: key, arguments: table }) =>
  (Object.keys(table).length ? `${key} ${JSON.stringify(table)}`.trim() : key || "(no key)");
const because = ({ by, bindings }) => (by === "binding" ? bindings.map(shownBinding).join(", ") || "one of many" : by);

/** Boxes with column (how many hops away) and row; a box met twice stands where it was met first. */
function placed(exchange, hops) {
  const boxes = new Map([[idOf("exchange", exchange), { kind: "exchange", name: exchange, column: 0, row: 0 }]]);
  const rows = [1];
  for (const hop of hops) {
    const source = boxes.get(idOf("exchange", hop.source));
    const kind = hop.by === "delay" ? "room" : hop.destination_type;
    const key = idOf(kind, hop.destination);
    if (!source || boxes.has(key)) continue;
    const column = source.column + 1;
    rows[column] = (rows[column] ?? 0) + 1;
    boxes.set(key, { kind, name: hop.destination, column, row: rows[column] - 1 });
  }
  return { boxes, height: Math.max(...rows) * ROW, width: (rows.length - 1) * COLUMN + BOX.width };
}

function Picture({ vhost, exchange, hops }) {
  const { boxes, height, width: needed } = placed(exchange, hops);
  const width = Math.max(needed, LEAST_WIDTH);
  const middle = ({ row }) => row * ROW + ROW / 2;
  const desc = hops.map((hop) => `${nameOf(hop.source)} by ${because(hop)} to ${hop.destination || "its delay"}`).join("; ");
  return html`
    <${Drawing} title=${`The way from ${nameOf(exchange)}`} desc=${desc} width=${width} height=${height} className="bindings" wide>
      ${hops.map((hop, index) => {
        const from = boxes.get(idOf("exchange", hop.source));
        const to = boxes.get(idOf(hop.by === "delay" ? "room" : hop.destination_type, hop.destination));
        if (!from || !to) return null;
        const [x, end] = [from.column * COLUMN + BOX.width, to.column * COLUMN];
        const bend = (x + end) / 2;
        return html`<g key=${index}>
          <path d=${`M${x} ${middle(from)} C${bend} ${middle(from)} ${bend} ${middle(to)} ${end} ${middle(to)}`} />
          <text class="key" x=${end - 8} y=${middle(to) - 6} text-anchor="end">${cut(because(hop), 22)}<title>${because(hop)}</title></text></g>`;
      })}
      ${[...boxes.values()].map((box) => {
        const [x, y] = [box.column * COLUMN, middle(box) - BOX.height / 2];
        const body = html`<rect class=${box.kind} x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="5" />
          <text x=${x + 10} y=${y + 18}>${cut(box.kind === "room" ? "waits for its time" : nameOf(box.name), 25)}<title>${box.name}</title></text>`;
        return box.kind === "room" ? html`<g key="room">${body}</g>`
          : html`<a key=${idOf(box.kind, box.name)} tabindex="-1" href=${link([`${box.kind}s`, vhost, box.name || "amq.default"])}>${body}</a>`;
      })}
    <//>`;
}

/** found: the answer of /api/penstock/route */
export function Way({ vhost, exchange, found }) {
  const { hops, queues, reached, publishers_wait: wait } = found;
  return html`
    ${wait && html`<p class="warning" role="status">Publishers wait: ${wait}.</p>`}
    ${reached.length === 0 && html`<${Empty}>To no queue: it would be dropped, or returned to a publisher who asked for that.<//>`}
    ${hops.length > 0 && hops.length <= DRAWN_MAX && html`<${Card}><${Picture} vhost=${vhost} exchange=${exchange} hops=${hops} /><//>`}
    ${hops.length > 0 && html`<${Card} title="Hops">
      <${Table} caption="Hops" rows=${hops} rowKey=${(hop) => `${hop.source}\n${hop.destination_type}\n${hop.destination}`} columns=${[
        { id: "from", title: "From exchange", cell: (hop) => nameOf(hop.source) },
        { id: "by", title: "By", cell: (hop) => hop.by },
        { id: "bindings", title: "Bindings that match", cell: (hop) => (hop.by === "binding" ? html`<code>${because(hop)}</code>` : missing) },
        { id: "to", title: "To", cell: (hop) => (hop.by === "delay" ? "a delay" : html`${hop.destination_type} <b>${hop.destination}</b>`) },
      ]} /><//>`}
    ${queues.length > reached.length && html`<p class="quiet">The first ${reached.length} of ${count(queues.length)} queues are shown.</p>`}
    ${reached.length > 0 && html`<${Card} title="Queues, and what holds a message up there">
      <${Table} caption="Queues reached" rows=${reached} columns=${[
        { id: "queue", title: "Queue", cell: (row) => html`<a href=${link(["queues", vhost, row.name])}>${row.name}</a>` },
        { id: "policy", title: "Policy", minor: true, cell: (row) => [row.policy, row.operator_policy].filter(Boolean).join(", ") || missing },
        { id: "holdups", title: "Holds up", cell: (row) => (row.hold_ups.length ? row.hold_ups.join(" ") : "nothing") },
        { id: "dead", title: "When it dies", cell: (row) => (row.dead_letter_exchange === null ? "it is dropped"
          : html`<span>to </span><a href=${link(["exchanges", vhost, row.dead_letter_exchange || "amq.default"], { tab: "route", key: row.dead_letter_routing_key ?? "" })}>${nameOf(row.dead_letter_exchange)}</a>
            ${row.dead_letter_routing_key !== null && html`<span> with the key <code>${row.dead_letter_routing_key}</code></span>`}`) },
      ]} /><//>`}`;
}
