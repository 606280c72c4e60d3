// amqplib in the conversation of CONVERSATION.md.
'use strict';

const crypto = require('node:crypto');
const amqp = require('amqplib');

const PREFETCH = 50;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const print = (result) => console.log(JSON.stringify(result));

function body(number, size) {
  const head = Buffer.from(`${String(number).padStart(8, '0')}:`);
  return Buffer.concat([head, Buffer.alloc(Math.max(0, size - head.length), number % 251)]);
}

function options(number) {
  return {
    persistent: true,
    contentType: 'text/plain',
    messageId: `m-${number}`,
    headers: { number, text: 'grüße', flag: true, nested: { list: [1, 'two'] } },
  };
}

// A connection whose loss is seen by whoever awaits it, not by the process.
async function connect(url) {
  const connection = await amqp.connect(url);
  connection.on('error', () => {});
  return connection;
}

async function confirmChannel(connection) {
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
  return channel;
}

async function publish(url, queue, from, count, size) {
  const connection = await connect(url);
  const channel = await confirmChannel(connection);
  await channel.assertQueue(queue, { durable: true });
  let confirmed = 0;
  for (let number = from; number < from + count; number += 1) {
    channel.sendToQueue(queue, body(number, size), options(number), (error) => {
      confirmed += error ? 0 : 1;
    });
  }
  await channel.waitForConfirms();
  await connection.close();
  return { confirmed };
}

async function consume(url, queue, count) {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  await channel.prefetch(PREFETCH);
  const numbers = [];
  const hash = crypto.createHash('sha256');
  let redelivered = 0;
  let properties = null;
  await new Promise((resolve, reject) => {
    channel.on('error', reject);
    channel.consume(queue, (message) => {
      numbers.push(parseInt(message.content.subarray(0, 8).toString(), 10));
      hash.update(message.content);
      redelivered += message.fields.redelivered ? 1 : 0;
      properties = properties || message.properties;
      channel.ack(message);
      if (numbers.length === count) resolve();
    });
  });
  await channel.close();
  await connection.close();
  return {
    numbers,
    sha256: hash.digest('hex'),
    redelivered,
    properties: {
      delivery_mode: properties.deliveryMode,
      content_type: properties.contentType,
      message_id: properties.messageId,
      headers: properties.headers,
    },
  };
}

function offsetOf(text) {
  if (text.startsWith('#')) return Number(text.slice(1));
  if (text.startsWith('@')) return { '!': 'timestamp', value: Number(text.slice(1)) };
  return text;
}

async function stream(url, queue, offset, count, consumerTag) {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  await channel.prefetch(PREFETCH);
  const offsets = [];
  const args = { 'x-stream-offset': offsetOf(offset) };
  if (consumerTag) args['x-stream-automatic-offset-tracking'] = true;
  await new Promise((resolve, reject) => {
    channel.on('error', reject);
    channel.consume(queue, (message) => {
      if (offsets.length === Number(count)) return;
      offsets.push(message.properties.headers['x-stream-offset']);
      channel.ack(message);
      if (offsets.length === Number(count)) resolve();
    }, { consumerTag, arguments: args }).then(() => console.log('consuming'));
  });
  await channel.close();
  await connection.close();
  return { offsets };
}

// What the server closes a channel with; amqplib quotes it in the error's message.
async function refusal(connection, act) {
  const channel = await connection.createChannel();
  const error = new Promise((resolve) => channel.on('error', resolve));
  act(channel).catch(() => {});
  const said = await error;
  return { code: said.code, text: /with message "(.*)"/s.exec(said.message)[1] };
}

async function mandatory(channel, queue) {
  let returned = null;
  channel.on('return', (message) => {
    returned = {
      code: message.fields.replyCode,
      text: message.fields.replyText,
      key: message.fields.routingKey,
      body: message.content.toString(),
    };
  });
  let beforeConfirm = false;
  channel.publish('', `${queue}-nobody`, Buffer.from('come back'), { mandatory: true }, () => {
    beforeConfirm = returned !== null;
  });
  await channel.waitForConfirms();
  return { ...returned, before_confirm: beforeConfirm };
}

