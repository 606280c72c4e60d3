"""Routing: a receiver names the severities that it wants."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2f")


def emit(severity: str, text: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.exchange_declare("logs-direct", "direct")
    channel.basic_publish("logs-direct", severity, text.encode())
    print("sent", severity, text)
    connection.close()


def receive(severities: list[str]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.exchange_declare("logs-direct", "direct")
    queue = channel.queue_declare("", exclusive=True).method.queue
    for severity in severities:
        channel.queue_bind(queue, "logs-direct", severity)

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
