// Where a queue rests on disk: its segments, and what of it only the journal has.

import { html } from "../lib/ui.js";
import { at, useLive } from "../lib/api.js";
import { Asked, Card, Facts, Meter } from "../lib/parts.js";
import { Numbers } from "../lib/drawing.js";
import { SegmentStrip } from "../lib/strips.js";
import { bytes, count, percent } from "../lib/format.js";

export default function StoragePanel({ vhost, name }) {
  const { data: storage, error } = useLive(at("penstock", "queues", vhost, name, "storage"));
  if (!storage) return html`<${Asked} data=${storage} error=${error} />`;
  return html`
    <${Asked} data=${storage} error=${error} />
    ${storage.parts.map((part) => html`<${Part} key=${part.priority} part=${part} storage=${storage} />`)}
    ${storage.parts.length === 0 && html`<${Card}><p class="empty">Nothing of it rests on disk.</p><//>`}
    <div class="cards">
      <${Card} title="Journal">
        <p class="quiet">Publishes and acknowledgements are in the node's journal first. A queue with this many records writes its resting messages to segments.</p>
        <${Meter} value=${storage.journal_entries} limit=${storage.journal_entries_limit} label="Journal entries of this queue"
          text=${`${count(storage.journal_entries)} of ${count(storage.journal_entries_limit)} records`} />
      <//>
      <${Card} title="Limits"><${Facts} facts=${[
        ["Messages of a segment", count(storage.segment_entries)],
        ["Embedded in the index", `below ${bytes(storage.embed_below_bytes)}; larger ones are in the message store`],
      ]} /><//>
    </div>`;
}

function Part({ part, storage }) {
  const title = part.priority === null ? "Index segments" : `Index segments of priority ${part.priority}`;
  const rows = part.segments.map((one) => [
    one.name, count(one.published), count(one.delivered), count(one.acked), count(one.messages),
    bytes(one.bytes), percent(one.garbage_share), one.state,
  ]);
  return html`
    <${Card} title=${title}>
      ${part.segments.length === 0
        ? html`<p class="empty">None: what it holds is in memory and in the journal.</p>`
        : html`
          <${SegmentStrip} title=${`${title} of queue ${storage.name}`} segments=${part.segments} />
          <ul class="legend">
            <li><svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect class="key-living" width="10" height="10" rx="2" /></svg> lives</li>
            <li><svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect class="key-acked" width="10" height="10" rx="2" /></svg> acknowledged</li>
            <li>line: delivered; empty: never written, what passes through never rests</li>
          </ul>
          ${part.segments_left_out > 0 && html`<p class="quiet">${count(part.segments_left_out)} in the middle are not drawn.</p>`}
          <${Numbers} caption=${title} rows=${rows}
            columns=${["Segment", "Published", "Delivered", "Acknowledged", "Lives", "Size", "Garbage", "State"]} />`}
    <//>`;
}
