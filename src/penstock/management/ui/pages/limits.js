// Limits of virtual hosts and users, and those of the node.

import { html, useState } from "../lib/ui.js";
import { send, useLive } from "../lib/api.js";
import { Asked, Card, Field, Form, Table, say } from "../lib/parts.js";
import { useNames } from "../lib/listing.js";
import { LimitsOf } from "../lib/limits.js";
import { bytes } from "../lib/format.js";
import { ShownTable } from "../lib/tables.js";

export default function Limits() {
  return html`
    <div class="head"><h1>Limits</h1></div>
    <div class="split">
      <${Kind} kind="vhost" title="Virtual hosts" names="/api/vhosts?columns=name" />
      <${Kind} kind="user" title="Users" names="/api/users?columns=name" />
    </div>
    <${NodeLimits} />`;
}

function Kind({ kind, title, names: path }) {
  const { data, error } = useLive(`/api/${kind}-limits`);
  const names = useNames(path);
  const [name, setName] = useState(null);
  const shown = name ?? names[0];
  return html`
    <${Card} title=${title}>
      <${Asked} data=${data} error=${error} />
      <${Table} caption=${`Limits: ${title}`} rows=${data} rowKey=${(row) => row[kind]} empty="No limits are set." columns=${[
        { id: "name", title: title.slice(0, -1), sort: (row) => row[kind], cell: (row) => row[kind] },
        { id: "limits", title: "Limits", cell: (row) => html`<${ShownTable} table=${row.value} />` },
      ]} />
      ${shown !== undefined && html`
        <h3 class="gap"><label>Limits of${" "}
          <select value=${shown} onChange=${(event) => setName(event.target.value)}>
            ${names.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label></h3>
        <${LimitsOf} key=${shown} kind=${kind} name=${shown} />`}
    <//>`;
}

/** Of memory and disk; they hold until the next start. */
function NodeLimits() {
  const { data } = useLive("/api/nodes?columns=name,mem_limit,disk_free_limit");
  const node = data?.[0];
  const memory = async ({ fraction }) => {
    await send("PUT", "/api/penstock/vm-memory-high-watermark", { fraction: Number(fraction) });
    say("The memory limit holds until the next start.");
  };
  const disk = async ({ free }) => {
    await send("PUT", "/api/penstock/disk-free-limit", { absolute: free });
    say("The disk limit holds until the next start.");
  };
  return html`
    <${Card} title="This node, until the next start" className="gap">
      <p class="quiet">Publishers wait when memory in use is above ${bytes(node?.mem_limit)} or free disk space below ${bytes(node?.disk_free_limit)}.</p>
      <div class="split gap">
        <${Form} inline onSubmit=${memory} submit="Set memory limit">
          <${Field} label="Share of the machine’s memory" name="fraction" kind="number" min="0" max="1" step="0.01" required /><//>
        <${Form} inline onSubmit=${disk} submit="Set disk limit">
          <${Field} label="Free space, as “2GB” or in bytes" name="free" required /><//>
      </div>
    <//>`;
}
