"""Every request of RabbitMQ 3.10's own web pages, and the keys their templates read.

The requests are those of ``dispatcher.js`` and ``main.js`` in its management plug-in, with the
query strings a browser was seen to send; the keys are those its templates look into without asking
whether they are there.  Whoever points those pages at this broker sees no hole.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest

from penstock.management.http import lists
from tests.management.conftest import Served

PAGE = "page=1&page_size=100&name=&use_regex=false&pagination=true"
LENGTHS = "lengths_age=60&lengths_incr=5"
RATES = "msg_rates_age=60&msg_rates_incr=5"
DATA = "data_rates_age=60&data_rates_incr=5"
NODE_STATS = "node_stats_age=60&node_stats_incr=5"
REQUESTS = {
    "whoami": "name tags",
    "auth": "enable_uaa",
    "extensions": "javascript",
    "cluster-name": "name",
    f"overview?{LENGTHS}&{RATES}": (
        "cluster_name contexts erlang_version exchange_types listeners management_version"
        " message_stats node object_totals product_name product_version queue_totals"
        " rabbitmq_version rates_mode sample_retention_policies statistics_db_event_queue"
        " disable_stats enable_queue_totals object_totals.queues object_totals.consumers"
        " queue_totals.messages_ready"
    ),
    "vhosts": "name tracing cluster_state",
    "nodes": (
        "name running type partitions os_pid uptime processors fd_used fd_total sockets_used"
        " sockets_total proc_used proc_total mem_used mem_limit mem_alarm disk_free"
        " disk_free_limit disk_free_alarm rates_mode db_dir config_files log_files enabled_plugins"
    ),
    f"nodes/NODE?{NODE_STATS}": (
        "name running type auth_mechanisms exchange_types applications contexts cluster_links"
        " enabled_plugins config_files log_files db_dir"
    ),
    "nodes/NODE?memory=true&binary=true": "memory.total.rss memory.strategy binary.queue_procs",
    f"connections?{PAGE}": "items total_count filtered_count page page_count page_size item_count",
    f"connections/CONNECTION?{DATA}": (
        "name user vhost state protocol ssl auth_mechanism channels client_properties"
        " connected_at timeout frame_max channel_max node recv_oct send_oct"
    ),
    "connections/CONNECTION/channels": "",
    f"channels?{PAGE}": "items total_count",
    f"channels/CHANNEL?{DATA}&{RATES}": (
        "name number user vhost state connection_details.name confirm transactional"
        " consumer_count prefetch_count messages_unacknowledged messages_unconfirmed node"
    ),
    f"exchanges?{PAGE}": "items total_count",
    f"exchanges/%2F/events?{RATES}": "name vhost type durable auto_delete internal arguments",
    "exchanges/%2F/events/bindings/source": "source destination routing_key properties_key",
    "exchanges/%2F/events/bindings/destination": "",
    "exchanges/%2F": "name type vhost",
    f"queues?{PAGE}": "items total_count",
    f"queues/%2F/orders?{LENGTHS}&{RATES}&{DATA}": (
        "name vhost node state durable auto_delete exclusive arguments policy operator_policy"
        " effective_policy_definition consumers consumer_details messages messages_ready"
        " messages_unacknowledged message_bytes message_bytes_ready message_bytes_unacknowledged"
        " message_bytes_ram messages_ram messages_ready_ram messages_unacknowledged_ram memory"
        " exclusive_consumer_tag backing_queue_status.mode"
    ),
    "queues/%2F/orders/bindings": "source destination routing_key properties_key arguments",
    "consumers": "queue.name consumer_tag ack_required channel_details.name prefetch_count active",
    "vhosts?sort=name&sort_reverse=false": "name tags description",
    f"vhosts/%2F?{LENGTHS}&{RATES}&{DATA}": "name tracing description tags",
    "vhosts/%2F/permissions": "user configure write read",
    "vhosts/%2F/topic-permissions": "",
    "users/": "name tags",
    "users?sort=name&sort_reverse=false": "name tags password_hash",
    "users/guest": "name tags password_hash",
    "users/guest/permissions": "vhost configure write read",
    "users/guest/topic-permissions": "",
    "permissions": "user vhost",
    "feature-flags?sort=name&sort_reverse=false": "name desc state stability provided_by doc_url",
    "policies": "vhost name pattern apply-to definition priority",
    "operator-policies": "",
    "policies/%2F/short": "vhost name pattern apply-to definition priority",
    "vhost-limits": "",
    "user-limits": "",
    "parameters": "",
    "definitions": "users vhosts queues exchanges bindings policies rabbit_version",
}


@pytest.fixture(scope="module")
def names(served: Served) -> Iterator[dict[str, str]]:
    """What stands for NODE, CONNECTION and CHANNEL, of a broker in use."""
    policy = json.dumps({"pattern": "^orders", "definition": {"max-length": 100}}).encode()
    assert served.request("PUT", "/api/policies/%2F/short", policy).status == 201
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.amqp_port))
    channel = connection.channel()
    channel.exchange_declare("events", "topic")
    channel.queue_declare("orders")
    channel.queue_bind("orders", "events", "a.#")
    channel.basic_publish("events", "a.b", b"x")
    channel.basic_consume("orders", lambda *_: None)
    known = served.get("/api/channels")[0]
    yield {
        "NODE": "penstock@test",
        "CONNECTION": quote(known["connection_details"]["name"], safe=""),
        "CHANNEL": quote(known["name"], safe=""),
    }
    connection.close()


@pytest.mark.parametrize("request_", REQUESTS)
def test_it_is_answered_with_what_the_templates_read(
    served: Served, names: dict[str, str], request_: str
) -> None:
    path = request_
    for name, value in names.items():
        path = path.replace(name, value)
    found = served.get(f"/api/{path}")
    row = found[0] if isinstance(found, list) and REQUESTS[request_] else found
    assert [key for key in REQUESTS[request_].split() if not _has(row, key)] == []


def _has(row: Any, dotted: str) -> bool:
    for part in dotted.split("."):
        if not isinstance(row, dict) or part not in row:
            return False
        row = row[part]
    return True


def test_samples_of_many_rows_want_a_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "ROWS_WITH_SAMPLES_MAX", 6)
    for number in range(8):
        served.declare(f"many-{number}")
    management, sampler = served.management._side.loop, served.management.sampler
    assert management is not None
    for at_s in (1000.0, 1005.0):
        asyncio.run_coroutine_threadsafe(sampler.walk(at_s), management).result(10)
    assert len(served.get("/api/queues")) > 7
    answer = served.ask(f"/api/queues?{LENGTHS}")
    assert answer.status == 400
    assert "ask for a page" in json.loads(answer.body)["reason"]
    for sort in ("", "&sort=messages"):
        page = served.get(f"/api/queues?{LENGTHS}&page=1&page_size=6{sort}")
        assert len(page["items"]) == 6
        assert "samples" in page["items"][0]["messages_details"]
    assert served.ask(f"/api/queues?{LENGTHS}&page=1&sort=messages_details.avg").status == 400
