// What counters become on a page: a rate of one, charts of many.
//
// Objects of the API carry `<counter>_details.rate`, and samples on request (`msg_rates_age`). Where a
// server gives neither, this tab counts for itself from one look to the next.

import { html, useRef } from "./ui.js";
import { Chart, samples, useHistory } from "./chart.js";
import { rate, short } from "./format.js";

export const SAMPLED = "msg_rates_age=300&msg_rates_incr=5&lengths_age=300&lengths_incr=5";

export const QUEUED = [
  { label: "total", field: "messages", color: "--c6" },
  { label: "unacknowledged", field: "messages_unacknowledged", color: "--c1" },
  { label: "ready", field: "messages_ready", color: "--c2" },
];
export const RATES = [
  { label: "publish", field: "publish", kind: "rate", color: "--c2" },
  { label: "confirm", field: "confirm", kind: "rate", rare: true, color: "--c3" },
  { label: "deliver", field: "deliver", kind: "rate", color: "--c1" },
  { label: "deliver (no ack)", field: "deliver_no_ack", kind: "rate", rare: true, color: "--c7" },
  { label: "deliver / get", field: "deliver_get", kind: "rate", color: "--c1" },
  { label: "acknowledge", field: "ack", kind: "rate", color: "--c4" },
  { label: "redeliver", field: "redeliver", kind: "rate", rare: true, color: "--c5" },
  { label: "in", field: "publish_in", kind: "rate", color: "--c2" },
  { label: "out", field: "publish_out", kind: "rate", color: "--c1" },
];

/** The rate of a counter as the server knows it, else undefined. */
export const rateOf = (object, counter) => object?.message_stats?.[`${counter}_details`]?.rate;

/** Seconds between two looks of ours, for a server that gives no rates. */
export function useRate(object, counter) {
  const seen = useRef(null);
  const known = rateOf(object, counter);
  const value = object?.message_stats?.[counter];
  if (known !== undefined || value === undefined) return known;
  const now = Date.now();
  const last = seen.current;
  if (!last || now - last.at >= 900) {
    const found = last && value >= last.value ? ((value - last.value) * 1000) / (now - last.at) : undefined;
    seen.current = { at: now, value, found: found ?? last?.found };
  }
  return seen.current.found;
}

export function QueuedChart({ id, object, title = "Queued messages" }) {
  const own = useHistory(`queued ${id}`, object, QUEUED);
  const { times, series } = samples(object, QUEUED) ?? own;
  return html`<${Chart} title=${title} times=${times} series=${series} format=${short} />`;
}

/** Lines of those counters the object has: `deliver / get` only where the parts are unknown, rare
 *  ones only when they happened. */
export function RatesChart({ id, stats, title = "Message rates" }) {
  const own = useHistory(`rates ${id}`, stats, RATES);
  const found = samples(stats, RATES) ?? own;
  const has = (field) => stats?.[field] !== undefined;
  const series = found.series.filter(({ values }, index) => {
    const { field, rare } = RATES[index];
    if (rare && !values.some((value) => value > 0)) return false;
    return has(field) && (field !== "deliver_get" || !has("deliver"));
  });
  if (series.length === 0) return html`<${NoRates} title=${title} />`;
  return html`<${Chart} title=${title} times=${found.times} series=${series} format=${rate} />`;
}

const NoRates = ({ title }) =>
  html`<figure class="chart"><figcaption>${title}</figcaption><p class="empty">Nothing was published or delivered yet.</p></figure>`;
