<?php
// php-amqplib in the conversation of CONVERSATION.md.
require 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPBasicCancelException;
use PhpAmqpLib\Exception\AMQPConnectionBlockedException;
use PhpAmqpLib\Exception\AMQPExceptionInterface;
use PhpAmqpLib\Exception\AMQPProtocolChannelException;
use PhpAmqpLib\Exception\AMQPTimeoutException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

const PREFETCH = 50;
const REPLIES = 'amq.rabbitmq.reply-to';

function say(string $line): void
{
    echo "$line\n";
}

function message(int $number, int $size): AMQPMessage
{
    return new AMQPMessage(str_pad(sprintf('%08d:', $number), $size, chr($number % 251)), [
        'delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT,
        'content_type' => 'text/plain',
        'message_id' => "m-$number",
        'application_headers' => new AMQPTable([
            'number' => $number,
            'text' => 'grüße',
            'flag' => true,
            'nested' => ['list' => [1, 'two']],
        ]),
    ]);
}

function connect(string $url, int $heartbeat = 0): AMQPStreamConnection
{
    ['host' => $host, 'port' => $port, 'user' => $user, 'pass' => $password] = parse_url($url);
    return new AMQPStreamConnection($host, $port, $user, $password, heartbeat: $heartbeat);
}

function confirming(AMQPStreamConnection $connection): AMQPChannel
{
    $channel = $connection->channel();
    $channel->confirm_select();
    $channel->set_nack_handler(fn() => throw new Exception('refused'));
    return $channel;
}

function durable(AMQPChannel $channel, string $queue): void
{
    $channel->queue_declare($queue, durable: true, auto_delete: false);
}

// Handles what has come, for at most so long.
function listen(AMQPChannel $channel, float $seconds): void
{
    try {
        $channel->wait(timeout: $seconds);
    } catch (AMQPTimeoutException) {
    }
}

function publish(string $url, string $queue, int $from, int $count, int $size): array
{
    $connection = connect($url);
    $channel = confirming($connection);
    durable($channel, $queue);
    for ($number = $from; $number < $from + $count; $number++) {
        $channel->basic_publish(message($number, $size), '', $queue);
    }
    $channel->wait_for_pending_acks();
    $connection->close();
    return ['confirmed' => $count];
}

/** @return AMQPMessage[] COUNT messages, each acknowledged. */
function take(string $url, string $queue, int $count, string $tag = '', array $more = []): array
{
    $connection = connect($url);
    $channel = $connection->channel();
    $channel->basic_qos(0, PREFETCH, false);
    $messages = [];
    $handle = function (AMQPMessage $message) use (&$messages, $count): void {
        if (count($messages) < $count) {
            $messages[] = $message;
            $message->ack();
        }
    };
    $channel->basic_consume($queue, $tag, callback: $handle, arguments: new AMQPTable($more));
    if ($more) {
        say('consuming');
    }
    while (count($messages) < $count) {
        $channel->wait();
    }
    $connection->close();
    return $messages;
}

function consume(string $url, string $queue, int $count): array
{
    $messages = take($url, $queue, $count);
    $bodies = array_map(fn($message) => $message->getBody(), $messages);
    $properties = $messages[0]->get_properties();
    $properties['headers'] = $properties['application_headers']->getNativeData();
    unset($properties['application_headers']);
    return [
        'numbers' => array_map(fn($body) => (int) substr($body, 0, 8), $bodies),
        'sha256' => hash('sha256', implode($bodies)),
        'redelivered' => count(array_filter($messages, fn($message) => $message->isRedelivered())),
        'properties' => $properties,
    ];
}

function stream(string $url, string $queue, string $offset, int $count, string $tag = ''): array
{
    $arguments = ['x-stream-offset' => match ($offset[0]) {
        '#' => (int) substr($offset, 1),
        '@' => new DateTime($offset),
        default => $offset,
    }];
    if ($tag) {
        $arguments['x-stream-automatic-offset-tracking'] = true;
    }
    $offsets = [];
    foreach (take($url, $queue, $count, $tag, $arguments) as $message) {
        $offsets[] = $message->get('application_headers')->getNativeData()['x-stream-offset'];
    }
    return ['offsets' => $offsets];
}

