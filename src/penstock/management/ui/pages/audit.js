// The audit trail of this node: who did what, from where, when, with what answer; the newest records first.
//
// The filters are in the address. Older records are asked for page by page; the list is not live then, so that no
// record is left out between two pages.

import { html, useState } from "../lib/ui.js";
import { get, useLive } from "../lib/api.js";
import { Asked, Card, Field, Form, Table, attempt } from "../lib/parts.js";
import { plain, when } from "../lib/format.js";
import { route, setQuery } from "../lib/router.js";

const FILTERS = [
  { name: "user", label: "User" },
  { name: "action", label: "Action", hint: "as queue_declared, login_refused, request_answered" },
  { name: "object", label: "Object", hint: "a text in it, as the name of a queue" },
  { name: "address", label: "Address" },
  { name: "answer", label: "Answer", hint: "ok, refused, or a code" },
  { name: "since", label: "Since", kind: "datetime-local" },
  { name: "until", label: "Until", kind: "datetime-local" },
];
const TIMES = { since: "since_ms", until: "until_ms" };

function pathOf(query, before) {
  const asked = new URLSearchParams(before ? { before } : {});
  for (const { name } of FILTERS) {
    if (!query[name]) continue;
    if (name in TIMES) asked.set(TIMES[name], Date.parse(query[name]));
    else asked.set(name, query[name]);
  }
  return `/api/penstock/audit?${asked}`;
}

const objectOf = ({ object }) =>
  Object.entries(object).filter(([, value]) => value !== "").map(([name, value]) => `${name}=${plain(value)}`).join(" ");

const COLUMNS = [
  { id: "at", title: "Time", cell: (row) => html`<span title=${row.at}>${when(Date.parse(row.at))}</span>` },
  { id: "user", title: "User", cell: (row) => row.user || html`<span class="quiet">(the node)</span>` },
  { id: "action", title: "Action", cell: (row) => row.action },
  { id: "object", title: "Object", cell: objectOf },
  { id: "answer", title: "Answer", cell: (row) => `${row.answer}${row.reason ? `: ${row.reason}` : ""}` },
  { id: "from", title: "From", cell: (row) => `${row.address} ${row.protocol}` },
];

export default function Audit() {
  const { query } = route.value;
  const path = pathOf(query);
  const [kept, keep] = useState(null); // {path, records, next} once older ones were asked for
  const held = kept?.path === path ? kept : null;
  const { data, error } = useLive(held ? null : path);
  const shown = held ?? data;
  const older = () => attempt(async () => {
    const more = await get(pathOf(query, shown.next));
    keep({ path, records: [...shown.records, ...more.records], next: more.next });
  });
  const some = Object.keys(query).length > 0;
  return html`
    <div class="head"><h1>Audit trail</h1></div>
    ${!held && html`<${Asked} data=${data} error=${error} />`}
    <${Card}>
      <${Form} inline submit="Filter" onSubmit=${setQuery} reset=${false} key=${path}>
        ${FILTERS.map((filter) => html`<${Field} key=${filter.name} ...${filter} value=${query[filter.name]} />`)}
      <//>
      <${Table} caption="Audit trail" rows=${shown?.records} columns=${COLUMNS} rowKey=${() => undefined}
        empty=${some ? "No record fits." : "There is no record. The setting audit_trail says whether they are kept."} />
      <div class="buttons">
        ${shown?.next && html`<button type="button" onClick=${older}>Older records</button>`}
        ${held && html`<button type="button" onClick=${() => keep(null)}>Back to the newest</button>
          <span class="quiet" role="status">${held.records.length} records; newer ones are not shown.</span>`}
      </div>
    <//>`;
}
