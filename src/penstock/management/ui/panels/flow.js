// The messages of a queue by state: five boxes, the movement between them, and the RAM target.

import { html, cx } from "../lib/ui.js";
import { at, mayMonitor, useLive } from "../lib/api.js";
import { Asked, Card, Facts } from "../lib/parts.js";
import { Chart, useHistory } from "../lib/chart.js";
import { Arrow, Drawing, Numbers } from "../lib/drawing.js";
import { bytes, count, duration, missing, rate, short } from "../lib/format.js";

const WIDTH = 1100;
const HEIGHT = 330;
const TOP = 92;
const BOX = { width: 124, height: 96 };
const STATES = [
  { name: "q1", is: "all in memory", kind: "alpha" },
  { name: "q2", is: "position in memory", kind: "beta" },
  { name: "delta", is: "on disk", kind: "delta" },
  { name: "q3", is: "position in memory", kind: "beta" },
  { name: "q4", is: "all in memory", kind: "alpha" },
];
const X = Object.fromEntries(STATES.map(({ name }, index) => [name, 92 + index * 184]));
const MIDDLE = TOP + BOX.height / 2;
const right = (name) => X[name] + BOX.width;
const center = (name) => X[name] + BOX.width / 2;

const MOVES = [
  ["q1_to_beta", "q1 to q2 or q3 (alpha to beta)"],
  ["q4_to_beta", "q4 to q3 (alpha to beta)"],
  ["beta_to_gamma", "written to a segment (beta to gamma)"],
  ["q2_to_delta", "q2 to delta"],
  ["q3_to_delta", "q3 to delta"],
  ["publish_to_delta", "published to delta (lazy)"],
  ["delta_to_q3", "delta to q3 (read ahead)"],
  ["q2_to_q3", "q2 to q3 (delta came to its end)"],
  ["q1_to_q4", "q1 to q4 (nothing in between)"],
  ["pending_to_disk", "unacknowledged contents to disk"],
];
const KEPT = STATES.map(({ name }, index) => ({ label: name, field: name, kind: "count", color: `--c${index + 1}` }));

export default function FlowPanel({ vhost, name }) {
  const { data: flow, error } = useLive(at("penstock", "queues", vhost, name, "flow"));
  const seen = useHistory(`flow ${vhost} ${name}`, flow, KEPT, (row, field) => row?.states[field].messages);
  if (!flow) return html`<${Asked} data=${flow} error=${error} />`;
  return html`
    <${Asked} data=${flow} error=${error} />
    <${Card}>
      <p class="sentence">${flow.sentence}.</p>
      <${Picture} flow=${flow} />
      <${Legend} />
    <//>
    <div class="cards">
      <${Card}><${Chart} title="Messages by state" times=${seen.times} series=${seen.series} format=${short} /><//>
      <${Card} title="Memory and speed"><${Facts} facts=${factsOf(flow)} /><//>
      <${Card} title="Details">
        <${Numbers} caption="Messages and bytes of each state" columns=${["State", "Messages", "Bytes", "In memory"]}
          rows=${rowsOf(flow)} /><//>
      <${Card} title="Movement">
        <${Numbers} caption="Messages that went from one state to the next"
          columns=${["Move", "A second", "In all"]}
          rows=${MOVES.map(([key, text]) => [text, rate(flow.moves[key].rate), count(flow.moves[key].count)])} /><//>
    </div>`;
}

function rowsOf(flow) {
  const states = STATES.map(({ name, kind }) => {
    const state = flow.states[name];
    const label = name === kind ? name : `${name} (${kind})`;
    return [label, count(state.messages), bytes(state.bytes), count(state.ram_messages)];
  });
  const { pending } = flow;
  return [
    ...states,
    ["unacknowledged", count(pending.messages), bytes(pending.bytes), count(pending.ram_messages)],
    ...(flow.delayed ? [["delayed", count(flow.delayed), missing, missing]] : []),
    ...(flow.priorities ?? []).map(({ priority, messages }) => [`of priority ${priority}`, count(messages), missing, missing]),
  ];
}

function factsOf(flow) {
  const { memory, rates } = flow;
  const none = "none: it is not paged";
  return [
    ["Mode", flow.mode],
    ["In memory", `${count(memory.messages)} messages, ${bytes(memory.bytes)} with overhead`],
    ["RAM target", memory.target_ram_bytes === null ? none
      : `${count(memory.target_ram_count)} messages, ${bytes(memory.target_ram_bytes)}`],
    ["Betas permitted", memory.permitted_beta_count === null ? none : count(memory.permitted_beta_count)],
    ["Memory lasts", memory.duration_s === null ? "nothing leaves" : duration(memory.duration_s * 1000)],
    ["In, average", rate(rates.in)],
    ["Out, average", rate(rates.out)],
    ["Handed out to be acknowledged", rate(rates.ack_in)],
    ["Acknowledged, average", rate(rates.ack_out)],
    ["Reading from disk", flow.reading ? "yes" : "no"],
    ["Next sequence id", count(flow.next_seq_id)],
    ["Stopped because", flow.fault ?? undefined],
  ];
}

