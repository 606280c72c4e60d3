// The frame around every page: menu, header, login; it finds the page and hands it its params.

import { html, render, signal, cx, useEffect, useRef, useState } from "./lib/ui.js";
import {
  chooseVhost, comeBack, farewell, farewellFor, heard, interval, isAdministrator, line, logIn, logOut, mayMonitor, refresh, setInterval_, useLive,
  useOnce, user, vhost, vhosts,
} from "./lib/api.js";
import { Guarded, Notices, Question } from "./lib/parts.js";
import { arrive, leave, providersEnd, renewSoon, serversOf } from "./lib/sign_on.js";
import { Palette } from "./lib/palette.js";
import { match, route } from "./lib/router.js";
import { when } from "./lib/format.js";
import { theme } from "./lib/chart.js";
import { SPANS, setSpan, span } from "./lib/stats.js";
import { pages, sections } from "./pages/index.js";

const THEMES = ["system", "light", "dark"];
const chosen = signal(localStorage.getItem("penstock.theme") ?? "system");

function applyTheme() {
  const root = document.documentElement;
  if (chosen.value === "system") delete root.dataset.theme;
  else root.dataset.theme = chosen.value;
  theme.value += 1;
}

function choose(name) {
  localStorage.setItem("penstock.theme", name);
  chosen.value = name;
  applyTheme();
}

// -- login ----------------------------------------------------------------------------------------

function Login() {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const auth = useOnce("/api/auth");
  const servers = serversOf(auth.data ?? {});
  const attempt = async (action) => {
    setBusy(true);
    setError(null);
    try {
      await action();
    } catch (fault) {
      setError(fault);
      setBusy(false);
    }
  };
  const submit = async (event) => {
    event.preventDefault();
    const { name, password } = event.currentTarget.elements;
    await attempt(() => logIn(name.value, password.value));
    password.value = "";
    password.focus();
  };
  if (!auth.data && !auth.error) return null;
  return html`
    <main class="login">
      <form onSubmit=${submit}>
        <h1><img src="/ui/logo.svg" alt="" width="36" height="36" /> Penstock</h1>
        ${servers.map((server) => html`
          <button type="button" key=${server.id} class="primary" disabled=${busy} onClick=${() => attempt(() => leave(server))}>
            ${servers.length > 1 ? `Log in with ${server.label ?? server.id}` : "Log in with single sign-on"}</button>`)}
        ${!auth.data?.oauth_disable_basic_auth && html`
        <div class="field"><label for="name">User name</label>
          <input id="name" name="name" autocomplete="username" autocapitalize="none" spellcheck=${false} required autofocus /></div>
        <div class="field"><label for="password">Password</label>
          <input id="password" name="password" type="password" autocomplete="current-password" required /></div>
        <button class="primary" disabled=${busy}>Log in</button>`}
        <p class="problem" role="alert" hidden=${!error && !farewell.value}>${error?.message ?? farewell.value}</p>
      </form>
    </main>`;
}

// -- menu and header --------------------------------------------------------------------------------

const allowed = (page) =>
  (!page.administrator || isAdministrator()) && (!page.monitor || mayMonitor());

