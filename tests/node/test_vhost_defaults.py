"""``rabbitmq.conf`` says what new virtual hosts begin with, and how the cluster is called."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pika
import pytest

from tests.helpers.live_broker import LiveBroker

pytestmark = pytest.mark.timeout(120)
CONF = """\
cluster_name = rabbits
cluster_tags.region = eu
default_limits.vhosts.1.pattern = .*
default_limits.vhosts.1.max_queues = 3
default_policies.operator.short.vhost_pattern = ^dev
default_policies.operator.short.max_length = 2
default_users.app.vhost_pattern = ^dev
default_users.app.password = sEsame
default_users.app.tags = management
default_users.app.write = ^w
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    directory = tmp_path_factory.mktemp("defaults")
    (directory / "rabbitmq.conf").write_text(CONF)
    arguments = ("--config", str(directory / "rabbitmq.conf"))
    with LiveBroker(directory, arguments) as running:
        ask(running, "PUT", "vhosts/dev1", {})
        yield running


def ask(broker: LiveBroker, method: str, path: str, body: object = None) -> Any:
    login = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(f"{broker.http_url}/api/{path}", data, login, method=method)) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def test_the_cluster_has_its_name_and_tags(broker: LiveBroker) -> None:
    overview = ask(broker, "GET", "overview")
    assert overview["cluster_name"] == "rabbits"
    assert overview["cluster_tags"] == {"region": "eu"}


def test_the_first_virtual_host_and_new_ones_have_limits(broker: LiveBroker) -> None:
    limits = {row["vhost"]: row["value"] for row in ask(broker, "GET", "vhost-limits")}
    assert limits == {"/": {"max-queues": 3}, "dev1": {"max-queues": 3}}


def test_a_new_virtual_host_has_an_operator_policy_and_a_user(broker: LiveBroker) -> None:
    assert ask(broker, "GET", "operator-policies/%2F") == []
    [policy] = ask(broker, "GET", "operator-policies/dev1")
    assert (policy["name"], policy["definition"]) == ("short", {"max-length": 2})
    [permission] = ask(broker, "GET", "users/app/permissions")
    assert (permission["vhost"], permission["write"], permission["read"]) == ("dev1", "^w", ".*")
    url = broker.url.replace("guest:guest", "app:sEsame").replace("%2f", "dev1")
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare("q")


def test_the_password_is_not_shown(broker: LiveBroker) -> None:
    shown = json.dumps(ask(broker, "GET", "config/effective"))
    assert "cluster_tags" in shown
    assert "vhost_defaults" not in shown
    assert "sEsame" not in shown
