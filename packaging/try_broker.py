"""Tries a broker on this machine with Penstock's own client: publishes, counts, consumes.

    python try_broker.py publish NUMBER    durable queue, persistent messages, each confirmed
    python try_broker.py count NUMBER      so many are in the queue
    python try_broker.py consume NUMBER    each of them once and in order, and no other
    python try_broker.py table NUMBER DIRECTORY    each of them once, in a table that was archived

Exit code 1 and a line on standard error when it is not so.
"""

import sys

from penstock.client.amqp import Connection, Endpoint
from penstock.protocols.amqp.codec.properties import Properties

QUEUE = "orders"


def body(number: int) -> bytes:
    return b'{"order": %d}' % number


def table(count: int, directory: str) -> None:
    import pyarrow.parquet  # there if Spark is

    rows = pyarrow.parquet.read_table(directory)["body"].to_pylist()
    if sorted(rows) != sorted(map(body, range(count))):
        sys.exit(f"the table has {len(rows)} rows, expected each of {count} messages once")


def broker(step: str, count: int) -> None:
    with Connection(Endpoint.parse("amqp://guest:guest@127.0.0.1:5672/")) as connection:
        channel = connection.channel()
        there = channel.queue_declare(QUEUE, durable=True).number("message_count")
        if step == "publish":
            properties = Properties(delivery_mode=2)
            channel.confirm_select()
            for number in range(count):
                channel.publish(body(number), "", QUEUE, properties)
            if channel.wait_for_confirms():
                sys.exit("messages were refused")
            return
        if there != count:
            sys.exit(f"{there} messages are in the queue, expected {count}")
        if step == "consume":
            tag = channel.consume(QUEUE)
            for number in range(count):
                delivery = channel.next_delivery()
                if delivery is None or delivery.body != body(number):
                    sys.exit(f"not message {number}, but {delivery and delivery.body!r}")
                channel.ack(delivery.delivery_tag)
            channel.cancel(tag)


if __name__ == "__main__":
    step, count, *more = sys.argv[1:]
    if step == "table":
        table(int(count), *more)
    else:
        broker(step, int(count))
    print(f"{step}: {count} messages")
