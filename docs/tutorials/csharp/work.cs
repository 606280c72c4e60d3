// Work queue: tasks are shared among workers and survive a crash of worker or broker.
#:package RabbitMQ.Client@7.2.2

using System.Text;
using RabbitMQ.Client;
using RabbitMQ.Client.Events;

string url = Environment.GetEnvironmentVariable("AMQP_URL") ?? "amqp://guest:guest@127.0.0.1:5672/%2f";
var factory = new ConnectionFactory { Uri = new Uri(url) };
await using var connection = await factory.CreateConnectionAsync();
await (args[0] == "add" ? Add(args[1]) : Work());

async Task Add(string task)
{
    var confirms = new CreateChannelOptions(
        publisherConfirmationsEnabled: true, publisherConfirmationTrackingEnabled: true);
    await using var channel = await connection.CreateChannelAsync(confirms);
    await channel.QueueDeclareAsync("tasks", durable: true, exclusive: false, autoDelete: false);
    var persistent = new BasicProperties { Persistent = true };
    byte[] body = Encoding.UTF8.GetBytes(task);
    await channel.BasicPublishAsync("", "tasks", mandatory: false, persistent, body); // the task is on disk
    Console.WriteLine($"added {task}");
}

async Task Work()
{
    await using var channel = await connection.CreateChannelAsync();
    await channel.QueueDeclareAsync("tasks", durable: true, exclusive: false, autoDelete: false);
    // The next task comes after the acknowledgement of this one.
    await channel.BasicQosAsync(prefetchSize: 0, prefetchCount: 1, global: false);
    var consumer = new AsyncEventingBasicConsumer(channel);
    consumer.ReceivedAsync += async (_, message) =>
    {
        string task = Encoding.UTF8.GetString(message.Body.Span);
        await Task.Delay(1000 * task.Count(letter => letter == '.')); // a second of work for each dot
        Console.WriteLine($"done {task}");
        await channel.BasicAckAsync(message.DeliveryTag, multiple: false);
    };
    await channel.BasicConsumeAsync("tasks", autoAck: false, consumer);
    Console.WriteLine("waiting");
    await Task.Delay(Timeout.Infinite);
}
