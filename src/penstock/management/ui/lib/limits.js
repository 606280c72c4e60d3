// Limits of one user or one virtual host: a table and a form.

import { html } from "./ui.js";
import { at, send, useLive } from "./api.js";
import { Asked, Field, Form, Table, attempt, say } from "./parts.js";
import { count } from "./format.js";

export const LIMITS = {
  user: ["max-connections", "max-channels"],
  vhost: ["max-connections", "max-channels", "max-queues", "max-publish-rate", "max-memory-bytes", "max-disk-bytes"],
};

export function LimitsOf({ kind, name }) {
  const path = at(`${kind}-limits`, name);
  const { data, error } = useLive(path);
  const rows = data && Object.entries(data[0]?.value ?? {}).map(([limit, value]) => ({ name: limit, value }));
  const clear = (limit) => attempt(() => send("DELETE", `${path}/${limit}`), `${limit} is lifted.`);
  const put = async ({ limit, value }) => {
    await send("PUT", `${path}/${limit}`, { value: Number(value) });
    say(`${limit} of ${name} is ${value}.`);
  };
  return html`
    <${Asked} data=${data} error=${error} />
    <${Table} caption="Limits" rows=${rows} empty="None." columns=${[
      { id: "name", title: "Limit", cell: (row) => row.name },
      { id: "value", title: "Value", number: true, cell: (row) => count(row.value) },
      { id: "do", title: html`<span class="unseen">Actions</span>`, number: true,
        cell: (row) => html`<button type="button" class="small" aria-label=${`Lift ${row.name}`} onClick=${() => clear(row.name)}>Lift</button>` },
    ]} />
    <${Form} inline onSubmit=${put} submit="Set limit">
      <${Field} label="Limit" name="limit" kind="select" options=${LIMITS[kind]} />
      <${Field} label="Value" name="value" kind="number" min="0" required />
    <//>`;
}
