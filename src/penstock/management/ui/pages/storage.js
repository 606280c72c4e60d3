// The node's storage: journal, message stores and segments, with their garbage and what collects it.

import { html } from "../lib/ui.js";
import { useLive } from "../lib/api.js";
import { Asked, Card, Facts, Figure } from "../lib/parts.js";
import { FileStrip } from "../lib/strips.js";
import { Numbers } from "../lib/drawing.js";
import { bytes, count, percent } from "../lib/format.js";

export default function StoragePage() {
  const { data: storage, error } = useLive("/api/penstock/storage");
  return html`
    <div class="head"><h1>Storage</h1></div>
    <${Asked} data=${storage} error=${error} />
    ${storage && html`
      <div class="figures">
        <${Figure} label="journal" value=${bytes(storage.journal.bytes)} />
        <${Figure} label="segments" value=${bytes(storage.segments.bytes)} />
        <${Figure} label="message store" value=${bytes(storage.stores.persistent.bytes)} />
        <${Figure} label="transient store" value=${bytes(storage.stores.transient.bytes)} />
        <${Figure} label="waiting for the disk" value=${bytes(storage.disk.segment_bytes_waiting)} />
      </div>
      ${storage.disk.stalled && html`<p class="problem" role="alert">Nothing can be written: ${storage.disk.stalled}</p>`}
      <${Journal} storage=${storage} />
      <${Store} title="Message store" about="Contents of large messages that outlive the node."
        store=${storage.stores.persistent} files=${storage.files.persistent_store} />
      <${Store} title="Transient store" about="Large transient messages that were paged out."
        store=${storage.stores.transient} files=${storage.files.transient_store} />
      <${Segments} segments=${storage.segments} />
      <${Recovery} recovery=${storage.recovery} />`}`;
}

function Journal({ storage }) {
  const { journal, files } = storage;
  const shown = files.journal.map((file) => ({
    ...file,
    tone: file.retiring ? "working" : file.finished ? undefined : "open",
    text: file.retiring ? "being retired" : file.finished ? "finished" : "being written",
  }));
  return html`
    <${Card} title="Journal">
      <${FileStrip} title="Journal files, oldest first" files=${shown} />
      <${Facts} facts=${[
        ["Size", `${bytes(journal.bytes)} in ${count(journal.files)} files`],
        ["Limit", bytes(journal.limit_bytes)],
        ["Behind", journal.behind ? "yes: publishers of durable messages wait" : "no"],
        ["Not yet written", bytes(journal.pending_bytes)],
        ["Written, not on disk", bytes(journal.position - journal.durable_position)],
        ["Files retired", count(journal.files_retired)],
      ]} />
      <${Numbers} caption="Journal files" columns=${["File", "Size", "State"]}
        rows=${shown.map((file) => [file.name, bytes(file.bytes), file.text])} />
    <//>`;
}

function Store({ title, about, store, files }) {
  const shown = files.map((file) => ({
    ...file,
    tone: file.damaged ? "damaged" : file.compacting ? "working" : undefined,
    text: file.damaged ? "damaged" : file.compacting ? "being compacted" : "",
  }));
  const running = shown.filter(({ compacting }) => compacting).length;
  return html`
    <${Card} title=${title}>
      <p class="quiet">${about} Files are compacted when more than half of all is garbage, or one has the most of it.</p>
      <${FileStrip} title=${`${title}: files, oldest first`} files=${shown} />
      <p aria-live="polite">${running ? `A compaction of ${running} ${running > 1 ? "files" : "file"} is under way.` : "No compaction is running."}</p>
      ${store.compacting_bytes > 0 && html`<p>
        <progress aria-label=${`${title}: compaction`} max=${store.compacting_bytes} value=${store.compacted_bytes}></progress>
        ${bytes(store.compacted_bytes)} of ${bytes(store.compacting_bytes)} copied</p>`}
      <${Facts} facts=${[
        ["Size", `${bytes(store.bytes)} in ${count(store.files)} files`],
        ["Lives", `${bytes(store.valid_bytes)}, ${count(store.messages)} messages`],
        ["Garbage", percent(store.garbage_share)],
        ["Not yet written", bytes(store.pending_bytes)],
        ["Compactions", count(store.compactions)],
        ["Given back", bytes(store.bytes_reclaimed)],
      ]} />
      ${shown.length > 0 && html`<${Numbers} caption=${`Files of the ${title.toLowerCase()}`} columns=${["File", "Size", "Messages", "Garbage", "State"]}
        rows=${shown.map((file) => [file.name, bytes(file.bytes), count(file.messages), percent(file.garbage_share), file.text])} />`}
    <//>`;
}

function Segments({ segments }) {
  return html`
    <${Card} title="Segments of all queues">
      <${FileStrip} title="Segments of all queues: living and garbage"
        files=${segments.files ? [{ name: `${count(segments.files)} files`, bytes: segments.bytes, garbage_share: segments.garbage_share }] : []} />
      <${Facts} facts=${[
        ["Size", `${bytes(segments.bytes)} in ${count(segments.files)} files`],
        ["Lives", bytes(segments.living_bytes)],
        ["Garbage", percent(segments.garbage_share)],
        ["Being rewritten", count(segments.rewriting)],
        ["Rewritten", count(segments.files_rewritten)],
        ["Given back", bytes(segments.bytes_reclaimed)],
      ]} />
    <//>`;
}

function Recovery({ recovery }) {
  if (!recovery) return null;
  return html`
    <${Card} title="The last start"><${Facts} facts=${[
      ["After a clean stop", recovery.new ? "in a new data directory" : recovery.clean ? "yes" : "no: what a crash left was read"],
      ["Queues", count(recovery.queues)],
      ["Messages", count(recovery.messages)],
      ["Read", bytes(recovery.bytes_read)],
      ["Torn ends cut off", bytes(recovery.bytes_cut)],
    ]} /><//>`;
}
