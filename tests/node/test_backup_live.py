"""Copies of a data directory made while its node works: each starts, and has what was confirmed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.client.amqp import Connection, Endpoint
from penstock.protocols.amqp.codec.properties import Properties
from tests.helpers.live_broker import LiveBroker

pytestmark = pytest.mark.slow

SMALL = {
    "PENSTOCK_JOURNAL_FILE_SIZE_BYTES": str(1 << 20),
    "PENSTOCK_JOURNAL_SIZE_LIMIT_BYTES": str(1 << 21),
    "PENSTOCK_MSG_STORE_FILE_SIZE_LIMIT_BYTES": str(1 << 18),
}
"""Files of the journal are retired, and those of the store rewritten, all the time."""
BACKUPS = 4


class Load(threading.Thread):
    """Publishes numbered messages of several sizes, and takes two of three of them."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0  # all up to here are
        self.taken = 0  # at most this one
        self.over = threading.Event()
        self.error: BaseException | None = None
        self._url = url

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error

    def _work(self) -> None:
        connection = Connection(Endpoint.parse(self._url))
        channel, getter = connection.channel(), connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        number = 0
        while not self.over.is_set():
            for _ in range(30):
                number += 1
                body = b"%d:" % number + b"x" * (number % 7 * 3000)
                channel.publish(body, routing_key="q", properties=Properties(delivery_mode=2))
            channel.wait_for_confirms()
            self.confirmed = number
            for _ in range(20):
                self.taken += 1
                got = getter.get("q")
                assert got is not None
                getter.ack(got.delivery_tag)
        connection.close()


def penstock(*words: str) -> subprocess.CompletedProcess[str]:
    program = "from penstock.cli.main import main; main()"
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def numbers_at(directory: Path, copy: Path) -> list[int]:
    """Of a broker that is started on the copy."""
    directory.mkdir()
    broker = LiveBroker(directory)
    broker.data_dir = copy
    with broker:
        connection = Connection(Endpoint.parse(broker.url))
        channel = connection.channel()
        found = []
        while (got := channel.get("q", no_ack=True)) is not None:
            number, _, rest = got.body.partition(b":")
            assert rest == b"x" * (int(number) % 7 * 3000)
            found.append(int(number))
        connection.close()
    return found


def test_copies_made_under_load_start_and_have_all_that_was_confirmed(tmp_path: Path) -> None:
    with LiveBroker(tmp_path / "broker", environment=SMALL) as broker:
        load = Load(broker.url)
        load.start()
        where = ("--url", broker.http_url, "--user", "guest", "--password", "guest")
        states = []
        for number in range(BACKUPS):
            while load.confirmed < 600 * (number + 1):
                assert load.error is None, repr(load.error)
                load.over.wait(0.01)
            confirmed, target = load.confirmed, tmp_path / f"copy{number}"
            done = CliRunner().invoke(cli, ["backup", str(target), "-o", "json", *where])
            assert done.exit_code == 0, done.output
            assert json.loads(done.stdout)["bytes"] > 0
            states.append((target, confirmed, load.taken))
        load.over.set()
        load.join(30)
        assert load.error is None, repr(load.error)
        assert not (broker.data_dir / "image").exists()
    for number, (target, confirmed, taken) in enumerate(states):
        checked = penstock("audit", str(target))
        assert checked.returncode == 0, checked.stdout
        found = numbers_at(tmp_path / f"restored{number}", target)
        assert sorted(found) == found
        assert set(range(taken + 1, confirmed + 1)) <= set(found), "confirmed, and not taken"


def test_a_directory_that_is_there_and_another_user_are_refused(tmp_path: Path) -> None:
    with LiveBroker(tmp_path / "broker") as broker:
        where = ("--url", broker.http_url, "--user", "guest", "--password", "guest")
        done = CliRunner().invoke(cli, ["backup", str(tmp_path), *where])
        assert done.exit_code == 1
        assert f"{tmp_path} cannot be made: File exists" in done.output
        wrong = ("--url", broker.http_url, "--user", "guest", "--password", "wrong")
        assert CliRunner().invoke(cli, ["backup", str(tmp_path / "x"), *wrong]).exit_code == 1
        assert not (tmp_path / "x").exists()