// -- the picture ----------------------------------------------------------------------------------

function inWords(flow) {
  const states = STATES.map(({ name }) => `${name} ${count(flow.states[name].messages)}`).join(", ");
  return `${states}; ${count(flow.pending.messages)} handed out. In ${rate(flow.rates.in)}, out ${rate(flow.rates.out)}. ${flow.sentence}.`;
}

function Picture({ flow }) {
  const most = Math.max(1, ...STATES.map(({ name }) => flow.states[name].messages));
  return html`
    <${Drawing} title=${`Flow of queue ${flow.name}`} desc=${inWords(flow)} width=${WIDTH} height=${HEIGHT} className="flow" wide>
      <${Ways} flow=${flow} />
      ${STATES.map((state) => html`<${Box} key=${state.name} ...${state} row=${flow.states[state.name]} most=${most} />`)}
      <${Pending} pending=${flow.pending} />
      <${RamLine} memory=${flow.memory} />
    <//>`;
}

/** The fill from below says how much of the fullest state it holds. */
function Box({ name, is, kind, row, most }) {
  const full = row.messages > 0 ? Math.max(2, (row.messages / most) * BOX.height) : 0;
  const x = center(name);
  return html`
    <g class=${cx("state-box", kind, row.messages === 0 && "empty")}>
      <rect class="back" x=${X[name]} y=${TOP} width=${BOX.width} height=${BOX.height} rx="8" />
      <rect class="fill" x=${X[name]} y=${TOP + BOX.height - full} width=${BOX.width} height=${full} rx=${Math.min(8, full / 2)} />
      <rect class="edge" x=${X[name]} y=${TOP} width=${BOX.width} height=${BOX.height} rx="8" />
      <text class="name" x=${x} y=${TOP + 22} text-anchor="middle">${name === "delta" ? "delta (Δ)" : name}</text>
      <text class="count" x=${x} y=${TOP + 50} text-anchor="middle" data-state=${name}>${count(row.messages)}</text>
      <text class="quiet" x=${x} y=${TOP + 68} text-anchor="middle">${bytes(row.bytes)}</text>
      <text class="quiet" x=${x} y=${TOP + 84} text-anchor="middle">${is}</text>
    </g>`;
}

function Ways({ flow }) {
  const { moves, rates } = flow;
  const went = (key) => moves[key].rate;
  const over = (from, to, height) =>
    `M${center(from)} ${TOP} C${center(from)} ${TOP - height} ${center(to)} ${TOP - height} ${center(to)} ${TOP}`;
  const under = (from, to) => {
    const y = TOP + BOX.height;
    return `M${center(from) - 20} ${y} C${center(from) - 20} ${y + 44} ${center(to) + 20} ${y + 44} ${center(to) + 20} ${y}`;
  };
  const straight = (from, to) => `M${right(from)} ${MIDDLE} H${X[to]}`;
  const between = (from, to) => (right(from) + X[to]) / 2;
  return html`
    <${Publish} to=${flow.published_to} perSecond=${rates.in} />
    <${Arrow} id="q1_to_beta" d=${straight("q1", "q2")} end=${[X.q2, MIDDLE, 0]} at=${[between("q1", "q2"), MIDDLE - 8]} perSecond=${went("q1_to_beta")} tone="down" />
    <${Arrow} id="q2_to_delta" d=${straight("q2", "delta")} end=${[X.delta, MIDDLE, 0]} at=${[between("q2", "delta"), MIDDLE - 8]} perSecond=${went("q2_to_delta")} tone="down" />
    <${Arrow} id="delta_to_q3" d=${straight("delta", "q3")} end=${[X.q3, MIDDLE, 0]} at=${[between("delta", "q3"), MIDDLE - 8]} perSecond=${went("delta_to_q3")} tone="up" />
    <${Arrow} id="q2_to_q3" d=${over("q2", "q3", 34)} end=${[center("q3"), TOP, 90]} at=${[center("delta"), TOP - 30]} perSecond=${went("q2_to_q3")} tone="up" />
    <${Arrow} id="q1_to_q4" d=${over("q1", "q4", 74)} end=${[center("q4"), TOP, 90]} at=${[center("delta"), TOP - 60]} perSecond=${went("q1_to_q4")} tone="up" />
    <${Arrow} id="q4_to_beta" d=${under("q4", "q3")} end=${[center("q3") + 20, TOP + BOX.height, -90]} at=${[between("q3", "q4"), TOP + BOX.height + 48]} perSecond=${went("q4_to_beta")} tone="down" />
    <${Arrow} id="q3_to_delta" d=${under("q3", "delta")} end=${[center("delta") + 20, TOP + BOX.height, -90]} at=${[between("delta", "q3"), TOP + BOX.height + 48]} perSecond=${went("q3_to_delta")} tone="down" />
    <${Served} from=${flow.served_from} perSecond=${rates.out} />`;
}

