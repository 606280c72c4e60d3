// nsqjs in the conversation of NSQ_CONVERSATION.md.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const { Reader, Writer } = require('nsqjs');

const WINDOW = 50;
const BATCH = 100;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function body(number, size) {
  const head = Buffer.from(`${String(number).padStart(8, '0')}:`);
  return Buffer.concat([head, Buffer.alloc(Math.max(0, size - head.length), number % 251)]);
}

// LAYERS are words with commas: tls, snappy, deflate; "plain" is none of them.
function configuration() {
  const layers = (process.env.LAYERS || 'plain').split(',');
  const options = {};
  if (layers.includes('tls')) {
    Object.assign(options, { tls: true, ca: fs.readFileSync(process.env.AUTHORITY) });
  }
  if (layers.includes('snappy')) options.snappy = true;
  if (layers.includes('deflate')) options.deflate = true;
  return options;
}

function connected(address) {
  const [host, port] = address.split(':');
  const writer = new Writer(host, Number(port), configuration());
  writer.connect();
  return new Promise((resolve, reject) => {
    writer.on('ready', () => resolve(writer));
    writer.on('error', reject);
  });
}

function publishOne(writer, topic, what) {
  return new Promise((resolve, reject) => {
    writer.publish(topic, what, (error) => (error ? reject(error) : resolve()));
  });
}

async function publish(address, topic, from, count, size) {
  const writer = await connected(address);
  const waiting = [];
  const half = from + Math.floor(count / 2);
  for (let number = from; number < half; number += 1) {
    waiting.push(publishOne(writer, topic, body(number, size)));
  }
  let confirmed = (await Promise.all(waiting)).length;
  for (let number = half; number < from + count; number += BATCH) {
    const end = Math.min(number + BATCH, from + count);
    const bodies = Array.from({ length: end - number }, (_, at) => body(number + at, size));
    await publishOne(writer, topic, bodies);
    confirmed += bodies.length;
  }
  writer.close();
  return { confirmed };
}

function reading(address, topic, channel, options, onMessage) {
  const reader = new Reader(topic, channel, {
    nsqdTCPAddresses: address,
    maxInFlight: WINDOW,
    ...configuration(),
    ...options,
  });
  reader.on('message', onMessage);
  reader.on('error', (error) => {
    throw error;
  });
  reader.connect();
  return reader;
}

async function consume(address, topic, channel, count) {
  const bodies = [];
  let attempts = 0;
  let reader;
  await new Promise((resolve) => {
    reader = reading(address, topic, channel, {}, (message) => {
      bodies.push(Buffer.from(message.body));
      attempts = Math.max(attempts, message.attempts);
      message.finish();
      if (bodies.length === count) resolve();
    });
  });
  await sleep(200);
  reader.close();
  bodies.sort(Buffer.compare);
  const sha256 = crypto.createHash('sha256').update(Buffer.concat(bodies)).digest('hex');
  return { count: bodies.length, sha256, attempts };
}

// A message is held by TOUCH beyond its timeout, sent back for later, and finished; another is
// published for later.
async function behave(address, topic) {
  const writer = await connected(address);
  await publishOne(writer, topic, 'held');
  const came = [];
  let back = 0;
  let told;
  const finished = new Promise((resolve) => {
    told = resolve;
  });
  const reader = reading(address, topic, 'c', { messageTimeout: 1000 }, async (message) => {
    came.push({ body: message.body.toString(), attempts: message.attempts, at: Date.now() });
    if (came.length === 1) {
      for (let number = 0; number < 4; number += 1) {
        await sleep(500);
        message.touch();
      }
      back = Date.now();
      message.requeue(700, false);
      return;
    }
    message.finish();
    told();
  });
  await finished;
  const began = Date.now();
  await new Promise((resolve, reject) => {
    // In a list: the library refuses a single one.
    writer.deferPublish(topic, ['later'], 600, (error) => (error ? reject(error) : resolve()));
  });
  while (came.length < 3) await sleep(20);
  await sleep(200);
  reader.close();
  writer.close();
  return {
    bodies: came.map((one) => one.body),
    attempts: came.map((one) => one.attempts),
    held: back - came[0].at > 1900,
    requeued: came[1].at - back >= 690,
    deferred: came[2].at - began >= 590,
  };
}

async function main([word, address, topic, ...rest]) {
  const numbers = rest.map(Number);
  if (word === 'publish') return publish(address, topic, ...numbers);
  if (word === 'consume') return consume(address, topic, rest[0], numbers[1]);
  return behave(address, topic);
}

main(process.argv.slice(2)).then((result) => {
  console.log(JSON.stringify(result));
  process.exit(0);
}, (error) => {
  console.error(error);
  process.exit(1);
});
