"""``add_super_stream`` and ``delete_super_stream``, as rabbitmq-streams of 4.3.6 has them."""

from __future__ import annotations

import json

import pytest

from tests.ctl.conftest import penstockctl
from tests.helpers.live_broker import LiveBroker


def arguments_of(live: LiveBroker, queue: str) -> dict[str, object]:
    said = penstockctl(live.data_dir, "list_queues", "--formatter", "json", "name", "arguments")
    [row] = [row for row in json.loads(said.out) if row["name"] == queue]
    return {name: value for name, _, value in row["arguments"]}


def test_one_comes_and_goes(live: LiveBroker) -> None:
    said = penstockctl(live.data_dir, "add_super_stream", "orders")
    assert said == (0, "Adding a super stream...\nSuper stream orders has been created\n", "")
    listed = penstockctl(live.data_dir, "list_queues", "-q", "--no-table-headers", "name", "type")
    assert set(listed.out.splitlines()) >= {f"orders-{number}\tstream" for number in range(3)}
    said = penstockctl(live.data_dir, "delete_super_stream", "orders")
    assert said == (0, "Deleting a super stream...\nSuper stream orders has been deleted\n", "")
    listed = penstockctl(live.data_dir, "list_queues", "-q", "--no-table-headers", "name")
    assert "orders" not in listed.out


def test_its_options(live: LiveBroker) -> None:
    line = (
        "add_super_stream inv --partitions 1 --max-age PT1H30M --max-length-bytes 2gb"
        " --stream-max-segment-size-bytes 50MiB --leader-locator client-local"
        " --initial-cluster-size 1"
    )
    assert penstockctl(live.data_dir, *line.split()).code == 0
    found = arguments_of(live, "inv-0")
    assert found == {
        "x-queue-type": "stream",
        "x-queue-leader-locator": "client-local",
        "x-initial-cluster-size": 1,
        "x-max-age": "5400s",
        "x-max-length-bytes": 2_000_000_000,
        "x-stream-max-segment-size-bytes": 50 * 1024 * 1024,
    }
    assert penstockctl(live.data_dir, "delete_super_stream", "inv").code == 0
    assert penstockctl(live.data_dir, "add_super_stream", "k", "--routing-keys", "a,b").code == 0
    assert arguments_of(live, "k-b")["x-queue-type"] == "stream"
    assert penstockctl(live.data_dir, "delete_super_stream", "k").code == 0


@pytest.mark.parametrize(
    "line, code, text",
    [
        ("add_super_stream taken", 70, "Error:\nthere is already an exchange named taken"),
        ("delete_super_stream nosuch", 70, "Error:\nstream_not_found"),
        ("add_super_stream", 64, "not enough arguments."),
        ("add_super_stream a b", 64, "too many arguments."),
        ("add_super_stream a --partitions 0", 64, "The partition number must be greater than 0"),
        ("add_super_stream a --partitions 1001", 70, "The partition number must not exceed 1000"),
        ("add_super_stream a --partitions x", 64, "--partitions : x"),
        ("add_super_stream a --partitions 2 --binding-keys b", 64, "not both."),
        (
            "add_super_stream a --routing-keys a --binding-keys b",
            64,
            "Specify --binding-keys only.",
        ),
        ("add_super_stream a --max-age 1h", 64, "Invalid value for --max-age, "),
        ("add_super_stream a --max-length-bytes x", 64, "Invalid value for --max-length-bytes, "),
        ("add_super_stream a --leader-locator x", 64, "Invalid value for --leader-locator, "),
        ("add_super_stream a --initial-cluster-size 0", 64, "the value must be positive."),
    ],
)
def test_what_is_refused(live: LiveBroker, line: str, code: int, text: str) -> None:
    """With the exit codes of rabbitmq-streams 4.3.6, and its words where they are not Erlang's."""
    penstockctl(live.data_dir, "add_super_stream", "taken", "--partitions", "1")
    said = penstockctl(live.data_dir, *line.split())
    assert (said.code, text in said.err) == (code, True), said.err
