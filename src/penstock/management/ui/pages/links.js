// Shovels and federation links that this node runs: what each does, and why it stopped.

import { html } from "../lib/ui.js";
import { enc, mayMakePolicies, send, useLive } from "../lib/api.js";
import { Asked, Card, State, Table, attempt, confirm } from "../lib/parts.js";
import { count } from "../lib/format.js";

export default function Links() {
  return html`
    <div class="head"><h1>Links to other brokers</h1></div>
    <${Shovels} />
    <${Federation} />`;
}

const ends = (uri, ...names) => html`<code>${uri}</code> ${names.filter((name) => name !== undefined && name !== "").join(" ")}`;
const stopped = (row) => html`<${State} value=${row.state ?? row.status} title=${row.reason ?? row.error} /> ${row.reason ?? row.error ?? ""}`;

function Shovels() {
  const { data, error } = useLive("/api/shovels");
  const path = (row) => `/api/shovels/vhost/${enc(row.vhost)}/${enc(row.name)}`;
  const restart = (row) => attempt(() => send("DELETE", `${path(row)}/restart`), `The shovel ${row.name} connects anew.`);
  const remove = async (row) => {
    const text = "What it has not moved stays at the source.";
    if (!await confirm({ title: `Delete the shovel ${row.name}?`, text, action: "Delete" })) return;
    await attempt(() => send("DELETE", path(row)), `The shovel ${row.name} is deleted.`);
  };
  return html`
    <${Asked} data=${data} error=${error} />
    <${Card} title="Shovels">
      <${Table} caption="shovels" rows=${data} rowKey=${(row) => `${row.vhost ?? ""}\n${row.name}`} empty="No shovel runs on this node." columns=${[
        { id: "name", title: "Name", sort: (row) => row.name, cell: (row) => html`<b>${row.name}</b>` },
        { id: "vhost", title: "Virtual host", sort: (row) => row.vhost ?? "", cell: (row) => row.vhost ?? "(a setting of the node)" },
        { id: "state", title: "State", sort: (row) => row.state, cell: stopped },
        { id: "from", title: "From", cell: (row) => ends(row.src_uri, row.src_queue ?? row.src_exchange, row.src_exchange_key) },
        { id: "to", title: "To", cell: (row) => ends(row.dest_uri, row.dest_queue ?? row.dest_exchange, row.dest_exchange_key) },
        { id: "forwarded", title: "Forwarded", number: true, sort: (row) => row.forwarded, cell: (row) => count(row.forwarded) },
        { id: "pending", title: "Not confirmed", number: true, cell: (row) => count(row.pending) },
        mayMakePolicies() && { id: "do", title: html`<span class="unseen">Actions</span>`, number: true, cell: (row) => row.type === "dynamic" && html`
          <button type="button" class="small" aria-label=${`Restart ${row.name}`} onClick=${() => restart(row)}>Restart</button>${" "}
          <button type="button" class="small danger" aria-label=${`Delete ${row.name}`} onClick=${() => remove(row)}>Delete…</button>` },
      ].filter(Boolean)} />
    <//>`;
}

function Federation() {
  const { data, error } = useLive("/api/federation-links");
  const restart = (row) => attempt(
    () => send("DELETE", `/api/federation-links/vhost/${enc(row.vhost)}/${enc(row.id)}/${enc(row.node)}/restart`),
    `The link with ${row.upstream} connects anew.`);
  return html`
    <${Asked} data=${data} error=${error} />
    <${Card} title="Federation links">
      <${Table} caption="federation links" rows=${data} rowKey=${(row) => row.id} empty="No federation link runs on this node." columns=${[
        { id: "kind", title: "Kind", sort: (row) => row.type, cell: (row) => row.type },
        { id: "name", title: "Name", sort: (row) => row[row.type], cell: (row) => html`<b>${row[row.type]}</b>` },
        { id: "vhost", title: "Virtual host", sort: (row) => row.vhost, cell: (row) => row.vhost },
        { id: "upstream", title: "Upstream", sort: (row) => row.upstream, cell: (row) => row.upstream },
        { id: "status", title: "Status", sort: (row) => row.status, cell: stopped },
        { id: "from", title: "From", cell: (row) => ends(row.uri, row[`upstream_${row.type}`]) },
        { id: "forwarded", title: "Forwarded", number: true, sort: (row) => row.forwarded, cell: (row) => count(row.forwarded) },
        mayMakePolicies() && { id: "do", title: html`<span class="unseen">Actions</span>`, number: true, cell: (row) => html`
          <button type="button" class="small" aria-label=${`Restart the link with ${row.upstream}`} onClick=${() => restart(row)}>Restart</button>` },
      ].filter(Boolean)} />
    <//>`;
}
