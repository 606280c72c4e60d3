// Hello world: one program sends a message, another receives it.
#:package RabbitMQ.Client@7.2.2

using System.Text;
using RabbitMQ.Client;
using RabbitMQ.Client.Events;

string url = Environment.GetEnvironmentVariable("AMQP_URL") ?? "amqp://guest:guest@127.0.0.1:5672/%2f";
var factory = new ConnectionFactory { Uri = new Uri(url) };
await using var connection = await factory.CreateConnectionAsync();
await using var channel = await connection.CreateChannelAsync();
await (args[0] == "send" ? Send(args[1]) : Receive());

async Task Send(string text)
{
    await channel.QueueDeclareAsync("hello", durable: false, exclusive: false, autoDelete: false);
    await channel.BasicPublishAsync("", "hello", Encoding.UTF8.GetBytes(text));
    Console.WriteLine($"sent {text}");
}

async Task Receive()
{
    await channel.QueueDeclareAsync("hello", durable: false, exclusive: false, autoDelete: false);
    var consumer = new AsyncEventingBasicConsumer(channel);
    consumer.ReceivedAsync += (_, message) =>
    {
        Console.WriteLine($"received {Encoding.UTF8.GetString(message.Body.Span)}");
        return Task.CompletedTask;
    };
    await channel.BasicConsumeAsync("hello", autoAck: true, consumer);
    Console.WriteLine("waiting");
    await Task.Delay(Timeout.Infinite);
}
