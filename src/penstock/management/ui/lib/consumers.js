// A table of consumers, for the page of a queue, of a channel and of all.

import { html } from "./ui.js";
import { at, send } from "./api.js";
import { State, Table } from "./parts.js";
import { count } from "./format.js";
import { link } from "./router.js";
import { ShownTable } from "./tables.js";

export function Consumers({ consumers, withQueue = false, withChannel = true }) {
  const columns = [
    withQueue && { id: "queue", title: "Queue", sort: (row) => row.queue.name,
      cell: (row) => html`<a href=${link(["queues", row.queue.vhost, row.queue.name])}>${row.queue.name}</a>` },
    withChannel && { id: "channel", title: "Channel", sort: (row) => row.channel_details.name,
      cell: (row) => html`<a href=${link(["channels", row.channel_details.name])}>${row.channel_details.name}</a>` },
    { id: "tag", title: "Consumer tag", sort: (row) => row.consumer_tag, cell: (row) => html`<code>${row.consumer_tag}</code>` },
    { id: "user", title: "User", sort: (row) => row.channel_details.user, cell: (row) => row.channel_details.user },
    { id: "ack", title: "Acks", cell: (row) => (row.ack_required ? "yes" : "no") },
    { id: "prefetch", title: "Prefetch", number: true, sort: (row) => row.prefetch_count,
      cell: (row) => (row.prefetch_count ? count(row.prefetch_count) : "∞") },
    { id: "exclusive", title: "Exclusive", cell: (row) => (row.exclusive ? "yes" : "no") },
    { id: "state", title: "State", cell: (row) => html`<${State} value=${row.active ? row.activity_status : "waiting"} />` },
    { id: "arguments", title: "Arguments", cell: (row) => html`<${ShownTable} table=${row.arguments} />` },
  ].filter(Boolean);
  return html`<${Table} caption="Consumers" rows=${consumers} columns=${columns} empty="No consumers."
    rowKey=${(row) => row.channel_details.name + row.consumer_tag + row.queue?.name} />`;
}

export const closeConnection = (name, reason) =>
  send("DELETE", at("connections", name), undefined, { "X-Reason": reason });
