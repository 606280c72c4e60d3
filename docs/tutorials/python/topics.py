"""Topics: a receiver names patterns of routing keys."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2f")


def emit(key: str, text: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.exchange_declare("logs-topic", "topic")
    channel.basic_publish("logs-topic", key, text.encode())
    print("sent", key, text)
    connection.close()


def receive(patterns: list[str]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.exchange_declare("logs-topic", "topic")
    queue = channel.queue_declare("", exclusive=True).method.queue
    for pattern in patterns:
        channel.queue_bind(queue, "logs-topic", pattern)

    def handle(channel, method, properties, body):
        print("received", method.routing_key, body.decode())

    channel.basic_consume(queue, handle, auto_ack=True)
    print("waiting")
    channel.start_consuming()


if __name__ == "__main__":
    if sys.argv[1] == "emit":
        emit(sys.argv[2], sys.argv[3])
    else:
        receive(sys.argv[2:])
