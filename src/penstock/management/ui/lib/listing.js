// <Listing> : a long list that the server pages, sorts and filters; the browser holds one page.
//
//   name      what it is called in the settings of this browser ("queues")
//   path      "/api/queues"; with a virtual host chosen, "/api/queues/{vhost}", or what within(vhost) gives
//   columns   [{id, title, cell: row => vnode, fields: [server fields it needs],
//              sort: field the server sorts by, number, optional (not shown at first), hint}]
//   always    fields every row needs
//   bulk      [{title, danger, sure: rows => [title, text, action, type], act: row => promise}]: for chosen rows
//
// What is sorted, filtered and chosen is in the address, so it can be bookmarked and sent; which
// columns are shown is remembered in this browser.

import { html, cx, useEffect, useMemo, useRef, useState } from "./ui.js";
import { chooseVhost, scoped, useLive, vhost } from "./api.js";
import { Asked, Empty, Head, attempt, cellClass, confirm, say } from "./parts.js";
import { route, setQuery } from "./router.js";
import { count, some } from "./format.js";

const PAGE_SIZES = ["25", "50", "100", "500"];
const TYPING_MS = 250;

function remembered(name) {
  try {
    return JSON.parse(localStorage.getItem(`penstock.columns.${name}`)) ?? {};
  } catch {
    return {};
  }
}

function useColumns(name, columns) {
  const [chosen, setChosen] = useState(() => remembered(name));
  const shown = columns.filter((column) => chosen[column.id] ?? !column.optional);
  const toggle = (column) => {
    const next = { ...chosen, [column.id]: !(chosen[column.id] ?? !column.optional) };
    localStorage.setItem(`penstock.columns.${name}`, JSON.stringify(next));
    setChosen(next);
  };
  return { shown, toggle };
}

function addressOf(path, query, fields, within, extra) {
  const base = vhost.value && within ? within(vhost.value) : scoped(path);
  const asked = new URLSearchParams({
    page: query.page ?? "1",
    page_size: query.size ?? "50",
    columns: [...new Set(fields)].join(","),
    ...extra,
  });
  if (query.name) asked.set("name", query.name);
  if (query.name && query.regex) asked.set("use_regex", "true");
  if (query.sort) asked.set("sort", query.sort);
  if (query.sort && query.reverse) asked.set("sort_reverse", "true");
  return `${base}?${asked}`;
}

