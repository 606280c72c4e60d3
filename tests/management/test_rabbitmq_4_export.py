"""An export of RabbitMQ 4.3.6 comes in as a whole, and leaves equal.

The file is what 4.3.6 exported: classic, quorum and stream queues, exchanges of all types, users,
policies, operator policies, limits, a shovel, upstreams.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ctl.conftest import Said, penstockctl
from tests.helpers.live_broker import LiveBroker

EXPORT = json.loads(Path(__file__).with_name("rabbitmq-4.3-export.json").read_text())
BY_ITSELF = ("amq.rabbitmq.log", "internal_cluster_id")
"""What each node has by itself, or makes where a setting asks for it."""

Definitions = dict[str, Any]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path) as broker:
        yield broker


def _import(live: LiveBroker, definitions: Definitions) -> Said:
    file = live.directory / "definitions.json"
    file.write_text(json.dumps(definitions))
    return penstockctl(live.data_dir, "import_definitions", str(file))


def _export(live: LiveBroker) -> Definitions:
    file = live.directory / "exported.json"
    assert penstockctl(live.data_dir, "export_definitions", str(file)).code == 0
    exported: Definitions = json.loads(file.read_text())
    return exported


def _equal_parts(definitions: Definitions) -> Definitions:
    """The sections without order, and without what says the same twice."""
    return {
        section: sorted(
            (_row(section, row) for row in rows if row.get("name") not in BY_ITSELF), key=json.dumps
        )
        for section, rows in definitions.items()
        if isinstance(rows, list)
    }


def _row(section: str, row: Definitions) -> Definitions:
    row = dict(sorted(row.items()))
    if section == "queues":  # its type stands in the arguments as well
        arguments = dict(row["arguments"])
        kind = arguments.pop("x-queue-type", "classic")
        assert row.pop("type", kind) == kind
        return row | {"arguments": arguments, "type": kind}
    if section == "exchanges":  # 4.3 names what is not the default
        row = dict(sorted({"internal": False, **row}.items()))
    if section == "vhosts":  # limits stand among the parameters as well
        row.pop("limits", None)
        metadata = {"description": "", "tags": [], **row.get("metadata", {})}
        if not metadata.get("protected_from_deletion", True):
            del metadata["protected_from_deletion"]
        row["metadata"] = dict(sorted(metadata.items()))
    return row


def test_it_comes_in_as_a_whole_and_leaves_equal(live: LiveBroker) -> None:
    said = _import(live, EXPORT)
    assert (said.code, said.err) == (0, "")
    first = _export(live)
    assert _equal_parts(first) == _equal_parts(EXPORT)
    assert _import(live, first).code == 0
    assert _equal_parts(_export(live)) == _equal_parts(first)


@pytest.mark.parametrize("protocol", ["local", "amqp10"])
def test_a_shovel_of_another_protocol_is_left_out_by_name(live: LiveBroker, protocol: str) -> None:
    """And everything else comes in."""
    other = {
        "src-protocol": protocol,
        "src-uri": "amqp://",
        "src-address": "/queues/cq",
        "dest-protocol": protocol,
        "dest-uri": "amqp://",
        "dest-address": "/queues/qq3",
    }
    row = {"component": "shovel", "vhost": "/", "name": "other", "value": other}
    said = _import(live, {**EXPORT, "parameters": [row, *EXPORT["parameters"]]})
    assert said.code == 65
    assert "parameter 'other' in vhost '/': src-protocol should be one of" in said.err
    assert "address" not in said.err
    assert _equal_parts(_export(live)) == _equal_parts(EXPORT)


def test_protection_from_deletion_comes_in(live: LiveBroker) -> None:
    vhost = {"name": "kept", "metadata": {"description": "d", "protected_from_deletion": True}}
    said = _import(live, {"vhosts": [vhost]})
    assert (said.code, said.err) == (0, "")
    [row] = [row for row in _export(live)["vhosts"] if row["name"] == "kept"]
    assert row["metadata"]["protected_from_deletion"] is True