function Menu({ here }) {
  const first = here?.path.split("/")[0] ?? "";
  return html`
    <nav class="menu" aria-label="Pages" id="menu">
      ${vhosts.value.length > 1 && html`<label class="vhost">Virtual host
        <select value=${vhost.value} onChange=${(event) => chooseVhost(event.target.value)}>
          <option value="">all</option>
          ${vhosts.value.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select></label>`}
      ${sections.map((section) => html`
        <${Section} key=${section} title=${section} first=${first}
          entries=${pages.filter((page) => page.menu === section && allowed(page))} />`)}
      <div class="preferences">
        <label>Refresh
          <select value=${interval.value} onChange=${(event) => setInterval_(Number(event.target.value))}>
            <option value="1000">1 s</option><option value="2000">2 s</option><option value="5000">5 s</option>
            <option value="30000">30 s</option><option value="0">paused</option>
          </select></label>
        <label>Charts
          <select value=${span.value} onChange=${(event) => setSpan(Number(event.target.value))}>
            ${SPANS.map(([seconds, text]) => html`<option key=${seconds} value=${seconds}>${text}</option>`)}
          </select></label>
        <label>Theme
          <select value=${chosen.value} onChange=${(event) => choose(event.target.value)}>
            ${THEMES.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
          </select></label>
      </div>
    </nav>`;
}

function Section({ title, entries, first }) {
  if (entries.length === 0) return null;
  return html`
    ${title && html`<h2>${title}</h2>`}
    <ul>${entries.map((page) => html`
      <li key=${page.path}><a href=${"#/" + page.path} aria-current=${page.path.split("/")[0] === first ? "page" : undefined}>
        ${page.title}</a></li>`)}
    </ul>`;
}

const LINE_TEXTS = { live: "live", paused: "paused", lost: "connection lost, trying again" };

/** The provider's session ends with the broker's. */
function leaveForGood() {
  const end = providersEnd();
  logOut();
  if (end) location.assign(end);
}

function Header({ onMenu, open }) {
  const { data } = useOnce("/api/overview?columns=node,product_version");
  useEffect(() => {
    if (data) document.documentElement.dataset.node = data.node;
  }, [data?.node]);
  return html`
    <header class="top">
      <button type="button" class="burger plain" aria-label="Menu" aria-expanded=${String(open)} aria-controls="menu"
        onClick=${onMenu}>☰</button>
      <a class="brand" href="#/"><img src="/ui/logo.svg" alt="" width="26" height="26" /> Penstock</a>
      <span class="node">${data?.node}</span><span class="quiet version">${data?.product_version}</span>
      <span class="space"></span>
      <span class=${cx("state", line.value === "live" ? "good" : line.value === "lost" ? "bad" : "warn")} role="status">
        ${LINE_TEXTS[line.value]}</span>
      ${line.value === "paused" && html`<span class="quiet version">as of ${when(heard.value)}</span>`}
      ${line.value === "paused" && html`<button type="button" class="small" onClick=${refresh}>Look now</button>`}
      <span class="who" title=${user.value.tags.join(", ")}>${user.value.name}</span>
      <button type="button" onClick=${leaveForGood}>Log out</button>
    </header>`;
}

const ALARMS = {
  memory: "Memory is short: publishers wait until it is freed.",
  disk: "The disk is nearly full: publishers wait until there is room.",
};

/** On every page, because the symptom of an alarm may show on any of them. */
function AlarmBanner() {
  const { data } = useLive(mayMonitor() ? "/api/nodes?columns=name,mem_alarm,disk_free_alarm" : null);
  const texts = [];
  for (const node of data ?? []) {
    if (node.mem_alarm) texts.push(ALARMS.memory);
    if (node.disk_free_alarm) texts.push(ALARMS.disk);
  }
  return html`<div class="alarms" role="alert">${texts.map((text) => html`<p key=${text}>${text}</p>`)}
    ${line.value === "lost" && html`<p>The broker has not been heard of since ${when(heard.value)}: what is shown is of that time.</p>`}</div>`;
}

// -- the page -------------------------------------------------------------------------------------

const loaded = new Map(); // module name → component
const AHEAD_MS = 1000;

const load = async ({ module }) => loaded.set(module, (await import(`./pages/${module}`)).default);

/** All pages of the menu, once the first one stands: they open at once, also while the broker is away. */
function loadAhead() {
  const listed = pages.filter((page) => page.menu !== undefined && allowed(page));
  const timer = setTimeout(() => Promise.allSettled(listed.map(load)), AHEAD_MS);
  return () => clearTimeout(timer);
}

function usePage(page) {
  const [, redraw] = useState(0);
  const [error, setError] = useState(null);
  const Page = page && loaded.get(page.module);
  useEffect(() => {
    setError(null);
    // Not asked of `loaded` again: it may have come ahead since this was drawn without it.
    if (page && !Page) load(page).then(() => redraw((n) => n + 1), setError);
  }, [page]);
  return { Page, error };
}

function Frame() {
  const found = match(pages, route.value.path);
  const barred = found && !allowed(found.page);
  const { Page, error } = usePage(barred ? undefined : found?.page);
  const [open, setOpen] = useState(false);
  const main = useRef(null);
  useEffect(loadAhead, []);
  const title = found ? Object.values(found.params).at(-1) ?? found.page.title : "Not found";
  useEffect(() => {
    document.title = `${title} · Penstock`;
  }, [title]);
  useEffect(() => {
    setOpen(false);
    // A keyboard user goes on in the new page, not behind the old menu entry.
    if (document.activeElement !== document.body) main.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [route.value.path]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the page</a>
    <${Header} open=${open} onMenu=${() => setOpen(!open)} />
    <div class=${cx("body", open && "open")}>
      <${Menu} here=${found?.page} />
      <main id="main" tabindex="-1" ref=${main}>
        <${AlarmBanner} />
        ${!found && html`<h1>No such page</h1><p><a href="#/">Back to the overview</a></p>`}
        ${barred && html`<h1>${found.page.title}</h1>
          <p>Only users with the tag ${found.page.administrator ? "administrator" : "monitoring or administrator"} see this page.</p>`}
        ${error && html`<p class="problem" role="alert">The page could not be loaded from the broker. Once it is there again, open the page anew.</p>`}
        ${found && !barred && !error && !Page && html`<h1>${found.page.title}</h1><p class="empty" role="status">The page is being loaded …</p>`}
        ${Page && html`<${Guarded} key=${route.value.path}><${Page} params=${found.params} /><//>`}
      </main>
    </div>
    <${Notices} /><${Question} /><${Palette} pages=${pages.filter((page) => page.menu !== undefined && allowed(page))} />`;
}

function App() {
  return user.value ? html`<${Frame} />` : html`<${Login} />`;
}

applyTheme();
/** → why there is no session, null = there is one, or the user has to log in */
async function begin() {
  try {
    await arrive();
  } catch (error) {
    return error.message;
  }
  try {
    if (await comeBack()) renewSoon();
  } catch (error) {
    return error.status === 401 ? farewellFor(error.message) : "";
  }
  return null;
}

const why = await begin();
if (why !== null) logOut(why);
document.getElementById("app").replaceChildren();
render(html`<${App} />`, document.getElementById("app"));
