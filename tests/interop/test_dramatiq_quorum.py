"""Dramatiq where queues are quorum queues unless they say otherwise.

Its broker class cannot name a type of queue: the node's or virtual host's ``default_queue_type``
does.  All three queues of an actor are quorum queues then, and ``broker_priority`` orders messages
without ``max_priority``, which would ask for ``x-max-priority``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.helpers.live_broker import LiveBroker
from tests.interop.test_dramatiq import actors, lines, worker

pytestmark = pytest.mark.slow


@pytest.fixture
def quorum_broker(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path / "broker", ("--default-queue-type", "quorum")) as running:
        yield running


def types(broker: LiveBroker) -> dict[str, str]:
    login = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
    with urlopen(Request(f"{broker.http_url}/api/queues", headers=login)) as answer:
        return {row["name"]: row["type"] for row in json.load(answer)}


def test_actors_work_on_quorum_queues(quorum_broker: LiveBroker, tmp_path: Path) -> None:
    """Priorities, delays, retries, a dead letter, and a worker and a broker that are killed."""
    notes, module = tmp_path / "notes", actors(quorum_broker.url)
    for number, priority in enumerate((0, None, 9)):
        options = {} if priority is None else {"broker_priority": priority}
        module.note.send_with_options(args=(str(notes), str(number)), **options)
    assert types(quorum_broker) == dict.fromkeys(("work", "work.DQ", "work.XQ"), "quorum")
    module.wait_for_file.send_with_options(
        args=(str(tmp_path / "go"), str(tmp_path / "held")), broker_priority=31
    )
    with worker(quorum_broker.url, tmp_path) as first:
        lines(tmp_path / "held", 1)
        first.kill()
    quorum_broker.kill()
    quorum_broker.start()
    (tmp_path / "go").touch()
    module.third_time.send(str(tmp_path / "tries"))
    module.note.send_with_options(args=(str(tmp_path / "later"), "delayed"), delay=700)
    module.hopeless.send("so be it")
    with worker(quorum_broker.url, tmp_path, "second") as second:
        assert set(lines(notes, 3)) == {"0", "1", "2"}
        lines(tmp_path / "held", 3)
        lines(tmp_path / "tries", 3)
        lines(tmp_path / "later", 1)
        second.wait_for("so be it")
        module.broker.close()
        second.stop()
