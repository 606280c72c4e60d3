// Ctrl-K: type a few letters of a page, a queue, an exchange or a virtual host, and go there.
// "/" puts the cursor into the filter of a list. Neither acts while something is typed into a field.

import { html, cx, signal, useEffect, useRef, useState } from "./ui.js";
import { chooseVhost, get, scoped, user, vhosts } from "./api.js";
import { link } from "./router.js";

const TYPING_MS = 150;
const FOUND_MAX = 8;
const open = signal(false);

addEventListener("keydown", (event) => {
  if (!user.value) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    open.value = true;
  }
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  const filter = document.querySelector("main input[type=search]");
  if (!filter) return;
  event.preventDefault();
  filter.focus();
});

const fits = (text, typed) => typed.toLowerCase().split(/\s+/).every((part) => text.toLowerCase().includes(part));
const linked = (kind, href) => ({ kind, act: () => { location.hash = href; } });

/** Names that the broker finds; a user who may not see a kind finds none of it. */
async function objects(typed) {
  const kinds = [["queue", "queues"], ["exchange", "exchanges"]];
  const found = await Promise.all(kinds.map(async ([kind, path]) => {
    const query = new URLSearchParams({ page: 1, page_size: FOUND_MAX, name: typed, columns: "name,vhost,node" });
    const { items } = await get(`${scoped(`/api/${path}`)}?${query}`).catch(() => ({ items: [] }));
    return items.filter(({ name }) => name !== "").map(({ name, vhost, node }) =>
      ({ ...linked(node ? `${kind} on ${node}` : kind, link([path, vhost, name])), name: vhost === "/" ? name : `${name} in ${vhost}` }));
  }));
  return found.flat();
}

export function Palette({ pages }) {
  const dialog = useRef(null);
  const [typed, setTyped] = useState("");
  const [names, setNames] = useState([]);
  const [at, setAt] = useState(0);
  useEffect(() => {
    if (open.value) dialog.current?.showModal();
  }, [open.value]);
  useEffect(() => {
    setAt(0);
    setNames([]);
    if (typed.trim() === "") return undefined;
    let wanted = true;
    const timer = setTimeout(() => objects(typed.trim()).then((found) => wanted && setNames(found)), TYPING_MS);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [typed]);
  if (!open.value) return null;
  const close = () => {
    open.value = false;
    setTyped("");
  };
  const known = [
    ...pages.map(({ path, title }) => ({ ...linked("page", `#/${path}`), name: title })),
    ...(vhosts.value.length > 1 ? ["", ...vhosts.value] : []).map((name) =>
      ({ kind: "virtual host", name: name || "all virtual hosts", act: () => chooseVhost(name) })),
  ];
  const entries = [...known.filter(({ name, kind }) => fits(`${name} ${kind}`, typed)), ...names];
  const take = (entry) => {
    close();
    entry?.act();
  };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter") take(entries[at]);
    else if (step) setAt((at + step + entries.length) % Math.max(1, entries.length));
    else return;
    event.preventDefault();
  };
  return html`
    <dialog ref=${dialog} class="palette" aria-label="Go to" onClose=${close}>
      <input type="text" role="combobox" autocomplete="off" spellcheck=${false} aria-label="Go to a page, queue, exchange or virtual host" aria-expanded="true" aria-controls="palette-entries"
        aria-activedescendant=${entries[at] && `palette-${at}`} placeholder="Page, queue, exchange, virtual host" autofocus value=${typed}
        onInput=${(event) => setTyped(event.target.value)} onKeyDown=${press} />
      <ul id="palette-entries" role="listbox" aria-label="Found">${entries.map((entry, index) => html`
        <li key=${`${entry.kind} ${entry.name}`} id=${`palette-${index}`} role="option" aria-selected=${String(index === at)} class=${cx(index === at && "at")}
          onClick=${() => take(entry)}><span>${entry.name}</span> <span class="quiet">${entry.kind}</span></li>`)}</ul>
      ${entries.length === 0 && html`<p class="empty" role="status">Nothing of that name.</p>`}
    </dialog>`;
}
