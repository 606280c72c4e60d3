// Flow control: every link of the credit chain, and the stage that makes the others wait.

import { html, cx } from "../lib/ui.js";
import { at, useLive } from "../lib/api.js";
import { Asked, Card, Facts, State, Table } from "../lib/parts.js";
import { Drawing, Numbers } from "../lib/drawing.js";
import { bytes, count, duration, percent } from "../lib/format.js";
import { link } from "../lib/router.js";

const COLUMNS = [
  { kind: "connection", title: "connections", named: "" },
  { kind: "channel", title: "channels", named: "channels" },
  { kind: "queue", title: "queues", named: "queues" },
  { kind: "message store", title: "message store", named: "message store" },
];
const WIDTH = 1100;
const NODE = { width: 216, height: 46, gap: 12 };
const STEP = (WIDTH - NODE.width) / (COLUMNS.length - 1);
const ROWS_MAX = 10;
const HEAD = 44;

export default function FlowPage() {
  const { data: chain, error } = useLive(at("penstock", "flow", "chain"));
  return html`
    <div class="head"><h1>Flow</h1><span class="where">flow control over the last ten seconds</span></div>
    <${Asked} data=${chain} error=${error} />
    ${chain && html`
      <${Verdict} chain=${chain} />
      <${Card} title="The credit chain"><${Chain} chain=${chain} /><//>
      <div class="cards">
        <${Card} title="Links" wide><${Links} chain=${chain} /><//>
        <${Card} title="Waits" wide><${Waits} waits=${chain.waits} /><//>
        <${Card} title="Stages"><${Numbers} caption="Stages in flow" columns=${["Stage", "In flow now", "Share of 10 s"]}
          rows=${chain.stages.map(({ kind, in_flow, share }) => [kind, count(in_flow), percent(share)])} /><//>
        <${Card} title="Limits"><${Facts} facts=${factsOf(chain)} /><//>
      </div>`}`;
}

function Verdict({ chain }) {
  const waits = chain.bottleneck !== "nothing";
  return html`
    <section class=${cx("verdict", waits && "waits")} aria-live="polite" data-bottleneck=${chain.bottleneck}>
      <h2>${waits ? `Bottleneck: ${chain.bottleneck}` : "No bottleneck"}</h2>
      <p>${chain.sentence}</p>
      ${chain.advice && html`<p class="advice">${chain.advice}</p>`}
    </section>`;
}

function factsOf(chain) {
  const { processor } = chain;
  const credit = ([left, more]) => `${count(left)}, ${count(more)} more at a time`;
  return [
    ["Credit flow", chain.enabled ? "on" : "off"],
    ["Credit of a link", credit(chain.credit)],
    ["Credit with the message store", credit(chain.message_store_credit)],
    ["Publishes held", bytes(chain.held_bytes)],
    ["Blocked by an alarm", chain.blocked || "no"],
    ["The processor's time", `connections ${percent(processor.connections)}, channels ${percent(processor.channels)}, queues ${percent(processor.queues)}`],
  ];
}

// -- the picture ----------------------------------------------------------------------------------

/** Where each node stands: by its kind in a column, the longest waits first. */
function placed(chain) {
  const places = new Map();
  let rows = 1;
  COLUMNS.forEach(({ kind }, column) => {
    const own = chain.nodes.filter((node) => node.kind === kind).toSorted((a, b) => b.share - a.share);
    own.slice(0, ROWS_MAX).forEach((node, row) => {
      places.set(node.id, { node, x: column * STEP, y: HEAD + row * (NODE.height + NODE.gap) });
    });
    rows = Math.max(rows, Math.min(own.length, ROWS_MAX));
  });
  return { places, height: HEAD + rows * (NODE.height + NODE.gap) + 20 };
}

function Chain({ chain }) {
  const { places, height } = placed(chain);
  const drawn = chain.links.filter(({ from, to }) => places.has(from) && places.has(to));
  const left = chain.nodes.length - places.size;
  return html`
    <${Drawing} title="The credit chain" desc=${`${chain.sentence} ${chain.advice}`} width=${WIDTH} height=${height} className="chain" wide>
      ${COLUMNS.map((column, index) => html`<${Column} key=${column.kind} ...${column} x=${index * STEP} bottleneck=${chain.bottleneck} />`)}
      ${drawn.map((one) => html`<${Link} key=${`${one.from} ${one.to}`} ...${one} a=${places.get(one.from)} b=${places.get(one.to)} />`)}
      ${drawn.map((one) => html`<${Credit} key=${`${one.from} ${one.to}`} ...${one} a=${places.get(one.from)} b=${places.get(one.to)} />`)}
      ${[...places.values()].map(({ node, x, y }) => html`<${Node} key=${node.id} node=${node} x=${x} y=${y} />`)}
      ${places.size > 1 && !chain.nodes.some(({ kind }) => kind === "queue") && html`
        <text class="quiet" x=${2 * STEP + NODE.width / 2} y=${HEAD + 22} text-anchor="middle">no queue is behind: what</text>
        <text class="quiet" x=${2 * STEP + NODE.width / 2} y=${HEAD + 38} text-anchor="middle">is done at once costs no credit</text>`}
      ${places.size <= 1 && html`<text class="quiet" x=${WIDTH / 2 - NODE.width / 2} y=${HEAD + 26} text-anchor="middle">no publisher is active</text>`}
    <//>
    ${left > 0 && html`<p class="quiet">${count(left)} more are not drawn; those that wait longest are.</p>`}`;
}

