<?php
// Topics: a receiver names patterns of routing keys.
require 'vendor/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

function connect(): AMQPStreamConnection
{
    $url = parse_url(getenv('AMQP_URL') ?: 'amqp://guest:guest@127.0.0.1:5672/%2f');
    $vhost = rawurldecode(substr($url['path'], 1));
    return new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass'], $vhost);
}

function emit(string $key, string $text): void
{
    $connection = connect();
    $channel = $connection->channel();
    $channel->exchange_declare('logs-topic', 'topic', auto_delete: false);
    $channel->basic_publish(new AMQPMessage($text), 'logs-topic', $key);
    echo "sent $key $text\n";
    $connection->close();
}

function receive(string ...$patterns): void
{
    $channel = connect()->channel();
    $channel->exchange_declare('logs-topic', 'topic', auto_delete: false);
    [$queue] = $channel->queue_declare('', exclusive: true); // the broker makes the name
    foreach ($patterns as $pattern) {
        $channel->queue_bind($queue, 'logs-topic', $pattern);
    }
    $channel->basic_consume($queue, no_ack: true, callback: function (AMQPMessage $message): void {
        echo "received {$message->getRoutingKey()} {$message->getBody()}\n";
    });
    echo "waiting\n";
    $channel->consume();
}

$words = array_slice($argv, 2);
$argv[1] === 'emit' ? emit(...$words) : receive(...$words);
