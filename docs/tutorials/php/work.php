<?php
// Work queue: tasks are shared among workers and survive a crash of worker or broker.
require 'vendor/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

function connect(): AMQPStreamConnection
{
    $url = parse_url(getenv('AMQP_URL') ?: 'amqp://guest:guest@127.0.0.1:5672/%2f');
    $vhost = rawurldecode(substr($url['path'], 1));
    return new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass'], $vhost);
}

function add(string $task): void
{
    $connection = connect();
    $channel = $connection->channel();
    $channel->queue_declare('tasks', durable: true, auto_delete: false);
    $channel->confirm_select();
    $channel->set_nack_handler(fn() => throw new Exception('the broker refused the task'));
    $persistent = ['delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT];
    $channel->basic_publish(new AMQPMessage($task, $persistent), '', 'tasks');
    $channel->wait_for_pending_acks(); // until the task is on disk
    echo "added $task\n";
    $connection->close();
}

function work(): void
{
    $channel = connect()->channel();
    $channel->queue_declare('tasks', durable: true, auto_delete: false);
    $channel->basic_qos(0, 1, false); // the next task after the acknowledgement of this one
    $channel->basic_consume('tasks', callback: function (AMQPMessage $message): void {
        $task = $message->getBody();
        sleep(substr_count($task, '.')); // a second of work for each dot
        echo "done $task\n";
        $message->ack();
    });
    echo "waiting\n";
    $channel->consume();
}

$argv[1] === 'add' ? add($argv[2]) : work();
