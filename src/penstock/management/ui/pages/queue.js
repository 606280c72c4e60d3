// One queue, in tabs. Messages, flow, storage … are drawn by ../panels, listed in index.js.

import { html, useEffect, useState } from "../lib/ui.js";
import { at, send, useLive } from "../lib/api.js";
import { Asked, Card, Facts, Figure, Guarded, Problem, State, Tabs, attempt, confirm, say } from "../lib/parts.js";
import { ComparedChart, QueuedChart, RatesChart, sampled, useRate } from "../lib/stats.js";
import { bytes, count, duration, percent, rate, some, when } from "../lib/format.js";
import { go, link, route, setQuery } from "../lib/router.js";
import { Field, Form } from "../lib/parts.js";
import { BindForm, BindingsTable } from "../lib/bindings.js";
import { Consumers } from "../lib/consumers.js";
import { GetMessages, PublishForm } from "../lib/publishing.js";
import { ShownTable } from "../lib/tables.js";
import { Features, queueState } from "./queues.js";
import { queuePanels } from "./index.js";

export default function QueuePage({ params: { vhost, name } }) {
  const path = at("queues", vhost, name);
  const { data: queue, error } = useLive(`${path}?${sampled()}`);
  const gone = error?.status === 404;
  const isStream = queue?.type === "stream";
  const panels = queuePanels.filter(({ stream }) => stream === undefined || stream === isStream).map(({ id, title, module }) => ({
    id, title, draw: () => html`<${Panel} module=${module} vhost=${vhost} name=${name} queue=${queue} />`,
  }));
  return html`
    <p class="trail"><a href="#/queues">Queues</a> in virtual host ${vhost}</p>
    <div class="head"><h1>${name}</h1>
      ${queue && html`<${State} value=${queueState(queue)} /><${Features} queue=${queue} />`}</div>
    <${Asked} data=${queue} error=${error} gone="There is no such queue (any more)." />
    ${queue && !gone && html`
      <${Figures} queue=${queue} />
      <${Tabs} label=${`Queue ${name}`} tabs=${[
        { id: "overview", title: "Overview", draw: () => html`<${Overview} queue=${queue} />` },
        ...panels.filter(({ id }) => id === "flow" || id === "stream"),
        { id: "consumers", title: "Consumers", count: queue.consumers,
          draw: () => html`<${Card}><${Consumers} consumers=${queue.consumer_details ?? []} /><//>` },
        { id: "bindings", title: "Bindings", draw: () => html`<${Bindings} vhost=${vhost} name=${name} />` },
        { id: "publish", title: "Publish / get", draw: () => html`<div class="split">
          <${Card} title="Publish a message"><${PublishForm} vhost=${vhost} exchange="amq.default" routingKey=${name} /><//>
          ${!isStream && html`<${Card} title="Get messages"><${GetMessages} vhost=${vhost} name=${name} /><//>`}</div>` },
        ...panels.filter(({ id }) => id !== "flow" && id !== "stream"),
        { id: "settings", title: "Settings", draw: () => html`<${Settings} vhost=${vhost} name=${name} queue=${queue} />` },
      ]} />`}`;
}

/** A panel of another module, loaded when its tab is opened. */
function Panel({ module, ...rest }) {
  const [Drawn, setDrawn] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    import(`../panels/${module}`).then((found) => setDrawn(() => found.default), setError);
  }, [module]);
  if (error) return html`<${Problem} error=${error} />`;
  return Drawn && html`<${Guarded}><${Drawn} ...${rest} /><//>`;
}

