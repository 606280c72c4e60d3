// Topics: a receiver names patterns of routing keys.
const amqp = require('amqplib');

const URL = process.env.AMQP_URL || 'amqp://guest:guest@127.0.0.1:5672/%2f';
const [role, ...words] = process.argv.slice(2);

async function emit(key, text) {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertExchange('logs-topic', 'topic', { durable: false });
  channel.publish('logs-topic', key, Buffer.from(text));
  console.log('sent', key, text);
  await channel.close();
  await connection.close();
}

async function receive(...patterns) {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertExchange('logs-topic', 'topic', { durable: false });
  const { queue } = await channel.assertQueue('', { exclusive: true });
  for (const pattern of patterns) await channel.bindQueue(queue, 'logs-topic', pattern);
  await channel.consume(queue, (message) => {
    console.log('received', message.fields.routingKey, message.content.toString());
  }, { noAck: true });
  console.log('waiting');
}

(role === 'emit' ? emit : receive)(...words);
