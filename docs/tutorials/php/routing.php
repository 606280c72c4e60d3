<?php
// Routing: a receiver names the severities that it wants.
require 'vendor/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

function connect(): AMQPStreamConnection
{
    $url = parse_url(getenv('AMQP_URL') ?: 'amqp://guest:guest@127.0.0.1:5672/%2f');
    $vhost = rawurldecode(substr($url['path'], 1));
    return new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass'], $vhost);
}

function emit(string $severity, string $text): void
{
    $connection = connect();
    $channel = $connection->channel();
    $channel->exchange_declare('logs-direct', 'direct', auto_delete: false);
    $channel->basic_publish(new AMQPMessage($text), 'logs-direct', $severity);
    echo "sent $severity $text\n";
    $connection->close();
}

function receive(string ...$severities): void
{
    $channel = connect()->channel();
    $channel->exchange_declare('logs-direct', 'direct', auto_delete: false);
    [$queue] = $channel->queue_declare('', exclusive: true); // the broker makes the name
    foreach ($severities as $severity) {
        $channel->queue_bind($queue, 'logs-direct', $severity);
    }
    $channel->basic_consume($queue, no_ack: true, callback: function (AMQPMessage $message): void {
        echo "received {$message->getRoutingKey()} {$message->getBody()}\n";
    });
    echo "waiting\n";
    $channel->consume();
}

$words = array_slice($argv, 2);
$argv[1] === 'emit' ? emit(...$words) : receive(...$words);
