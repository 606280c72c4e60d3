"""Remote procedure call: a request is a message that says where the reply goes."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2f")
REPLIES = "amq.rabbitmq.reply-to"  # no queue: the broker passes replies to this channel


def fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def serve() -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.queue_declare("rpc")
    channel.basic_qos(prefetch_count=1)

    def handle(channel, method, request, body):
        print("asked for", body.decode())
        reply = pika.BasicProperties(correlation_id=request.correlation_id)
        channel.basic_publish("", request.reply_to, str(fibonacci(int(body))).encode(), reply)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume("rpc", handle)
    print("waiting")
    channel.start_consuming()


def call(n: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    answers = []

    def handle(channel, method, properties, body):
        if properties.correlation_id == "1":
            answers.append(body.decode())

    channel.basic_consume(REPLIES, handle, auto_ack=True)  # before the request
    request = pika.BasicProperties(reply_to=REPLIES, correlation_id="1")
    channel.basic_publish("", "rpc", n.encode(), request)
    while not answers:
        connection.process_data_events(time_limit=None)
    print(f"fibonacci({n}) = {answers[0]}")
    connection.close()


if __name__ == "__main__":
    if sys.argv[1] == "call":
        call(sys.argv[2])
    else:
        serve()
