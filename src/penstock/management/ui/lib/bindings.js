// Bindings: a table that can unbind, and a form that binds.

import { html } from "./ui.js";
import { at, enc, send } from "./api.js";
import { Field, Form, Table, attempt, confirm, say } from "./parts.js";
import { link } from "./router.js";
import { ShownTable, TableField, parseTable } from "./tables.js";

const DEFAULT = "(default exchange)";

const exchangeLink = (vhost, name) =>
  html`<a href=${link(["exchanges", vhost, name || "amq.default"])}>${name || DEFAULT}</a>`;

function placeOf({ vhost, source, destination, destination_type, properties_key }) {
  const kind = destination_type === "exchange" ? "e" : "q";
  return `${at("bindings", vhost)}/e/${enc(source)}/${kind}/${enc(destination)}/${enc(properties_key)}`;
}

async function unbind(binding) {
  const text = `${binding.source} no longer routes “${binding.routing_key}” to ${binding.destination}.`;
  if (!await confirm({ title: "Unbind?", text, action: "Unbind" })) return;
  await attempt(() => send("DELETE", placeOf(binding)), "Unbound.");
}

/** show: which end is in the table, "source" or "destination". */
export function BindingsTable({ bindings, show, empty }) {
  const other = show === "source"
    ? { id: "source", title: "From", sort: (row) => row.source, cell: (row) => exchangeLink(row.vhost, row.source) }
    : { id: "destination", title: "To", sort: (row) => row.destination, cell: (row) => (row.destination_type === "exchange"
        ? html`${exchangeLink(row.vhost, row.destination)} <small>exchange</small>`
        : html`<a href=${link(["queues", row.vhost, row.destination])}>${row.destination}</a>`) };
  return html`<${Table} caption="Bindings" rows=${bindings} empty=${empty}
    rowKey=${(row) => [row.source, row.destination, row.properties_key].join("\n")} columns=${[
      other,
      { id: "key", title: "Routing key", sort: (row) => row.routing_key, cell: (row) => html`<code>${row.routing_key}</code>` },
      { id: "arguments", title: "Arguments", cell: (row) => html`<${ShownTable} table=${row.arguments} />` },
      { id: "unbind", title: html`<span class="unseen">Unbind</span>`, number: true, cell: (row) => row.source !== "" && html`
        <button type="button" class="small danger" aria-label=${`Unbind ${row.routing_key} of ${row.source}`} onClick=${() => unbind(row)}>Unbind</button>` },
    ]} />`;
}

/** Either end may be given: destination and its kind ("q", "e"), or source. */
export function BindForm({ vhost, source, destination, kind }) {
  const bind = async (values) => {
    const from = source ?? values.source;
    const to = destination ?? values.destination;
    const body = { routing_key: values.routing_key, arguments: parseTable(values.arguments) };
    await send("POST", `${at("bindings", vhost)}/e/${enc(from)}/${kind ?? values.kind}/${enc(to)}`, body);
    say(`${from} is bound to ${to}.`);
  };
  return html`
    <${Form} onSubmit=${bind} submit="Bind">
      ${source === undefined && html`<${Field} label="From exchange" name="source" required />`}
      ${destination === undefined && html`
        <${Field} label="To" name="kind" kind="select" options=${[["q", "queue"], ["e", "exchange"]]} />
        <${Field} label="Name" name="destination" required />`}
      <${Field} label="Routing key" name="routing_key" />
      <${TableField} label="Arguments" name="arguments" />
    <//>`;
}
