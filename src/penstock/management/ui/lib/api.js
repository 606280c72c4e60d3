// Everything that goes over the line: GETs, changes, and the live stream.
//
//   get(path)                 → the JSON of a GET; throws ApiError
//   send(method, path, body)  → the JSON of the answer, or null; throws ApiError
//   live(paths, onChange)     → stop();  onChange(path, data, error) at once and whenever it changed
//   useLive(path)             → {data, error}; path may be null
//   useOnce(path)             → {data, error}, asked once
//
// The log-in sends name and password once; the broker answers with a session's token in a cookie that
// no script can read. What is kept here is only that there is a session.

import { signal, useEffect, useState } from "./ui.js";

const SESSION = "/api/penstock/session";
const HAS_SESSION = "penstock.session";
const PATHS_MAX = 16;
const RETRY_MS = [1000, 2000, 4000, 8000];

export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** The user as /api/whoami says, or null. */
export const user = signal(null);
/** The options of queues, exchanges and policies, as the broker declares them. */
export const options = signal([]);
/** "live", "paused" or "lost". */
export const line = signal("live");
/** When the broker was last heard of, in ms. */
export const heard = signal(Date.now());
/** Milliseconds between two looks; 0 = paused. */
export const interval = signal(Number(localStorage.getItem("penstock.interval") ?? 1000));

/** Why there is no log-in any more, for the form; "" = the user has logged out, or none was there. */
export const farewell = signal("");
const EXPIRED = "You are logged out: the token of your log-in has expired.";
const ENDED = "You are logged out: the session was unused or too old, the user was changed, or the broker was restarted.";

const VHOST = "penstock.vhost";
/** The virtual host whose objects lists show, "" = all of them; and those that this user may see. */
export const vhost = signal(localStorage.getItem(VHOST) ?? "");
export const vhosts = signal([]);

export function chooseVhost(name) {
  localStorage.setItem(VHOST, name);
  vhost.value = name;
}

async function loadVhosts() {
  vhosts.value = (await get("/api/vhosts?columns=name")).map(({ name }) => name);
  if (vhost.value && !vhosts.value.includes(vhost.value)) chooseVhost("");
}

/** The address of a list, of the chosen virtual host. */
export const scoped = (path) => (vhost.value ? `${path}/${enc(vhost.value)}` : path);

export const enc = encodeURIComponent;

/** A path of encoded segments: at("queues", vhost, name) → /api/queues/%2F/orders */
export const at = (...parts) => "/api/" + parts.map(enc).join("/");

export const isAdministrator = () => !!user.value?.tags.includes("administrator");
export const mayMakePolicies = () =>
  !!user.value?.tags.some((tag) => tag === "administrator" || tag === "policymaker");
export const mayMonitor = () =>
  !!user.value?.tags.some((tag) => tag === "administrator" || tag === "monitoring");

// -- who asks ------------------------------------------------------------------------------------

/** Basic authentication is of bytes: names and passwords may be in any script. */
function basic(name, password) {
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  return "Basic " + btoa(String.fromCharCode(...bytes));
}

export async function logIn(name, password) {
  await beginSession(basic(name, password));
  await comeBack();
}

/** Without a header: the cookie is there already. */
export async function beginSession(authorization) {
  if (authorization) await answer(await reach(SESSION, { method: "POST", headers: { Authorization: authorization } }));
  localStorage.setItem(HAS_SESSION, "yes");
}

/** Takes up the session that this browser has; false = there is none. */
export async function comeBack() {
  if (!localStorage.getItem(HAS_SESSION)) return false;
  const who = await get("/api/whoami");
  options.value = await get("/api/penstock/options");
  await loadVhosts();
  const tags = typeof who.tags === "string" ? who.tags.split(",") : who.tags;
  user.value = { ...who, tags };
  return true;
}

/** `why`: the session is over at the broker; "" = end it there. */
export function logOut(why = "") {
  if (!why && localStorage.getItem(HAS_SESSION)) ask(SESSION, { method: "DELETE", keepalive: true }).catch(() => {});
  localStorage.removeItem(HAS_SESSION);
  farewell.value = why;
  sessionStorage.clear();
  user.value = null;
}

// -- question and answer --------------------------------------------------------------------------

function ask(path, options = {}) {
  // Of a queue "." or ".." a browser makes another path, and with it a request about another object.
  if (new URL(path, location.origin).pathname !== path.split("?")[0]) {
    throw new ApiError(0, "a browser cannot ask about the names . and ..: use penstock");
  }
  // With this header the cookie counts, and the browser opens no login window of its own over ours.
  const headers = { ...options.headers, "X-Requested-With": "XMLHttpRequest" };
  return fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" });
}

export const farewellFor = (reason) => (reason?.includes("expired") ? EXPIRED : ENDED);

function reasonOf(status, body) {
  const reason = body?.reason ?? body?.error;
  if (Array.isArray(reason)) return reason.join(" ");
  return reason ? String(reason) : `the server answered ${status}`;
}

async function answer(response) {
  const text = await response.text();
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    body = null;
  }
  if (response.ok) return body;
  const known = user.value !== null;
  if (response.status === 401 && body?.error === "not_authorized" && known) logOut(farewellFor(body.reason));
  throw new ApiError(response.status, reasonOf(response.status, body));
}

async function reach(path, options) {
  try {
    return await ask(path, options);
  } catch (error) {
    throw error instanceof ApiError ? error : new ApiError(0, "the broker cannot be reached");
  }
}