// What the broker closes a channel with.
function refusal(AMQPStreamConnection $connection, string $queue): array
{
    try {
        $connection->channel()->queue_declare($queue, passive: true);
        return [];
    } catch (AMQPProtocolChannelException $error) {
        return ['code' => $error->amqp_reply_code, 'text' => $error->amqp_reply_text];
    }
}

function mandatory(AMQPChannel $channel, string $queue): array
{
    $returned = [];
    $confirmed = false;
    $channel->set_ack_handler(function () use (&$confirmed): void {
        $confirmed = true;
    });
    $channel->set_return_listener(
        function ($code, $text, $exchange, $key, $message) use (&$returned, &$confirmed): void {
            $returned = ['code' => $code, 'text' => $text, 'key' => $key,
                'body' => $message->getBody(), 'before_confirm' => !$confirmed];
        }
    );
    $channel->basic_publish(new AMQPMessage('come back'), '', "$queue-nobody", mandatory: true);
    $channel->wait_for_pending_acks_returns();
    return $returned;
}

function settle(AMQPChannel $channel, string $queue): array
{
    durable($channel, $queue);
    foreach (['one', 'two', 'three'] as $text) {
        $channel->basic_publish(new AMQPMessage($text), '', $queue);
    }
    $channel->wait_for_pending_acks();
    $seen = [];
    $get = function () use ($channel, $queue, &$seen): AMQPMessage {
        $message = $channel->basic_get($queue);
        $redelivered = json_encode($message->isRedelivered());
        $seen[] = "{$message->getBody()} $redelivered {$message->getMessageCount()}";
        return $message;
    };
    $get()->nack(requeue: true);
    $get()->reject(requeue: false);
    $get()->ack();
    $get()->ack();
    $seen[] = $channel->basic_get($queue) === null ? 'empty' : 'more';
    return $seen;
}

function bound(AMQPChannel $channel, string $queue): string
{
    $channel->exchange_declare("$queue-up", 'topic');
    $channel->exchange_declare("$queue-down", 'fanout');
    $channel->exchange_bind("$queue-down", "$queue-up", 'a.*');
    $channel->queue_bind($queue, "$queue-down");
    $channel->basic_publish(new AMQPMessage('through two'), "$queue-up", 'a.b');
    $channel->basic_publish(new AMQPMessage('nowhere'), "$queue-up", 'b.b');
    $channel->wait_for_pending_acks();
    return $channel->basic_get($queue, no_ack: true)->getBody();
}

function behave(string $url, string $queue): array
{
    $connection = connect($url, heartbeat: 1);
    $other = connect($url);
    $channel = confirming($connection);
    $result = [
        'returned' => mandatory($channel, $queue),
        'settled' => settle($channel, $queue),
        'bound' => bound($channel, $queue),
    ];
    $channel->queue_declare("$queue-mine", exclusive: true);
    $result['missing'] = refusal($connection, "$queue-missing");
    $result['locked'] = refusal($other, "$queue-mine");
    for ($until = microtime(true) + 2.5; microtime(true) < $until;) {
        listen($channel, 0.3);
        $connection->checkHeartBeat();
    }
    $result['deleted'] = $channel->queue_delete($queue);
    $other->close();
    $connection->close();
    return $result;
}

// Sends all its requests first; the answers may come in any order.
function ask(string $url, string $queue, int $count): array
{
    $connection = connect($url);
    $channel = $connection->channel();
    $answers = [];
    $handle = function (AMQPMessage $message) use (&$answers): void {
        $answers[(int) $message->get('correlation_id')] = $message->getBody();
    };
    $channel->basic_consume(REPLIES, no_ack: true, callback: $handle);
    for ($number = 0; $number < $count; $number++) {
        $properties = ['reply_to' => REPLIES, 'correlation_id' => (string) $number];
        $channel->basic_publish(new AMQPMessage("question $number", $properties), '', $queue);
    }
    while (count($answers) < $count) {
        $channel->wait();
    }
    $connection->close();
    ksort($answers);
    return ['answers' => $answers];
}

// Does the work again with a new connection, whenever one breaks; how often it did.
function reconnecting(string $url, callable $work): int
{
    for ($reconnects = -1;;) {
        try {
            $connection = connect($url);
            $reconnects++;
            $work(confirming($connection));
            $connection->close();
            return $reconnects;
        } catch (AMQPExceptionInterface) {
            usleep(50_000);
        }
    }
}

