// Where we are: the part of the address behind the #, as "/queues/%2F/orders?tab=flow".

import { signal } from "./ui.js";

const read = () => {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path, query: Object.fromEntries(new URLSearchParams(query)) };
};

/** {path: "queues/%2F/orders", query: {tab: "flow"}} */
export const route = signal(read());

addEventListener("hashchange", () => {
  route.value = read();
});

/** link(["queues", "/", "orders"], {tab: "flow"}) → "#/queues/%2F/orders?tab=flow" */
export function link(parts, query = {}) {
  const asked = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const tail = asked.length ? "?" + new URLSearchParams(asked) : "";
  return "#/" + parts.map(encodeURIComponent).join("/") + tail;
}

export function go(parts, query) {
  location.hash = link(parts, query);
}

/** Changes the query in place: what is sorted or typed makes no entry in the history. */
export function setQuery(changes) {
  const { path, query } = route.value;
  const asked = { ...query, ...changes };
  for (const key of Object.keys(asked)) if (asked[key] === undefined || asked[key] === "") delete asked[key];
  const tail = Object.keys(asked).length ? "?" + new URLSearchParams(asked) : "";
  history.replaceState(null, "", `#/${path}${tail}`);
  route.value = read();
}

/** The page a path belongs to, and what its :names stand for; null = none. */
export function match(pages, path) {
  const given = path === "" ? [] : path.split("/");
  for (const page of pages) {
    const parts = page.path === "" ? [] : page.path.split("/");
    if (parts.length !== given.length) continue;
    const params = {};
    const fits = parts.every((part, index) => {
      if (!part.startsWith(":")) return part === given[index];
      params[part.slice(1)] = decodeURIComponent(given[index]);
      return true;
    });
    if (fits) return { page, params };
  }
  return null;
}
