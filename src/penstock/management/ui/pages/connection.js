// One connection: its client, its rates, its channels, and a button to close it.

import { html } from "../lib/ui.js";
import { at, useLive } from "../lib/api.js";
import { Asked, Card, Facts, Figure, State, Table, attempt, confirm } from "../lib/parts.js";
import { Chart, samples, useHistory } from "../lib/chart.js";
import { CHANNEL_COLUMNS } from "../lib/channels.js";
import { closeConnection } from "../lib/consumers.js";
import { bytes, count, duration, plain, when } from "../lib/format.js";
import { go } from "../lib/router.js";
import { sampled } from "../lib/stats.js";
import { ShownTable } from "../lib/tables.js";

const OCTETS = [
  { label: "from client", field: "recv_oct", kind: "rate", color: "--c2" },
  { label: "to client", field: "send_oct", kind: "rate", color: "--c1" },
];
const perSecond = (value) => (value === undefined || value === null ? "–" : `${bytes(Math.round(value))}/s`);

export default function Connection({ params: { name } }) {
  const { data, error } = useLive(`${at("connections", name)}?${sampled(["data_rates"])}`);
  const { data: channels, error: noChannels } = useLive(`${at("connections", name)}/channels`);
  const own = useHistory(`octets ${name}`, data, OCTETS);
  const { times, series } = samples(data, OCTETS) ?? own;
  const close = async () => {
    const text = "An AMQP client is told why; most clients connect again at once.";
    if (!await confirm({ title: "Close this connection?", text, action: "Close connection" })) return;
    if (await attempt(() => closeConnection(name, "Closed in the web UI"), "The connection is closed.")) go(["connections"]);
  };
  const { capabilities, ...client } = data?.client_properties ?? {};
  return html`
    <p class="trail"><a href="#/connections">Connections</a></p>
    <div class="head"><h1>${data?.user_provided_name ?? name}</h1>${data && html`<${State} value=${data.state} />`}
      <div class="actions"><button type="button" class="danger" onClick=${close} disabled=${!data}>Close connection…</button></div></div>
    <${Asked} data=${data} error=${error} gone="This connection is closed." />
    ${data && html`
      <div class="figures">
        <${Figure} label="channels" value=${count(data.channels)} />
        <${Figure} label="received" value=${bytes(data.recv_oct)} />
        <${Figure} label="sent" value=${bytes(data.send_oct)} />
        <${Figure} label="in flow" value=${duration((data.time_in_flow_s ?? 0) * 1000)} hint="time it had to wait" />
      </div>
      <div class="cards">
        <${Card}><${Chart} title="Data rates" times=${times} series=${series} format=${perSecond} /><//>
        <${Card} title="Details"><${Facts} facts=${[
          ["Name", name], ["User", data.user], ["Virtual host", data.vhost], ["Node", data.node],
          ["Protocol", data.protocol], ["Authentication", data.auth_mechanism],
          ["TLS", data.ssl ? [data.ssl_protocol, data.ssl_cipher].filter(Boolean).join(", ") : "no"],
          ["Certificate", data.peer_cert_subject ?? undefined],
          ["Connected", when(data.connected_at)], ["Heartbeat", `${data.timeout} s`],
          ["Frame max", bytes(data.frame_max)], ["Channel max", count(data.channel_max)],
        ]} /><//>
        <${Card} title="Client"><${Facts} facts=${Object.entries(client).map(([key, value]) => [key, plain(value)])} />
          <h3 class="gap">Capabilities</h3><${ShownTable} table=${capabilities} /><//>
        <${Card} title="Channels" wide>
          <${Asked} data=${channels} error=${noChannels} />
          <${Table} caption="Channels" rows=${channels} empty="It has no channel open." columns=${sortedHere(CHANNEL_COLUMNS)} /><//>
      </div>`}`;
}

/** Columns that the server sorts, for a list that is here already. */
function sortedHere(columns) {
  return columns.filter(({ optional }) => !optional).map((column) => ({
    ...column,
    sort: column.sort && ((row) => column.sort.split(".").reduce((value, key) => value?.[key], row)),
  }));
}
