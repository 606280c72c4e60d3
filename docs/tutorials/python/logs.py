"""Publish and subscribe: each receiver gets each message that is published while it runs."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2f")


def emit(text: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.exchange_declare("logs", "fanout")
    channel.basic_publish("logs", "", text.encode())
    print("sent", text)
    connection.close()


def receive() -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.exchange_declare("logs", "fanout")
    queue = channel.queue_declare("", exclusive=True).method.queue  # the broker makes the name
    channel.queue_bind(queue, "logs")

    def handle(channel, method, properties, body):
        print("received", body.decode())

    channel.basic_consume(queue, handle, auto_ack=True)
    print("waiting")
    channel.start_consuming()


if __name__ == "__main__":
    if sys.argv[1] == "emit":
        emit(sys.argv[2])
    else:
        receive()
