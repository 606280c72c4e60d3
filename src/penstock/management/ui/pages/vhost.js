// One virtual host: permissions, limits, tracing, deletion.

import { html } from "../lib/ui.js";
import { at, isAdministrator, send, useLive } from "../lib/api.js";
import { Asked, Card, Facts, Tag, attempt, confirm } from "../lib/parts.js";
import { useNames } from "../lib/listing.js";
import { QueuedChart, RatesChart, sampled } from "../lib/stats.js";
import { go, link } from "../lib/router.js";
import { LimitsOf } from "../lib/limits.js";
import { PermissionForm, PermissionsTable, TopicPermissionForm, TopicPermissionsTable } from "../lib/permissions.js";

export default function VhostPage({ params: { name } }) {
  const { data, error } = useLive(`${at("vhosts", name)}?${sampled()}`);
  const admin = isAdministrator();
  const remove = async () => {
    const text = "Everything in it goes for good: exchanges, queues, messages, permissions, policies.";
    if (!await confirm({ title: `Delete the virtual host ${name}?`, text, action: "Delete virtual host", type: name })) return;
    if (await attempt(() => send("DELETE", at("vhosts", name)), `Virtual host ${name} is deleted.`)) go(["vhosts"]);
  };
  const trace = () => attempt(() => send("PUT", at("vhosts", name), { tracing: !data.tracing }), `The firehose is ${data.tracing ? "off" : "on"}.`);
  const guarded = data?.protected_from_deletion;
  const guard = () => attempt(() => send(guarded ? "DELETE" : "POST", `${at("vhosts", name)}/deletion/protection`), `Virtual host ${name} ${guarded ? "can be deleted" : "is protected from deletion"}.`);
  return html`
    <p class="trail"><a href="#/vhosts">Virtual hosts</a></p>
    <div class="head"><h1>${name}</h1><span class="where">${data?.description}</span>
      ${admin && html`<div class="actions">
        <button type="button" disabled=${!data} onClick=${trace}>${data?.tracing ? "Stop the firehose" : "Start the firehose"}</button>
        <button type="button" disabled=${!data} onClick=${guard}>${guarded ? "Allow deletion" : "Protect from deletion"}</button>
        <button type="button" class="danger" disabled=${!data || guarded || name === "/"} onClick=${remove}>Delete…</button></div>`}</div>
    <${Asked} data=${data} error=${error} />
    ${data && html`
      <div class="cards">
        ${data.messages !== undefined && html`<${Card}><${QueuedChart} id=${`vhost ${name}`} object=${data} /><//>`}
        ${data.message_stats && html`<${Card}><${RatesChart} id=${`vhost ${name}`} stats=${data.message_stats} /><//>`}
        <${Card} title="Details"><${Facts} facts=${[
          ["Tags", (data.tags ?? []).join(", ") || undefined],
          ["Firehose", data.tracing ? "on" : "off"],
          ["Deletion", guarded ? html`<${Tag}>protected<//>` : "allowed"],
          ["Queues", html`<a href=${link(["queues"], { vhost: name })}>show</a>`],
          ["Exchanges", html`<a href=${link(["exchanges"], { vhost: name })}>show</a>`],
        ]} /><//>
        ${admin && html`<${Card} title="Limits"><${LimitsOf} kind="vhost" name=${name} /><//>`}
      </div>
      ${admin && html`<${Permissions} name=${name} />`}`}`;
}

function Permissions({ name }) {
  const permissions = useLive(`${at("vhosts", name)}/permissions`);
  const topics = useLive(`${at("vhosts", name)}/topic-permissions`);
  const users = useNames("/api/users?columns=name");
  return html`
    <${Card} className="gap" title="Permissions">
      <${PermissionsTable} answer=${permissions} show="user" />
      <h3 class="gap">Set a permission</h3><${PermissionForm} vhost=${name} users=${users} /><//>
    <${Card} title="Topic permissions">
      <${TopicPermissionsTable} answer=${topics} show="user" />
      <h3 class="gap">Set a topic permission</h3><${TopicPermissionForm} vhost=${name} users=${users} /><//>`;
}
