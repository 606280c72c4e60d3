"""RabbitMQ's ``rabbitmqadmin`` of today, version 2, unmodified: 140 command lines.

``rabbitmqadmin-2.json`` has them, and of each the requests that version 2.35.0 made.  It is a Rust
program that takes minutes to build, so the requests alone are made where it is missing; a machine
that has it in ``PATH`` runs the lines with it as well.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from penstock.cli.management import Management
from tests.helpers.live_broker import LiveBroker

LINES = json.loads(Path(__file__).with_name("rabbitmqadmin-2.json").read_text())
HEADERS = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
NEEDED = {
    "/api/nodes": "name being_drained",
    "/api/nodes/@NODE@": "name being_drained",
    "/api/auth/attempts/@NODE@": "protocol auth_attempts auth_attempts_failed"
    " auth_attempts_succeeded",
    "/api/consumers": "consumer_tag active ack_required prefetch_count exclusive arguments queue"
    " consumer_timeout channel_details",
    "/api/feature-flags": "name state stability provided_by",
    "/api/nodes/@NODE@/memory": "connection_readers connection_writers connection_channels"
    " connection_other queue_procs quorum_queue_procs stream_queue_procs"
    " stream_queue_replica_reader_procs stream_queue_coordinator_procs plugins metadata_store"
    " other_proc metrics mgmt_db mnesia quorum_ets metadata_store_ets other_ets binary msg_index"
    " code atom other_system allocated_unused reserved_unallocated strategy total",
}
"""Path ─► fields of a row without which the program cannot read the answer."""


def program() -> str | None:
    found = shutil.which("rabbitmqadmin")
    if found is None:
        return None
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return found if " 2." in told.stdout else None


PROGRAM = program()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path) as live:
        yield live


@pytest.fixture
def blanks(broker: LiveBroker) -> Iterator[dict[str, str]]:
    """What differs between nodes, while the node has a client with a consumer."""
    client = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = client.channel()
    channel.queue_declare("mine", exclusive=True)
    channel.basic_consume("mine", lambda *_: None)
    node = str(Management(broker.http_url, "guest", "guest").get("/api/overview")["node"])
    file = str(broker.directory / "definitions.json")
    yield {"@NODE@": node, "@AMQP@": str(broker.amqp_port), "@FILE@": file}
    with suppress(pika.exceptions.AMQPError):  # a line has closed it
        client.close()


def _filled(text: str, blanks: dict[str, str]) -> str:
    for blank, value in blanks.items():
        text = text.replace(blank, value)
    return text


def test_its_requests_are_answered(broker: LiveBroker, blanks: dict[str, str]) -> None:
    """With the same status, and with the fields that the program needs.

    In order: later lines find what earlier ones have declared.
    """
    wrong = []
    connection = HTTPConnection("127.0.0.1", broker.http_port, timeout=10)
    for line, requests in LINES:
        for method, path, body, status in requests:
            text = None if body is None else json.dumps(body)
            connection.request(method, quote(_filled(path, blanks), safe="/?&=%"), text, HEADERS)
            answer = connection.getresponse()
            told = answer.read().decode()
            if answer.status != status:
                wrong.append(f"{line}: {method} {path}: {answer.status} {told}")
            for row in _rows(path, told) if path in NEEDED else []:
                missing = set(NEEDED[path].split()) - row.keys()
                wrong += [f"{line}: {path} has no {name}" for name in sorted(missing)]
    connection.close()
    assert wrong == []


def _rows(path: str, told: str) -> list[dict[str, Any]]:
    found = json.loads(told)
    if path.endswith("/memory"):
        found = found["memory"]
    return found if isinstance(found, list) else [found]


if PROGRAM is not None:

    def test_the_program_succeeds(broker: LiveBroker, blanks: dict[str, str]) -> None:
        assert PROGRAM is not None
        place = ["-H", "127.0.0.1", "-P", str(broker.http_port), "-u", "guest", "-p", "guest"]
        wrong = []
        for line, _ in LINES:
            done = subprocess.run(
                [PROGRAM, *place, *_filled(line, blanks).split(" ")],
                capture_output=True,
                text=True,
                check=False,
                timeout=30,
            )
            if done.returncode != 0:
                wrong.append(f"{line}: {done.returncode} {done.stdout}{done.stderr}")
        assert wrong == []
