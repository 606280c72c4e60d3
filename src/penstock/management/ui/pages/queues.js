// All queues: paged, sorted and filtered by the server, so ten thousand of them are as quick as ten.

import { html } from "../lib/ui.js";
import { at, send } from "../lib/api.js";
import { Field, Form, State, Tag, say } from "../lib/parts.js";
import { Listing, useNames } from "../lib/listing.js";
import { bytes, count, missing, percent, rate, some } from "../lib/format.js";
import { go, link } from "../lib/router.js";
import { rateOf } from "../lib/stats.js";
import { TableField, argumentHints, labelOf, parseTable } from "../lib/tables.js";

export function Features({ queue }) {
  const tags = [];
  if (queue.durable) tags.push(html`<${Tag} key="D" title="durable">D<//>`);
  if (queue.auto_delete) tags.push(html`<${Tag} key="AD" title="deleted with its last consumer">AD<//>`);
  if (queue.exclusive) tags.push(html`<${Tag} key="Excl" title="exclusive to one connection">Excl<//>`);
  for (const [key, value] of Object.entries(queue.arguments ?? {})) {
    tags.push(html`<${Tag} key=${key} title=${`${key}: ${JSON.stringify(value)}`}>${labelOf(key)}<//>`);
  }
  return html`${tags}<${MirrorTags} queue=${queue} />`;
}

/** As RabbitMQ marks them: +2 for synchronised mirrors, another number for those that are not. */
export function MirrorTags({ queue }) {
  const synchronised = queue.synchronised_slave_nodes ?? [];
  const behind = (queue.slave_nodes ?? []).filter((node) => !synchronised.includes(node));
  if (synchronised.length + behind.length === 0) return null;
  return html`
    ${synchronised.length > 0
      ? html`<${Tag} title=${`Synchronised mirrors: ${synchronised.join(", ")}`}>+${synchronised.length}<//>`
      : html`<${Tag} tone="bad" title="There are no synchronised mirrors">+0<//>`}
    ${behind.length > 0 && html`<${Tag} tone="warn" title=${`Unsynchronised mirrors: ${behind.join(", ")}`}>+${behind.length}<//>`}`;
}

export const queueState = (row) =>
  row.paused ? "paused" : row.state === "running" && row.idle_since ? "idle" : row.state;

const number = (id, title, field, format = count, optional = false, hint) => ({
  id, title, hint, optional, number: true, fields: [field], sort: field,
  cell: (row) => format(field.split(".").reduce((value, key) => value?.[key], row)),
});
const counter = (id, title, name, optional = false) => ({
  id, title, optional, number: true, fields: [`message_stats.${name}_details.rate`],
  sort: `message_stats.${name}_details.rate`, cell: (row) => rate(rateOf(row, name)),
});

const COLUMNS = [
  { id: "name", title: "Name", sort: "name", fields: ["name", "vhost"],
    cell: (row) => html`<a class="name" href=${link(["queues", row.vhost, row.name])}>${row.name}</a>` },
  { id: "vhost", title: "Virtual host", sort: "vhost", fields: ["vhost"], optional: true, cell: (row) => row.vhost },
  { id: "features", title: "Features", minor: true, fields: ["durable", "auto_delete", "exclusive", "arguments", "slave_nodes", "synchronised_slave_nodes"],
    cell: (row) => html`<${Features} queue=${row} />` },
  { id: "node", title: "Node", sort: "node", optional: true, hint: "where its master is, and how many mirrors it has",
    fields: ["node", "slave_nodes", "synchronised_slave_nodes"], cell: (row) => html`${row.node} <${MirrorTags} queue=${row} />` },
  { id: "policy", title: "Policy", minor: true, sort: "policy", fields: ["policy"], cell: (row) => row.policy ?? missing },
  { id: "state", title: "State", sort: "state", fields: ["state", "paused", "idle_since"],
    cell: (row) => html`<${State} value=${queueState(row)} />` },
  number("ready", "Ready", "messages_ready"),
  number("unacked", "Unacked", "messages_unacknowledged"),
  number("total", "Total", "messages"),
  number("deferred", "Deferred", "messages_deferred", count, true, "put off by a client of NSQ, or until a retry"),
  { id: "change", title: "Change", number: true, optional: true, hint: "messages more or less in a second",
    fields: ["messages_details.rate"], sort: "messages_details.rate", cell: (row) => rate(row.messages_details?.rate) },
  counter("in", "In", "publish"),
  counter("out", "Deliver / get", "deliver_get"),
  counter("ack", "Ack", "ack"),
  counter("redeliver", "Redeliver", "redeliver", true),
  counter("dead", "Dead-lettered", "dead_lettered", true),
  number("consumers", "Consumers", "consumers"),
  number("utilisation", "Capacity", "consumer_utilisation", percent, true, "share of time in which consumers could take more"),
  number("bytes", "Message bytes", "message_bytes", bytes, true),
  number("ram", "In memory", "messages_ram", count, true),
  number("paged", "Paged out", "messages_paged_out", count, true),
  number("flow", "In flow", "time_in_flow_s", (s) => (s === undefined ? missing : `${s} s`), true, "seconds in flow since the start"),
];

const names = (rows) => rows.map(({ name }) => name).join(", ");
const BULK = [
  { title: "Purge", danger: true, act: ({ vhost, name }) => send("DELETE", `${at("queues", vhost, name)}/contents`),
    sure: (rows) => [`Purge ${some(rows.length, "queue")}?`, `Ready messages of these are dropped for good: ${names(rows)}.`, "Purge"] },
  { title: "Delete", danger: true, act: ({ vhost, name }) => send("DELETE", at("queues", vhost, name)),
    sure: (rows) => [`Delete ${some(rows.length, "queue")}?`, `With bindings and messages, for good: ${names(rows)}.`, "Delete", String(rows.length)] },
];

export default function Queues() {
  return html`
    <div class="head"><h1>Queues</h1></div>
    <${Listing} name="queues" label="Queues" path="/api/queues" columns=${COLUMNS} always=${["name", "vhost"]} bulk=${BULK} empty="There are no queues." />
    <details class="more"><summary>Declare a queue</summary><${Declare} /></details>`;
}

function Declare() {
  const vhosts = useNames("/api/vhosts?columns=name");
  const declare = async ({ vhost, name, durable, auto_delete, arguments: text }) => {
    await send("PUT", at("queues", vhost, name), { durable, auto_delete, arguments: parseTable(text) });
    say(`Queue ${name} is declared.`);
    go(["queues", vhost, name]);
  };
  return html`
    <${Form} onSubmit=${declare} submit="Declare queue">
      <${Field} label="Virtual host" name="vhost" kind="select" options=${vhosts} />
      <${Field} label="Name" name="name" required />
      <${Field} label="Durable" name="durable" kind="checkbox" value=${true} hint="outlives a restart" />
      <${Field} label="Auto-delete" name="auto_delete" kind="checkbox" hint="goes with its last consumer" />
      <${TableField} label="Arguments" name="arguments" hints=${argumentHints("queue")} />
    <//>`;
}
