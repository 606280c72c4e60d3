"""The pages of the web UI that its tests visit: (name of the picture, address, heading)."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

ODD: Final = "<b>odd/name & co</b>"
QUEUE: Final = "/queues/%2F/orders.audit"
PAGES: Final = [
    ("overview", "/", "Overview"),
    ("connections", "/connections", "Connections"),
    ("channels", "/channels", "Channels"),
    ("exchanges", "/exchanges", "Exchanges"),
    ("exchange", "/exchanges/%2F/orders", "orders"),
    ("exchange-bindings", "/exchanges/%2F/orders?tab=bindings", "orders"),
    ("exchange-default", "/exchanges/%2F/amq.default", "(default exchange)"),
    ("queues", "/queues", "Queues"),
    ("queue", QUEUE, "orders.audit"),
    ("queue-consumers", "/queues/%2F/orders.new?tab=consumers", "orders.new"),
    ("queue-bindings", f"{QUEUE}?tab=bindings", "orders.audit"),
    ("queue-publish", f"{QUEUE}?tab=publish", "orders.audit"),
    ("queue-settings", f"{QUEUE}?tab=settings", "orders.audit"),
    ("queue-odd", f"/queues/%2F/{quote(ODD, safe='')}", ODD),
    ("consumers", "/consumers", "Consumers"),
    ("topics", "/topics", "NSQ topics"),
    ("policies", "/policies", "Policies"),
    ("users", "/users", "Users"),
    ("user", "/users/guest", "guest"),
    ("vhosts", "/vhosts", "Virtual hosts"),
    ("vhost", "/vhosts/%2F", "/"),
    ("limits", "/limits", "Limits"),
    ("nodes", "/nodes", "Nodes"),
    ("certificates-none", "/certificates", "Certificates"),
    ("log", "/log", "Log"),
    ("audit", "/audit", "Audit trail"),
    ("definitions", "/definitions", "Definitions"),
    ("api", "/api", "HTTP API"),
]