function Figures({ queue }) {
  const publish = useRate(queue, "publish");
  const deliver = useRate(queue, "deliver_get");
  const ack = useRate(queue, "ack");
  return html`
    <div class="figures">
      <${Figure} label="ready" value=${count(queue.messages_ready)} />
      <${Figure} label="unacknowledged" value=${count(queue.messages_unacknowledged)} />
      <${Figure} label="total" value=${count(queue.messages)} />
      <${Figure} label="publish" value=${rate(publish)} />
      <${Figure} label="deliver / get" value=${rate(deliver)} />
      <${Figure} label="acknowledge" value=${rate(ack)} />
      <${Figure} label="consumers" value=${count(queue.consumers)}
        tone=${queue.consumers === 0 && queue.messages_ready > 0 ? "warn" : undefined} />
    </div>`;
}

const KINDS = [["Total", ""], ["Ready", "_ready"], ["Unacked", "_unacknowledged"], ["In memory", "_ram"],
  ["Persistent", "_persistent"], ["Paged out", "_paged_out"]];

function Overview({ queue }) {
  const id = `${queue.vhost} ${queue.name}`;
  return html`
    <div class="cards">
      <${Card}><${QueuedChart} id=${id} object=${queue} /><//>
      <${Card}><${RatesChart} id=${id} stats=${queue.message_stats} /><//>
      <${Compared} queue=${queue} />
      <${Card} title="Messages" wide>
        <div class="scroll" tabindex="0" role="group" aria-label="Messages and bytes"><table><caption class="unseen">Messages and bytes</caption>
          <thead><tr><th scope="col">Counted</th>${KINDS.map(([title]) => html`<th scope="col" class="number" key=${title}>${title}</th>`)}</tr></thead>
          <tbody>
            <tr><th scope="row">Messages</th>${KINDS.map(([title, end]) => html`<td class="number" key=${title}>${count(queue[`messages${end}`])}</td>`)}</tr>
            <tr><th scope="row">Bytes</th>${KINDS.map(([title, end]) => html`<td class="number" key=${title}>${bytes(queue[`message_bytes${end}`])}</td>`)}</tr>
          </tbody></table></div>
      <//>
      <${Card} title="Details" wide><${Facts} facts=${factsOf(queue)} /><//>
    </div>`;
}

/** The messages of this queue and of another one of its virtual host, which the address names. */
function Compared({ queue }) {
  const other = route.value.query.with;
  const { data, error } = useLive(other ? `${at("queues", queue.vhost, other)}?${sampled()}` : null);
  return html`
    <${Card} title="Compare with another queue">
      <${Form} inline submit="Compare" onSubmit=${setQuery} reset=${false} key=${other}>
        <${Field} label="Queue of this virtual host" name="with" value=${other} />
      <//>
      ${other && html`<${Asked} data=${data} error=${error} gone="There is no such queue." />`}
      ${data && html`<div class="followed"><${ComparedChart} objects=${[queue, data]} /></div>`}
    <//>`;
}

const isEmpty = (table) => !table || Object.keys(table).length === 0;

function factsOf(queue) {
  const head = queue.head_message_timestamp;
  return [
    ["Type", queue.type],
    ["Node", queue.node],
    ["Mirrors", queue.slave_nodes && html`<a href=${link(["queues", queue.vhost, queue.name], { tab: "mirrors" })}>${queue.slave_nodes.length
      ? `${queue.synchronised_slave_nodes.length} of ${queue.slave_nodes.length} synchronised` : "none"}</a>`],
    ["Synchronised so far", queue.sync_messages === undefined ? undefined : some(queue.sync_messages, "message")],
    ["Policy", queue.policy ? html`<a href="#/policies">${queue.policy}</a>` : "none"],
    ["Operator policy", queue.operator_policy ?? undefined],
    ["Memory", bytes(queue.memory ?? queue.penstock?.memory_bytes)],
    ["Consumer capacity", queue.consumer_utilisation === undefined ? undefined : percent(queue.consumer_utilisation)],
    ["Exclusive consumer", queue.exclusive_consumer_tag ?? undefined],
    ["Active consumer", queue.single_active_consumer_tag ?? undefined],
    ["Idle since", queue.idle_since],
    ["Oldest message", head ? when(head * 1000) : undefined],
    ["In flow since the start", queue.time_in_flow_s === undefined ? undefined : duration(queue.time_in_flow_s * 1000)],
    ["Stopped because", queue.penstock?.fault || undefined, "wide"],
    ["Arguments", isEmpty(queue.arguments) ? undefined : html`<${ShownTable} table=${queue.arguments} />`, "wide"],
    ["Effective policy", isEmpty(queue.effective_policy_definition) ? undefined
      : html`<${ShownTable} table=${queue.effective_policy_definition} />`, "wide"],
  ];
}

