// Topics: a receiver names patterns of routing keys.
#:package RabbitMQ.Client@7.2.2

using System.Text;
using RabbitMQ.Client;
using RabbitMQ.Client.Events;

string url = Environment.GetEnvironmentVariable("AMQP_URL") ?? "amqp://guest:guest@127.0.0.1:5672/%2f";
var factory = new ConnectionFactory { Uri = new Uri(url) };
await using var connection = await factory.CreateConnectionAsync();
await using var channel = await connection.CreateChannelAsync();
await (args[0] == "emit" ? Emit(args[1], args[2]) : Receive(args[1..]));

async Task Emit(string key, string text)
{
    await channel.ExchangeDeclareAsync("logs-topic", ExchangeType.Topic);
    await channel.BasicPublishAsync("logs-topic", key, Encoding.UTF8.GetBytes(text));
    Console.WriteLine($"sent {key} {text}");
}

async Task Receive(string[] patterns)
{
    await channel.ExchangeDeclareAsync("logs-topic", ExchangeType.Topic);
    string queue = await channel.QueueDeclareAsync(); // exclusive; the broker makes the name
    foreach (string pattern in patterns)
    {
        await channel.QueueBindAsync(queue, "logs-topic", pattern);
    }
    var consumer = new AsyncEventingBasicConsumer(channel);
    consumer.ReceivedAsync += (_, message) =>
    {
        Console.WriteLine($"received {message.RoutingKey} {Encoding.UTF8.GetString(message.Body.Span)}");
        return Task.CompletedTask;
    };
    await channel.BasicConsumeAsync(queue, autoAck: true, consumer);
    Console.WriteLine("waiting");
    await Task.Delay(Timeout.Infinite);
}