function endure(string $url, string $queue, int $count): array
{
    $confirmed = 0;
    $work = function (AMQPChannel $channel) use ($queue, $count, &$confirmed): void {
        durable($channel, $queue);
        while ($confirmed < $count) {
            $channel->basic_publish(message($confirmed, 100), '', $queue);
            $channel->wait_for_pending_acks();
            $confirmed++;
            if ($confirmed === 10) {
                say('started');
            }
        }
    };
    $reconnects = reconnecting($url, $work);
    return ['confirmed' => $confirmed, 'reconnects' => $reconnects];
}

// The loop an application writes around php-amqplib, which does not reconnect by itself.
final class Survivor
{
    private int $confirmed = 0;
    private array $received = [];
    private ?string $news = null;

    public function __construct(private string $queue, private int $count)
    {
    }

    private function declare(AMQPChannel $channel): void
    {
        $exchange = "$this->queue-x";
        $channel->exchange_declare($exchange, 'topic', durable: true, auto_delete: false);
        durable($channel, $this->queue);
        $channel->queue_bind($this->queue, $exchange, 'job.#');
        [$mine] = $channel->queue_declare('', exclusive: true);
        $channel->queue_bind($mine, $exchange, 'news.#');
        $channel->basic_qos(0, PREFETCH, false);
        $channel->basic_consume($this->queue, callback: function (AMQPMessage $message): void {
            $this->received[(int) substr($message->getBody(), 0, 8)] = true;
            $message->ack();
        });
        $hear = function (AMQPMessage $message): void {
            $this->news = $message->getBody();
        };
        $channel->basic_consume($mine, no_ack: true, callback: $hear);
    }

    private function live(AMQPChannel $channel): void
    {
        $this->declare($channel);
        while ($this->confirmed < $this->count) {
            $number = $this->confirmed;
            $channel->basic_publish(message($number, 100), "$this->queue-x", "job.$number");
            $channel->wait_for_pending_acks();
            $this->confirmed++;
            if ($this->confirmed === 10) {
                say('started');
            } elseif ($this->confirmed === intdiv($this->count, 2)) {
                say('halfway');
            }
            $channel->wait(non_blocking: true);
        }
        while (count($this->received) < $this->count) {
            $channel->wait();
        }
        $channel->basic_publish(new AMQPMessage('the end'), "$this->queue-x", 'news.end');
        while ($this->news === null) {
            $channel->wait();
        }
    }

    public function survive(string $url): array
    {
        $reconnects = reconnecting($url, $this->live(...));
        return ['confirmed' => $this->confirmed, 'received' => count($this->received),
            'reconnects' => $reconnects, 'news' => $this->news];
    }
}

function survive(string $url, string $queue, int $count): array
{
    return (new Survivor($queue, $count))->survive($url);
}

// A publisher that says when it is blocked, and goes on when it may.
function held(string $url, string $queue, int $times): array
{
    $connection = connect($url);
    $freed = 0;
    $connection->set_connection_block_handler(fn($reason) => say("blocked $reason"));
    $connection->set_connection_unblock_handler(function () use (&$freed): void {
        say('unblocked');
        $freed++;
    });
    $channel = confirming($connection);
    durable($channel, $queue);
    for ($count = 0; $freed < $times; listen($channel, 0.02)) {
        try {
            $channel->basic_publish(new AMQPMessage('x'), '', $queue);
            $count++;
        } catch (AMQPConnectionBlockedException) {
            continue;
        }
        if ($count === 1) {
            say('started');
        }
    }
    $channel->wait_for_pending_acks();
    $connection->close();
    return ['confirmed' => $count];
}

function cancelled(string $url, string $queue): array
{
    $connection = connect($url);
    $channel = $connection->channel();
    $channel->basic_consume($queue);
    say('consuming');
    try {
        $channel->consume();
    } catch (AMQPBasicCancelException) {
        [, $messages] = $channel->queue_declare($queue, durable: true, auto_delete: false);
    }
    $connection->close();
    return ['messages' => $messages];
}

[, $word, $url, $queue] = $argv;
say(json_encode($word($url, $queue, ...array_slice($argv, 4)), JSON_THROW_ON_ERROR));
