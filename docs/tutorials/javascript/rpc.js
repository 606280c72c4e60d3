// Remote procedure call: a request is a message that says where the reply goes.
const amqp = require('amqplib');

const URL = process.env.AMQP_URL || 'amqp://guest:guest@127.0.0.1:5672/%2f';
const REPLIES = 'amq.rabbitmq.reply-to'; // no queue: the broker passes replies to this channel
const [role, n] = process.argv.slice(2);

function fibonacci(n) {
  let [a, b] = [0, 1];
  for (let i = 0; i < n; i += 1) [a, b] = [b, a + b];
  return a;
}

async function serve() {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertQueue('rpc', { durable: false });
  await channel.prefetch(1);
  await channel.consume('rpc', (message) => {
    const asked = message.content.toString();
    console.log('asked for', asked);
    const { replyTo, correlationId } = message.properties;
    channel.sendToQueue(replyTo, Buffer.from(String(fibonacci(Number(asked)))), { correlationId });
    channel.ack(message);
  });
  console.log('waiting');
}

async function call() {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.consume(REPLIES, async (message) => { // before the request
    if (message.properties.correlationId !== '1') return;
    console.log(`fibonacci(${n}) = ${message.content}`);
    await connection.close();
  }, { noAck: true });
  channel.sendToQueue('rpc', Buffer.from(n), { replyTo: REPLIES, correlationId: '1' });
}

(role === 'call' ? call : serve)();
