"""What new virtual hosts begin with by the setting ``vhost_defaults``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.broker.administration import Administration, limits_of
from penstock.broker.definitions.importing import DefinitionsImport, ImportPlan
from penstock.broker.rules.vhost_defaults import VhostDefaults
from penstock.core.errors import SettingInvalid
from tests.helpers.connection_pair import QuietBroker

DEFAULTS: dict[str, Any] = {
    "limits": {
        "first": {"vhost_pattern": "^dev", "max-queues": 5},
        "rest": {"max-connections": 9},
    },
    "policies": {"short": {"vhost_pattern": "^dev", "queue_pattern": "^q", "max-length": 7}},
    "users": {
        "dev": {
            "vhost_pattern": "^dev",
            "password": "secret",
            "tags": ["management"],
            "read": "^r",
        },
        "guest": {"vhost_pattern": "dev$", "password": "another"},
    },
}


def made(*vhosts: str) -> QuietBroker:
    node = QuietBroker()
    defaults = VhostDefaults(json.dumps(DEFAULTS), lambda: b"salt")
    node.broker.options = node.broker.options._replace(vhost_defaults=defaults)
    admin = Administration(node.broker, 64)
    for name in vhosts:
        admin.put_vhost(name)
        admin.seed_vhost(name)
    return node


def test_what_the_pattern_covers() -> None:
    node = made("dev1", "other")
    dev, other = node.broker.vhosts["dev1"], node.broker.vhosts["other"]
    assert limits_of(dev) == {"max-queues": 5}
    assert limits_of(other) == {"max-connections": 9}
    assert other.policies.operator_policies == {}
    queue = dev.declare_queue("q", True, None, False, {})
    assert queue is not None
    assert queue.limits.max_length == 7
    users = node.broker.users.users
    assert users["dev"].has_password("secret")
    assert users["dev"].tags == ["management"]
    assert users["dev"].vhosts == {"dev1": (".*", ".*", "^r")}


def test_a_user_that_exists_gets_the_permission_only() -> None:
    node = made("my dev")
    guest = node.broker.users.users["guest"]
    assert guest.has_password("guest")
    assert guest.vhosts["my dev"] == (".*", ".*", ".*")


def test_an_import_makes_new_ones_so_and_its_own_limits_count() -> None:
    node = made()
    rows = [{"name": "dev2"}, {"name": "dev3", "limits": {"max-queues": 3}}, {"name": "/"}]
    work = DefinitionsImport(
        node.broker, Administration(node.broker, 64), ImportPlan({"vhosts": rows}), bytes
    )
    while not work.run(1):
        pass
    assert work.left_out == []
    limits = {name: limits_of(vhost) for name, vhost in node.broker.vhosts.items()}
    assert limits["dev2"] == {"max-queues": 5}
    assert limits["dev3"] == {"max-queues": 3}
    assert limits["/"] == {}
    assert set(node.broker.users.users["dev"].vhosts) == {"dev2", "dev3"}


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "is no JSON"),
        ("[]", "is a JSON object of limits, policies, users"),
        ('{"limit": {}}', "is a JSON object of limits, policies, users"),
        ('{"limits": {"a": 1}}', "limits: a is no JSON object"),
        ('{"limits": []}', "limits: limits is no JSON object"),
        ('{"limits": {"a": {"max-consumers": 1}}}', "limits: a: max-consumers is not one of"),
        ('{"limits": {"a": {"max-queues": true}}}', "max-queues is no int"),
        ('{"limits": {"a": {"vhost_pattern": "("}}}', "vhost_pattern: missing )"),
        ('{"policies": {"p": {"queue_pattern": ".*"}}}', "policies: p: no policy provided"),
        ('{"policies": {"p": {"max-length": "x"}}}', "policies: p: "),
        ('{"policies": {"p": {"ha-mode": "all"}}}', "policies: p: "),
        ('{"users": {"u": {"tags": "a"}}}', "users: u: tags is no list"),
        ('{"users": {"u": {"name": "a"}}}', "users: u: name is not one of"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    with pytest.raises(SettingInvalid) as raised:
        VhostDefaults(text)
    assert words in str(raised.value)
