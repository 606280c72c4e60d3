<?php
// Hello world: one program sends a message, another receives it.
require 'vendor/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

function connect(): AMQPStreamConnection
{
    $url = parse_url(getenv('AMQP_URL') ?: 'amqp://guest:guest@127.0.0.1:5672/%2f');
    $vhost = rawurldecode(substr($url['path'], 1));
    return new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass'], $vhost);
}

function send(string $text): void
{
    $connection = connect();
    $channel = $connection->channel();
    $channel->queue_declare('hello', auto_delete: false);
    $channel->basic_publish(new AMQPMessage($text), '', 'hello');
    echo "sent $text\n";
    $connection->close();
}

function receive(): void
{
    $channel = connect()->channel();
    $channel->queue_declare('hello', auto_delete: false);
    $channel->basic_consume('hello', no_ack: true, callback: function (AMQPMessage $message): void {
        echo "received {$message->getBody()}\n";
    });
    echo "waiting\n";
    $channel->consume();
}

$argv[1] === 'send' ? send($argv[2]) : receive();