function Bindings({ vhost, name }) {
  const { data, error } = useLive(`${at("queues", vhost, name)}/bindings`);
  return html`
    <${Card} title=${`What comes into ${name}`}>
      <${Asked} data=${data} error=${error} />
      <${BindingsTable} bindings=${data} show="source" empty="Nothing is bound to it." />
    <//>
    <${Card} title="Bind it"><${BindForm} vhost=${vhost} destination=${name} kind="q" /><//>`;
}

function Settings({ vhost, name, queue }) {
  const path = at("queues", vhost, name);
  const act = (action) => attempt(() => send("POST", `${path}/actions`, { action }), `${name}: ${action}d.`);
  const purge = async () => {
    const text = `${some(queue.messages_ready, "ready message")} will be dropped for good. What consumers hold stays.`;
    if (!await confirm({ title: `Purge ${name}?`, text, action: "Purge" })) return;
    await attempt(() => send("DELETE", `${path}/contents`), `${name} is purged.`);
  };
  const remove = async ({ if_empty, if_unused }) => {
    const text = "The queue, its bindings and its messages go for good; its consumers are cancelled.";
    if (!await confirm({ title: `Delete ${name}?`, text, action: "Delete queue", type: name })) return;
    const asked = [if_empty && "if-empty=true", if_unused && "if-unused=true"].filter(Boolean).join("&");
    await send("DELETE", path + (asked && `?${asked}`));
    say(`Queue ${name} is deleted.`);
    go(["queues"]);
  };
  return html`
    <div class="split">
      <${Card} title="Effective settings">
        <${Facts} facts=${[
          ["Policy", queue.policy ?? "none matches"],
          ["Operator policy", queue.operator_policy ?? "none matches"],
          ["Durable", queue.durable ? "yes" : "no"],
          ["Auto-delete", queue.auto_delete ? "yes" : "no"],
          ["Exclusive", queue.exclusive ? "yes" : "no"],
        ]} />
        <h3 class="gap">Arguments</h3><${ShownTable} table=${queue.arguments} />
        <h3 class="gap">From policies</h3><${ShownTable} table=${queue.effective_policy_definition} />
        <p class="gap"><a class="button" href=${link(["policies"], { pattern: `^${escapeRegex(name)}$`, vhost })}>Set a policy for it</a></p>
      <//>
      <div class="stack">
        <${Card} title="Deliveries">
          <p class="quiet">A paused queue takes messages and gives none, also over a restart.</p>
          <p class="gap">${queue.paused
            ? html`<button type="button" class="primary" onClick=${() => act("resume")}>Resume</button>`
            : html`<button type="button" onClick=${() => act("pause")}>Pause</button>`}</p>
        <//>
        ${queue.type !== "stream" && html`<${Card} title="Purge">
          <p class="quiet">Drops the ready messages.</p>
          <p class="gap"><button type="button" class="danger" onClick=${purge}>Purge…</button></p>
        <//>`}
        <${Card} title="Delete">
          <${Form} inline danger onSubmit=${remove} submit="Delete…">
            <${Field} kind="checkbox" name="if_empty" label="only if empty" />
            <${Field} kind="checkbox" name="if_unused" label="only without consumers" />
          <//>
        <//>
      </div>
    </div>`;
}

const escapeRegex = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
