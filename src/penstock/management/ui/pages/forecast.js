// When memory or disk will be short, if it goes on like this.

import { html, cx } from "../lib/ui.js";
import { useLive } from "../lib/api.js";
import { Asked, Card, Facts, State } from "../lib/parts.js";
import { Chart, samples, useHistory } from "../lib/chart.js";
import { Drawing } from "../lib/drawing.js";
import { bytes, duration } from "../lib/format.js";
import { WEEK_S, sampled } from "../lib/stats.js";

const WIDTH = 1000;
const BAR = { y: 34, height: 26 };
const FIELDS = [
  { label: "memory in use", field: "used", kind: "count", color: "--c1" },
  { label: "paging line", field: "paging", kind: "count", color: "--c2" },
  { label: "limit", field: "limit", kind: "count", color: "--c5" },
];
const RESIDENT = [{ label: "resident", field: "mem_used", color: "--c1" }];
const PICKED = {
  used: ({ memory }) => memory.used_bytes,
  paging: ({ memory }) => memory.paging_bytes,
  limit: ({ memory }) => memory.limit_bytes,
};

export default function ForecastPage() {
  const { data, error } = useLive("/api/penstock/forecast");
  const seen = useHistory("forecast", data, FIELDS, (row, field) => row && PICKED[field](row));
  const { data: nodes } = useLive(`/api/nodes?columns=os_pid,mem_used,mem_used_details&${sampled(["node_stats"], WEEK_S)}`);
  const resident = samples(nodes?.find(({ os_pid }) => os_pid), RESIDENT);
  const { times, series } = resident && data ? withLines(resident, data.memory) : seen;
  return html`
    <div class="head"><h1>Alarm forecast</h1></div>
    <${Asked} data=${data} error=${error} />
    ${data && html`
      <p class="sentence">${data.sentence}</p>
      <${Memory} memory=${data.memory} />
      <${Disk} disk=${data.disk} />
      <${Card}><${Chart} title="Memory" times=${times} series=${series} format=${bytes} /><//>`}`;
}

/** The broker's samples, and the lines as they are now. */
function withLines({ times, series }, memory) {
  const lines = FIELDS.slice(1).filter(({ field }) => PICKED[field]({ memory }) !== null);
  const level = ({ label, field, color }) => ({ label, color, values: times.map(() => PICKED[field]({ memory })) });
  return { times, series: [...series, ...lines.map(level)] };
}

const until = (seconds) => (seconds === null ? "not in sight" : seconds === 0 ? "now" : `in ${duration(seconds * 1000)}`);

function Memory({ memory }) {
  const most = Math.max(memory.limit_bytes * 1.25, memory.used_bytes);
  const marks = [
    memory.paging_bytes !== null && { at: memory.paging_bytes, text: `paging line ${bytes(memory.paging_bytes)}`, tone: "paging" },
    { at: memory.limit_bytes, text: `limit ${bytes(memory.limit_bytes)}`, tone: "limit" },
  ].filter(Boolean);
  return html`
    <${Card} title="Memory">
      <${State} value=${memory.alarm ? "alarm" : memory.paging ? "paging" : "ok"} />
      <${Bar} title="Memory" used=${memory.used_bytes} most=${most} marks=${marks} bad=${memory.alarm}
        warn=${memory.paging} text=${`${bytes(memory.used_bytes)} in use`} />
      <${Facts} facts=${[
        ["In use, by count", bytes(memory.used_bytes)],
        ["Of that messages", bytes(memory.messages_bytes)],
        ["Without messages", bytes(memory.base_bytes)],
        ["Resident", bytes(memory.resident_bytes)],
        ["Memory of the machine", bytes(memory.total_bytes)],
        ["Grows by", `${bytes(memory.grows_by_bytes_per_s)} a second`],
        ["Queues begin to page", memory.paging_bytes === null ? "never: paging is off" : until(memory.seconds_to_paging)],
        ["Alarm, publishers wait", until(memory.seconds_to_alarm)],
      ]} />
    <//>`;
}

function Disk({ disk }) {
  const total = disk.total_bytes ?? disk.free_bytes;
  return html`
    <${Card} title="Disk">
      <${State} value=${disk.alarm ? "alarm" : "ok"} />
      ${disk.free_bytes !== null && html`<${Bar} title="Disk" used=${total - disk.free_bytes} most=${total} bad=${disk.alarm}
        marks=${[{ at: total - disk.limit_bytes, text: `limit: ${bytes(disk.limit_bytes)} free`, tone: "limit" }]}
        text=${`${bytes(total - disk.free_bytes)} used, ${bytes(disk.free_bytes)} free`} />`}
      <${Facts} facts=${[
        ["Free", bytes(disk.free_bytes)],
        ["Limit", bytes(disk.limit_bytes)],
        ["Shrinks by", `${bytes(disk.shrinks_by_bytes_per_s)} a second`],
        ["Alarm, publishers wait", until(disk.seconds_to_alarm)],
        ["Full", until(disk.seconds_to_full)],
      ]} />
    <//>`;
}

const anchor = (x) => (x > WIDTH * 0.75 ? "end" : x < WIDTH * 0.25 ? "start" : "middle");

function Bar({ title, used, most, marks, text, bad, warn }) {
  const at = (size) => Math.max(0, Math.min(1, size / most)) * WIDTH;
  const desc = [text, ...marks.map((mark) => mark.text)].join(", ");
  return html`
    <${Drawing} title=${title} desc=${desc} width=${WIDTH} height="84" className="level" wide>
      <rect class="track" y=${BAR.y} width=${WIDTH} height=${BAR.height} rx="5" />
      <rect class=${cx("used", bad ? "bad" : warn && "warn")} y=${BAR.y} width=${at(used)} height=${BAR.height} rx="5" />
      <text class="on-bar" x="10" y=${BAR.y + 18}>${text}</text>
      ${marks.map((mark, index) => html`
        <g class=${cx("mark", mark.tone)} key=${mark.tone}>
          <line x1=${at(mark.at)} x2=${at(mark.at)} y1=${BAR.y - 8} y2=${BAR.y + BAR.height + 8} />
          <text x=${at(mark.at)} y=${index % 2 ? 20 : 80} text-anchor=${anchor(at(mark.at))}>${mark.text}</text>
        </g>`)}
    <//>`;
}
