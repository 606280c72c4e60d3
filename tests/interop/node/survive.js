// amqp-connection-manager: it connects again, sets its channel up again, and keeps what is
// published meanwhile.  What was on its way when the connection broke it gives back as an error.
'use strict';

const manager = require('amqp-connection-manager');

const PREFETCH = 50;
const IN_FLIGHT = 20;

async function survive(url, queue, count, body, options) {
  const exchange = `${queue}-x`;
  const received = new Set();
  let reconnects = -1;
  let confirmed = 0;
  let hear;
  const news = new Promise((resolve) => { hear = resolve; });
  const connection = manager.connect([url], { reconnectTimeInSeconds: 0.1 });
  connection.on('connect', () => { reconnects += 1; });
  const channel = connection.createChannel({
    async setup(bare) {
      await bare.assertExchange(exchange, 'topic', { durable: true });
      await bare.assertQueue(queue, { durable: true });
      await bare.bindQueue(queue, exchange, 'job.#');
      const mine = await bare.assertQueue('', { exclusive: true });
      await bare.bindQueue(mine.queue, exchange, 'news.#');
      await bare.prefetch(PREFETCH);
      await bare.consume(queue, (message) => {
        if (message === null) return;
        received.add(Number(message.content.subarray(0, 8)));
        try {
          bare.ack(message);
        } catch (error) {
          // The channel is gone: it will be delivered again.
        }
      });
      await bare.consume(mine.queue, (message) => message && hear(message.content.toString()), { noAck: true });
    },
  });
  await channel.waitForConnect();

  async function certainly(...message) {
    for (;;) {
      try {
        return await channel.publish(exchange, ...message);
      } catch (error) {
        if (error.message !== 'channel closed') throw error;
      }
    }
  }

  let next = 0;
  async function publisher() {
    while (next < count) {
      const number = next;
      next += 1;
      await certainly(`job.${number}`, body(number, 100), options(number));
      confirmed += 1;
      if (confirmed === 10) console.log('started');
      if (confirmed === Math.floor(count / 2)) console.log('halfway');
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, publisher));
  while (received.size < count) await new Promise((resolve) => setTimeout(resolve, 20));
  await channel.publish(exchange, 'news.end', Buffer.from('the end'));
  const result = { confirmed, received: received.size, reconnects, news: await news };
  await channel.close();
  await connection.close();
  return result;
}

module.exports = survive;
