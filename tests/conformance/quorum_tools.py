"""What the cases of quorum queues have in common."""

from typing import Any

from tests.conformance.case import World
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient

QUORUM = "quorum"


def quorum_arguments(**named: Any) -> dict[str, Any]:
    return {"x-queue-type": QUORUM} | {
        f"x-{key.replace('_', '-')}": value for key, value in named.items()
    }


def quorum_queue(w: World, client: RawClient, base: str = "q", **named: Any) -> str:
    """A fresh one, declared off the record."""
    return w.queue(client, base, durable=True, arguments=quorum_arguments(**named))


def declare(w: World, client: RawClient, name: str, **named: Any) -> None:
    w.attempt(
        client, "queue.declare", queue=name, durable=True, arguments=quorum_arguments(**named)
    )


def declare_each(w: World, **named: Any) -> None:
    """One argument that a classic queue takes, or a value that is none."""
    client = w.client()
    for key, value in named.items():
        declare(w, client, w.name("q"), **{key: value})


def get_again(w: World, client: RawClient, queue: str, how: str, times: int) -> None:
    """Get the message and give it back, so many times, and look at it once more."""
    for _ in range(times):
        tag = w.attempt(client, "basic.get", queue=queue).args["delivery_tag"]
        client.send(1, f"basic.{how}", delivery_tag=tag, requeue=True)
        w.barrier(client)
    w.attempt(client, "basic.get", queue=queue)


def get_quietly(w: World, client: RawClient, queue: str, count: int) -> None:
    """Get so many messages off the record; their delivery tags are 1, 2 ..."""
    for _ in range(count):
        client.send_off_record(codec.method_frame(1, "basic.get", queue=queue))
        client.receive_quietly()


def get_rest(w: World, client: RawClient, queue: str) -> None:
    """What is ready, in order; taken away."""
    while w.attempt(client, "basic.get", queue=queue, no_ack=True).name == "basic.get-ok":
        pass


def consume(w: World, client: RawClient, queue: str, tag: str = "c", **args: Any) -> None:
    w.attempt(client, "basic.consume", queue=queue, consumer_tag=tag, **args)
