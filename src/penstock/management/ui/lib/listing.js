// <Listing> : a long list that the server pages, sorts and filters; the browser holds one page.
//
//   name      what it is called in the settings of this browser ("queues")
//   path      "/api/queues"; with a virtual host chosen, "/api/queues/{vhost}" (vhosts=${true})
//   columns   [{id, title, cell: row => vnode, fields: [server fields it needs],
//              sort: field the server sorts by, number, optional (not shown at first), hint}]
//   always    fields every row needs
//
// What is sorted, filtered and chosen is in the address, so it can be bookmarked and sent; which
// columns are shown is remembered in this browser.

import { html, cx, useEffect, useMemo, useRef, useState } from "./ui.js";
import { enc, useLive } from "./api.js";
import { Empty, Head, Problem } from "./parts.js";
import { route, setQuery } from "./router.js";
import { count } from "./format.js";

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

function addressOf(path, query, fields, vhosts, extra) {
  const base = vhosts && query.vhost ? `${path}/${enc(query.vhost)}` : path;
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

export function Listing({ name, path, columns, always = [], vhosts = true, empty = "None.", label, rowKey, extra }) {
  const { query } = route.value;
  const { shown, toggle } = useColumns(name, columns);
  const fields = [...always, ...shown.flatMap((column) => column.fields ?? [])];
  const { data, error } = useLive(addressOf(path, query, fields, vhosts, extra));
  // While the next page is on its way the last one stays, so that the table does not jump.
  const last = useRef(null);
  if (data) last.current = data;
  const page = data ?? last.current;
  useEffect(() => {
    if (error?.message.startsWith("Page out of range")) setQuery({ page: undefined });
  }, [error]);
  const sort = { id: shown.find((column) => column.sort === query.sort)?.id ?? null, reverse: !!query.reverse };
  const onSort = ({ id, reverse }) => {
    const column = shown.find((one) => one.id === id);
    setQuery({ sort: column.sort, reverse: reverse ? "1" : undefined, page: undefined });
  };
  return html`
    <${Bar} name=${name} query=${query} columns=${columns} shown=${shown} toggle=${toggle} vhosts=${vhosts} label=${label} page=${page} />
    <${Problem} error=${error} />
    ${page && page.items.length === 0 && html`<${Empty}>${query.name ? "Nothing of that name." : empty}<//>`}
    ${page && page.items.length > 0 && html`
      <div class="card"><div class="scroll bare" tabindex="0" role="group" aria-label=${label}>
        <table>
          <caption class="unseen">${label}</caption>
          <thead><tr>${shown.map((column) => html`
            <${Head} key=${column.id} column=${column} sortable=${!!column.sort} sort=${sort} onSort=${onSort} />`)}</tr></thead>
          <tbody>${page.items.map((row, index) => html`
            <tr key=${rowKey ? rowKey(row) : `${row.vhost}\n${row.name}` + (row.name === undefined ? index : "")}>
              ${shown.map((column) => html`<td key=${column.id} class=${cx(column.number && "number")}>${column.cell(row)}</td>`)}
            </tr>`)}</tbody>
        </table>
      </div></div>
      <${Pager} page=${page} query=${query} />`}`;
}

function Bar({ name, query, columns, shown, toggle, vhosts, label, page }) {
  const timer = useRef(0);
  const type = (event) => {
    const text = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ name: text, page: undefined }), TYPING_MS);
  };
  return html`
    <div class="listbar" role="search">
      ${vhosts && html`<${VhostChoice} query=${query} />`}
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

function VhostChoice({ query }) {
  const { data } = useLive("/api/vhosts?columns=name");
  if (!data || (data.length < 2 && !query.vhost)) return null;
  return html`
    <label class="tight">Virtual host
      <select value=${query.vhost ?? ""} onChange=${(event) => setQuery({ vhost: event.target.value, page: undefined })}>
        <option value="">all</option>
        ${data.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></label>`;
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
