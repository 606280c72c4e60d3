<?php
// Remote procedure call: a request is a message that says where the reply goes.
require 'vendor/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

function connect(): AMQPStreamConnection
{
    $url = parse_url(getenv('AMQP_URL') ?: 'amqp://guest:guest@127.0.0.1:5672/%2f');
    $vhost = rawurldecode(substr($url['path'], 1));
    return new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass'], $vhost);
}

const REPLIES = 'amq.rabbitmq.reply-to'; // no queue: the broker passes replies to this channel

function fibonacci(int $n): int
{
    [$a, $b] = [0, 1];
    for ($i = 0; $i < $n; $i++) {
        [$a, $b] = [$b, $a + $b];
    }
    return $a;
}

function serve(): void
{
    $channel = connect()->channel();
    $channel->queue_declare('rpc', auto_delete: false);
    $channel->basic_qos(0, 1, false);
    $channel->basic_consume('rpc', callback: function (AMQPMessage $request) use ($channel): void {
        echo "asked for {$request->getBody()}\n";
        $answer = (string) fibonacci((int) $request->getBody());
        $reply = new AMQPMessage($answer, ['correlation_id' => $request->get('correlation_id')]);
        $channel->basic_publish($reply, '', $request->get('reply_to'));
        $request->ack();
    });
    echo "waiting\n";
    $channel->consume();
}

function call(string $n): void
{
    $connection = connect();
    $channel = $connection->channel();
    $answer = null;
    $handle = function (AMQPMessage $message) use (&$answer): void {
        if ($message->get('correlation_id') === '1') {
            $answer = $message->getBody();
        }
    };
    $channel->basic_consume(REPLIES, no_ack: true, callback: $handle); // before the request
    $request = new AMQPMessage($n, ['reply_to' => REPLIES, 'correlation_id' => '1']);
    $channel->basic_publish($request, '', 'rpc');
    while ($answer === null) {
        $channel->wait();
    }
    echo "fibonacci($n) = $answer\n";
    $connection->close();
}

$argv[1] === 'call' ? call($argv[2]) : serve();
