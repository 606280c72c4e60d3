// Users: their names and tags, and a form for a new one.

import { html } from "../lib/ui.js";
import { at, send, useLive } from "../lib/api.js";
import { Asked, Card, Field, Form, Table, Tag, say } from "../lib/parts.js";
import { missing } from "../lib/format.js";
import { link } from "../lib/router.js";

export const TAG_HINT = "administrator, monitoring, policymaker, management; none: no access to this page";

export const tagsOf = (row) =>
  (Array.isArray(row.tags) ? row.tags : row.tags.split(",")).filter(Boolean);

export default function Users() {
  const users = useLive("/api/users");
  const permissions = useLive("/api/permissions");
  const vhostsOf = (name) => permissions.data?.filter(({ user }) => user === name).map(({ vhost }) => vhost).join(", ");
  const guest = (users.data ?? []).some(({ name }) => name === "guest");
  const put = async ({ name, password, tags }) => {
    await send("PUT", at("users", name), { password, tags });
    say(`User ${name} is created. It has no access to a virtual host without a permission: give one on the user's page.`);
  };
  return html`
    <div class="head"><h1>Users</h1></div>
    <${Asked} ...${users} />
    ${guest && html`<p class="warning">The user guest is still there. It may log in from this machine only, but its password is public.</p>`}
    <${Card}>
      <${Table} caption="Users" rows=${users.data} columns=${[
        { id: "name", title: "Name", sort: (row) => row.name, cell: (row) => html`<a href=${link(["users", row.name])}>${row.name}</a>` },
        { id: "tags", title: "Tags", cell: (row) => tagsOf(row).map((tag) => html`<${Tag} key=${tag}>${tag}<//>`) },
        { id: "vhosts", title: "May enter", cell: (row) => (vhostsOf(row.name) ?? missing) || html`<${Tag} tone="warn">nowhere<//>` },
        { id: "password", title: "Password", cell: (row) => (row.password_hash ? "yes" : "none") },
      ]} />
    <//>
    <${Card} title="Add a user">
      <${Form} onSubmit=${put} submit="Add user">
        <${Field} label="Name" name="name" required />
        <${Field} label="Password" name="password" kind="password" autocomplete="new-password" required />
        <${Field} label="Tags" name="tags" hint=${TAG_HINT} />
      <//>
    <//>`;
}
