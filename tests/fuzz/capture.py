"""Capture what real clients say, byte by byte: the fuzzers' seed corpus.

    python -m tests.fuzz.capture --url amqp://guest:guest@127.0.0.1:5672 --out tests/fuzz/corpus

A proxy stands between an unmodified client and a broker and keeps the client's half of each
connection in one file, from the protocol header on.  Needed again only when clients change
what they say.
"""

import argparse
import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import pika  # type: ignore[import-untyped]

from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient


class Proxy:
    """Passes bytes on; keeps those of each client."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.sessions: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            kept = bytearray()
            self.sessions.append(kept)
            threading.Thread(target=_pass_on, args=(client, server, kept), daemon=True).start()
            threading.Thread(target=_pass_on, args=(server, client, None), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
    try:
        while data := source.recv(65536):
            if kept is not None:
                kept += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


@contextmanager
def _pika(port: int) -> Iterator[pika.BlockingConnection]:
    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=5)
    connection = pika.BlockingConnection(parameters)
    yield connection
    connection.close()


def pika_topology(port: int) -> None:
    with _pika(port) as connection:
        channel = connection.channel()
        channel.exchange_declare("fuzz-x", "topic", durable=True, arguments={"x-mine": [1, "a"]})
        channel.exchange_declare("fuzz-y", "fanout", auto_delete=True)
        channel.queue_declare("fuzz-q", exclusive=True)
        channel.queue_bind("fuzz-q", "fuzz-x", "a.#", {"k": True})
        channel.exchange_bind("fuzz-y", "fuzz-x", "b.*")
        channel.exchange_unbind("fuzz-y", "fuzz-x", "b.*")
        channel.queue_unbind("fuzz-q", "fuzz-x", "a.#", {"k": True})
        channel.queue_purge("fuzz-q")
        channel.queue_delete("fuzz-q")
        channel.exchange_delete("fuzz-x")


def pika_publish(port: int) -> None:
    with _pika(port) as connection:
        channel = connection.channel()
        channel.queue_declare("fuzz-q", exclusive=True)
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            content_type="text/plain",
            content_encoding="utf-8",
            headers={"a": 1, "b": {"c": [True, None, "x"]}, "long": 2**40},
            delivery_mode=2,
            priority=3,
            correlation_id="c",
            reply_to="r",
            expiration="60000",
            message_id="m",
            timestamp=1_700_000_000,
            type="t",
            user_id="guest",
            app_id="app",
        )
        for size in (0, 1, 100, 5000):
            channel.basic_publish("", "fuzz-q", b"x" * size, properties)
        for number in range(5):
            channel.basic_publish("amq.topic", f"a.{number}", b"m", mandatory=False)


def pika_consume(port: int) -> None:
    with _pika(port) as connection:
        channel = connection.channel()
        channel.queue_declare("fuzz-q", exclusive=True)
        channel.basic_qos(prefetch_count=3)
        for number in range(6):
            channel.basic_publish("", "fuzz-q", b"%d" % number)
        taken = []
        for method, _, _ in channel.consume("fuzz-q", inactivity_timeout=1):
            taken.append(method.delivery_tag)
            if len(taken) == 1:
                channel.basic_nack(method.delivery_tag, requeue=True)
            elif len(taken) == 2:
                channel.basic_reject(method.delivery_tag, requeue=False)
            else:
                channel.basic_ack(method.delivery_tag)
            if len(taken) >= 6:
                break
        channel.cancel()
        channel.basic_get("fuzz-q")
        channel.basic_recover(requeue=True)
        channel.close()


def aio_pika_session(port: int) -> None:
    async def talk() -> None:
        connection = await aio_pika.connect_robust(f"amqp://guest:guest@127.0.0.1:{port}/")
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=2)
            queue = await channel.declare_queue("fuzz-aio", exclusive=True)
            await queue.bind("amq.direct", "k")
            for number in range(4):
                message = aio_pika.Message(b"%d" % number, headers={"n": number})
                await channel.default_exchange.publish(message, "fuzz-aio")
            async with queue.iterator() as messages:
                count = 0
                async for message_in in messages:
                    await message_in.ack()
                    count += 1
                    if count == 4:
                        break

    asyncio.run(talk())


def every_method(port: int) -> None:
    """Each method a client may send once, with values; several channels mixed."""
    client = RawClient("127.0.0.1", port)
    client.open(capabilities={"consumer_cancel_notify": True})
    client.open_channel(1)
    table = {
        "t": True, "b": codec.Typed("b", -1), "B": codec.Typed("B", 1), "s": codec.Typed("s", -1),
        "u": codec.Typed("u", 1), "I": 1, "i": codec.Typed("i", 1), "l": codec.Typed("l", 1),
        "f": codec.Typed("f", 1.0), "d": 1.0, "D": codec.Typed("D", (1, 5)), "S": "s",
        "A": [1, "x"], "T": codec.Typed("T", 1), "F": {"a": 1}, "V": None, "x": b"x",
    }  # fmt: skip
    client.send(1, "exchange.declare", exchange="fuzz-h", type="headers", arguments=table)
    client.send(1, "queue.declare", queue="fuzz-e", auto_delete=True, arguments=table)
    client.send(1, "queue.bind", queue="fuzz-e", exchange="fuzz-h", arguments={"x-match": "any"})
    client.send(1, "channel.flow", active=True)
    client.send(1, "access.request", realm="/data")
    client.send(1, "confirm.select")
    client.send(2, "channel.open")
    client.publish(2, "fuzz-h", "k", b"m", headers=table, mandatory=True)
    client.publish(1, "", "fuzz-e", b"x" * 300, delivery_mode=2)
    client.send(2, "basic.qos", prefetch_count=10, global_=True)
    client.send(2, "basic.consume", queue="fuzz-e", consumer_tag="c", no_local=True, arguments={})
    client.send(1, "basic.get", queue="fuzz-e", no_ack=True)
    client.send(2, "basic.ack", delivery_tag=0, multiple=True)
    client.send(2, "basic.recover-async", requeue=True)
    client.send(2, "basic.recover", requeue=True)
    client.send(2, "basic.cancel", consumer_tag="c")
    client.send(3, "channel.open")
    client.send(3, "tx.select")
    client.publish(3, "", "fuzz-e", b"in a transaction")
    client.send(3, "tx.commit")
    client.send(3, "tx.rollback")
    client.send_off_record(codec.encode_frame(codec.HEARTBEAT, 0, b""))
    client.send(2, "channel.close", code=200, text="bye")
    client.send(1, "queue.purge", queue="fuzz-e")
    client.send(1, "queue.delete", queue="fuzz-e")
    client.send(1, "exchange.delete", exchange="fuzz-h")
    client.send(0, "connection.close", code=200)
    client.until_closed(1.0)
    client.close_socket()


SESSIONS: tuple[Callable[[int], None], ...] = (
    pika_topology, pika_publish, pika_consume, aio_pika_session, every_method,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    parts = urlsplit(options.url)
    options.out.mkdir(parents=True, exist_ok=True)
    for session in SESSIONS:
        proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5672)
        session(proxy.port)
        path = options.out / f"{session.__name__}.bin"
        path.write_bytes(b"".join(proxy.sessions))
        proxy.listener.close()
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
