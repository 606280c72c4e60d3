// One user: password and tags, permissions in virtual hosts and on topics, limits, deletion.

import { html } from "../lib/ui.js";
import { at, send, useLive, user as me } from "../lib/api.js";
import { Card, Field, Form, Problem, Table, Tag, attempt, confirm, say } from "../lib/parts.js";
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
    <${Problem} error=${error} />
    ${data && html`
      <${Card} title="Permissions">
        <${PermissionsTable} rows=${permissions.data} show="vhost" />
        <h3 class="gap">Set a permission</h3><${PermissionForm} user=${name} vhosts=${vhosts} /><//>
      <${Card} title="Topic permissions">
        <${TopicPermissionsTable} rows=${topics.data} show="vhost" />
        <h3 class="gap">Set a topic permission</h3><${TopicPermissionForm} user=${name} vhosts=${vhosts} /><//>
      <div class="split">
        <${Card} title="Password and tags">
          <${Form} onSubmit=${update} submit="Change user" reset=${false} key=${tagsOf(data).join()}>
            <${Field} label="New password" name="password" kind="password" autocomplete="new-password" hint="empty: it stays as it is" />
            <${Field} label="Tags" name="tags" value=${tagsOf(data).join(",")} hint=${TAG_HINT} />
            <${Field} label="No password" name="none" kind="checkbox" hint="login with a password is then refused" />
          <//><//>
        <${Card} title="Limits"><${LimitsOf} kind="user" name=${name} /><//>
      </div>`}`;
}
