// A stream: its two ends, what retention takes next, and the positions it keeps of its readers.

import { html } from "../lib/ui.js";
import { at, send } from "../lib/api.js";
import { Card, Facts, Table, attempt, confirm } from "../lib/parts.js";
import { bytes, count, duration, missing, some, when } from "../lib/format.js";

export default function StreamPanel({ vhost, name, queue }) {
  const stream = queue.penstock ?? {};
  const { retention, positions = [], publishers = [], groups = [] } = stream;
  const isEmpty = stream.first_ms === null;
  return html`
    <div class="cards">
      <${Card} title="Messages"><${Facts} facts=${[
        ["First offset", isEmpty ? "none" : count(stream.first_offset)],
        ["First message came", isEmpty ? undefined : ago(stream.first_ms)],
        ["Last offset", isEmpty ? "none" : count(stream.next_offset - 1)],
        ["Last message came", isEmpty ? undefined : ago(stream.last_ms)],
        ["On disk below offset", count(stream.durable_offset)],
        ["Files", `${some(stream.segments, "file")}, ${bytes(stream.bytes)}`],
        ["Duplicates dropped since the start", publishers.length > 0 ? count(stream.duplicates) : undefined],
      ]} /><//>
      <${Card} title="Retention"><${Facts} facts=${[
        ["Bytes", retention?.max_bytes == null ? "no limit" : bytes(retention.max_bytes)],
        ["Age", retention?.max_age_ms == null ? "no limit" : duration(retention.max_age_ms)],
        ["A file ends at", retention && bytes(retention.segment_bytes)],
        ["Next step", nextStep(stream), "wide"],
        ...(groups.length ? [["Held for groups", `${bytes(stream.held_bytes)} of ${bytes(stream.hold_max_bytes)}`]] : []),
      ]} /><//>
      <${Card} title="Positions that are kept" wide>
        <p class="quiet">A consumer with this tag, and with the argument x-stream-automatic-offset-tracking, begins there.</p>
        <${Positions} positions=${positions} vhost=${vhost} name=${name} consumers=${queue.consumer_details ?? []} />
      <//>
      ${groups.length > 0 && html`<${Card} title="Groups of Spark" wide>
        <${Table} caption="Groups of Spark" rows=${groups} empty="None." columns=${[
          { id: "name", title: "Group", sort: (row) => row.name, cell: (row) => html`<code>${row.name}</code>` },
          { id: "position", title: "Next offset", number: true, sort: (row) => row.position, cell: (row) => count(row.position) },
          { id: "behind", title: "Messages behind", number: true, sort: (row) => row.behind, cell: (row) => count(row.behind) },
          { id: "lost", title: "Taken unread", number: true, sort: (row) => row.lost, cell: (row) => count(row.lost) },
        ]} />
      <//>`}
      ${publishers.length > 0 && html`<${Card} title="Numbers of publishers" wide>
        <p class="quiet">A message of such a publisher whose number is not higher is dropped.</p>
        <${Table} caption="Numbers of publishers" rows=${publishers} columns=${[
          { id: "name", title: "Publisher", sort: (row) => row.name, cell: (row) => html`<code>${row.name}</code>` },
          { id: "number", title: "Highest number", number: true, sort: (row) => row.number, cell: (row) => count(row.number) },
          { id: "offset", title: "Offset of it", number: true, sort: (row) => row.offset, cell: (row) => count(row.offset) },
        ]} />
      <//>`}
    </div>`;
}

const ago = (ms) => `${when(ms)}, ${duration(Math.max(0, Date.now() - ms))} ago`;

/** Only whole files go, and never the last one. */
function nextStep({ retention, segments, held_bytes }) {
  if (!retention || (retention.max_bytes === null && retention.max_age_ms === null)) return "nothing goes: there is no limit";
  if (held_bytes > 0) return `${bytes(held_bytes)} are over a limit, and stay for groups that read them`;
  if (!retention.next) return segments > 1 ? missing : "nothing goes yet: the last file always stays";
  const { messages, bytes: size, at_ms, after_bytes } = retention.next;
  const times = [];
  if (at_ms !== null) times.push(`at ${when(at_ms)}`);
  if (after_bytes !== null) times.push(`when ${bytes(after_bytes)} more have come`);
  return `${some(messages, "message")} (${bytes(size)}) of the oldest file go ${times.join(", or ")}`;
}

const lag = (ms) => (ms === null ? missing : duration(ms));

function Positions({ positions, vhost, name, consumers }) {
  const forget = async (row) => {
    const text = `A consumer with the tag ${row.name} will begin where its x-stream-offset says.`;
    if (!await confirm({ title: `Delete the position of ${row.name}?`, text, action: "Delete position" })) return;
    await attempt(() => send("POST", `${at("queues", vhost, name)}/actions`, { action: "forget_position", name: row.name }),
      `The position of ${row.name} is deleted.`);
  };
  const isHere = (row) => consumers.some((one) => one.consumer_tag === row.name);
  return html`<${Table} caption="Positions that are kept" rows=${positions} empty="None." columns=${[
    { id: "name", title: "Consumer tag", sort: (row) => row.name, cell: (row) => html`<code>${row.name}</code>` },
    { id: "offset", title: "Next offset", number: true, sort: (row) => row.offset, cell: (row) => count(row.offset) },
    { id: "lag", title: "Messages behind", number: true, sort: (row) => row.lag_messages, cell: (row) => count(row.lag_messages) },
    { id: "age", title: "Time behind", number: true, sort: (row) => row.lag_ms, cell: (row) => lag(row.lag_ms) },
    { id: "here", title: "Consumer", cell: (row) => (isHere(row) ? "connected" : "not connected") },
    { id: "forget", title: "Delete", cell: (row) => html`
      <button type="button" class="small danger" aria-label=${`Delete the position of ${row.name}`} onClick=${() => forget(row)}>Delete…</button>` },
  ]} />`;
}
