// <Chart title series times unit> : lines over time, drawn by uPlot in the colours of the theme.
//
//   series   [{label, values: [number|null …], color: "--c1"}]   as long as times
//   times    [seconds since 1970 …], oldest first
//   format   how a value is written (lib/format.js)
//
// useHistory(key, data, pick) gives {times, series} of what this tab has seen itself, for objects
// the server keeps no samples of; samples(...) takes the server's. Both cost the same and end at
// a fixed number of points.

import { html, useEffect, useRef, useState, signal } from "./ui.js";
import { line, user } from "./api.js";
import uPlot from "../vendor/uplot.js";
import { bytes, short, when, zone } from "./format.js";

const POINTS_MAX = 300;
const SPAN_S = 60;
const KEPT_MAX = 40;
const KEPT_KEY = "penstock.history";
/** What ticks of sizes may lie apart: KiB and their like are powers of two. */
const BYTE_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** Changes when light became dark: canvases do not follow the theme by themselves. */
export const theme = signal(0);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  theme.value += 1;
});

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** "light-dark(a, b)" is no colour for a canvas: the browser is asked what it comes to. */
function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = colour(name) || name;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function faint(rgb) {
  return rgb.replace(/^rgb\(([^)]*)\)$/, "rgba($1, 0.12)");
}

