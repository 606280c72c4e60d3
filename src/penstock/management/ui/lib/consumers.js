// A table of consumers, for the page of a queue, of a channel and of all.

import { html } from "./ui.js";
import { at, send } from "./api.js";
import { State, Table } from "./parts.js";
import { count, duration, missing } from "./format.js";
import { link } from "./router.js";
import { ShownTable } from "./tables.js";

export function Consumers({ consumers, withQueue = false, withChannel = true }) {
  const areOfStreams = consumers?.some((row) => row.penstock);
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
    areOfStreams && { id: "offset", title: "Next offset", number: true, sort: (row) => row.penstock?.offset, cell: (row) => count(row.penstock?.offset) },
    areOfStreams && { id: "lag", title: "Messages behind", number: true, sort: (row) => row.penstock?.lag_messages,
      cell: (row) => count(row.penstock?.lag_messages), hint: "Not delivered, or not settled" },
    areOfStreams && { id: "age", title: "Time behind", number: true, sort: (row) => row.penstock?.lag_ms,
      cell: (row) => (row.penstock?.lag_ms == null ? missing : duration(row.penstock.lag_ms)),
      hint: "How much older the last message it got is than the newest" },
    { id: "exclusive", title: "Exclusive", cell: (row) => (row.exclusive ? "yes" : "no") },
    { id: "state", title: "State", cell: (row) => html`<${State} value=${row.active ? row.activity_status : "waiting"} />` },
    { id: "arguments", title: "Arguments", cell: (row) => html`<${ShownTable} table=${row.arguments} />` },
  ].filter(Boolean);
  return html`<${Table} caption="Consumers" rows=${consumers} columns=${columns} empty="No consumers."
    rowKey=${(row) => row.channel_details.name + row.consumer_tag + row.queue?.name} />`;
}

export const closeConnection = (name, reason) =>
  send("DELETE", at("connections", name), undefined, { "X-Reason": reason });
