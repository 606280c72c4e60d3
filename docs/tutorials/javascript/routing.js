// Routing: a receiver names the severities that it wants.
const amqp = require('amqplib');

const URL = process.env.AMQP_URL || 'amqp://guest:guest@127.0.0.1:5672/%2f';
const [role, ...words] = process.argv.slice(2);

async function emit(severity, text) {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertExchange('logs-direct', 'direct', { durable: false });
  channel.publish('logs-direct', severity, Buffer.from(text));
  console.log('sent', severity, text);
  await channel.close();
  await connection.close();
}

async function receive(...severities) {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertExchange('logs-direct', 'direct', { durable: false });
  const { queue } = await channel.assertQueue('', { exclusive: true });
  for (const severity of severities) await channel.bindQueue(queue, 'logs-direct', severity);
  await channel.consume(queue, (message) => {
    console.log('received', message.fields.routingKey, message.content.toString());
  }, { noAck: true });
  console.log('waiting');
}

(role === 'emit' ? emit : receive)(...words);
