"""Work queue: tasks are shared among workers and survive a crash of worker or broker."""

import os
import sys
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2f")


def add(task: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.queue_declare("tasks", durable=True)
    channel.confirm_delivery()  # basic_publish returns when the task is on disk
    persistent = pika.BasicProperties(delivery_mode=2)
    channel.basic_publish("", "tasks", task.encode(), persistent)
    print("added", task)
    connection.close()


def work() -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.queue_declare("tasks", durable=True)
    channel.basic_qos(prefetch_count=1)  # the next task after the acknowledgement of this one

    def handle(channel, method, properties, body):
        time.sleep(body.count(b"."))  # a second of work for each dot
        print("done", body.decode())
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume("tasks", handle)
    print("waiting")
    channel.start_consuming()


if __name__ == "__main__":
    if sys.argv[1] == "add":
        add(sys.argv[2])
    else:
        work()
