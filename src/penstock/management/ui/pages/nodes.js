// The node: what it has, what it uses, where its memory is; and the others of its cluster.

import { html } from "../lib/ui.js";
import { at, useLive } from "../lib/api.js";
import { Asked, Card, Facts, Meter, State, Table, Tag } from "../lib/parts.js";
import { Chart, samples, useHistory } from "../lib/chart.js";
import { bytes, count, duration, short, some } from "../lib/format.js";
import { ClusterTable } from "../lib/cluster.js";
import { WEEK_S, sampled } from "../lib/stats.js";

const MEMORY = [{ label: "memory", field: "mem_used", color: "--c1" }];
const FILES = [{ label: "files open", field: "fd_used", color: "--c2" }, { label: "sockets", field: "sockets_used", color: "--c1" }];
/** What RabbitMQ's names of memory mean here. */
const USES = {
  queue_procs: "messages in queues",
  connection_writers: "output that clients have not taken",
  connection_other: "output kept for other nodes",
  connection_channels: "transactions not committed yet",
  binary: "contents on their way to the disk",
  code: "program and definitions at the start",
  allocated_unused: "free, kept by the C library",
  other_system: "buffers, indexes and the rest",
};
const SKIPPED = new Set(["strategy", "total"]);

export default function Nodes() {
  const { data, error } = useLive("/api/nodes?columns=name,os_pid");
  return html`
    <div class="head"><h1>Nodes</h1></div>
    <${Asked} data=${data} error=${error} />
    <${Cluster} />
    ${(data ?? []).filter(({ os_pid }) => os_pid).map(({ name }) => html`<${Node} key=${name} name=${name} />`)}`;
}

function Cluster() {
  const { data } = useLive("/api/penstock/cluster");
  if (!data || data.nodes.length === 0) return null;
  const queues = some(data.mirrored_queues, "mirrored queue");
  return html`
    <${Card} title=${`Cluster ${data.name}`}>
      <${ClusterTable} cluster=${data} />
      <p class="gap"><a href="#/mirrors">${queues}</a>${data.mirrored_queues_down > 0 && html`, <b>${count(data.mirrored_queues_down)} down</b>`}</p>
    <//>`;
}

function Node({ name }) {
  const { data: node, error } = useLive(`${at("nodes", name)}?${sampled(["node_stats"], WEEK_S)}`);
  const memory = useLive(`${at("nodes", name)}/memory`);
  const ownMemory = useHistory(`memory ${name}`, node, MEMORY);
  const ownFiles = useHistory(`files ${name}`, node, FILES);
  const used = samples(node, MEMORY) ?? ownMemory;
  const files = samples(node, FILES) ?? ownFiles;
  const free = Number(node?.disk_free);
  if (!node) return html`<${Asked} data=${node} error=${error} />`;
  return html`
    <div class="head gap"><h2>${name}</h2><${State} value=${node.running ? "running" : "down"} />
      ${node.mem_alarm && html`<${Tag} tone="bad">memory alarm<//>`}${node.disk_free_alarm && html`<${Tag} tone="bad">disk alarm<//>`}</div>
    <div class="cards">
      <${Card} title="Limits">
        <div class="stack">
          <${Meter} label="memory" value=${node.mem_used} limit=${node.mem_limit} text=${`memory: ${bytes(node.mem_used)} of ${bytes(node.mem_limit)}, where publishers wait`} />
          <${Meter} label="disk" value=${node.disk_free_limit} limit=${free} text=${`disk: ${bytes(free)} free, publishers wait below ${bytes(node.disk_free_limit)}`} />
          <${Meter} label="files" value=${node.fd_used} limit=${node.fd_total} text=${`files: ${count(node.fd_used)} of ${count(node.fd_total)}`} />
        </div><//>
      <${Card} title="Details"><${Facts} facts=${[
        ["Up", duration(node.uptime)], ["Process", node.os_pid], ["Processors", node.processors],
        ["Data", html`<code>${node.db_dir}</code>`],
        ["Configuration", (node.config_files ?? []).join(", ") || "defaults"],
        ["Log", (node.log_files ?? []).join(", ") || undefined],
        ["Reads", operations(node, "read")], ["Writes", operations(node, "write")], ["Syncs", operations(node, "sync")],
        ["Sockets", node.sockets_used === undefined ? undefined : `${count(node.sockets_used)} of ${count(node.sockets_total)}`],
      ]} /><//>
      <${Card}><${Chart} title="Memory" times=${used.times} series=${used.series} format=${bytes} /><//>
      <${Card}><${Chart} title="Files and sockets" times=${files.times} series=${files.series.filter(({ values }) => values.some((value) => value !== null))} format=${short} /><//>
      ${memory.data && html`<${Breakdown} memory=${memory.data.memory} />`}
    </div>`;
}

/** Of the engine's files, since the node began: how many, and how long one takes on average. */
function operations(node, name) {
  const number = node[`io_${name}_count`];
  return number ? `${count(number)}, ${Number(node[`io_${name}_avg_time`].toPrecision(2))} ms each` : "none";
}

/** Where the memory is; what is nothing is left out. */
function Breakdown({ memory }) {
  const total = Number(memory.total?.rss ?? memory.total ?? 0);
  const rows = Object.entries(memory)
    .filter(([name, value]) => !SKIPPED.has(name) && typeof value === "number" && value > 0)
    .map(([name, value]) => ({ name: USES[name] ?? name.replaceAll("_", " "), value }))
    .toSorted((a, b) => b.value - a.value);
  return html`
    <${Card} title=${`Memory by use: ${bytes(total)}`} wide>
      <${Table} caption="Memory by use" rows=${rows} empty="Not known." columns=${[
        { id: "name", title: "Use", sort: (row) => row.name, cell: (row) => row.name },
        { id: "value", title: "Bytes", number: true, sort: (row) => row.value, cell: (row) => bytes(row.value) },
        { id: "share", title: "Share", cell: (row) => html`<${Meter} label=${row.name} value=${row.value} limit=${total} warn=${2} bad=${2}
          text=${`${Math.round((row.value / total) * 100)} %`} />` },
      ]} />
    <//>`;
}
