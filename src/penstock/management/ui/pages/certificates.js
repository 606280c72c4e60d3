// The certificates of all listeners of the node: whose, for which names, and how long they hold.

import { cx, html } from "../lib/ui.js";
import { useLive } from "../lib/api.js";
import { Asked, Card, Table } from "../lib/parts.js";
import { missing, some } from "../lib/format.js";

const SOON_DAYS = 30;
const SETTINGS = { certfile: "certificate", cacertfile: "authority for clients", sni: "certificate of a host" };

const listenerOf = ({ protocol, ip_address, port }) => `${protocol} ${ip_address.includes(":") ? `[${ip_address}]` : ip_address}${port ? `:${port}` : ""}`;
const tone = (days) => (days < 0 ? "bad" : days < SOON_DAYS ? "warn" : "good");

const COLUMNS = [
  { id: "subject", title: "Subject", cell: (row) => html`<b>${row.subject || "(no common name)"}</b>`, sort: (row) => row.subject },
  { id: "names", title: "Names", cell: (row) => row.names.join(", ") || missing },
  { id: "left", title: "Left", 
    cell: (row) => html`<span class=${cx("state", tone(row.days_left))}>${row.days_left < 0 ? "has ended" : some(row.days_left, "day")}</span>`, sort: (row) => row.days_left },
  { id: "until", title: "Valid until (UTC)", cell: (row) => row.not_after, sort: (row) => row.not_after },
  { id: "since", title: "Valid from (UTC)", minor: true, cell: (row) => row.not_before },
  { id: "issuer", title: "Issuer", minor: true, cell: (row) => row.issuer || missing },
  { id: "use", title: "Used as", minor: true, cell: (row) => html`<span title=${row.file}>${SETTINGS[row.setting] ?? row.setting}</span>` },
  { id: "listeners", title: "Listeners", cell: (row) => row.listeners.map(listenerOf).join(", ") },
];

export default function Certificates() {
  const { data, error } = useLive("/api/penstock/certificates");
  return html`
    <div class="head"><h1>Certificates</h1></div>
    <${Asked} data=${data} error=${error} />
    <${Card}>
      <${Table} caption="Certificates" rows=${data} columns=${COLUMNS} rowKey=${(row) => `${row.setting}\n${row.file}\n${row.subject}\n${row.not_after}`}
        empty="No listener of this node has TLS. The settings ssl_certfile and ssl_keyfile give it one." />
      <p class="quiet">The certificates of this node. Send SIGHUP to the broker after a file was replaced.</p>
    <//>`;
}
