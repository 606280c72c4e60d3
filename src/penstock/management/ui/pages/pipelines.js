// Spark pipelines that report to the node: what they did last, how far behind they are, until when.

import { html } from "../lib/ui.js";
import { useLive, vhost } from "../lib/api.js";
import { Asked, Card, Empty, Facts, State, Tag } from "../lib/parts.js";
import { Numbers, Spark } from "../lib/drawing.js";
import { count, duration, missing, rate, when } from "../lib/format.js";
import { link } from "../lib/router.js";

const SHOWN = 5;

export default function PipelinesPage() {
  const { data, error } = useLive("/api/penstock/pipelines");
  const pipelines = data?.filter((one) => !vhost.value || one.vhost === vhost.value);
  return html`
    <div class="head"><h1>Pipelines</h1></div>
    <${Asked} data=${pipelines} error=${error} />
    ${pipelines?.length === 0 && html`<${Empty}>No pipeline reports to this node. A streaming query does when it reads or writes with
      the format "penstock"; batch programs can report themselves.<//>`}
    <div class="cards">${pipelines?.map((one) => html`<${Pipeline} key=${`${one.vhost} ${one.name}`} one=${one} />`)}</div>`;
}

function drain(one) {
  if (one.to_drain_s === null) return one.depth ? "never, as things are" : missing;
  return one.to_drain_s === 0 ? "empty" : `in ${duration(one.to_drain_s * 1000)}`;
}

function Pipeline({ one }) {
  const rows = one.last_batches.map((batch) => batch.rows);
  const times = one.last_batches.map((batch) => batch.duration_ms);
  return html`
    <${Card} title=${one.name} actions=${html`<${State} value=${one.state} />`}>
      <p class="quiet">${[one.kind, `in ${one.vhost}`, one.user && `by ${one.user}`].filter(Boolean).join(" ")}${" "}
        ${one.queues.map((queue) => html`<${Tag} key=${queue}><a href=${link(["queues", one.vhost, queue])}>${queue}</a><//>`)}</p>
      ${one.error && html`<pre class="problem" role="alert">${one.error}</pre>`}
      <div class="sparks">
        <div><h3>Rows of a batch</h3><${Spark} title=${`${one.name}: rows of the last batches`} values=${rows} /></div>
        <div><h3>Time of a batch</h3><${Spark} title=${`${one.name}: milliseconds of the last batches`} values=${times} /></div>
      </div>
      <${Facts} facts=${[
        ["Batch", count(one.batch)],
        ["Batches", count(one.batches)],
        ["Rows", count(one.rows)],
        ["Rows a second", rate(one.rows_per_s)],
        ["Published a second", rate(one.published_per_s)],
        ["Lag", count(one.lag)],
        ["Messages in its queues", count(one.depth)],
        ["Drained", drain(one)],
        ["Group", one.group || undefined],
        ["Run", one.run ? html`<code>${one.run}</code>` : undefined],
        ["Since", when(one.since_ms)],
        ["Heard of", when(one.reported_ms)],
      ]} />
      ${rows.length > 0 && html`<${Numbers} caption=${`The last batches of ${one.name}`} columns=${["Batch", "Rows", "Took", "Reported"]}
        rows=${one.last_batches.slice(-SHOWN).toReversed().map((batch) => [count(batch.batch), count(batch.rows), duration(batch.duration_ms), when(batch.reported_ms)])} />`}
    <//>`;
}
