// The way that one message really took: how long its publish, each queue and each consumer had it.
//
// The broker notes the steps of messages that belong to a trace (header `traceparent`); here a trace is begun
// for one message, and shown while it goes on.

import { html } from "./ui.js";
import { enc, send, useLive } from "./api.js";
import { Asked, Card, State, Table, Tag } from "./parts.js";
import { duration, missing, when } from "./format.js";
import { link } from "./router.js";

const WORDS = { publish: "published to", queue: "waited in", deliver: "at a consumer of", in_queue: "waits in", at_consumer: "is at a consumer of" };
const OUTCOMES = { acked: "acknowledged", auto: "delivered, no acknowledgement is due", rejected: "rejected", returned: "given back", open: "not settled yet" };
const PARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$/;

const digits = (bytes) => [...crypto.getRandomValues(new Uint8Array(bytes))].map((one) => one.toString(16).padStart(2, "0")).join("");

/** Begins to follow a message that is about to be published. → {trace, headers}: publish it with these headers. */
export async function beginTrace(headers) {
  const given = PARENT.exec(headers.traceparent ?? "");
  const trace = given?.[1] ?? digits(16);
  await send("PUT", `/api/penstock/traces/${enc(trace)}`);
  return { trace, headers: { ...headers, traceparent: `00-${trace}-${given ? headers.traceparent.slice(36, 52) : digits(8)}-01` } };
}

/** Steps that are over, and those under way, in the order in which they began. */
function rowsOf({ now_ms: now, steps, open }) {
  const under = open.map(({ vhost, queue, state, since_ms }) => ({ step: state, vhost, name: queue, start_ms: since_ms, end_ms: now, going: true }));
  return [...steps, ...under].toSorted((a, b) => a.start_ms - b.start_ms);
}

const placeOf = ({ step, vhost, name }) => (step === "publish"
  ? html`<a href=${link(["exchanges", vhost, name || "amq.default"])}>${name || "(default exchange)"}</a>`
  : html`<a href=${link(["queues", vhost, name])}>${name}</a>`);

const resultOf = (row) => {
  if (row.going) return html`<${State} value="waiting" title="so far" />`;
  if (row.step === "publish") return row.queue_count ? `taken by ${row.queue_count === 1 ? "one queue" : `${row.queue_count} queues`}` : "taken by no queue";
  if (row.step === "deliver") return OUTCOMES[row.outcome];
  return row.redelivered ? html`<${Tag}>redelivered<//>` : missing;
};

/** When of the whole way this step was. */
function Bar({ row, from, to }) {
  const width = Math.max(1, to - from);
  const [x, w] = [((row.start_ms - from) / width) * 100, ((row.end_ms - row.start_ms) / width) * 100];
  return html`<div class="meter"><svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="100" height="6" rx="2" />
      <rect class=${row.going ? "warn" : "good"} x=${Math.min(x, 99).toFixed(2)} width=${Math.max(w, 1).toFixed(2)} height="6" rx="2" /></svg></div>`;
}

/** trace: as beginTrace gave it */
export function Followed({ trace }) {
  const { data, error } = useLive(`/api/penstock/traces/${enc(trace)}`);
  const rows = data && rowsOf(data);
  const [from, to] = rows?.length ? [rows[0].start_ms, Math.max(...rows.map((row) => row.end_ms))] : [0, 0];
  return html`
    <${Card} title="The way of this message">
      <${Asked} data=${data} error=${error} gone="This message is not followed any more." />
      <${Table} caption="Steps" rows=${rows} rowKey=${() => undefined} empty="The broker has not seen it yet." columns=${[
        { id: "step", title: "Step", cell: (row) => WORDS[row.step] },
        { id: "where", title: "Exchange or queue", cell: placeOf },
        { id: "bar", title: "When", minor: true, cell: (row) => html`<${Bar} row=${row} from=${from} to=${to} />` },
        { id: "took", title: "Took", number: true, cell: (row) => html`<span title=${`from ${when(row.start_ms)}`}>${duration(row.end_ms - row.start_ms)}</span>` },
        { id: "result", title: "Result", cell: resultOf },
      ]} />
      <p class="quiet">Trace <code>${trace}</code>, followed for ten minutes on this node.</p>
    <//>`;
}
