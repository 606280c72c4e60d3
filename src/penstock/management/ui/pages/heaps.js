// An NSQ channel: what is in flight or deferred, by when it is due.

import { html } from "../lib/ui.js";
import { at, enc, useLive } from "../lib/api.js";
import { Asked } from "../lib/parts.js";
import { Heaps } from "../lib/heaps.js";
import { link, route } from "../lib/router.js";

export default function HeapsPage({ params: { topic, channel } }) {
  const { vhost } = route.value.query;
  const asked = vhost ? `?vhost=${enc(vhost)}` : "";
  const { data: heaps, error } = useLive(at("penstock", "heaps", topic, channel) + asked);
  return html`
    <p class="trail"><a href="#/topics">NSQ topics</a> / ${topic}</p>
    <div class="head"><h1>${channel}</h1>
      ${heaps && html`<span class="where">queue <a href=${link(["queues", heaps.vhost, heaps.name])}>${heaps.name}</a></span>`}</div>
    <${Asked} data=${heaps} error=${error} />
    ${heaps && html`<${Heaps} heaps=${heaps} />`}`;
}
