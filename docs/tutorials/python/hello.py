"""Hello world: one program sends a message, another receives it."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2f")


def send(text: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.queue_declare("hello")
    channel.basic_publish(exchange="", routing_key="hello", body=text.encode())
    print("sent", text)
    connection.close()


def receive() -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.queue_declare("hello")

    def handle(channel, method, properties, body):
        print("received", body.decode())

    channel.basic_consume("hello", handle, auto_ack=True)
    print("waiting")
    channel.start_consuming()


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2])
    else:
        receive()
