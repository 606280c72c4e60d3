// Argument tables as lines of text: "x-max-length = 1000". A value that reads as JSON is that,
// anything else is a text; quotes make a text of a number. Buttons write the usual keys.

import { html, useRef } from "./ui.js";
import { Field } from "./parts.js";
import { missing } from "./format.js";

export function parseTable(text) {
  const table = {};
  for (const line of (text ?? "").split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`"${line.trim()}": a line is a key, =, and a value`);
    table[line.slice(0, at).trim()] = parseValue(line.slice(at + 1).trim());
  }
  return table;
}

function parseValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function writeTable(table) {
  return Object.entries(table ?? {}).map(([key, value]) => `${key} = ${written(value)}`).join("\n");
}

function written(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  return typeof parseValue(value) === "string" ? value : JSON.stringify(value);
}

/** hints: [[key, example, what it does]] */
export function TableField({ label, name, value, hints = [], hint = "one “key = value” a line" }) {
  const box = useRef(null);
  const write = (key, example) => {
    const area = box.current.querySelector("textarea");
    const before = area.value.trimEnd();
    area.value = `${before}${before ? "\n" : ""}${key} = ${example}`;
    area.focus();
    area.setSelectionRange(area.value.length - String(example).length, area.value.length);
  };
  return html`
    <div class="full" ref=${box}>
      <${Field} kind="textarea" label=${label} name=${name} value=${writeTable(value)} hint=${hint} />
      ${hints.length > 0 && html`<div class="hints">${hints.map(([key, example, what]) => html`
        <button type="button" class="small" key=${key} title=${what} onClick=${() => write(key, example)}>${key}</button>`)}</div>`}
    </div>`;
}

/** A table to look at: short lines, one for each key. */
export function ShownTable({ table }) {
  const entries = Object.entries(table ?? {});
  if (entries.length === 0) return html`<span class="quiet">${missing}</span>`;
  return html`<span class="shown-table">${entries.map(([key, value]) => html`
    <span key=${key}><span class="quiet">${key}:</span> ${typeof value === "object" ? JSON.stringify(value) : String(value)}</span>`)}</span>`;
}

export const QUEUE_ARGUMENTS = [
  ["x-message-ttl", 60000, "ms after which a message is dropped or dead-lettered"],
  ["x-expires", 1800000, "ms without use after which the queue goes"],
  ["x-max-length", 10000, "messages it holds at most"],
  ["x-max-length-bytes", 104857600, "bytes of bodies it holds at most"],
  ["x-overflow", "reject-publish", "what happens at that limit: drop-head, reject-publish, reject-publish-dlx"],
  ["x-dead-letter-exchange", "dlx", "where the expired and rejected go"],
  ["x-dead-letter-routing-key", "dead", "and with which routing key"],
  ["x-max-priority", 10, "priorities from 0 to this"],
  ["x-queue-mode", "lazy", "lazy: messages rest on disk"],
  ["x-delivery-limit", 5, "deliveries after which a message is dead-lettered"],
  ["x-consumer-timeout", 1800000, "ms a consumer may hold a delivery; then its channel is closed"],
  ["x-message-deduplication", true, "a message whose x-deduplication-header is in the queue is dropped"],
  ["x-queue-type", "classic", "the only one"],
  ["x-queue-version", 2, "1 or 2, as RabbitMQ has them: no effect here"],
  ["x-single-active-consumer", true, "one consumer at a time, the others wait"],
  ["x-queue-master-locator", "min-masters", "of a cluster, on which node it is: client-local, min-masters, random"],
];
export const EXCHANGE_ARGUMENTS = [
  ["alternate-exchange", "unrouted", "gets what no binding wants"],
];
export const POLICY_KEYS = [
  ["message-ttl", 60000, "ms after which a message is dropped or dead-lettered"],
  ["expires", 1800000, "ms without use after which the queue goes"],
  ["max-length", 10000, "messages a queue holds at most"],
  ["max-length-bytes", 104857600, "bytes of bodies it holds at most"],
  ["overflow", "reject-publish", "drop-head, reject-publish or reject-publish-dlx"],
  ["dead-letter-exchange", "dlx", "where the expired and rejected go"],
  ["dead-letter-routing-key", "dead", "and with which routing key"],
  ["queue-mode", "lazy", "lazy: messages rest on disk"],
  ["delivery-limit", 5, "deliveries after which a message is dead-lettered"],
  ["consumer-timeout", 1800000, "ms a consumer may hold a delivery; then its channel is closed"],
  ["queue-version", 2, "1 or 2, as RabbitMQ has them: no effect here"],
  ["alternate-exchange", "unrouted", "of exchanges: gets what no binding wants"],
  ["ha-mode", "exactly", "copies of a queue: all, exactly, nodes"],
  ["ha-params", 2, "how many copies (exactly), or a list of nodes"],
  ["ha-sync-mode", "automatic", "automatic: a new mirror fetches what was there before; else manual"],
  ["ha-sync-batch-size", 4096, "messages that are sent to a mirror at a time"],
  ["ha-promote-on-shutdown", "when-synced", "always: also a mirror that lacks messages takes over from a node that stops"],
  ["ha-promote-on-failure", "when-synced", "always: also from one that fails, and messages are lost"],
  ["queue-master-locator", "min-masters", "where a new queue's master is: client-local, min-masters, random"],
  ["nsq-publish-mode", "fast", "of exchanges that are NSQ topics: durable, fast"],
  ["nsq-on-disconnect", "requeue", "of queues that are NSQ channels, what a lost consumer held: timeout, requeue"],
];
