// Numbers, times and sizes as people read them; one spelling everywhere.

const GROUPED = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export const missing = "–";

/** A name as it can be read and typed: blanks at its ends and beside blanks, and characters that are
 *  not drawn, are shown as codes. */
export const typable = (name) =>
  name.replace(/^ +| +$| {2,}/g, (blanks) => "␣".repeat(blanks.length))
    .replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

export function count(value) {
  return value === undefined || value === null ? missing : GROUPED.format(Math.round(value));
}

/** some(1, "message") → "1 message", some(2, "message") → "2 messages" */
export const some = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** 1234567 → 1.23 M, for axes and tight places. */
export function short(value) {
  if (value === undefined || value === null) return missing;
  const size = Math.abs(value);
  if (size >= 1e9) return trim(value / 1e9) + " G";
  if (size >= 1e6) return trim(value / 1e6) + " M";
  if (size >= 1e4) return trim(value / 1e3) + " k";
  return size >= 100 || Number.isInteger(value) ? GROUPED.format(Math.round(value)) : trim(value);
}

const trim = (value) => String(Number(value.toPrecision(3)));

export function rate(value) {
  if (value === undefined || value === null) return missing;
  return `${short(Math.abs(value) < 10 ? Math.round(value * 10) / 10 : Math.round(value))}/s`;
}

export function bytes(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return missing;
  let unit = 0;
  let size = value;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit ? Number(size.toPrecision(3)) : size} ${UNITS[unit]}`;
}

/** Milliseconds as "3 d 4 h", "2 min 5 s", "120 ms". */
export function duration(ms) {
  if (ms === undefined || ms === null) return missing;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function percent(share) {
  return share === undefined || share === null ? missing : `${Math.round(share * 100)} %`;
}

/** By how much local time is ahead of UTC then: "UTC", "UTC+2", "UTC-3:30". */
export function zone(ms) {
  const ahead = -new Date(ms).getTimezoneOffset();
  if (ahead === 0) return "UTC";
  const size = Math.abs(ahead);
  const part = size % 60 ? `:${String(size % 60).padStart(2, "0")}` : "";
  return `UTC${ahead < 0 ? "-" : "+"}${Math.floor(size / 60)}${part}`;
}

/** A point in time (ms) as local date and time, with its zone. */
export function when(ms) {
  if (ms === undefined || ms === null) return missing;
  const at = new Date(ms);
  const pad = (n) => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} `
    + `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())} ${zone(ms)}`;
}

/** Any value of an argument table, in one line. */
export function plain(value) {
  if (value === undefined || value === null) return missing;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
