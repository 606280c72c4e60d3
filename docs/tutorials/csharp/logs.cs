// Publish and subscribe: each receiver gets each message that is published while it runs.
#:package RabbitMQ.Client@7.2.2

using System.Text;
using RabbitMQ.Client;
using RabbitMQ.Client.Events;

string url = Environment.GetEnvironmentVariable("AMQP_URL") ?? "amqp://guest:guest@127.0.0.1:5672/%2f";
var factory = new ConnectionFactory { Uri = new Uri(url) };
await using var connection = await factory.CreateConnectionAsync();
await using var channel = await connection.CreateChannelAsync();
await (args[0] == "emit" ? Emit(args[1]) : Receive());

async Task Emit(string text)
{
    await channel.ExchangeDeclareAsync("logs", ExchangeType.Fanout);
    await channel.BasicPublishAsync("logs", "", Encoding.UTF8.GetBytes(text));
    Console.WriteLine($"sent {text}");
}

async Task Receive()
{
    await channel.ExchangeDeclareAsync("logs", ExchangeType.Fanout);
    string queue = await channel.QueueDeclareAsync(); // exclusive; the broker makes the name
    await channel.QueueBindAsync(queue, "logs", "");
    var consumer = new AsyncEventingBasicConsumer(channel);
    consumer.ReceivedAsync += (_, message) =>
    {
        Console.WriteLine($"received {Encoding.UTF8.GetString(message.Body.Span)}");
        return Task.CompletedTask;
    };
    await channel.BasicConsumeAsync(queue, autoAck: true, consumer);
    Console.WriteLine("waiting");
    await Task.Delay(Timeout.Infinite);
}
