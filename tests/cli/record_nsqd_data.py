"""Makes ``nsqd_data``: what a real nsqd leaves on disk when it is stopped.

    python -m tests.cli.record_nsqd_data NSQD DIRECTORY [MESSAGES]

``orders`` has a channel of which two messages are in flight, one was requeued for later and one was
published for later, and a paused one; ``paused`` is a paused topic with a channel; ``lonely`` has
no channel.  MESSAGES go to each of the three (20), a thousand with each request.
"""

from __future__ import annotations

import shutil
import socket
import sys
import time
import urllib.request
from pathlib import Path

from tests.conformance_nsq.servers import NsqdProcess
from tests.helpers.raw_nsq import MAGIC, MESSAGE, message_in, split_frames


def main() -> None:
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    record(Path(sys.argv[1]), Path(sys.argv[2]), count)


def record(program: Path, directory: Path, count: int) -> None:
    """Fill a new nsqd, stop it and copy its files into the directory."""
    nsqd = NsqdProcess(program.resolve(), {"mem-queue-size": "5", "log-level": "error"}).start()
    with fill(nsqd, count):
        nsqd.stop()
    directory.mkdir(parents=True, exist_ok=True)
    for path in nsqd.directory.glob("*.dat"):
        shutil.copy(path, directory)
    shutil.rmtree(nsqd.directory)


def fill(nsqd: NsqdProcess, count: int) -> socket.socket:
    """The connection that holds two messages."""
    for path in (
        *("topic/create?topic=orders", "topic/create?topic=paused", "topic/create?topic=lonely"),
        *(
            "channel/create?topic=orders&channel=archive",
            "channel/create?topic=orders&channel=bill",
        ),
        *("channel/create?topic=paused&channel=c", "channel/pause?topic=orders&channel=bill"),
        "topic/pause?topic=paused",
    ):
        post(nsqd, path)
    for topic in ("orders", "paused", "lonely"):
        for first in range(0, count, 1000):
            lines = [f"{topic} {number}" for number in range(first, min(count, first + 1000))]
            post(nsqd, f"mpub?topic={topic}", "\n".join(lines))
    post(nsqd, "pub?topic=orders&defer=3000000", "later")
    return hold(nsqd.port)


def hold(port: int) -> socket.socket:
    """Three are delivered, one of them is requeued for ten minutes."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(MAGIC + b"SUB orders archive\nRDY 3\n")
    rest = b""
    while True:
        rest += sock.recv(65536)
        frames, _ = split_frames(rest)
        held = [message_in(one.data) for one in frames if one.type == MESSAGE]
        if len(held) == 3:
            break
    sock.sendall(b"RDY 0\nREQ " + held[0].id + b" 600000\n")
    time.sleep(0.5)
    return sock


def post(nsqd: NsqdProcess, path: str, body: str = "") -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{nsqd.http_port}/{path}", body.encode(), method="POST"
    )
    urllib.request.urlopen(request).close()


if __name__ == "__main__":
    main()
