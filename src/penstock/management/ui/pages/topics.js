// NSQ's nouns: a topic is an exchange, its channels are queues. Numbers are those nsqd shows.

import { html } from "../lib/ui.js";
import { at, send, useLive, vhost } from "../lib/api.js";
import { Asked, Card, Empty, State, Table, attempt, confirm } from "../lib/parts.js";
import { count, some } from "../lib/format.js";
import { link } from "../lib/router.js";

const TOPIC = "x-nsq-topic";
const PREFIX = "nsq.";
const FIELDS = "name,vhost,messages,messages_ready,messages_unacknowledged,consumers,paused,state,message_stats";

export default function Topics() {
  const exchanges = useLive("/api/exchanges?columns=name,vhost,type,messages,paused");
  const queues = useLive(`/api/queues?page=1&page_size=500&name=${encodeURIComponent("^nsq\\..*:")}&use_regex=true&columns=${FIELDS}`);
  const topics = (exchanges.data ?? []).filter((one) => one.type === TOPIC && (!vhost.value || one.vhost === vhost.value));
  const channels = queues.data?.items;
  return html`
    <div class="head"><h1>NSQ topics</h1></div>
    <${Asked} data=${exchanges.data && queues.data} error=${exchanges.error ?? queues.error} />
    ${exchanges.data && topics.length === 0 && html`<${Card}><${Empty}>There are no topics.
      A topic is created by the first publish or subscription.<//><//>`}
    ${topics.map((topic) => html`<${Topic} key=${topic.vhost + topic.name} topic=${topic}
      channels=${channels?.filter(({ name, vhost }) => vhost === topic.vhost && name.startsWith(`${topic.name}:`))} />`)}
    ${queues.data && queues.data.filtered_count > 500 && html`<p class="warning">Only the first 500 channels are shown;
      <a href=${link(["queues"], { name: "^nsq\\.", regex: "1" })}>all of them</a> are among the queues.</p>`}`;
}

function Topic({ topic, channels }) {
  const name = topic.name.slice(PREFIX.length);
  return html`
    <${Card} title=${html`<a href=${link(["exchanges", topic.vhost, topic.name])}>${name}</a>`}>
      ${(topic.paused || topic.messages > 0) && html`<p>${topic.paused && html`<${State} value="paused" />${" "}`}
        ${some(topic.messages, "message")} in the topic, which no channel has yet.</p>`}
      <${Table} caption=${`Channels of ${name}`} rows=${channels} empty="No channel yet: its messages wait in the topic." columns=${[
        { id: "name", title: "Channel", sort: (row) => row.name,
          cell: (row) => html`<a href=${link(["topics", name, row.name.slice(topic.name.length + 1)], { vhost: row.vhost })}>${row.name.slice(topic.name.length + 1)}</a>` },
        { id: "queue", title: "Queue", cell: (row) => html`<a href=${link(["queues", row.vhost, row.name])}>${row.name}</a>` },
        { id: "depth", title: "Depth", number: true, sort: (row) => row.messages_ready, cell: (row) => count(row.messages_ready) },
        { id: "flight", title: "In flight", number: true, sort: (row) => row.messages_unacknowledged,
          cell: (row) => html`<a href=${link(["topics", name, row.name.slice(topic.name.length + 1)], { vhost: row.vhost })}>${count(row.messages_unacknowledged)}</a>` },
        { id: "messages", title: "Messages", number: true, hint: "published to it since the start", cell: (row) => count(row.message_stats?.publish) },
        { id: "clients", title: "Clients", number: true, sort: (row) => row.consumers, cell: (row) => count(row.consumers) },
        { id: "state", title: "State", cell: (row) => html`<${State} value=${row.paused ? "paused" : row.state} />` },
        { id: "do", title: html`<span class="unseen">Actions</span>`, number: true, cell: (row) => html`<${Actions} channel=${row} />` },
      ]} />
    <//>`;
}

function Actions({ channel }) {
  const path = at("queues", channel.vhost, channel.name);
  const action = channel.paused ? "resume" : "pause";
  const toggle = () => attempt(() => send("POST", `${path}/actions`, { action }), `${channel.name}: ${action}d.`);
  const clear = async () => {
    const text = `${some(channel.messages_ready, "message")} will be dropped for good.`;
    if (!await confirm({ title: `Empty ${channel.name}?`, text, action: "Empty" })) return;
    await attempt(() => send("DELETE", `${path}/contents`), `${channel.name} is empty.`);
  };
  const named = (verb) => `${verb} ${channel.name}`;
  return html`
    <button type="button" class="small" aria-label=${named(action)} onClick=${toggle}>${channel.paused ? "Resume" : "Pause"}</button>
    ${" "}<button type="button" class="small danger" aria-label=${named("Empty")} onClick=${clear}>Empty…</button>`;
}