export function Listing({ name, path, columns, always = [], within, empty = "None.", label, rowKey, extra, bulk = [] }) {
  const { query } = route.value;
  const { shown, toggle } = useColumns(name, columns);
  const fields = [...always, ...shown.flatMap((column) => column.fields ?? [])];
  const { data, error } = useLive(addressOf(path, query, fields, within, extra));
  // While the next page is on its way the last one stays, so that the table does not jump.
  const last = useRef(undefined);
  if (data) last.current = data;
  const page = data ?? last.current;
  useEffect(() => {
    if (error?.message.startsWith("Page out of range")) setQuery({ page: undefined });
  }, [error]);
  const keyOf = (row, index) => (rowKey ? rowKey(row) : `${row.vhost}\n${row.name}` + (row.name === undefined ? index : ""));
  const [chosen, setChosen] = useState(new Set());
  const rows = page?.items ?? [];
  const chosenRows = rows.filter((row, index) => chosen.has(keyOf(row, index)));
  const choose = (keys, on) => setChosen(new Set(on ? [...chosen, ...keys] : [...chosen].filter((key) => !keys.includes(key))));
  const box = (row, index) => bulk.length > 0 && html`<input type="checkbox" class="choice" aria-label=${`Choose ${row.name}`}
    checked=${chosen.has(keyOf(row, index))} onChange=${(event) => choose([keyOf(row, index)], event.target.checked)} />`;
  // An address that names a virtual host chooses it.
  useEffect(() => {
    if (query.vhost === undefined) return;
    chooseVhost(query.vhost);
    setQuery({ vhost: undefined });
  }, [query.vhost]);
  const sort = { id: shown.find((column) => column.sort === query.sort)?.id ?? null, reverse: !!query.reverse };
  const onSort = ({ id, reverse }) => {
    const column = shown.find((one) => one.id === id);
    setQuery({ sort: column.sort, reverse: reverse ? "1" : undefined, page: undefined });
  };
  return html`
    <${Bar} name=${name} query=${query} columns=${columns} shown=${shown} toggle=${toggle} label=${label} page=${page} />
    <${Asked} data=${page} error=${error} />
    ${page && page.items.length === 0 && html`<${Empty}>${query.name ? "Nothing of that name." : empty}<//>`}
    ${page && page.items.length > 0 && html`
      ${bulk.length > 0 && html`<${Bulk} bulk=${bulk} rows=${chosenRows} onAll=${(on) => choose(rows.map(keyOf), on)} all=${chosenRows.length === rows.length} onDone=${() => setChosen(new Set())} />`}
      <div class="card"><div class="scroll bare" tabindex="0" role="group" aria-label=${label}>
        <table>
          <caption class="unseen">${label}</caption>
          <thead><tr>${shown.map((column) => html`
            <${Head} key=${column.id} column=${column} sortable=${!!column.sort} sort=${sort} onSort=${onSort} />`)}</tr></thead>
          <tbody>${page.items.map((row, index) => html`
            <tr key=${keyOf(row, index)} class=${cx(chosen.has(keyOf(row, index)) && "selected")}>
              ${shown.map((column, at) => html`<td key=${column.id} class=${cellClass(column)}>${at === 0 && box(row, index)}${column.cell(row)}</td>`)}
            </tr>`)}</tbody>
        </table>
      </div></div>
      <${Pager} page=${page} query=${query} />`}`;
}

function Bar({ name, query, columns, shown, toggle, label, page }) {
  const timer = useRef(0);
  const type = (event) => {
    const text = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ name: text, page: undefined }), TYPING_MS);
  };
  return html`
    <div class="listbar" role="search">
      <input type="search" aria-label=${`Filter ${label} by name`} placeholder="Filter by name" defaultValue=${query.name ?? ""} onInput=${type} />
      <label class="tight"><input type="checkbox" checked=${!!query.regex}
        onChange=${(event) => setQuery({ regex: event.target.checked ? "1" : undefined, page: undefined })} /> regex</label>
      <span class="quiet" role="status">${page && (page.filtered_count === page.total_count
        ? `${count(page.total_count)} in all` : `${count(page.filtered_count)} of ${count(page.total_count)}`)}</span>
      <span class="space"></span>
      <details class="choose"><summary class="button">Columns</summary>
        <div role="group" aria-label="Columns shown">${columns.slice(1).map((column) => html`
          <label key=${column.id}><input type="checkbox" checked=${shown.includes(column)} onChange=${() => toggle(column)} />
            ${column.title}</label>`)}</div>
      </details>
    </div>`;
}

/** What can be done with the chosen rows of this page, one after the other; it ends with the first that fails. */
function Bulk({ bulk, rows, all, onAll, onDone }) {
  const run = async ({ sure, act, title }) => {
    const [heading, text, action, type] = sure(rows);
    if (!await confirm({ title: heading, text, action, type })) return;
    let done = 0;
    const worked = await attempt(async () => {
      for (const row of rows) {
        await act(row);
        done += 1;
      }
    }, () => `${title}: ${some(done, "queue")}.`);
    if (!worked) say(`${some(done, "queue")} of ${rows.length} were done before.`, "bad");
    onDone();
  };
  return html`
    <div class="chosen" role="group" aria-label="What to do with the chosen rows">
      <label class="tight"><input type="checkbox" checked=${all} onChange=${(event) => onAll(event.target.checked)} /> all of this page</label>
      <b aria-live="polite">${count(rows.length)} chosen</b>
      ${bulk.map((one) => html`<button type="button" key=${one.title} class=${cx("small", one.danger && "danger")} disabled=${rows.length === 0}
        onClick=${() => run(one)}>${one.title}…</button>`)}
    </div>`;
}

function Pager({ page, query }) {
  const at = page.page;
  return html`
    <div class="pager">
      <button type="button" disabled=${at <= 1} onClick=${() => setQuery({ page: String(at - 1) })}>← Previous</button>
      <span>page ${at} of ${Math.max(1, page.page_count)}</span>
      <button type="button" disabled=${at >= page.page_count} onClick=${() => setQuery({ page: String(at + 1) })}>Next →</button>
      <label class="tight">rows <select value=${query.size ?? "50"} onChange=${(event) => setQuery({ size: event.target.value, page: undefined })}>
        ${PAGE_SIZES.map((size) => html`<option key=${size}>${size}</option>`)}</select></label>
    </div>`;
}

/** A short list that is read whole: one entry per row, sorted here. */
export const useNames = (path) => {
  const { data } = useLive(path);
  return useMemo(() => (data ?? []).map(({ name }) => name), [data]);
};
