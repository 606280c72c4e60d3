// All connections.

import { enc } from "../lib/api.js";
import { html } from "../lib/ui.js";
import { State, Tag } from "../lib/parts.js";
import { Listing } from "../lib/listing.js";
import { bytes, count, duration, missing, when } from "../lib/format.js";
import { link } from "../lib/router.js";

const perSecond = (value) => (value === undefined ? missing : `${bytes(Math.round(value))}/s`);

const COLUMNS = [
  { id: "name", title: "Name", sort: "name", fields: ["name", "user_provided_name"],
    cell: (row) => html`<a class="name" href=${link(["connections", row.name])}>${row.user_provided_name ?? row.name}</a>
      ${row.user_provided_name && html`<br /><small>${row.name}</small>`}` },
  { id: "vhost", title: "Virtual host", sort: "vhost", fields: ["vhost"], cell: (row) => row.vhost },
  { id: "user", title: "User", sort: "user", fields: ["user"], cell: (row) => row.user },
  { id: "state", title: "State", sort: "state", fields: ["state"], cell: (row) => html`<${State} value=${row.state} />` },
  { id: "flow", title: "In flow", sort: "time_in_flow_s", number: true, fields: ["time_in_flow_s"],
    hint: "time the connection had to wait since it was opened", cell: (row) => duration((row.time_in_flow_s ?? 0) * 1000) },
  { id: "tls", title: "TLS", sort: "ssl", fields: ["ssl", "ssl_protocol"], cell: (row) => (row.ssl ? html`<${Tag} tone="accent" title=${row.ssl_protocol}>TLS<//>` : missing) },
  { id: "protocol", title: "Protocol", sort: "protocol", fields: ["protocol"], cell: (row) => row.protocol },
  { id: "channels", title: "Channels", sort: "channels", number: true, fields: ["channels"], cell: (row) => count(row.channels) },
  { id: "in", title: "From client", sort: "recv_oct_details.rate", number: true, fields: ["recv_oct_details.rate"], cell: (row) => perSecond(row.recv_oct_details?.rate) },
  { id: "out", title: "To client", sort: "send_oct_details.rate", number: true, fields: ["send_oct_details.rate"], cell: (row) => perSecond(row.send_oct_details?.rate) },
  { id: "received", title: "Received", optional: true, sort: "recv_oct", number: true, fields: ["recv_oct"], cell: (row) => bytes(row.recv_oct) },
  { id: "sent", title: "Sent", optional: true, sort: "send_oct", number: true, fields: ["send_oct"], cell: (row) => bytes(row.send_oct) },
  { id: "client", title: "Client", optional: true, fields: ["client_properties.product", "client_properties.version"],
    cell: (row) => [row.client_properties?.product, row.client_properties?.version].filter(Boolean).join(" ") || missing },
  { id: "since", title: "Connected", optional: true, sort: "connected_at", fields: ["connected_at"], cell: (row) => when(row.connected_at) },
];

export default function Connections() {
  return html`
    <div class="head"><h1>Connections</h1></div>
    <${Listing} name="connections" label="Connections" path="/api/connections" within=${(vhost) => `/api/vhosts/${enc(vhost)}/connections`} columns=${COLUMNS}
      always=${["name"]} rowKey=${(row) => row.name} empty="No connections." />`;
}

