// All mirrored queues, each with its ring; above them what each node has, as far as one may see it.

import { html } from "../lib/ui.js";
import { isAdministrator, mayMonitor, send, useLive } from "../lib/api.js";
import { Asked, Card, State, attempt } from "../lib/parts.js";
import { Listing } from "../lib/listing.js";
import { count, missing, some } from "../lib/format.js";
import { link } from "../lib/router.js";
import { ClusterTable } from "../lib/cluster.js";
import { Progress, SmallRing } from "../lib/ring.js";

const synchronised = ({ copies }) => copies.filter((one) => one.synchronised).length;

const COLUMNS = [
  { id: "name", title: "Name", sort: "name", fields: ["name", "vhost"],
    cell: (row) => html`<a class="name" href=${link(["queues", row.vhost, row.name], { tab: "mirrors" })}>${row.name}</a>` },
  { id: "vhost", title: "Virtual host", sort: "vhost", fields: ["vhost"], optional: true, cell: (row) => row.vhost },
  { id: "ring", title: "Ring", fields: ["copies", "ring", "recoverable", "master", "why"], cell: (row) => html`<${SmallRing} row=${row} />` },
  { id: "state", title: "State", sort: "state", fields: ["state", "why"], cell: (row) => html`<${State} value=${row.state} title=${row.why} />` },
  { id: "master", title: "Master", sort: "master", fields: ["master"], cell: (row) => row.master ?? missing },
  { id: "synchronised", title: "Synchronised", number: true, fields: ["copies"], hint: "copies that have everything, the master among them",
    cell: (row) => `${count(synchronised(row))} of ${count(row.copies.length)}` },
  { id: "term", title: "Term", sort: "term", number: true, fields: ["term"], cell: (row) => count(row.term) },
  { id: "mode", title: "Policy", sort: "mode", fields: ["mode"], optional: true, cell: (row) => row.mode },
  { id: "progress", title: "Synchronisation", fields: ["copies"], cell: (row) => row.copies.filter(({ sync }) => sync)
    .map(({ node, sync }) => html`<${Progress} key=${node} node=${node} sync=${sync} />`) },
  { id: "why", title: "Remarks", sort: "why", fields: ["why"], cell: (row) => row.why },
];

export default function Mirrors() {
  return html`
    <div class="head"><h1>Mirrors</h1></div>
    ${mayMonitor() && html`<${Nodes} />`}
    <${Listing} name="mirrors" label="Mirrored queues" path="/api/penstock/mirrors" columns=${COLUMNS} always=${["name", "vhost"]}
      empty="No queue is mirrored: a policy with ha-mode makes mirrors." />`;
}

function Nodes() {
  const { data, error } = useLive("/api/penstock/cluster");
  const rebalance = () => attempt(
    () => send("POST", "/api/rebalance/queues?moves=true", {}),
    (moves) => (moves.length ? `${some(moves.length, "master")} will move.` : "There is nothing to move."));
  if (!data) return html`<${Asked} data=${data} error=${error} />`;
  if (data.nodes.length === 0) return html`<p class="sentence">This node stands alone: mirrors need a cluster.</p>`;
  return html`
    <${Card} title="Nodes" actions=${isAdministrator() && html`<button type="button" onClick=${rebalance}>Spread masters</button>`}>
      <${ClusterTable} cluster=${data} />
    <//>`;
}
