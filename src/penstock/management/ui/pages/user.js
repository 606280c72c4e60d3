// One user: passwords and tags, lock-outs, permissions in virtual hosts and on topics, limits, deletion.

import { html } from "../lib/ui.js";
import { at, enc, send, useLive, user as me } from "../lib/api.js";
import { missing, when } from "../lib/format.js";
import { Asked, Card, Field, Form, Table, Tag, attempt, confirm, say } from "../lib/parts.js";
import { useNames } from "../lib/listing.js";
import { go } from "../lib/router.js";
import { LimitsOf } from "../lib/limits.js";
import { PermissionForm, PermissionsTable, TopicPermissionForm, TopicPermissionsTable } from "../lib/permissions.js";
import { TAG_HINT, tagsOf } from "./users.js";

export default function User({ params: { name } }) {
  const { data, error } = useLive(at("users", name));
  const permissions = useLive(`${at("users", name)}/permissions`);
  const topics = useLive(`${at("users", name)}/topic-permissions`);
  const vhosts = useNames("/api/vhosts?columns=name");
  const update = async ({ password, tags, none }) => {
    const body = { tags };
    if (none) body.password_hash = "";
    else if (password) body.password = password;
    await send("PUT", at("users", name), body);
    say(`User ${name} is changed.`);
  };
  const remove = async () => {
    const text = "Clients can no longer log in with that name.";
    if (!await confirm({ title: `Delete ${name}?`, text, action: "Delete user", type: name })) return;
    if (await attempt(() => send("DELETE", at("users", name)), `User ${name} is deleted.`)) go(["users"]);
  };
  return html`
    <p class="trail"><a href="#/users">Users</a></p>
    <div class="head"><h1>${name}</h1>${data && tagsOf(data).map((tag) => html`<${Tag} key=${tag}>${tag}<//>`)}
      <div class="actions"><button type="button" class="danger" disabled=${!data || me.value?.name === name} onClick=${remove}>Delete…</button></div></div>
    <${Asked} data=${data} error=${error} />
    ${data && html`
      <${Card} title="Permissions">
        <${PermissionsTable} answer=${permissions} show="vhost" />
        <h3 class="gap">Set a permission</h3><${PermissionForm} user=${name} vhosts=${vhosts} /><//>
      <${Card} title="Topic permissions">
        <${TopicPermissionsTable} answer=${topics} show="vhost" />
        <h3 class="gap">Set a topic permission</h3><${TopicPermissionForm} user=${name} vhosts=${vhosts} /><//>
      <div class="split">
        <${Card} title="Password and tags">
          <${Form} onSubmit=${update} submit="Change user" reset=${false} key=${tagsOf(data).join()}>
            <${Field} label="New password" name="password" kind="password" autocomplete="new-password" hint="empty: it stays as it is" />
            <${Field} label="Tags" name="tags" value=${tagsOf(data).join(",")} hint=${TAG_HINT} />
            <${Field} label="No password" name="none" kind="checkbox" hint="login with a password is then refused" />
          <//><//>
        <${Card} title="Limits"><${LimitsOf} kind="user" name=${name} /><//>
      </div>
      <${Passwords} name=${name} />
      <${Lockouts} name=${name} />`}`;
}

/** Two of them while one is rotated. */
function Passwords({ name }) {
  const path = `/api/penstock/users/${enc(name)}/passwords`;
  const { data, error } = useLive(path);
  const add = async ({ second }) => {
    await send("POST", path, { password: second });
    say(`Both passwords of ${name} log in now.`);
  };
  const drop = async (which) => {
    const text = `Clients that still have the ${which} password can no longer log in. Sessions of the web UI of this user end.`;
    if (!await confirm({ title: `Drop the ${which} password of ${name}?`, text, action: "Drop password" })) return;
    await attempt(() => send("DELETE", `${path}/${which}`), `The ${which} password of ${name} is dropped.`);
  };
  return html`
    <${Card} title="Rotating the password" className="gap">
      <${Asked} data=${data} error=${error} />
      <${Table} caption="Passwords" rows=${data} rowKey=${(row) => row.which} empty="No password." columns=${[
        { id: "which", title: "Password", cell: (row) => (data.length > 1 ? row.which : "the only one") },
        { id: "used", title: "Last used, since the start", cell: (row) => (row.last_used_ms ? when(row.last_used_ms) : missing) },
        { id: "do", title: html`<span class="unseen">Actions</span>`, number: true, cell: (row) => data.length > 1 && html`
          <button type="button" class="small danger" aria-label=${`Drop the ${row.which} password`} onClick=${() => drop(row.which)}>Drop…</button>` },
      ]} />
      ${data?.length === 1 && html`
        <${Form} inline onSubmit=${add} submit="Add a second password">
          <${Field} label="Second password" name="second" kind="password" autocomplete="new-password" required /><//>`}
    <//>`;
}

function Lockouts({ name }) {
  const { data } = useLive("/api/penstock/lockouts");
  const own = (data ?? []).filter((row) => row.user === name);
  if (own.length === 0) return null;
  const unlock = () => attempt(() => send("DELETE", at("penstock", "lockouts", name)), `${name} may log in again.`);
  return html`
    <p class="warning" role="status">Locked out after wrong passwords, ${own.map(({ address, until_ms: until }) =>
      `${address ? `from ${address}` : "from everywhere"} until ${when(until)}`).join("; ")}.
      ${" "}<button type="button" class="small" onClick=${unlock}>Unlock</button></p>`;
}