async function settle(channel, queue) {
  await channel.assertQueue(queue, { durable: true });
  for (const text of ['one', 'two', 'three']) channel.sendToQueue(queue, Buffer.from(text));
  await channel.waitForConfirms();
  const seen = [];
  const get = async () => {
    const message = await channel.get(queue);
    seen.push(`${message.content} ${message.fields.redelivered} ${message.fields.messageCount}`);
    return message;
  };
  channel.nack(await get(), false, true);
  channel.reject(await get(), false);
  channel.ack(await get());
  channel.ack(await get());
  seen.push((await channel.get(queue)) === false ? 'empty' : 'more');
  return seen;
}

async function bound(channel, queue) {
  await channel.assertExchange(`${queue}-up`, 'topic', { autoDelete: true });
  await channel.assertExchange(`${queue}-down`, 'fanout', { autoDelete: true });
  await channel.bindExchange(`${queue}-down`, `${queue}-up`, 'a.*');
  await channel.bindQueue(queue, `${queue}-down`, '');
  channel.publish(`${queue}-up`, 'a.b', Buffer.from('through two'));
  channel.publish(`${queue}-up`, 'b.b', Buffer.from('nowhere'));
  await channel.waitForConfirms();
  const message = await channel.get(queue, { noAck: true });
  return message.content.toString();
}

async function behave(url, queue) {
  const connection = await connect(`${url}?heartbeat=1`);
  const other = await connect(url);
  const channel = await confirmChannel(connection);
  const result = {
    returned: await mandatory(channel, queue),
    settled: await settle(channel, queue),
    bound: await bound(channel, queue),
  };
  await channel.assertQueue(`${queue}-mine`, { exclusive: true });
  result.missing = await refusal(connection, (c) => c.checkQueue(`${queue}-missing`));
  result.locked = await refusal(other, (c) => c.checkQueue(`${queue}-mine`));
  await sleep(2500);
  result.deleted = (await channel.deleteQueue(queue)).messageCount;
  await other.close();
  await connection.close();
  return result;
}

// Sends all its requests first; the answers may come in any order.
async function ask(url, queue, count) {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  const answers = [];
  let heard = 0;
  const all = new Promise((resolve) => {
    channel.consume('amq.rabbitmq.reply-to', (message) => {
      answers[Number(message.properties.correlationId)] = message.content.toString();
      heard += 1;
      if (heard === count) resolve();
    }, { noAck: true });
  });
  for (let number = 0; number < count; number += 1) {
    channel.sendToQueue(queue, Buffer.from(`question ${number}`), {
      replyTo: 'amq.rabbitmq.reply-to',
      correlationId: String(number),
    });
  }
  await all;
  await connection.close();
  return { answers };
}

async function cancelled(url, queue) {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  await new Promise((resolve) => {
    const hear = (message) => message === null && resolve();
    channel.consume(queue, hear).then(() => console.log('consuming'));
  });
  const { messageCount } = await channel.assertQueue(queue, { durable: true });
  await connection.close();
  return { messages: messageCount };
}

async function endure(url, queue, count) {
  let confirmed = 0;
  let reconnects = -1;
  while (confirmed < count) {
    try {
      const connection = await connect(url);
      reconnects += 1;
      const lost = new Promise((_, reject) => connection.on('close', () => reject(new Error('lost'))));
      lost.catch(() => {});
      const channel = await confirmChannel(connection);
      await channel.assertQueue(queue, { durable: true });
      while (confirmed < count) {
        channel.sendToQueue(queue, body(confirmed, 100), options(confirmed));
        await Promise.race([channel.waitForConfirms(), lost]);
        confirmed += 1;
        if (confirmed === 10) console.log('started');
      }
      await connection.close();
    } catch (error) {
      await sleep(50);
    }
  }
  return { confirmed, reconnects };
}

const words = {
  publish,
  consume,
  behave,
  ask,
  stream,
  cancelled,
  endure,
  survive: (url, queue, count) => require('./survive')(url, queue, count, body, options),
};
const [word, url, queue, ...rest] = process.argv.slice(2);
words[word](url, queue, ...(word === 'stream' ? rest : rest.map(Number))).then(print, (error) => {
  console.error(error);
  process.exit(1);
});
