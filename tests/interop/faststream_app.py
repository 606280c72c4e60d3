"""The FastStream application of test_faststream; ``python -m`` runs it until it is told to stop."""

import asyncio
import os

from faststream import FastStream
from faststream.middlewares import AckPolicy
from faststream.rabbit import ExchangeType, QueueType, RabbitBroker, RabbitExchange, RabbitQueue

broker = RabbitBroker(os.environ["INTEROP_BROKER_URL"])
app = FastStream(broker)

events = RabbitExchange("events", type=ExchangeType.TOPIC, durable=True)
_seen: set[str] = set()


@broker.subscriber(RabbitQueue("orders", durable=True))
@broker.publisher(RabbitQueue("invoices", durable=True), persist=True)
async def bill(order: dict[str, int]) -> dict[str, int]:
    return {"total": order["price"] * order["count"]}


@broker.subscriber("double")
async def double(number: int) -> int:
    return 2 * number


@broker.subscriber(RabbitQueue("people", durable=True, routing_key="user.#"), events)
async def greet(name: str) -> None:
    print(f"hello {name}", flush=True)


@broker.subscriber(
    RabbitQueue(
        "fragile",
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "broken"},
    ),
    ack_policy=AckPolicy.REJECT_ON_ERROR,
)
async def break_(text: str) -> None:
    raise ValueError(text)


@broker.subscriber(RabbitQueue("second-time", durable=True), ack_policy=AckPolicy.NACK_ON_ERROR)
async def second_time(text: str) -> None:
    if text not in _seen:
        _seen.add(text)
        raise ValueError(text)
    print(f"at last {text}", flush=True)


@broker.subscriber(
    RabbitQueue("replicated", durable=True, queue_type=QueueType.QUORUM),
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def replicated(text: str) -> None:
    if text not in _seen:
        _seen.add(text)
        raise ValueError(text)
    print(f"from quorum {text}", flush=True)


@app.after_startup
async def say_so() -> None:
    print("app is up", flush=True)


if __name__ == "__main__":
    asyncio.run(app.run())
