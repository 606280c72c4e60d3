// The overview: first what needs a person, then totals, rates, memory and disk of the nodes, listeners.

import { html } from "../lib/ui.js";
import { isAdministrator, mayMonitor, scoped, useLive } from "../lib/api.js";
import { Asked, Card, Facts, Figure, Meter, State, Table, Tag, attempt } from "../lib/parts.js";
import { WEEK_S, QueuedChart, RatesChart, sampled } from "../lib/stats.js";
import { bytes, count, duration, missing, rate, some } from "../lib/format.js";
import { link } from "../lib/router.js";
import { exportTo } from "./definitions.js";

const CHURN = [
  ["connections opened", "connection_created"], ["connections closed", "connection_closed"],
  ["channels opened", "channel_created"], ["channels closed", "channel_closed"],
  ["queues declared", "queue_declared"], ["queues created", "queue_created"], ["queues deleted", "queue_deleted"],
];

// The tab of a queue's page that shows most of a finding.
const TABS = { unacknowledged: { tab: "consumers" } };

export default function Overview() {
  const { data, error } = useLive(`/api/overview?${sampled(undefined, WEEK_S)}`);
  const totals = data?.object_totals ?? {};
  const queued = data?.queue_totals;
  return html`
    <div class="head"><h1>Overview</h1>${isAdministrator() && html`<div class="actions">
      <button type="button" onClick=${() => attempt(() => exportTo())}>Export definitions</button></div>`}</div>
    <${Attention} />
    <${Asked} data=${data} error=${error} />
    <div class="figures">
      <${Figure} label="ready" value=${count(queued?.messages_ready)} hint="waiting for a consumer" href=${link(["queues"], { sort: "messages_ready", reverse: "1" })} />
      <${Figure} label="unacknowledged" value=${count(queued?.messages_unacknowledged)} href=${link(["queues"], { sort: "messages_unacknowledged", reverse: "1" })} />
      <${Figure} label="connections" value=${count(totals.connections)} hint="what publishes most comes first" href=${link(["connections"], { sort: "recv_oct_details.rate", reverse: "1" })} />
      <${Figure} label="channels" value=${count(totals.channels)} href="#/channels" />
      <${Figure} label="exchanges" value=${count(totals.exchanges)} href="#/exchanges" />
      <${Figure} label="queues" value=${count(totals.queues)} href="#/queues" />
      <${Figure} label="consumers" value=${count(totals.consumers)} href="#/consumers" />
    </div>
    <div class="cards">
      <${Card}><${QueuedChart} id="overview" object=${queued} /><//>
      <${Card}><${RatesChart} id="overview" stats=${data?.message_stats} known=${!!data} /><//>
      <${Growing} />
      ${mayMonitor() && html`<${Nodes} />`}
      ${data?.listeners && html`<${Listeners} listeners=${data.listeners} contexts=${data.contexts ?? []} />`}
      ${data?.churn_rates && html`<${Churn} churn=${data.churn_rates} />`}
    </div>`;
}

/** The findings of the broker, each with the page that shows its figure. */
function Attention() {
  const { data, error } = useLive("/api/penstock/attention");
  const judged = data?.not_judged.length === 0;
  return html`
    <${Card} title="Needs attention" className="attention">
      <${Asked} data=${data} error=${error} />
      ${data?.findings.length > 0 && html`<ul>${data.findings.map((one) => html`
        <li key=${one.kind + one.page} class=${one.is_alarm ? "bad" : "warn"}>
          <${Tag} tone=${one.is_alarm ? "bad" : "warn"}>${one.kind}<//> <a href=${link(one.page, TABS[one.kind])}>${one.sentence}</a></li>`)}</ul>`}
      ${data?.left_out > 0 && html`<p class="quiet">${some(data.left_out, "more finding")} of these kinds.</p>`}
      ${data && judged && data.findings.length === 0 && html`<p class="good">Nothing needs a person.</p>`}
      ${data?.not_judged.map((text) => html`<p class="quiet" key=${text}>Not judged: ${text}.</p>`)}
    <//>`;
}

