<?php
// Publish and subscribe: each receiver gets each message that is published while it runs.
require 'vendor/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

function connect(): AMQPStreamConnection
{
    $url = parse_url(getenv('AMQP_URL') ?: 'amqp://guest:guest@127.0.0.1:5672/%2f');
    $vhost = rawurldecode(substr($url['path'], 1));
    return new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass'], $vhost);
}

function emit(string $text): void
{
    $connection = connect();
    $channel = $connection->channel();
    $channel->exchange_declare('logs', 'fanout', auto_delete: false);
    $channel->basic_publish(new AMQPMessage($text), 'logs');
    echo "sent $text\n";
    $connection->close();
}

function receive(): void
{
    $channel = connect()->channel();
    $channel->exchange_declare('logs', 'fanout', auto_delete: false);
    [$queue] = $channel->queue_declare('', exclusive: true); // the broker makes the name
    $channel->queue_bind($queue, 'logs');
    $channel->basic_consume($queue, no_ack: true, callback: function (AMQPMessage $message): void {
        echo "received {$message->getBody()}\n";
    });
    echo "waiting\n";
    $channel->consume();
}

$argv[1] === 'emit' ? emit($argv[2]) : receive();
