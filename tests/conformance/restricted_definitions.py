"""The users, virtual hosts and limits that the cases in ``restricted.py`` meet, as definitions.

Both brokers load the same JSON at boot.  Password of everybody: their name.  The eight users
``p-...`` hold every combination of configure, write and read on everything.
"""

import base64
import hashlib
from itertools import product
from typing import Any

COMBINATIONS = ["".join(name) for name in product(("c", ""), ("w", ""), ("r", ""))]


def _user(name: str, tags: list[str]) -> dict[str, Any]:
    hashed = base64.b64encode(b"salt" + hashlib.sha256(b"salt" + name.encode()).digest())
    return {
        "name": name,
        "password_hash": hashed.decode(),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": tags,
        "limits": {"one-connection": {"max-connections": 1}, "two-channels": {"max-channels": 2},
                   "no-connection": {"max-connections": 0}}.get(name, {}),
    }  # fmt: skip


def _may(user: str, configure: str, write: str, read: str, vhost: str = "/") -> dict[str, Any]:
    return {"user": user, "vhost": vhost, "configure": configure, "write": write, "read": read}


def definitions() -> dict[str, Any]:
    combined = [f"p-{combination}" for combination in COMBINATIONS]
    plain = ["patterns", "topics", "one-connection", "two-channels", "no-connection", "outside"]
    users = [_user(name, []) for name in combined + plain]
    users += [_user("guest", ["administrator"]), _user("monkey", ["impersonator"])]
    permissions = [
        _may(f"p-{name}", *(".*" if letter in name else "" for letter in "cwr"))
        for name in COMBINATIONS
    ]
    permissions.append(_may("patterns", "^mine-|log", "^(mine-.*|amq[.]default)$", "part"))
    free = ["topics", "one-connection", "two-channels", "no-connection", "guest", "monkey"]
    permissions += [_may(name, ".*", ".*", ".*") for name in free]
    for vhost in ("two-queues", "no-entry", "one-entry"):
        permissions.append(_may("guest", ".*", ".*", ".*", vhost))
    return {
        "users": users,
        "vhosts": [{"name": name} for name in ("/", "two-queues", "no-entry", "one-entry")],
        "permissions": permissions,
        "topic_permissions": [
            {"user": "topics", "vhost": "/", "exchange": "amq.topic",
             "write": "^{username}[.]", "read": "^{username}[.]|^vhost-{vhost}-"},
            {"user": "topics", "vhost": "/", "exchange": "t-none", "write": "", "read": ""},
        ],
        "parameters": [
            {"vhost": vhost, "component": "vhost-limits", "name": "limits", "value": value}
            for vhost, value in (("two-queues", {"max-queues": 2}),
                                 ("no-entry", {"max-connections": 0}),
                                 ("one-entry", {"max-connections": 1}))
        ],
        "global_parameters": [],
        "policies": [],
        "exchanges": [
            {"vhost": "/", "name": name, "type": kind, "durable": True, "auto_delete": False,
             "internal": internal, "arguments": {}}
            for name, kind, internal in (("there", "direct", False), ("source", "direct", False),
                                         ("t-none", "topic", False), ("inside", "topic", True))
        ],
        "queues": [
            {"vhost": "/", "name": "q", "durable": True, "auto_delete": False, "arguments": {}},
        ],
        "bindings": [],
    }  # fmt: skip
