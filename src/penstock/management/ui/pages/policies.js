// Policies and operator policies: settings that reach queues and exchanges by their names. While a
// pattern is typed, the broker says which names it would reach.

import { html, useEffect, useState } from "../lib/ui.js";
import { at, enc, get, isAdministrator, mayMakePolicies, scoped, send, useLive } from "../lib/api.js";
import { Asked, Card, Field, Form, Problem, Table, Tabs, attempt, confirm, say } from "../lib/parts.js";
import { useNames } from "../lib/listing.js";
import { count, some } from "../lib/format.js";
import { route } from "../lib/router.js";
import { ShownTable, TableField, parseTable, policyHints } from "../lib/tables.js";

const TYPING_MS = 250;

export default function Policies() {
  return html`
    <div class="head"><h1>Policies</h1></div>
    <${Tabs} label="Kinds of policies" tabs=${[
      { id: "policies", title: "Policies", draw: () => html`<${Kind} key="policies" kind="policies" />` },
      { id: "operator", title: "Operator policies", draw: () => html`<${Kind} key="operator" kind="operator-policies" />` },
    ]} />`;
}

function Kind({ kind }) {
  const { data, error } = useLive(scoped(`/api/penstock/${kind}`));
  const [edited, setEdited] = useState(null);
  const what = kind === "policies" ? "policy" : "operator policy";
  const remove = async (row) => {
    const text = "What it said no longer holds for the queues and exchanges it reached.";
    if (!await confirm({ title: `Delete the ${what} ${row.name}?`, text, action: "Delete" })) return;
    await attempt(() => send("DELETE", at(kind, row.vhost, row.name)), `The ${what} ${row.name} is deleted.`);
  };
  const may = kind === "policies" ? mayMakePolicies() : isAdministrator();
  return html`
    <${Asked} data=${data} error=${error} />
    <${Card}>
      <${Table} caption=${what} rows=${data} rowKey=${(row) => row.vhost + "\n" + row.name} empty=${`There is no ${what}.`} columns=${[
        { id: "name", title: "Name", sort: (row) => row.name, cell: (row) => html`<b>${row.name}</b>` },
        { id: "vhost", title: "Virtual host", sort: (row) => row.vhost, cell: (row) => row.vhost },
        { id: "pattern", title: "Pattern", cell: (row) => html`<code>${row.pattern}</code>` },
        { id: "apply", title: "Applies to", cell: (row) => row["apply-to"] },
        { id: "priority", title: "Priority", number: true, sort: (row) => row.priority, cell: (row) => count(row.priority) },
        { id: "reach", title: "In effect for", hint: "names that match and no policy of a higher priority has", sort: (row) => row.queues + row.exchanges,
          cell: (row) => html`<${Reach} kind=${kind} row=${row} />` },
        { id: "definition", title: "Definition", cell: (row) => html`<${ShownTable} table=${row.definition} />` },
        may && { id: "do", title: html`<span class="unseen">Actions</span>`, number: true, cell: (row) => html`
          <button type="button" class="small" aria-label=${`Edit ${row.name}`} onClick=${() => setEdited(row)}>Edit</button>${" "}
          <button type="button" class="small danger" aria-label=${`Delete ${row.name}`} onClick=${() => remove(row)}>Delete…</button>` },
      ].filter(Boolean)} />
    <//>
    ${may && html`<${Edit} key=${edited?.name ?? ""} kind=${kind} what=${what} edited=${edited} />`}`;
}

const reachOf = (row) =>
  [row.queues && some(row.queues, "queue"), row.exchanges && some(row.exchanges, "exchange")].filter(Boolean).join(", ");

/** How many names a policy applies to; opened, the names. */
function Reach({ kind, row }) {
  const [open, setOpen] = useState(false);
  if (!reachOf(row)) return "nothing";
  return html`
    <details onToggle=${(event) => setOpen(event.target.open)}>
      <summary>${reachOf(row)}</summary>
      ${open && html`<${Reached} path=${at("penstock", kind, row.vhost, row.name)} />`}
    </details>`;
}