/** Where a publish arrives just now; the sum of a queue with priorities may not know one place. */
function Publish({ to, perSecond }) {
  if (to === "q4" || to === "delta") {
    const x = center(to) - 30;
    const d = `M8 ${MIDDLE} C30 -6 ${x - 160} -14 ${x} ${TOP}`;
    return html`<${Arrow} id="publish" d=${d} end=${[x, TOP, 62]} at=${[8, MIDDLE + 18]} anchor="start" perSecond=${perSecond} label=${`in ${rate(perSecond)}`} />`;
  }
  return html`<${Arrow} id="publish" d=${`M8 ${MIDDLE} H${X.q1}`} end=${[X.q1, MIDDLE, 0]} at=${[8, MIDDLE - 8]} anchor="start" perSecond=${perSecond} label=${`in ${rate(perSecond)}`} />`;
}

function Served({ from, perSecond }) {
  const x = right("q4");
  const label = `out ${rate(perSecond)}`;
  if (from === "q3") {
    const y = TOP + BOX.height;
    const d = `M${center("q3")} ${y} C${center("q3")} ${y + 70} ${x} ${y + 70} ${x + 36} ${MIDDLE + 30}`;
    return html`<${Arrow} id="deliver" d=${d} end=${[x + 36, MIDDLE + 30, -58]} at=${[center("q4") + 10, y + 62]} perSecond=${perSecond} label=${label} />`;
  }
  return html`<${Arrow} id="deliver" d=${`M${x} ${MIDDLE} H${x + 36}`} end=${[x + 36, MIDDLE, 0]} at=${[x + 4, TOP - 10]} anchor="start" perSecond=${perSecond} label=${label} />`;
}

/** Handed out: what of it is in memory, and what only on disk. */
function Pending({ pending }) {
  const x = right("q4") + 38;
  const width = WIDTH - x - 4;
  const share = pending.messages ? pending.ram_messages / pending.messages : 0;
  const mid = x + width / 2;
  return html`
    <g class="state-box pending">
      <rect class="back" x=${x} y=${TOP} width=${width} height=${BOX.height} rx="8" />
      <rect class="edge" x=${x} y=${TOP} width=${width} height=${BOX.height} rx="8" />
      <text class="name" x=${mid} y=${TOP + 22} text-anchor="middle">handed out</text>
      <text class="count" x=${mid} y=${TOP + 50} text-anchor="middle" data-state="pending">${count(pending.messages)}</text>
      <text class="quiet" x=${mid} y=${TOP + 68} text-anchor="middle">${bytes(pending.bytes)}</text>
      <rect class="on-disk" x=${x + 10} y=${TOP + 78} width=${width - 20} height="8" rx="4" />
      ${pending.messages > 0 && html`<rect class="in-ram" x=${x + 10} y=${TOP + 78} width=${share * (width - 20)} height="8" rx="4" />`}
      <title>${`${count(pending.ram_messages)} in memory, ${count(pending.disk_messages)} only on disk`}</title>
    </g>`;
}

/** What the queue has in memory, and the line it is held to. */
function RamLine({ memory }) {
  const from = X.q1;
  const width = right("q4") - from;
  const { data } = useLive(mayMonitor() ? "/api/nodes?columns=name,mem_limit" : null);
  const target = memory.target_ram_bytes;
  const limit = data?.[0]?.mem_limit; // of the node that answers
  const most = target === null ? Math.max(limit ?? Infinity, memory.bytes) : Math.max(memory.bytes, target, 1) * 1.15;
  const at = (size) => from + (size / most) * width;
  const over = target !== null && memory.bytes > target;
  const y = 284;
  const flip = target !== null && at(target) > from + width * 0.6;
  return html`
    <g class="ram-line">
      <text x="8" y=${y + 13}>memory</text>
      <rect class="track" x=${from} y=${y} width=${width} height="16" rx="4" />
      <rect class=${cx("held", over && "over")} x=${from} y=${y} width=${Math.max(0, at(memory.bytes) - from)} height="16" rx="4" />
      <text class="quiet" x=${from} y=${y + 33}>${bytes(memory.bytes)} in memory</text>
      ${target === null
        ? html`<text class="quiet" x=${from + width} y=${y + 33} text-anchor="end">${limit === undefined ? "" : `of ${bytes(limit)}, where publishers wait; `}no RAM target now</text>`
        : html`<line class="target" x1=${at(target)} x2=${at(target)} y1=${y - 10} y2=${y + 20} data-target=${target} />
          <text class="target-text" x=${at(target) + (flip ? -6 : 6)} y=${y - 4} text-anchor=${flip ? "end" : "start"}>RAM target ${count(memory.target_ram_count)} messages, ${bytes(target)}</text>`}
    </g>`;
}

function Legend() {
  return html`
    <ul class="legend">
      <li><svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect class="key-alpha" width="10" height="10" rx="2" /></svg> alpha: content and position in memory</li>
      <li><svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect class="key-beta" width="10" height="10" rx="2" /></svg> beta: position in memory, content on disk (or in memory as well); gamma: a beta with a record in a segment</li>
      <li><svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect class="key-delta" width="10" height="10" rx="2" /></svg> delta: on disk only</li>
    </ul>`;
}