const DAY_S = 86400;
const pad = (part) => String(part).padStart(2, "0");
const dayOf = (at) => `${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;

/** Times of day; over more than a day, with the date. */
function clocks(ticks) {
  const days = ticks.at(-1) - ticks[0] > DAY_S;
  const whole = ticks.every((seconds) => seconds % 60 === 0);
  return ticks.map((seconds) => {
    const at = new Date(seconds * 1000);
    const parts = [at.getHours(), at.getMinutes(), at.getSeconds()].map(pad);
    return (days ? `${dayOf(at)} ` : "") + parts.slice(0, whole ? 2 : 3).join(":");
  });
}

/** Room for the longest label. */
const widest = (_, labels) => Math.max(40, ...(labels ?? []).map((label) => 14 + 6.6 * label.length));

function options(width, height, series, format, point) {
  const grid = { stroke: resolved("--line"), width: 1 };
  const axis = { stroke: resolved("--quiet"), grid, ticks: { show: false }, font: "11px system-ui" };
  return {
    width,
    height,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    hooks: { setCursor: [({ cursor }) => point(cursor.idx ?? null)] },
    scales: { x: { range: (_, first, last) => [Math.min(first, last - SPAN_S), last] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.08)] } },
    axes: [
      { ...axis, size: 26, space: 80, values: (_, ticks) => clocks(ticks) },
      { ...axis, size: widest, ...(format === bytes && { incrs: BYTE_STEPS }), values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      {},
      ...series.map(({ label, color }, index) => {
        const stroke = resolved(color ?? `--c${index + 1}`);
        return {
          label, stroke, width: 1.6, points: { show: false },
          fill: series.length === 1 ? faint(stroke) : undefined,
        };
      }),
    ],
  };
}

export function Chart({ title, times, series, format = short, height = 160 }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [pointed, point] = useState(null); // the place in times that the cursor is at
  const shape = series.map(({ label, color }) => label + color).join() + theme.value;
  useEffect(() => {
    const wide = Math.max(160, box.current.clientWidth);
    const made = new uPlot(options(wide, height, series, format, point), data(times, series), box.current);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      if (!box.current || !plot.current) return;
      const width = Math.max(160, box.current.clientWidth);
      if (plot.current.width !== width) plot.current.setSize({ width, height });
    });
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, height]);
  useEffect(() => {
    plot.current?.setData(data(times, series));
  }, [times, series]);
  const here = pointed !== null && times.length > 1 && pointed < times.length ? pointed : null;
  const shown = (values) => (here === null ? last(values) : values[here]);
  const last = (values) => values.findLast((value) => value !== null && value !== undefined);
  const said = series.map(({ label, values }) => `${label} ${format(last(values))}`).join(", ");
  return html`
    <figure class="chart">
      <figcaption>${title} <small class="quiet">${here === null ? zone(Date.now()) : when(times[here] * 1000)}</small></figcaption>
      <div ref=${box} role="img" aria-label=${`${title}: ${said}`}></div>
      <ul class="legend">
        ${series.map(({ label, values, color }, index) => html`
          <li key=${label}>
            <svg class="swatch" viewBox="0 0 10 10" aria-hidden="true">
              <rect width="10" height="10" rx="2" fill=${`var(${color ?? `--c${index + 1}`})`} />
            </svg>
            ${label} <b>${format(shown(values))}</b>
          </li>`)}
      </ul>
    </figure>`;
}

function data(times, series) {
  // Of one point uPlot would make a day, and of none the year 1970.
  if (times.length === 0) {
    const now = Date.now() / 1000;
    return [[now - SPAN_S, now], ...series.map(() => [null, null])];
  }
  if (times.length === 1) return [[times[0] - SPAN_S, times[0]], ...series.map(({ values }) => [null, values[0]])];
  return [times, ...series.map(({ values }) => values)];
}

// -- where points come from -----------------------------------------------------------------------

/** The server's samples of some fields, oldest first; null if it gave none.
 *  fields: [{label, field: "messages", kind: "count"|"rate", color}], of an object with
 *  `<field>_details.samples` as RabbitMQ gives them with msg_rates_age or lengths_age. */
export function samples(object, fields) {
  const lists = fields.map(({ field }) => object?.[`${field}_details`]?.samples ?? []);
  const longest = lists.reduce((best, list) => (list.length > best.length ? list : best), []);
  if (longest.length < 2) return null;
  const stamps = longest.map(({ timestamp }) => timestamp).toReversed();
  const series = fields.map(({ label, kind, color }, index) => {
    const known = new Map(lists[index].map(({ timestamp, sample }) => [timestamp, sample]));
    const values = stamps.map((stamp) => known.get(stamp) ?? null);
    return { label, color, values: kind === "rate" ? differences(stamps, values) : values };
  });
  const times = stamps.map((stamp) => stamp / 1000);
  if (fields.some(({ kind }) => kind === "rate")) return { times, series };
  // The newest sample is seconds old; what is so now stands at the end of its interval.
  const step = times.at(-1) - times.at(-2);
  times.push(Math.max(times.at(-1) + 0.001, Math.min(Date.now() / 1000, times.at(-1) + step)));
  series.forEach(({ values }, index) => values.push(object[fields[index].field] ?? null));
  return { times, series };
}

function differences(stamps, values) {
  return values.map((value, index) => {
    const before = values[index - 1];
    if (index === 0 || value === null || before === null) return null;
    return Math.max(0, (value - before) / ((stamps[index] - stamps[index - 1]) / 1000));
  });
}

const kept = new Map(); // key → {stamps, columns}; the least recently seen goes first

// It outlives a reload of the tab, not the log-in.
addEventListener("pagehide", () => {
  if (user.value) sessionStorage.setItem(KEPT_KEY, JSON.stringify([...kept]));
});
user.subscribe((who) => {
  kept.clear();
  if (!who) return;
  for (const [key, entry] of JSON.parse(sessionStorage.getItem(KEPT_KEY)) ?? []) kept.set(key, entry);
  sessionStorage.removeItem(KEPT_KEY);
});

/** What this tab saw, once per second: the stream only tells what changed, so the last value
 *  stands until then. fields as above, values from pick(object, field). */
export function useHistory(key, seen, fields, pick = (object, field) => object?.[field]) {
  const [, redraw] = useState(0);
  const latest = useRef(seen);
  latest.current = seen;
  useEffect(() => {
    const look = () => {
      if (latest.current === undefined || line.value !== "live") return;
      remember(key, fields, latest.current, pick);
      redraw((n) => n + 1);
    };
    look();
    const timer = setInterval(look, 1000);
    return () => clearInterval(timer);
  }, [key, seen === undefined]);
  const entry = kept.get(key) ?? { stamps: [], columns: fields.map(() => []) };
  return {
    times: entry.stamps.map((stamp) => stamp / 1000),
    series: fields.map(({ label, kind, color }, index) => ({
      label,
      color,
      values: kind === "rate" ? differences(entry.stamps, entry.columns[index]) : [...entry.columns[index]],
    })),
  };
}

function remember(key, fields, object, pick) {
  const entry = kept.get(key) ?? { stamps: [], columns: fields.map(() => []) };
  const stamp = Date.now();
  if (stamp - (entry.stamps.at(-1) ?? 0) < 500) return;
  entry.stamps.push(stamp);
  fields.forEach(({ field }, index) => entry.columns[index].push(pick(object, field) ?? null));
  if (entry.stamps.length > POINTS_MAX) {
    entry.stamps.shift();
    entry.columns.forEach((column) => column.shift());
  }
  kept.delete(key);
  kept.set(key, entry);
  if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value);
}
