// All exchanges, and a form that declares one.

import { html } from "../lib/ui.js";
import { at, send, useOnce } from "../lib/api.js";
import { Field, Form, Tag, say } from "../lib/parts.js";
import { Listing, useNames } from "../lib/listing.js";
import { rate } from "../lib/format.js";
import { go, link } from "../lib/router.js";
import { rateOf } from "../lib/stats.js";
import { TableField, argumentHints, labelOf, parseTable } from "../lib/tables.js";

const COLUMNS = [
  { id: "name", title: "Name", sort: "name", fields: ["name", "vhost"],
    cell: (row) => html`<a class="name" href=${link(["exchanges", row.vhost, row.name || "amq.default"])}>${row.name || "(default exchange)"}</a>` },
  { id: "vhost", title: "Virtual host", sort: "vhost", fields: ["vhost"], cell: (row) => row.vhost },
  { id: "type", title: "Type", sort: "type", fields: ["type"], cell: (row) => row.type },
  { id: "features", title: "Features", fields: ["durable", "auto_delete", "internal", "arguments"], cell: (row) => html`<${ExchangeFeatures} exchange=${row} />` },
  { id: "policy", title: "Policy", sort: "policy", fields: ["policy"], optional: true, cell: (row) => row.policy ?? "–" },
  { id: "in", title: "In", number: true, sort: "message_stats.publish_in_details.rate", fields: ["message_stats.publish_in_details.rate"], cell: (row) => rate(rateOf(row, "publish_in")) },
  { id: "out", title: "Out", number: true, sort: "message_stats.publish_out_details.rate", fields: ["message_stats.publish_out_details.rate"], cell: (row) => rate(rateOf(row, "publish_out")) },
];

export function ExchangeFeatures({ exchange }) {
  return html`
    ${exchange.durable && html`<${Tag} title="durable">D<//>`}
    ${exchange.auto_delete && html`<${Tag} title="deleted with its last binding">AD<//>`}
    ${exchange.internal && html`<${Tag} title="internal: clients cannot publish to it">I<//>`}
    ${Object.entries(exchange.arguments ?? {}).map(([key, value]) => html`
      <${Tag} key=${key} title=${`${key}: ${JSON.stringify(value)}`}>${labelOf(key)}<//>`)}`;
}

export default function Exchanges() {
  return html`
    <div class="head"><h1>Exchanges</h1></div>
    <${Listing} name="exchanges" label="Exchanges" path="/api/exchanges" columns=${COLUMNS} always=${["name", "vhost"]} />
    <details class="more"><summary>Declare an exchange</summary><${Declare} /></details>`;
}

function Declare() {
  const vhosts = useNames("/api/vhosts?columns=name");
  const { data } = useOnce("/api/overview?columns=exchange_types");
  const types = (data?.exchange_types ?? [{ name: "direct" }]).map(({ name }) => name);
  const declare = async ({ vhost, name, type, arguments: text, ...flags }) => {
    await send("PUT", at("exchanges", vhost, name), { type, ...flags, arguments: parseTable(text) });
    say(`Exchange ${name} is declared.`);
    go(["exchanges", vhost, name]);
  };
  return html`
    <${Form} onSubmit=${declare} submit="Declare exchange">
      <${Field} label="Virtual host" name="vhost" kind="select" options=${vhosts} />
      <${Field} label="Name" name="name" required />
      <${Field} label="Type" name="type" kind="select" options=${types} />
      <${Field} label="Durable" name="durable" kind="checkbox" value=${true} />
      <${Field} label="Auto-delete" name="auto_delete" kind="checkbox" />
      <${Field} label="Internal" name="internal" kind="checkbox" hint="only other exchanges publish to it" />
      <${TableField} label="Arguments" name="arguments" hints=${argumentHints("exchange")} />
    <//>`;
}
