// Everything that is declared, as one file: out and in.

import { html, useState } from "../lib/ui.js";
import { at, get, send } from "../lib/api.js";
import { Card, Field, Form, confirm, say } from "../lib/parts.js";
import { useNames } from "../lib/listing.js";

const where = (vhost) => (vhost ? at("definitions", vhost) : "/api/definitions");

function save(name, value) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 2)], { type: "application/json" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Saves the definitions of all virtual hosts, or of one, as a file. */
export async function exportTo(file = "definitions.json", vhost = "") {
  const found = await get(where(vhost));
  save(file, found);
  const parts = ["users", "vhosts", "queues", "exchanges", "bindings", "policies"];
  say(`Exported: ${parts.filter((part) => found[part]).map((part) => `${found[part].length} ${part}`).join(", ")}.`);
}

export default function Definitions() {
  const names = useNames("/api/vhosts?columns=name");
  const vhosts = [["", "all"], ...names.map((name) => [name, name])];
  const [left, setLeft] = useState(null);
  const put = async ({ vhost, file }) => {
    if (!file) throw new Error("Choose a file first.");
    let value;
    try {
      value = JSON.parse(await file.text());
    } catch (error) {
      throw new Error(`${file.name} is no JSON: ${error.message}`);
    }
    const text = "The definitions of the file are added; users, policies and parameters of the same name are overwritten. Nothing is deleted.";
    if (!await confirm({ title: `Import ${file.name}?`, text, action: "Import", danger: false })) return;
    const answer = await send("POST", `${where(vhost)}?partial=true`, value);
    setLeft(answer?.left_out ?? []);
    say(`${file.name} is imported.`);
  };
  return html`
    <div class="head"><h1>Definitions</h1></div>
    <p class="quiet">Users, virtual hosts, permissions, exchanges, queues, bindings, policies and parameters in RabbitMQ’s format; no messages.</p>
    <div class="split gap">
      <${Card} title="Export">
        <${Form} onSubmit=${({ vhost, file }) => exportTo(file || undefined, vhost)} submit="Download" reset=${false}>
          <${Field} label="Virtual host" name="vhost" kind="select" options=${vhosts} />
          <${Field} label="File name" name="file" value="definitions.json" />
        <//><//>
      <${Card} title="Import">
        <${Form} onSubmit=${put} submit="Import…">
          <${Field} label="Virtual host" name="vhost" kind="select" options=${vhosts} hint="import into this virtual host, from a file of one virtual host" />
          <${Field} label="File" name="file" kind="file" accept="application/json,.json" />
        <//>
        ${left !== null && (left.length === 0 ? html`<p class="gap">Everything in it was taken.</p>` : html`
          <h3 class="gap">Left out</h3>
          <ul class="plain-list">${left.map((item, index) => html`<li key=${index}>${typeof item === "string" ? item : JSON.stringify(item)}</li>`)}</ul>`)}
      <//>
    </div>`;
}
