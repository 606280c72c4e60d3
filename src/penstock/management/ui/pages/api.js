// The HTTP API, as the server describes it, to read and to try: every GET can be asked from here.

import { html, useState } from "../lib/ui.js";
import { get, useOnce } from "../lib/api.js";
import { Asked, Card, Tag } from "../lib/parts.js";

const METHODS = ["get", "put", "post", "delete"];
const TONES = { get: "accent", put: "warn", post: "warn", delete: "bad" };

export default function Api() {
  const { data: api, error } = useOnce("/api/penstock/openapi.json");
  const [text, setText] = useState("");
  const paths = Object.entries(api?.paths ?? {}).filter(([path]) => path.includes(text));
  const groups = Map.groupBy(paths, ([, item]) => METHODS.map((method) => item[method]).find(Boolean)?.tags?.[0] ?? "other");
  return html`
    <div class="head"><h1>HTTP API</h1><span class="where">${api?.info?.version}</span></div>
    <p class="quiet">RabbitMQ’s management API of release 3.10, and paths of our own below /api/penstock. With basic
      authentication: <code>curl -u NAME:PASSWORD ${location.origin}/api/overview</code></p>
    <${Asked} data=${api} error=${error} gone="This server does not describe its API." />
    ${api && html`
      <div class="listbar gap" role="search"><input type="search" aria-label="Filter paths" placeholder="Filter paths" onInput=${(event) => setText(event.target.value)} />
        <a class="button" href="/api/penstock/openapi.json" onClick=${download}>OpenAPI document</a></div>
      ${[...groups].map(([tag, entries]) => html`
        <${Card} key=${tag} title=${tag}><ul>${entries.map(([path, item]) => html`<${Path} key=${path} path=${path} item=${item} />`)}</ul><//>`)}`}`;
}

/** A link cannot carry who we are: the document is fetched and saved. */
async function download(event) {
  event.preventDefault();
  const blob = new Blob([JSON.stringify(await get("/api/penstock/openapi.json"), null, 2)], { type: "application/json" });
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = "openapi.json";
  anchor.click();
}

function Path({ path, item }) {
  const [answer, setAnswer] = useState(null);
  const methods = METHODS.filter((method) => item[method]);
  const summary = methods.map((method) => item[method].summary).find(Boolean);
  const plain = item.get && !path.includes("{");
  const ask = () => get(path).then((found) => setAnswer(JSON.stringify(found, null, 2)), (error) => setAnswer(error.message));
  return html`
    <li class="endpoint">
      <div class="line">${methods.map((method) => html`<${Tag} key=${method} tone=${TONES[method]}>${method.toUpperCase()}<//>`)}
        <code>${path}</code><span class="quiet">${summary}</span><span class="space"></span>
        ${plain && html`<button type="button" class="small" aria-label=${`Try GET ${path}`} onClick=${answer === null ? ask : () => setAnswer(null)}>${answer === null ? "Try" : "Close"}</button>`}</div>
      ${answer !== null && html`<pre class="payload" tabindex="0">${answer}</pre>`}
    </li>`;
}
