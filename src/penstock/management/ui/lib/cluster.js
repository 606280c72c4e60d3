// The nodes of a cluster as a table: state, links, masters and mirrors.

import { html } from "./ui.js";
import { State, Table, Tag } from "./parts.js";
import { bytes, count, missing, when } from "./format.js";

export function ClusterTable({ cluster }) {
  return html`
    ${cluster.why_not && html`<p class="problem" role="alert">The cluster cannot decide: ${cluster.why_not}.</p>`}
    <${Table} caption="Nodes of the cluster" rows=${cluster.nodes} columns=${[
      { id: "name", title: "Node", sort: (node) => node.name, cell: (node) => html`<b>${node.name}</b>${node.name === cluster.this_node && " (this one)"}` },
      { id: "state", title: "State", cell: (node) => html`<${State} value=${node.running ? "running" : "down"} />
        ${node.drained && html` <${Tag} tone="warn" title="it takes no masters until it is revived">drained<//>`}` },
      { id: "since", title: "Since", cell: (node) => when(node.running ? node.started_ms : node.down_since_ms || undefined) },
      { id: "masters", title: "Masters", number: true, sort: (node) => node.masters, cell: (node) => count(node.masters) },
      { id: "mirrors", title: "Mirrors", number: true, sort: (node) => node.mirrors, cell: (node) => count(node.mirrors) },
      { id: "behind", title: "Unsynchronised", number: true, sort: (node) => node.unsynchronised_mirrors, cell: (node) => count(node.unsynchronised_mirrors) },
      { id: "link", title: "Link", cell: ({ link }) => (link ? html`<${State} value=${link.connected ? "up" : "down"} title=${link.last_error} />` : missing) },
      { id: "waiting", title: "Waits on it", number: true, cell: ({ link }) => bytes(link?.waiting_bytes) },
    ]} />`;
}
