// Where the copies of a queue are: its ring, how far each copy is, and what can be done about it.
// A queue without mirrors is shown as what it is, alone.

import { html } from "../lib/ui.js";
import { at, enc, send, useLive } from "../lib/api.js";
import { Asked, Card, Facts, State, Table, attempt, confirm } from "../lib/parts.js";
import { Drawing } from "../lib/drawing.js";
import { bytes, count, missing } from "../lib/format.js";
import { Progress, Ring, membersOf, nodeOf, outlook, wordsOf } from "../lib/ring.js";

const SIZE = 300;

export default function MirrorsPanel({ vhost, name, queue }) {
  return queue.slave_nodes === undefined
    ? html`<${Alone} queue=${queue} />`
    : html`<${Mirrored} vhost=${vhost} name=${name} />`;
}

function Alone({ queue }) {
  const kept = queue.durable
    ? "its persistent messages stay on that node's disk and are there again when it is back"
    : "it is not durable, so it is gone when that node stops";
  const words = `This queue has no mirrors: it is on ${queue.node} alone. If that node stops, the queue cannot be used; ${kept}.`;
  return html`
    <${Card} title="Mirror ring">
      <p class="sentence">${words}</p>
      <${Drawing} title=${`Mirror ring of queue ${queue.name}`} desc=${words} width=${SIZE} height=${SIZE} className="ring">
        <g transform=${`translate(${SIZE / 2} ${SIZE / 2})`}>
          <circle class="orbit alone" r="100" />
          <g class="member master" data-member=${queue.node} transform="translate(0 -100)">
            <circle r="20" /><text y="4" text-anchor="middle">M</text>
            <text class="name" y="-26" text-anchor="middle">${queue.node}</text>
          </g>
        </g>
      <//>
    <//>`;
}

function Mirrored({ vhost, name }) {
  const { data: row, error } = useLive(`/api/penstock/queues/${enc(vhost)}/${enc(name)}/mirrors`);
  if (!row) return html`<${Asked} data=${row} error=${error} />`;
  return html`
    <${Asked} data=${row} error=${error} />
    <${Card} title="Mirror ring" actions=${html`<${Actions} row=${row} />`}>
      <p class="sentence"><${State} value=${row.state} /> ${outlook(row)}${row.why && row.master && html` <span class="quiet">${row.why}.</span>`}</p>
      <div class="split">
        <${Ring} row=${row} />
        <${Facts} facts=${factsOf(row)} />
      </div>
      <${Copies} row=${row} />
    <//>`;
}

function factsOf(row) {
  const { ring } = row;
  return [
    ["Policy", row.mode],
    ["Master", row.master ?? "none"],
    ["Term", count(row.term)],
    ["View of the queue", `version ${count(row.version)}`],
    ["View of the ring", ring ? `version ${count(ring.version)}` : "there is none"],
    ["This node hears of", ring?.left ? nodeOf(ring.left) : undefined],
    ["and passes on to", ring?.right ? nodeOf(ring.right) : undefined],
    ["Under way in the ring", ring?.left ? bytes(ring.kept_bytes) : undefined],
    ["This node has caught up", ring?.left ? (ring.full ? "yes" : "no") : undefined],
  ];
}

function Actions({ row }) {
  const act = (action) => attempt(
    () => send("POST", `${at("queues", row.vhost, row.name)}/actions`, { action }),
    action === "sync" ? "The mirrors fetch what they lack." : "The mirrors stop; what they have they keep.");
  const behind = row.copies.some((one) => !one.synchronised);
  return html`
    <button type="button" disabled=${!behind || row.state === "syncing"} onClick=${() => act("sync")}>Synchronise</button>${" "}
    <button type="button" disabled=${row.state !== "syncing"} onClick=${() => act("cancel_sync")}>Cancel synchronisation</button>`;
}

function Copies({ row }) {
  const handOver = async (node) => {
    const text = `Its consumers are subscribed there; what they hold and have not acknowledged is delivered again.`;
    if (!await confirm({ title: `Make ${node} the master of ${row.name}?`, text, action: "Hand over", danger: false })) return;
    const asked = { action: "hand_over", node };
    await attempt(() => send("POST", `${at("queues", row.vhost, row.name)}/actions`, asked), `${node} becomes master.`);
  };
  const known = row.copies.some(({ role, behind }) => role !== "master" && behind !== null);
  return html`
    <${Table} caption="Copies of the queue" rows=${membersOf(row)} rowKey=${(one) => one.id} columns=${[
      { id: "node", title: "Node", cell: (one) => one.node },
      { id: "what", title: "Copy", cell: (one) => wordsOf(one) },
      { id: "applied", title: "Applied", number: true, hint: "parcels of this term; one has what a turn of the master did", cell: ({ copy }) => count(copy?.applied) },
      { id: "durable", title: "On disk", number: true, hint: "of these", cell: ({ copy }) => count(copy?.durable) },
      { id: "behind", title: "Behind", number: true, hint: "parcels of the master that are not applied", cell: ({ copy }) => count(copy?.behind) },
      { id: "sync", title: "Synchronisation", cell: ({ copy, node }) => (copy?.sync ? html`<${Progress} node=${node} sync=${copy.sync} />` : missing) },
      { id: "do", title: html`<span class="unseen">Actions</span>`, number: true, cell: (one) => one.what === "synchronised" && html`
        <button type="button" class="small" aria-label=${`Make ${one.node} the master`} onClick=${() => handOver(one.node)}>Make master…</button>` },
    ]} />
    ${!known && row.master && row.copies.length > 1 && html`<p class="quiet">How far each mirror is, the master's node knows: look at the page of ${row.master}.</p>`}`;
}
