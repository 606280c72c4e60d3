// Work queue: tasks are shared among workers and survive a crash of worker or broker.
const amqp = require('amqplib');

const URL = process.env.AMQP_URL || 'amqp://guest:guest@127.0.0.1:5672/%2f';
const [role, task] = process.argv.slice(2);

async function add() {
  const connection = await amqp.connect(URL);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue('tasks', { durable: true });
  channel.sendToQueue('tasks', Buffer.from(task), { persistent: true });
  await channel.waitForConfirms(); // the task is on disk
  console.log('added', task);
  await connection.close();
}

async function work() {
  const connection = await amqp.connect(URL);
  const channel = await connection.createChannel();
  await channel.assertQueue('tasks', { durable: true });
  await channel.prefetch(1); // the next task after the acknowledgement of this one
  await channel.consume('tasks', (message) => {
    const text = message.content.toString();
    const seconds = text.split('.').length - 1; // a second of work for each dot
    setTimeout(() => {
      console.log('done', text);
      channel.ack(message);
    }, seconds * 1000);
  });
  console.log('waiting');
}

(role === 'add' ? add : work)();
