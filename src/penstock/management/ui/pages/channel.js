// One channel: its rates, its unacknowledged messages, and its consumers.

import { html } from "../lib/ui.js";
import { at, useLive } from "../lib/api.js";
import { Asked, Card, Facts, Figure, State } from "../lib/parts.js";
import { Consumers } from "../lib/consumers.js";
import { RatesChart, sampled } from "../lib/stats.js";
import { count, duration } from "../lib/format.js";
import { link } from "../lib/router.js";

export default function Channel({ params: { name } }) {
  const { data, error } = useLive(`${at("channels", name)}?${sampled()}`);
  return html`
    <p class="trail"><a href="#/channels">Channels</a></p>
    <div class="head"><h1>${name}</h1>${data && html`<${State} value=${data.state} />`}</div>
    <${Asked} data=${data} error=${error} gone="This channel is closed." />
    ${data && html`
      <div class="figures">
        <${Figure} label="unconfirmed" value=${count(data.messages_unconfirmed)} hint="published, not yet confirmed" />
        <${Figure} label="unacknowledged" value=${count(data.messages_unacknowledged)} hint="delivered, not yet acknowledged" />
        <${Figure} label="consumers" value=${count(data.consumer_count)} />
        <${Figure} label="in flow" value=${duration((data.time_in_flow_s ?? 0) * 1000)} hint="time it had to wait" />
      </div>
      <div class="cards">
        <${Card}><${RatesChart} id=${name} stats=${data.message_stats} /><//>
        <${Card} title="Details"><${Facts} facts=${[
          ["Connection", html`<a href=${link(["connections", data.connection_details.name])}>${data.connection_details.name}</a>`],
          ["User", data.user], ["Virtual host", data.vhost], ["Node", data.node], ["Number", data.number],
          ["Mode", data.confirm ? "confirms" : data.transactional ? "transactions" : "plain"],
          ["Prefetch of each consumer", data.prefetch_count || "∞"],
          ["Prefetch of all", data.global_prefetch_count || "∞"],
          ["Uncommitted messages", count(data.messages_uncommitted)],
          ["Uncommitted acks", count(data.acks_uncommitted)],
        ]} /><//>
        ${data.consumer_details && html`<${Card} title="Consumers" wide><${Consumers} consumers=${data.consumer_details} withQueue withChannel=${false} /><//>`}
      </div>`}`;
}
