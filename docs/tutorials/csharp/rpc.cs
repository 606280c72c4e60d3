// Remote procedure call: a request is a message that says where the reply goes.
#:package RabbitMQ.Client@7.2.2

using System.Text;
using RabbitMQ.Client;
using RabbitMQ.Client.Events;

const string Replies = "amq.rabbitmq.reply-to"; // no queue: the broker passes replies to this channel

string url = Environment.GetEnvironmentVariable("AMQP_URL") ?? "amqp://guest:guest@127.0.0.1:5672/%2f";
var factory = new ConnectionFactory { Uri = new Uri(url) };
await using var connection = await factory.CreateConnectionAsync();
await using var channel = await connection.CreateChannelAsync();
await (args[0] == "call" ? Call(args[1]) : Serve());

long Fibonacci(int n)
{
    var (a, b) = (0L, 1L);
    for (int i = 0; i < n; i++)
    {
        (a, b) = (b, a + b);
    }
    return a;
}

async Task Serve()
{
    await channel.QueueDeclareAsync("rpc", durable: false, exclusive: false, autoDelete: false);
    await channel.BasicQosAsync(prefetchSize: 0, prefetchCount: 1, global: false);
    var consumer = new AsyncEventingBasicConsumer(channel);
    consumer.ReceivedAsync += async (_, request) =>
    {
        string asked = Encoding.UTF8.GetString(request.Body.Span);
        Console.WriteLine($"asked for {asked}");
        var reply = new BasicProperties { CorrelationId = request.BasicProperties.CorrelationId };
        byte[] answer = Encoding.UTF8.GetBytes(Fibonacci(int.Parse(asked)).ToString());
        await channel.BasicPublishAsync("", request.BasicProperties.ReplyTo!, mandatory: false, reply, answer);
        await channel.BasicAckAsync(request.DeliveryTag, multiple: false);
    };
    await channel.BasicConsumeAsync("rpc", autoAck: false, consumer);
    Console.WriteLine("waiting");
    await Task.Delay(Timeout.Infinite);
}

async Task Call(string n)
{
    var answer = new TaskCompletionSource<string>(TaskCreationOptions.RunContinuationsAsynchronously);
    var consumer = new AsyncEventingBasicConsumer(channel);
    consumer.ReceivedAsync += (_, reply) =>
    {
        if (reply.BasicProperties.CorrelationId == "1")
        {
            answer.SetResult(Encoding.UTF8.GetString(reply.Body.Span));
        }
        return Task.CompletedTask;
    };
    await channel.BasicConsumeAsync(Replies, autoAck: true, consumer); // before the request
    var request = new BasicProperties { ReplyTo = Replies, CorrelationId = "1" };
    await channel.BasicPublishAsync("", "rpc", mandatory: false, request, Encoding.UTF8.GetBytes(n));
    Console.WriteLine($"fibonacci({n}) = {await answer.Task}");
}