function Reached({ path }) {
  const { data, error } = useLive(path);
  const names = data && [...data.queue_names, ...data.exchange_names];
  return html`<${Asked} data=${data} error=${error} />${data && html`<${Names} names=${names} total=${data.queues + data.exchanges} />`}`;
}

function Names({ names, total }) {
  return html`
    <ul class="names">${names.map((name, index) => html`<li key=${index}>${name}</li>`)}</ul>
    ${total > names.length && html`<p class="quiet">and ${count(total - names.length)} more</p>`}`;
}

function Edit({ kind, what, edited }) {
  const asked = route.value.query;
  const vhosts = useNames("/api/vhosts?columns=name");
  const start = { vhost: edited?.vhost ?? asked.vhost, pattern: edited?.pattern ?? asked.pattern ?? "", apply_to: edited?.["apply-to"] ?? "queues" };
  const [typed, setTyped] = useState(start);
  const listen = (event) => {
    const { name, value } = event.target;
    if (name in start) setTyped((old) => ({ ...old, [name]: value }));
  };
  const put = async (values) => {
    const body = {
      pattern: values.pattern, "apply-to": values.apply_to,
      priority: Number(values.priority || 0), definition: parseTable(values.definition),
    };
    await send("PUT", at(kind, values.vhost, values.name), body);
    say(`The ${what} ${values.name} holds.`);
  };
  if (vhosts.length === 0) return null;
  return html`
    <${Card} title=${edited ? `Change ${edited.name}` : `Set ${what === "policy" ? "a policy" : "an operator policy"}`}>
      <div class="split" onInput=${listen}>
        <${Form} onSubmit=${put} submit=${`Set ${what}`}>
          <${Field} label="Name" name="name" value=${edited?.name} required />
          <${Field} label="Virtual host" name="vhost" kind="select" options=${vhosts} value=${start.vhost} />
          <${Field} label="Pattern" name="pattern" value=${start.pattern} required hint="a regular expression, searched in the name" />
          <${Field} label="Applies to" name="apply_to" kind="select" value=${start.apply_to}
            options=${kind === "policies" ? ["queues", "classic_queues", "quorum_queues", "exchanges", "all"] : ["queues", "classic_queues", "quorum_queues"]} />
          <${Field} label="Priority" name="priority" kind="number" value=${edited?.priority ?? 0} hint="the highest that matches applies alone" />
          <${TableField} label="Definition" name="definition" value=${edited?.definition} hints=${policyHints(kind === "policies" ? "policy" : "operator_policy")} />
        <//>
        <${Preview} vhost=${typed.vhost ?? vhosts[0]} pattern=${typed.pattern} applyTo=${typed.apply_to} />
      </div>
    <//>`;
}

function Preview({ vhost, pattern, applyTo }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (pattern === "") {
      setFound(null);
      setError(null);
      return undefined;
    }
    let wanted = true;
    const timer = setTimeout(() => {
      const path = `/api/penstock/covered/${enc(vhost)}?pattern=${enc(pattern)}&apply_to=${applyTo}`;
      get(path).then(
        (answer) => { if (wanted) { setFound(answer); setError(null); } },
        (fault) => { if (wanted) setError(fault); },
      );
    }, TYPING_MS);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [vhost, pattern, applyTo]);
  return html`
    <div aria-live="polite" class="preview">
      <h3>It would reach</h3>
      <${Problem} error=${error} />
      ${!found && !error && html`<p class="empty">Type a pattern to see.</p>`}
      ${found && !error && html`
        <p>${count(found.count)} of ${count(found.of)} ${applyTo === "all" ? "queues and exchanges" : applyTo} in ${vhost}</p>
        <${Names} names=${found.names} total=${found.count} />`}
    </div>`;
}
