// Publish and subscribe: each receiver gets each message that is published while it runs.
const amqp = require('amqplib');

const URL = process.env.AMQP_URL || 'amqp://guest:guest@127.0.0.1:5672/%2f';
const [role, text] = process.argv.slice(2);

async function emit() {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertExchange('logs', 'fanout', { durable: false });
  channel.publish('logs', '', Buffer.from(text));
  console.log('sent', text);
  await channel.close();
  await connection.close();
}

async function receive() {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertExchange('logs', 'fanout', { durable: false });
  const { queue } = await channel.assertQueue('', { exclusive: true }); // the broker makes the name
  await channel.bindQueue(queue, 'logs', '');
  await channel.consume(queue, (message) => {
    console.log('received', message.content.toString());
  }, { noAck: true });
  console.log('waiting');
}

(role === 'emit' ? emit : receive)();
