// What waits for its time: how much, until when, how often it was tried.

import { html } from "./ui.js";
import { Card, Facts, Figure, Table } from "./parts.js";
import { Bars } from "./drawing.js";
import { bytes, count, duration, missing, percent, rate } from "./format.js";

const DUE = { 0: "overdue", 1000: "≤ 1 s", 5000: "≤ 5 s", 15_000: "≤ 15 s", 30_000: "≤ 30 s", 60_000: "≤ 1 min", 300_000: "≤ 5 min", 900_000: "≤ 15 min", 3_600_000: "≤ 1 h" };
const dueLabel = (within) => (within === null ? "later" : DUE[within] ?? `≤ ${duration(within)}`);
const triedLabel = (most, before) =>
  most === null ? `> ${before}` : before === 0 ? `≤ ${most}` : most === before + 1 ? String(most) : `${before + 1}–${most}`;

/** heaps: what /api/penstock/queues/…/heaps answers. */
export function Heaps({ heaps }) {
  const { in_flight: flying, deferred, rates } = heaps;
  return html`
    <div class="figures">
      <${Figure} label="in flight" value=${count(flying.count)} />
      <${Figure} label="deferred" value=${count(deferred.count)} />
      <${Figure} label="requeued" value=${rate(rates.requeued)} hint=${`${count(heaps.requeued)} in all`} />
      <${Figure} label="timed out" value=${rate(rates.timed_out)} hint=${`${count(heaps.timed_out)} in all`}
        tone=${rates.timed_out > 0 ? "warn" : undefined} />
      <${Figure} label="consumers" value=${count(heaps.consumers)} />
    </div>
    <div class="cards">
      <${Heap} title="In flight" heap=${flying} about=${flying.kind === "leases"
        ? "Handed out with a deadline: given again when it is over."
        : "Handed out: the consumer's channel is closed when its timeout is over."} />
      <${Heap} title="Deferred" heap=${deferred} about="Put off: ready again when their time has come." />
      <${Card} title="How deadlines are found" wide><${Scan} scan=${heaps.scan} /><//>
    </div>`;
}

function Heap({ title, heap, about }) {
  const due = heap.due.map(({ within_ms, count: number }) => ({
    label: dueLabel(within_ms), value: number, text: count(number), tone: within_ms === 0 ? "bad" : undefined,
  }));
  const tried = heap.attempts.map(({ at_most, count: number }, index) => ({
    label: triedLabel(at_most, heap.attempts[index - 1]?.at_most ?? 0), value: number, text: count(number),
    tone: index > 2 ? "warn" : undefined,
  }));
  const words = (bars) => bars.filter(({ value }) => value > 0).map(({ label, text }) => `${label}: ${text}`).join(", ") || "none";
  return html`
    <${Card} title=${`${title}: ${count(heap.count)}`}>
      <p class="quiet">${about}${heap.sampled < heap.count ? ` The histograms are of ${count(heap.sampled)} of them, scaled up.` : ""}</p>
      ${heap.count === 0 ? html`<p class="empty">None.</p>` : html`
        <h3>Time to due</h3>
        <${Bars} title=${`${title}: time to due`} desc=${words(due)} bars=${due} />
        <h3>Attempts</h3>
        <${Bars} title=${`${title}: attempts`} desc=${words(tried)} bars=${tried} />
        <h3>The ten soonest</h3>
        <${Soonest} rows=${heap.soonest} title=${title} />`}
    <//>`;
}

function Soonest({ rows, title }) {
  const columns = [
    { id: "seq", title: "Position", number: true, cell: ({ seq_id }) => count(seq_id) },
    { id: "due", title: "Due in", number: true, cell: ({ due_in_ms }) => (due_in_ms < 0 ? `${duration(-due_in_ms)} ago` : duration(due_in_ms)) },
    { id: "out", title: "Out for", number: true, cell: ({ out_for_ms }) => duration(out_for_ms) },
    { id: "tried", title: "Attempts", number: true, cell: ({ attempts }) => count(attempts) },
    { id: "size", title: "Size", number: true, cell: ({ bytes: size }) => bytes(size) },
    { id: "who", title: "Consumer", cell: ({ consumer_tag }) => consumer_tag ?? missing },
  ];
  return html`<${Table} caption=${`${title}: the ten soonest`} columns=${columns} rows=${rows} rowKey=${({ seq_id }) => seq_id} />`;
}

function Scan({ scan }) {
  if (!scan) return html`<p>Every deadline is known: all are in one heap, and the first is waited for. Nothing is scanned.</p>`;
  return html`
    <${Facts} facts=${[
      ["Scanned", scan.scanned ? "yes, by nsqd's scan loop" : "not this one"],
      ["Channels it knows", count(scan.channels)],
      ["Workers", `${count(scan.workers)} of at most ${count(scan.workers_max)}`],
      ["Looked at in a round", count(scan.selection_count)],
      ["Every", duration(scan.interval_ms)],
      ["Dirty in the last round", `${percent(scan.last_dirty_share)}, above ${percent(scan.dirty_share)} another follows at once`],
      ["The last round took", duration(scan.last_round_ms)],
      ["Rounds", count(scan.rounds)],
    ]} />`;
}