export async function get(path) {
  return answer(await reach(path));
}

export async function send(method, path, body, headers = {}) {
  const options = { method, headers };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json", ...headers };
  }
  const found = await answer(await reach(path, options));
  if (path.startsWith("/api/vhosts/")) loadVhosts().catch(() => {});
  refresh();
  return found;
}

// -- live -----------------------------------------------------------------------------------------

const watched = new Map(); // path → {callbacks: Set, data, error, known}
let stream = null; // AbortController of the open stream
let opening = 0;
let failures = 0;
let lastChunk = Date.now(); // of the stream

export function live(paths, onChange) {
  const callback = (path, data, error) => onChange(path, data, error);
  for (const path of paths) {
    const entry = watched.get(path) ?? { callbacks: new Set(), known: false };
    entry.callbacks.add(callback);
    watched.set(path, entry);
    if (entry.known) callback(path, entry.data, entry.error);
  }
  reopenSoon();
  return () => {
    for (const path of paths) {
      const entry = watched.get(path);
      entry?.callbacks.delete(callback);
      if (entry && entry.callbacks.size === 0) watched.delete(path);
    }
    reopenSoon();
  };
}

export function useLive(path) {
  const [state, setState] = useState({ path: null, data: undefined, error: undefined });
  useEffect(() => {
    if (!path) return undefined;
    return live([path], (_, data, error) => {
      setState((old) => ({
        path,
        // A fault hides nothing that is known: the last good answer stays beside it.
        data: error ? (old.path === path ? old.data : undefined) : data,
        error,
      }));
    });
  }, [path]);
  return state.path === path ? state : { data: undefined, error: undefined };
}

/** The answer of a GET that does not change while one looks. */
export function useOnce(path) {
  const [state, setState] = useState({ data: undefined, error: undefined });
  useEffect(() => {
    let wanted = true;
    get(path).then(
      (data) => wanted && setState({ data, error: undefined }),
      (error) => wanted && setState({ data: undefined, error }),
    );
    return () => {
      wanted = false;
    };
  }, [path]);
  return state;
}

/** Asks anew at once: after a change one wants to see it; every change of ours does this. */
export function refresh() {
  if (interval.value === 0) for (const entry of watched.values()) entry.known = false;
  reopenSoon();
}

function reopenSoon() {
  mark();
  clearTimeout(opening);
  opening = setTimeout(reopen, 20);
}

function reopen() {
  stream?.abort();
  stream = null;
  if (document.hidden || watched.size === 0 || !user.value) return;
  if (interval.value === 0) {
    heard.value = Date.now();
    line.value = "paused";
    // Paused or not, what was never seen is shown once.
    for (const [path, entry] of watched) if (!entry.known) once(path);
    return;
  }
  if (watched.size > PATHS_MAX) console.error(`${watched.size} live paths, the server takes ${PATHS_MAX}`);
  stream = new AbortController();
  follow([...watched.keys()].slice(0, PATHS_MAX), stream);
}

async function once(path) {
  try {
    tell(path, await get(path), undefined);
  } catch (error) {
    tell(path, undefined, error);
  }
}

async function follow(paths, controller) {
  const query = paths.map((path) => "path=" + enc(path)).join("&");
  try {
    const url = `/api/penstock/live?${query}&interval_ms=${interval.value}`;
    const response = await ask(url, { signal: controller.signal });
    if (!response.ok) await answer(response);
    failures = 0;
    line.value = "live";
    await read(response.body.getReader(), paths);
  } catch (error) {
    if (controller.signal.aborted) return;
    if (error instanceof ApiError && error.status === 400) console.error(error);
  }
  if (controller.signal.aborted || stream !== controller) return;
  heard.value = lastChunk;
  line.value = "lost";
  const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
  failures += 1;
  opening = setTimeout(reopen, wait);
}

/** Reads server-sent events: blocks of lines with an empty line behind each. */
async function read(reader, paths) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    lastChunk = Date.now();
    text += decoder.decode(value, { stream: true });
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) hear(block, paths);
  }
}

function hear(block, paths) {
  const found = /^event: (\d+)(\.error)?\ndata: ([^]*)$/.exec(block);
  if (!found) return;
  const data = JSON.parse(found[3]);
  const path = paths[Number(found[1])];
  if (!found[2]) tell(path, data, undefined);
  else if (data.status === 401 && data.answer?.error === "not_authorized") logOut(farewellFor(data.answer.reason));
  else tell(path, undefined, new ApiError(data.status, reasonOf(data.status, data.answer)));
}

function tell(path, data, error) {
  const entry = watched.get(path);
  if (!entry) return;
  if (!error) entry.last = Date.now();
  else error.last = entry.last;
  Object.assign(entry, { data, error, known: true });
  for (const callback of [...entry.callbacks]) callback(path, data, error);
  mark();
}

/** For tests that wait until a page is complete: has every request of it been answered? */
function mark() {
  const all = watched.size > 0 && [...watched.values()].every(({ known }) => known);
  document.documentElement.dataset.heard = all ? "all" : "some";
}

export function setInterval_(milliseconds) {
  localStorage.setItem("penstock.interval", milliseconds);
  interval.value = milliseconds;
  reopenSoon();
}

document.addEventListener("visibilitychange", reopenSoon);
user.subscribe(reopenSoon);