function Column({ title, named, x, bottleneck }) {
  const here = named !== "" && bottleneck === named;
  return html`
    <g class=${cx("column", here && "bottleneck")}>
      <text class="title" x=${x + NODE.width / 2} y="16" text-anchor="middle">${title}</text>
      ${here && html`<text class="here" x=${x + NODE.width / 2} y="34" text-anchor="middle">▼ bottleneck</text>`}
    </g>`;
}

function Node({ node, x, y }) {
  const body = html`
    <rect class="back" x=${x} y=${y} width=${NODE.width} height=${NODE.height} rx="7" />
    <rect class="share" x=${x} y=${y + NODE.height - 5} width=${node.share * NODE.width} height="5" rx="2.5" />
    <text class="name" x=${x + 9} y=${y + 18}>${cut(node.label, 29)}</text>
    <text class="quiet" x=${x + 9} y=${y + 35}>${node.in_flow ? "in flow" : "not in flow"}, ${percent(node.share)} of 10 s</text>
    <title>${node.name}${node.because ? `: waits for ${node.waits_for}, ${node.because}` : ""}</title>`;
  const href = node.queue && link(["queues", node.vhost, node.queue], { tab: "flow" });
  return html`<g class=${cx("node", node.in_flow && "in-flow")} data-node=${node.id}>
    ${href ? html`<a href=${href}>${body}</a>` : body}</g>`;
}

/** Credit left is what of the line is thick. */
function Link({ from, left, of, blocks, a, b }) {
  const x1 = a.x + NODE.width;
  const x2 = b.x;
  const y1 = a.y + NODE.height / 2;
  const y2 = b.y + NODE.height / 2;
  const d = `M${x1} ${y1} C${x1 + 34} ${y1} ${x2 - 34} ${y2} ${x2} ${y2}`;
  const share = Math.max(0, Math.min(1, left / of));
  return html`
    <g class=${cx("link", blocks && "blocks")} data-link=${from}>
      <path class="whole" d=${d} />
      <path class="left" d=${d} pathLength="100" stroke-dasharray=${`${(share * 100).toFixed(0)} 100`} />
    </g>`;
}

/** In front of all lines. */
function Credit({ left, of, blocks, a, b }) {
  const x = (a.x + NODE.width + b.x) / 2;
  const y = (a.y + b.y + NODE.height) / 2 - 5;
  return html`<text class=${cx("credit", blocks && "blocks")} x=${x} y=${y} text-anchor="middle">${count(left)} / ${count(of)}</text>`;
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, 14)}…${text.slice(15 - length)}` : text);

// -- the same in tables -----------------------------------------------------------------------------

function Links({ chain }) {
  const names = new Map(chain.nodes.map(({ id, name }) => [id, name]));
  const columns = [
    { id: "from", title: "From", cell: ({ from }) => names.get(from), sort: ({ from }) => names.get(from) },
    { id: "to", title: "To", cell: ({ to }) => names.get(to), sort: ({ to }) => names.get(to) },
    { id: "left", title: "Credit left", number: true, cell: ({ left, of }) => `${count(left)} of ${count(of)}`, sort: ({ left }) => left },
    { id: "hand", title: "In hand", number: true, cell: ({ in_hand }) => count(in_hand), sort: ({ in_hand }) => in_hand },
    { id: "state", title: "State", cell: ({ blocks }) => html`<${State} value=${blocks ? "blocked" : "ok"} />` },
  ];
  return html`<${Table} caption="Links" columns=${columns} rows=${chain.links} rowKey=${({ from, to }) => `${from} ${to}`} empty="No publisher is active." />`;
}

function Waits({ waits }) {
  const columns = [
    { id: "name", title: "Waiting", cell: ({ kind, name }) => html`<span class="quiet">${kind}</span> ${name}` },
    { id: "for", title: "For", cell: ({ waits_for }) => waits_for },
    { id: "because", title: "Because", cell: ({ because }) => because },
    { id: "share", title: "Share of 10 s", number: true, cell: ({ share }) => percent(share), sort: ({ share }) => share },
    { id: "all", title: "In all", number: true, cell: ({ flow_s }) => duration(flow_s * 1000), sort: ({ flow_s }) => flow_s },
  ];
  return html`<${Table} caption="Waits" columns=${columns} rows=${waits} rowKey=${({ kind, name }) => kind + name} empty="No publisher has waited in the last ten seconds." />`;
}