/** The longest queues: an operator on call looks for them first. */
function Growing() {
  const path = `${scoped("/api/queues")}?page=1&page_size=5&sort=messages&sort_reverse=true&columns=name,vhost,messages,messages_details.rate,consumers,state`;
  const { data, error } = useLive(path);
  const rows = data?.items.filter((row) => row.messages > 0);
  return html`
    <${Card} title="Longest queues">
      <${Asked} data=${data} error=${error} />
      <${Table} caption="Longest queues" rows=${rows} rowKey=${(row) => row.vhost + "\n" + row.name} empty="All queues are empty." columns=${[
        { id: "name", title: "Queue", cell: (row) => html`<a href=${link(["queues", row.vhost, row.name])}>${row.name}</a>
          ${row.vhost !== "/" && html` <small>${row.vhost}</small>`}` },
        { id: "messages", title: "Messages", number: true, cell: (row) => count(row.messages) },
        { id: "change", title: "Change", number: true, cell: (row) => rate(row.messages_details?.rate) },
        { id: "consumers", title: "Consumers", number: true, cell: (row) => count(row.consumers) },
        { id: "state", title: "State", cell: (row) => html`<${State} value=${row.state} />` },
      ]} />
    <//>`;
}

function Nodes() {
  const { data, error } = useLive("/api/nodes?columns=name,running,os_pid,mem_used,mem_limit,mem_alarm,disk_free,disk_free_limit,disk_free_alarm,fd_used,fd_total,uptime");
  // Of the others of a cluster it is known here whether they run.
  const known = (cell) => (row) => (row.os_pid ? cell(row) : missing);
  return html`
    <${Card} title="Nodes">
      <${Asked} data=${data} error=${error} />
      <${Table} caption="Nodes" rows=${data} columns=${[
        { id: "name", title: "Node", cell: (row) => html`<a class="nowrap" href="#/nodes">${row.name}</a>` },
        { id: "state", title: "State", cell: (row) => html`<${State} value=${row.running ? "running" : "down"} />` },
        { id: "mem", title: "Memory", cell: known((row) => html`<${Meter} label="memory" value=${row.mem_used} limit=${row.mem_limit}
          text=${`${bytes(row.mem_used)} of ${bytes(row.mem_limit)}`} />`) },
        { id: "disk", title: "Disk free", cell: known((row) => html`${bytes(Number(row.disk_free))} <small>limit ${bytes(row.disk_free_limit)}</small>
          ${row.disk_free_alarm && html`<${Tag} tone="bad">alarm<//>`}`) },
        { id: "fd", title: "Files", number: true, minor: true, cell: known((row) => `${count(row.fd_used)} / ${count(row.fd_total)}`) },
        { id: "uptime", title: "Up", number: true, minor: true, cell: known((row) => duration(row.uptime)) },
      ]} />
    <//>`;
}

function Listeners({ listeners, contexts }) {
  const rows = [
    ...listeners.map(({ protocol, ip_address, port, certificate_expires_on }) =>
      ({ protocol, ip_address, port, certificate_expires_on })),
    ...contexts.map(({ description, ip, port }) => ({ protocol: description, ip_address: ip, port })),
  ];
  return html`
    <${Card} title="Listeners">
      <${Table} caption="Listeners" rows=${rows} rowKey=${(row) => row.protocol + row.ip_address + row.port} columns=${[
        { id: "protocol", title: "Protocol", cell: (row) => row.protocol, sort: (row) => row.protocol },
        { id: "ip", title: "Address", cell: (row) => html`<code>${row.ip_address}</code>` },
        { id: "port", title: "Port", number: true, cell: (row) => row.port, sort: (row) => Number(row.port) },
        { id: "expiry", title: "Certificate expires", cell: (row) => row.certificate_expires_on ?? "–",
          sort: (row) => row.certificate_expires_on ?? "" },
      ]} />
    <//>`;
}

function Churn({ churn }) {
  return html`
    <${Card} title="Churn since the start">
      <${Facts} facts=${CHURN.map(([name, field]) => [name, churn[field] === undefined ? undefined
        : html`${count(churn[field])} <small>${rate(churn[`${field}_details`]?.rate)}</small>`])} />
    <//>`;
}
