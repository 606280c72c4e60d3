// What counters become on a page: a rate of one, charts of many.
//
// Objects of the API carry `<counter>_details.rate`, and samples on request (`msg_rates_age`). Where a
// server gives neither, this tab counts for itself from one look to the next.

import { html, signal, useRef } from "./ui.js";
import { Chart, samples, useHistory } from "./chart.js";
import { rate, short } from "./format.js";

const HOUR_S = 3600;
const DAY_S = 86400;
export const WEEK_S = 7 * DAY_S;
const STEPS_S = { 60: 5, 300: 5, 600: 5, [HOUR_S]: 60, 28800: 600, [DAY_S]: 1800, [WEEK_S]: 3600 };
const KEY = "penstock.span";
export const SPANS = [[60, "1 min"], [300, "5 min"], [600, "10 min"], [HOUR_S, "1 h"], [28800, "8 h"], [DAY_S, "1 d"], [WEEK_S, "1 w"]];
/** Seconds that charts show, where the broker keeps so many. */
export const span = signal(STEPS_S[localStorage.getItem(KEY)] ? Number(localStorage.getItem(KEY)) : 300);

export function setSpan(seconds) {
  localStorage.setItem(KEY, seconds);
  span.value = seconds;
}

/** The query for samples of these groups; most objects keep an hour, a node and the overview a week. */
export function sampled(groups = ["msg_rates", "lengths"], kept = HOUR_S) {
  const age = Math.min(span.value, kept);
  return groups.map((group) => `${group}_age=${age}&${group}_incr=${STEPS_S[age]}`).join("&");
}

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
  { label: "dead-lettered", field: "dead_lettered", kind: "rate", rare: true, color: "--c6" },
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

/** Messages of several queues in one chart. objects: of the API, with samples of lengths. */
export function ComparedChart({ objects }) {
  const found = objects.map((object) => samples(object, QUEUED.slice(0, 1)));
  const times = [...new Set(found.flatMap((one) => one?.times ?? []))].toSorted((a, b) => a - b);
  const series = objects.map(({ name }, index) => {
    const known = new Map(found[index]?.times.map((time, place) => [time, found[index].series[0].values[place]]));
    return { label: name, color: `--c${index + 1}`, values: times.map((time) => known.get(time) ?? null) };
  });
  return html`<${Chart} title="Queued messages, compared" times=${times} series=${series} format=${short} />`;
}

/** Lines of those counters the object has: `deliver / get` only where the parts are unknown, rare
 *  ones only when they happened. */
export function RatesChart({ id, stats, known = true, title = "Message rates" }) {
  const own = useHistory(`rates ${id}`, stats, RATES);
  const found = samples(stats, RATES) ?? own;
  const has = (field) => stats?.[field] !== undefined;
  const series = found.series.filter(({ values }, index) => {
    const { field, rare } = RATES[index];
    if (rare && !values.some((value) => value > 0)) return false;
    return has(field) && (field !== "deliver_get" || !has("deliver"));
  });
  if (series.length === 0) return html`<${NoRates} title=${title} known=${known} />`;
  return html`<${Chart} title=${title} times=${found.times} series=${series} format=${rate} />`;
}

const NoRates = ({ title, known }) =>
  html`<figure class="chart"><figcaption>${title}</figcaption>${known && html`<p class="empty">Nothing was published or delivered yet.</p>`}</figure>`;
