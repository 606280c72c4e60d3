// The columns of channels, for the page of all and the page of one connection.

import { html } from "./ui.js";
import { State, Tag } from "./parts.js";
import { count, duration, missing, rate } from "./format.js";
import { link } from "./router.js";
import { rateOf } from "./stats.js";

const counted = (id, title, field, hint, optional = false) => ({
  id, title, hint, optional, number: true, sort: field, fields: [field], cell: (row) => count(row[field]),
});
const rated = (id, title, name, optional = false) => ({
  id, title, optional, number: true, sort: `message_stats.${name}_details.rate`,
  fields: [`message_stats.${name}_details.rate`], cell: (row) => rate(rateOf(row, name)),
});

export const CHANNEL_COLUMNS = [
  { id: "name", title: "Channel", sort: "name", fields: ["name"],
    cell: (row) => html`<a class="name" href=${link(["channels", row.name])}>${row.name}</a>` },
  { id: "vhost", title: "Virtual host", sort: "vhost", fields: ["vhost"], optional: true, cell: (row) => row.vhost },
  { id: "user", title: "User", sort: "user", fields: ["user"], cell: (row) => row.user },
  { id: "mode", title: "Mode", fields: ["confirm", "transactional"],
    cell: (row) => html`${row.confirm && html`<${Tag} title="publishes are confirmed">C<//>`}${row.transactional && html`<${Tag} title="transactions">T<//>`}` },
  { id: "state", title: "State", sort: "state", fields: ["state", "idle_since"], cell: (row) => html`<${State} value=${row.state} />` },
  { id: "flow", title: "In flow", sort: "time_in_flow_s", number: true, fields: ["time_in_flow_s"], cell: (row) => duration((row.time_in_flow_s ?? 0) * 1000) },
  counted("consumers", "Consumers", "consumer_count"),
  counted("unconfirmed", "Unconfirmed", "messages_unconfirmed", "published, not yet confirmed"),
  { id: "prefetch", title: "Prefetch", number: true, sort: "prefetch_count", fields: ["prefetch_count", "global_prefetch_count"],
    cell: (row) => [row.prefetch_count || null, row.global_prefetch_count ? `${row.global_prefetch_count} in all` : null].filter(Boolean).join(", ") || missing },
  counted("unacked", "Unacked", "messages_unacknowledged", "delivered, not yet acknowledged"),
  counted("uncommitted", "Uncommitted", "messages_uncommitted", "published in an open transaction", true),
  rated("publish", "Publish", "publish"),
  rated("confirm", "Confirm", "confirm", true),
  rated("deliver", "Deliver / get", "deliver_get"),
  rated("ack", "Ack", "ack"),
];
