// Hello world: one program sends a message, another receives it.
const amqp = require('amqplib');

const URL = process.env.AMQP_URL || 'amqp://guest:guest@127.0.0.1:5672/%2f';
const [role, text] = process.argv.slice(2);

async function send() {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertQueue('hello', { durable: false });
  channel.sendToQueue('hello', Buffer.from(text));
  console.log('sent', text);
  await channel.close();
  await connection.close();
}

async function receive() {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertQueue('hello', { durable: false });
  await channel.consume('hello', (message) => {
    console.log('received', message.content.toString());
  }, { noAck: true });
  console.log('waiting');
}

(role === 'send' ? send : receive)();
