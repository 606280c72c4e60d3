// One exchange: its rates, where its messages go, a form to publish, and the question which queues
// a routing key would reach, answered by the broker's own router without publishing anything.

import { html, useState } from "../lib/ui.js";
import { at, enc, get, send, useLive } from "../lib/api.js";
import { Asked, Card, Empty, Facts, Field, Form, Tabs, attempt, confirm } from "../lib/parts.js";
import { BindForm, BindingGraph, BindingsTable } from "../lib/bindings.js";
import { PublishForm } from "../lib/publishing.js";
import { RatesChart, sampled } from "../lib/stats.js";
import { count } from "../lib/format.js";
import { go, route } from "../lib/router.js";
import { Way } from "../lib/way.js";
import { ShownTable, TableField, parseTable } from "../lib/tables.js";
import { ExchangeFeatures } from "./exchanges.js";

export default function Exchange({ params: { vhost, name } }) {
  const { data, error } = useLive(`${at("exchanges", vhost, name)}?${sampled()}`);
  const shown = name === "amq.default" ? "(default exchange)" : name;
  const remove = async () => {
    const text = "Its bindings go with it; what is published to it afterwards closes the publisher's channel.";
    if (!await confirm({ title: `Delete ${name}?`, text, action: "Delete exchange", type: name })) return;
    if (await attempt(() => send("DELETE", at("exchanges", vhost, name)), `Exchange ${name} is deleted.`)) go(["exchanges"]);
  };
  const builtIn = name.startsWith("amq.");
  return html`
    <p class="trail"><a href="#/exchanges">Exchanges</a> in virtual host ${vhost}</p>
    <div class="head"><h1>${shown}</h1><span class="where">${data?.type}</span>${data && html`<${ExchangeFeatures} exchange=${data} />`}
      ${!builtIn && html`<div class="actions"><button type="button" class="danger" onClick=${remove} disabled=${!data}>Delete…</button></div>`}</div>
    <${Asked} data=${data} error=${error} />
    ${data && html`<${Tabs} label=${`Exchange ${shown}`} tabs=${[
      { id: "overview", title: "Overview", draw: () => html`<${Overview} exchange=${data} />` },
      { id: "bindings", title: "Bindings", draw: () => html`<${Bindings} vhost=${vhost} name=${name} builtIn=${name === "amq.default"} />` },
      { id: "route", title: "Where would it go?", draw: () => html`<${WhereTo} vhost=${vhost} name=${name} type=${data.type} />` },
      { id: "publish", title: "Publish", draw: () => html`<${Card}><${PublishForm} vhost=${vhost} exchange=${name} routingKey="" /><//>` },
    ]} />`}`;
}

function Overview({ exchange }) {
  return html`
    <div class="cards">
      <${Card}><${RatesChart} id=${`exchange ${exchange.vhost} ${exchange.name}`} stats=${exchange.message_stats} /><//>
      <${Card} title="Details"><${Facts} facts=${[
        ["Type", exchange.type], ["Durable", exchange.durable ? "yes" : "no"],
        ["Auto-delete", exchange.auto_delete ? "yes" : "no"], ["Internal", exchange.internal ? "yes" : "no"],
        ["Policy", exchange.policy ?? undefined], ["Messages no channel has yet", exchange.messages === undefined ? undefined : count(exchange.messages)],
        ["Paused", exchange.paused ? "yes" : undefined], ["Delayed messages", exchange.messages_delayed === undefined ? undefined : count(exchange.messages_delayed)],
        ["Arguments", html`<${ShownTable} table=${exchange.arguments} />`],
      ]} /><//>
    </div>`;
}

function Bindings({ vhost, name, builtIn }) {
  const from = useLive(builtIn ? null : `${at("exchanges", vhost, name)}/bindings/source`);
  const into = useLive(builtIn ? null : `${at("exchanges", vhost, name)}/bindings/destination`);
  if (builtIn) return html`<${Card}><p>Every queue is bound to the default exchange by its name; there is nothing to bind or unbind.</p><//>`;
  return html`
    <${Card} title="Bindings">${from.data && into.data && html`<${BindingGraph} vhost=${vhost} name=${name} into=${into.data} from=${from.data} />`}
      ${from.data && into.data && from.data.length + into.data.length === 0 && html`<${Empty}>Nothing is bound.<//>`}<//>
    <${Card} title=${`From ${name} to`}>
      <${Asked} ...${from} />
      <${BindingsTable} bindings=${from.data} show="destination" empty="No bindings: messages published here are dropped or returned." /><//>
    <${Card} title=${`Into ${name} from`}>
      <${Asked} ...${into} />
      <${BindingsTable} bindings=${into.data} show="source" empty="No other exchange." /><//>
    <${Card} title="Bind a queue or an exchange to it"><${BindForm} vhost=${vhost} source=${name} /><//>`;
}

function WhereTo({ vhost, name, type }) {
  const [found, setFound] = useState(null);
  const ask = async ({ routing_key, headers }) => {
    const table = JSON.stringify(parseTable(headers));
    const query = `routing_key=${enc(routing_key)}&headers=${enc(table)}`;
    setFound(await get(`/api/penstock/route/${enc(vhost)}/${enc(name)}?${query}`));
  };
  return html`
    <${Card} title="Where would a message go?">
      <p class="quiet">The broker's router answers; nothing is published.</p>
      <${Form} onSubmit=${ask} submit="Ask" reset=${false}>
        <${Field} label="Routing key" name="routing_key" value=${route.value.query.key} />
        ${type === "headers" && html`<${TableField} label="Headers" name="headers" />`}
      <//>
    <//>
    ${found && html`<div aria-live="polite" class="gap"><${Way} vhost=${vhost} exchange=${name === "amq.default" ? "" : name} found=${found} /></div>`}`;
}
