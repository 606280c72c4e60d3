// Publishing one message by hand, and getting some the way a client would (which changes the queue).

import { html, useState } from "./ui.js";
import { at, send } from "./api.js";
import { Followed, beginTrace } from "./follow.js";
import { Empty, Facts, Field, Form, confirm, say } from "./parts.js";
import { Payload } from "./payload.js";
import { TableField, parseTable } from "./tables.js";

const PROPERTIES = [
  ["content_type", '"application/json"', "what the body is"],
  ["correlation_id", '"42"', "to match an answer"],
  ["reply_to", '"answers"', "where the answer goes"],
  ["expiration", '"60000"', "ms after which it expires; a text"],
  ["priority", 5, "0 to 9"],
  ["message_id", '"m-1"', "its own name"],
  ["type", '"order"', "what kind of message"],
];

export function PublishForm({ vhost, exchange, routingKey }) {
  const [trace, follow] = useState("");
  const publish = async (values) => {
    const properties = parseTable(values.properties);
    properties.delivery_mode ??= values.persistent ? 2 : 1;
    let headers = parseTable(values.headers);
    if (values.follow) {
      const begun = await beginTrace(headers);
      headers = begun.headers;
      follow(begun.trace);
    } else follow("");
    if (Object.keys(headers).length) properties.headers = headers;
    const { routed } = await send("POST", `${at("exchanges", vhost, exchange)}/publish`, {
      properties, routing_key: values.routing_key, payload: values.payload, payload_encoding: values.encoding,
    });
    say(routed ? "Published." : "Published, but routed nowhere: no binding wants that key.", routed ? "good" : "bad");
  };
  return html`
    <${Form} onSubmit=${publish} submit="Publish message" reset=${false}>
      <${Field} label="Routing key" name="routing_key" value=${routingKey} />
      <${Field} label="Payload encoding" name="encoding" kind="select" options=${[["string", "text"], ["base64", "Base64"]]} />
      <${Field} label="Persistent" name="persistent" kind="checkbox" value=${true} />
      <${Field} label="Follow it" name="follow" kind="checkbox" value=${false} hint="by a header traceparent; shows its way below" />
      <div class="full"><${Field} label="Payload" name="payload" kind="textarea" /></div>
      <${TableField} label="Headers" name="headers" />
      <${TableField} label="Properties" name="properties" hints=${PROPERTIES} />
    <//>
    ${trace && html`<div aria-live="polite" class="followed"><${Followed} trace=${trace} /></div>`}`;
}

const MODES = [
  ["ack_requeue_true", "take and put back (marks as redelivered)"],
  ["ack_requeue_false", "take out and acknowledge: gone"],
  ["reject_requeue_true", "reject and put back"],
  ["reject_requeue_false", "reject: gone or dead-lettered"],
];

export function GetMessages({ vhost, name }) {
  const [messages, setMessages] = useState(null);
  const take = async ({ ackmode, encoding, count }) => {
    const gone = ackmode.endsWith("false");
    const text = "The messages leave the queue. To look at them without taking them, use the tab Messages.";
    if (gone && !await confirm({ title: `Take ${count} out of ${name}?`, text, action: "Take out" })) return;
    setMessages(await send("POST", `${at("queues", vhost, name)}/get`, {
      count: Number(count), ackmode, encoding, truncate: 50_000,
    }));
  };
  return html`
    <${Form} onSubmit=${take} submit="Get messages" reset=${false}>
      <${Field} label="What happens to them" name="ackmode" kind="select" options=${MODES} />
      <${Field} label="Encoding" name="encoding" kind="select" options=${[["auto", "text if it is one"], ["base64", "Base64"]]} />
      <${Field} label="Messages" name="count" kind="number" min="1" max="1000" value="1" />
    <//>
    ${messages && html`<div aria-live="polite">
      ${messages.length === 0 && html`<${Empty}>The queue is empty.<//>`}
      ${messages.map((message, index) => html`<${Message} key=${index} message=${message} vhost=${vhost} />`)}
    </div>`}`;
}

function Message({ message, vhost }) {
  const properties = Array.isArray(message.properties) ? {} : message.properties;
  return html`
    <article class="message">
      <${Facts} facts=${[
        ["Exchange", message.exchange || "(default exchange)"],
        ["Routing key", message.routing_key],
        ["Redelivered", message.redelivered ? "yes" : "no"],
        ["Left behind it", message.message_count],
      ]} />
      <${Payload} message=${{ ...message, properties }} vhost=${vhost} />
    </article>`;
}
