// All consumers.

import { html, useState } from "../lib/ui.js";
import { scoped, useLive } from "../lib/api.js";
import { Asked, Card } from "../lib/parts.js";
import { Consumers } from "../lib/consumers.js";

const SHOWN_MAX = 500;

export default function ConsumersPage() {
  const { data, error } = useLive(scoped("/api/consumers"));
  const [text, setText] = useState("");
  const found = data?.filter(({ queue, consumer_tag }) => `${queue.name} ${consumer_tag}`.includes(text));
  return html`
    <div class="head"><h1>Consumers</h1></div>
    <div class="listbar" role="search">
      <input type="search" aria-label="Filter consumers by queue or tag" placeholder="Filter by queue or tag" onInput=${(event) => setText(event.target.value)} />
      <span class="quiet" role="status">${data && `${found.length} of ${data.length}${found.length > SHOWN_MAX ? `, the first ${SHOWN_MAX} shown` : ""}`}</span>
    </div>
    <${Asked} data=${data} error=${error} />
    ${data && html`<${Card}><${Consumers} consumers=${found.slice(0, SHOWN_MAX)} withQueue /><//>`}`;
}
