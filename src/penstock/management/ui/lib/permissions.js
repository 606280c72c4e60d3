// Permissions: three patterns of names a user may configure, write to and read from.

import { html } from "./ui.js";
import { at, send } from "./api.js";
import { Asked, Field, Form, Table, attempt, confirm, say } from "./parts.js";
import { link } from "./router.js";

const who = (show) => (show === "vhost"
  ? { id: "vhost", title: "Virtual host", sort: (row) => row.vhost, cell: (row) => html`<a href=${link(["vhosts", row.vhost])}>${row.vhost}</a>` }
  : { id: "user", title: "User", sort: (row) => row.user, cell: (row) => html`<a href=${link(["users", row.user])}>${row.user}</a>` });
const pattern = (id, title) => ({ id, title, cell: (row) => html`<code>${row[id] || "^$"}</code>` });

async function clear(kind, row) {
  const text = `${row.user} loses this permission in ${row.vhost}.`;
  if (!await confirm({ title: "Clear the permission?", text, action: "Clear" })) return;
  await attempt(() => send("DELETE", at(kind, row.vhost, row.user)), "The permission is cleared.");
}

const clearing = (kind) => ({
  id: "do", title: html`<span class="unseen">Actions</span>`, number: true,
  cell: (row) => html`<button type="button" class="small danger" aria-label=${`Clear ${row.user} in ${row.vhost}`} onClick=${() => clear(kind, row)}>Clear…</button>`,
});

/** show: "vhost" on a user's page, "user" on that of a virtual host. */
export const PermissionsTable = ({ answer, show }) => html`
  <${Asked} ...${answer} />
  <${Table} caption="Permissions" rows=${answer.data} rowKey=${(row) => row.user + "\n" + row.vhost} empty="None: no entry."
    columns=${[who(show), pattern("configure", "Configure"), pattern("write", "Write"), pattern("read", "Read"), clearing("permissions")]} />`;

export const TopicPermissionsTable = ({ answer, show }) => html`
  <${Asked} ...${answer} />
  <${Table} caption="Topic permissions" rows=${answer.data} rowKey=${(row) => [row.user, row.vhost, row.exchange].join("\n")} empty="None: every routing key is allowed."
    columns=${[who(show), { id: "exchange", title: "Exchange", cell: (row) => row.exchange || "(default exchange)" },
      pattern("write", "Write"), pattern("read", "Read"), clearing("topic-permissions")]} />`;

const Whom = ({ user, vhost, users, vhosts }) => html`
  ${user === undefined && html`<${Field} label="User" name="user" kind="select" options=${users} />`}
  ${vhost === undefined && html`<${Field} label="Virtual host" name="vhost" kind="select" options=${vhosts} />`}`;

export function PermissionForm({ user, vhost, users = [], vhosts = [] }) {
  const put = async (values) => {
    const { configure, write, read } = values;
    await send("PUT", at("permissions", vhost ?? values.vhost, user ?? values.user), { configure, write, read });
    say("The permission holds.");
  };
  return html`
    <${Form} onSubmit=${put} submit="Set permission" reset=${false}>
      <${Whom} user=${user} vhost=${vhost} users=${users} vhosts=${vhosts} />
      <${Field} label="Configure" name="configure" value=".*" />
      <${Field} label="Write" name="write" value=".*" />
      <${Field} label="Read" name="read" value=".*" />
    <//>`;
}

export function TopicPermissionForm({ user, vhost, users = [], vhosts = [] }) {
  const put = async (values) => {
    const { exchange, write, read } = values;
    await send("PUT", at("topic-permissions", vhost ?? values.vhost, user ?? values.user), { exchange, write, read });
    say("The topic permission holds.");
  };
  return html`
    <${Form} onSubmit=${put} submit="Set topic permission" reset=${false}>
      <${Whom} user=${user} vhost=${vhost} users=${users} vhosts=${vhosts} />
      <${Field} label="Exchange" name="exchange" value="amq.topic" />
      <${Field} label="Write" name="write" value=".*" hint="routing keys of publishes" />
      <${Field} label="Read" name="read" value=".*" hint="routing keys of bindings" />
    <//>`;
}
