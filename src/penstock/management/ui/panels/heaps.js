// What of a queue is in flight or deferred, by when it is due.

import { html } from "../lib/ui.js";
import { at, useLive } from "../lib/api.js";
import { Asked } from "../lib/parts.js";
import { Heaps } from "../lib/heaps.js";

export default function HeapsPanel({ vhost, name }) {
  const { data: heaps, error } = useLive(at("penstock", "queues", vhost, name, "heaps"));
  return html`<${Asked} data=${heaps} error=${error} />${heaps && html`<${Heaps} heaps=${heaps} />`}`;
}
