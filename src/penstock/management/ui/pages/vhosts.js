// Virtual hosts: separate worlds of exchanges and queues.

import { html } from "../lib/ui.js";
import { at, isAdministrator, send, useLive } from "../lib/api.js";
import { Asked, Card, Field, Form, Table, Tag, say } from "../lib/parts.js";
import { count } from "../lib/format.js";
import { link } from "../lib/router.js";

export default function Vhosts() {
  const { data, error } = useLive("/api/vhosts");
  const put = async ({ name, description, tags }) => {
    await send("PUT", at("vhosts", name), { description, tags });
    say(`Virtual host ${name} is created. Users have no access until you give them a permission on its page.`);
  };
  return html`
    <div class="head"><h1>Virtual hosts</h1></div>
    <${Asked} data=${data} error=${error} />
    <${Card}>
      <${Table} caption="Virtual hosts" rows=${data} columns=${[
        { id: "name", title: "Name", sort: (row) => row.name, cell: (row) => html`<a href=${link(["vhosts", row.name])}>${row.name}</a>` },
        { id: "description", title: "Description", cell: (row) => row.description },
        { id: "tags", title: "Tags", cell: (row) => (row.tags ?? []).map((tag) => html`<${Tag} key=${tag}>${tag}<//>`) },
        { id: "messages", title: "Messages", number: true, sort: (row) => row.messages, cell: (row) => count(row.messages) },
        { id: "tracing", title: "Firehose", cell: (row) => (row.tracing ? html`<${Tag} tone="warn">on<//>` : "off") },
        { id: "deletion", title: "Deletion", cell: (row) => (row.protected_from_deletion ? html`<${Tag}>protected<//>` : "allowed") },
        { id: "queues", title: "Queues", cell: (row) => html`<a href=${link(["queues"], { vhost: row.name })}>its queues</a>` },
      ]} />
    <//>
    ${isAdministrator() && html`
      <${Card} title="Add a virtual host">
        <${Form} onSubmit=${put} submit="Add virtual host">
          <${Field} label="Name" name="name" required />
          <${Field} label="Description" name="description" />
          <${Field} label="Tags" name="tags" hint="with commas between" />
        <//>
      <//>`}`;
}
