"""What RabbitMQ 3.10.8 was asked to change, in this order, and the program that recorded it.

    python tests/management/write_cases.py http://127.0.0.1:15672 > tests/management/writes.json

records its answers anew, from a fresh RabbitMQ with the management plugin.  ``STEPS`` are one
story: each finds what those before it have left.  Beside guest there is the user ``mon`` with the
tag management, who may do everything with names that begin with ``m`` in the virtual host ``/``.
"""

from __future__ import annotations

import base64
import json
import sys
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

USERS = {"guest": "guest", "mon": "m", "wrong": "wrong"}
PATTERN = "^m"


class Step(NamedTuple):
    method: str
    path: str
    body: Any = None
    user: str = "guest"

    @property
    def name(self) -> str:
        body = "" if self.body is None else " " + json.dumps(self.body)
        return f"{self.method} {self.path}{body} {self.user}"


class Told(NamedTuple):
    status: int
    location: str
    content_type: str
    body: str


X, Q, B = "/api/exchanges/%2F", "/api/queues/%2F", "/api/bindings/%2F"


def message(**more: Any) -> dict[str, Any]:
    asked = {"properties": {}, "routing_key": "k", "payload": "hi", "payload_encoding": "string"}
    return asked | more


def getting(**more: Any) -> dict[str, Any]:
    return {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"} | more


STEPS = [
    # exchanges
    Step("PUT", f"{X}/ex", {"type": "topic", "durable": True}),
    Step("PUT", f"{X}/ex", {"type": "topic", "durable": True}),
    Step("PUT", f"{X}/ex", {"type": "topic", "durable": "true", "arguments": [], "junk": 1}),
    Step("PUT", f"{X}/ex", {"type": "direct", "durable": True}),
    Step("PUT", f"{X}/ex", {"type": "topic", "durable": False}),
    Step("PUT", f"{X}/ex", {"type": "topic", "durable": "wat"}),
    Step("PUT", f"{X}/new", {"type": "nosuch"}),
    Step("PUT", f"{X}/plain", {}),
    Step("PUT", f"{X}/plain"),
    Step("GET", f"{X}/plain?columns=name,type,durable,auto_delete,internal,arguments"),
    Step("PUT", f"{X}/amq.new", {"type": "direct"}),
    Step("PUT", f"{X}/amq.default", {"type": "direct"}),
    Step("PUT", f"{X}/secret", {"type": "fanout", "internal": True}),
    Step("PUT", f"{X}/mine", {"type": "fanout"}, "mon"),
    Step("PUT", f"{X}/other", {"type": "fanout"}, "mon"),
    Step("PUT", f"{X}/other", {"type": "fanout"}, "wrong"),
    Step("PUT", "/api/exchanges/nosuch/x", {"type": "fanout"}),
    # queues
    Step("PUT", f"{Q}/q", {"durable": True}),
    Step("PUT", f"{Q}/q", {"durable": "true", "auto_delete": "false", "arguments": {}}),
    Step("PUT", f"{Q}/q", {"durable": False}),
    Step("PUT", f"{Q}/q", {"durable": True, "arguments": {"x-max-length": 7}}),
    Step("PUT", f"{Q}/bad", {"arguments": {"x-max-length": "seven"}}),
    Step("PUT", f"{Q}/bad", {"auto_delete": "perhaps"}),
    Step("PUT", f"{Q}/plain", {}),
    Step("GET", f"{Q}/plain?columns=name,durable,auto_delete,exclusive,arguments"),
    Step("PUT", f"{Q}/amq.new", {}),
    Step("PUT", f"{Q}/mine", {}, "mon"),
    Step("PUT", f"{Q}/yours", {}, "mon"),
    Step("PUT", "/api/queues/nosuch/x", {}),
    Step("PUT", f"{Q}/short", {"arguments": {"x-max-length": 1, "x-overflow": "reject-publish"}}),
    # bindings
    Step("POST", f"{B}/e/ex/q/q", {"routing_key": "a.b", "arguments": {}}),
    Step("POST", f"{B}/e/ex/q/q", {"routing_key": "a b/c~d"}),
    Step("POST", f"{B}/e/ex/q/q", {}),
    Step("POST", f"{B}/e/ex/q/q", {"routing_key": "a.b", "arguments": []}),
    Step("POST", f"{B}/e/ex/e/plain", {"routing_key": "x"}),
    Step("POST", f"{B}/e/ex/q/nosuch", {"routing_key": "x"}),
    Step("POST", f"{B}/e/nosuch/q/q", {"routing_key": "x"}),
    Step("POST", f"{B}/e/amq.default/q/q", {"routing_key": "x"}),
    Step("POST", f"{B}/e/ex/q/q", {"routing_key": "x"}, "mon"),
    Step("POST", f"{B}/e/mine/q/mine", {"routing_key": "m"}, "mon"),
    Step("GET", f"{B}/e/ex/q/q"),
    Step("GET", f"{B}/e/ex/e/plain"),
    Step("GET", f"{B}/e/amq.default/q/q"),
    Step("GET", f"{B}/e/ex/q/nosuch"),
    Step("GET", f"{B}/e/ex/q/q/a.b"),
    Step("GET", f"{B}/e/ex/q/q/~"),
    Step("GET", f"{B}/e/ex/q/q/nosuch"),
    Step("GET", f"{Q}/q/bindings"),
    Step("GET", f"{Q}/nosuch/bindings"),
    Step("GET", f"{X}/ex/bindings/source?sort=properties_key"),
    Step("GET", f"{X}/plain/bindings/destination"),
    Step("GET", f"{X}/nosuch/bindings/source"),
    Step("DELETE", f"{B}/e/ex/q/q/~"),
    Step("DELETE", f"{B}/e/ex/q/q/~"),
    Step("DELETE", f"{B}/e/ex/q/q/a.b", None, "mon"),
    Step("DELETE", f"{X}/ex?if-unused=true"),
    # publish
    Step("POST", f"{X}/ex/publish", message(routing_key="a.b")),
    Step("POST", f"{X}/ex/publish", message(routing_key="nowhere")),
    Step("POST", f"{X}/amq.default/publish", message(routing_key="q")),
    Step("POST", f"{X}/amq.default/publish", message(properties=[])),
    Step(
        "POST",
        f"{X}/amq.default/publish",
        message(
            routing_key="q",
            payload="AP8=",
            payload_encoding="base64",
            properties={
                "delivery_mode": 2,
                "priority": 3,
                "headers": {"a": 1, "b": "x", "c": True, "d": [1, {"e": "f"}], "g": 1.5},
                "correlation_id": "c",
                "content_type": "text/plain",
                "timestamp": 1700000000,
                "expiration": "600000",
                "nosuch": 1,
            },
        ),
    ),
    Step("POST", f"{X}/amq.default/publish", message(properties={"delivery_mode": "2"})),
    Step("POST", f"{X}/amq.default/publish", message(properties={"priority": "x"})),
    Step("POST", f"{X}/amq.default/publish", message(properties={"content_type": 1})),
    Step("POST", f"{X}/amq.default/publish", message(payload_encoding="utf7")),
    Step("POST", f"{X}/amq.default/publish", message(payload="%", payload_encoding="base64")),
    Step("POST", f"{X}/amq.default/publish", {"routing_key": "q", "payload": "x"}),
    Step("POST", f"{X}/amq.default/publish", {}),
    Step("POST", f"{X}/amq.default/publish", message(properties={"expiration": "soon"})),
    Step("POST", f"{X}/amq.default/publish", message(properties={"user_id": "other"})),
    Step("POST", f"{X}/nosuch/publish", message()),
    Step("POST", f"{X}/secret/publish", message()),
    Step("POST", f"{X}/ex/publish", message(), "mon"),
    Step("POST", f"{X}/mine/publish", message(), "mon"),
    Step("POST", f"{X}/amq.default/publish", message(routing_key="short")),
    Step("POST", f"{X}/amq.default/publish", message(routing_key="short")),
    Step("GET", f"{X}/ex/publish"),
    # get
    Step("POST", f"{Q}/q/get", getting(ackmode="ack_requeue_true", count="1")),
    Step("POST", f"{Q}/q/get", getting(ackmode="reject_requeue_true", count=2)),
    Step("POST", f"{Q}/q/get", getting(count=1)),
    Step("POST", f"{Q}/q/get", getting(count=1, truncate=1)),
    Step("POST", f"{Q}/q/get", getting(count=1, encoding="base64")),
    Step("POST", f"{Q}/q/get", getting(count=5)),
    Step("POST", f"{Q}/q/get", getting()),
    Step("POST", f"{Q}/nosuch/get", getting()),
    Step("POST", f"{Q}/q/get", {"count": 1}),
    Step("POST", f"{Q}/q/get", {"count": 1, "requeue": True, "encoding": "auto"}),
    Step("POST", f"{Q}/q/get", getting(requeue=True, ackmode="ack_requeue_true")),
    Step("POST", f"{Q}/q/get", getting(ackmode="perhaps")),
    Step("POST", f"{Q}/q/get", getting(encoding="utf7")),
    Step("POST", f"{Q}/q/get", getting(count="x")),
    Step("POST", f"{Q}/q/get", getting(), "mon"),
    Step("POST", f"{Q}/mine/get", getting(), "mon"),
    # cut
    Step("PUT", f"{Q}/cut", {}),
    Step("POST", f"{X}/amq.default/publish", message(routing_key="cut", payload="whole")),
    *(
        Step("POST", f"{Q}/cut/get", getting(ackmode="ack_requeue_true", truncate=cut))
        for cut in (0, 4, 5, 6, -1, -3, "2", "-2", "x", "", 1.5, None, True, 10**30, [], "4.0")
    ),
    *(
        Step("POST", f"{Q}/cut/get", getting(ackmode="ack_requeue_true", count=count))
        for count in (0, "2", -1, "-1", 1.5, None, "two")
    ),
    Step("DELETE", f"{Q}/cut"),
    # actions
    Step("POST", f"{Q}/q/actions", {"action": "sync"}),
    Step("POST", f"{Q}/q/actions", {"action": "cancel_sync"}),
    Step("POST", f"{Q}/q/actions", {"action": "dance"}),
    Step("POST", f"{Q}/q/actions", {}),
    Step("POST", f"{Q}/nosuch/actions", {"action": "sync"}),
    Step("POST", "/api/rebalance/queues", {}),
    # the end
    Step("DELETE", f"{Q}/short?if-empty=true"),
    Step("DELETE", f"{Q}/short/contents"),
    Step("DELETE", f"{Q}/short?if-empty=true"),
    Step("DELETE", f"{Q}/short"),
    Step("DELETE", f"{Q}/yours", None, "mon"),
    Step("DELETE", f"{Q}/q", None, "mon"),
    Step("DELETE", f"{Q}/mine", None, "mon"),
    Step("DELETE", f"{Q}/q?if-unused=true"),
    Step("DELETE", f"{X}/ex?if-unused=true"),
    Step("DELETE", f"{X}/ex"),
    Step("DELETE", f"{X}/ex"),
    Step("DELETE", f"{X}/amq.direct"),
    Step("DELETE", f"{X}/amq.default"),
    Step("PUT", f"{X}/ex", [1]),
    # clients there are none of
    Step("GET", "/api/vhosts/%2F/connections"),
    Step("GET", "/api/vhosts/%2F/channels"),
    Step("GET", "/api/vhosts/nosuch/connections"),
    Step("GET", "/api/vhosts/nosuch/channels"),
    Step("GET", "/api/connections/nosuch"),
    Step("GET", "/api/connections/nosuch/channels"),
    Step("GET", "/api/connections/username/guest"),
    Step("GET", "/api/connections/username/nosuch"),
    Step("DELETE", "/api/connections/username/mon"),
    Step("DELETE", "/api/connections/nosuch"),
    Step("GET", "/api/channels/nosuch"),
    # virtual hosts
    Step("PUT", "/api/vhosts/more", {}),
    Step("DELETE", "/api/vhosts/more", None, "mon"),
    Step("DELETE", "/api/vhosts/more"),
    Step("DELETE", "/api/vhosts/more"),
    Step("GET", "/api/vhosts/more"),
]  # fmt: skip


def ask(host: str, port: int, step: Step) -> Told:
    token = base64.b64encode(f"{step.user}:{USERS[step.user]}".encode()).decode()
    body = None if step.body is None else json.dumps(step.body)
    connection = HTTPConnection(host, port, timeout=30)
    try:
        connection.request(step.method, step.path, body, {"Authorization": f"Basic {token}"})
        response = connection.getresponse()
        return Told(
            response.status,
            response.getheader("location", ""),
            response.getheader("content-type", ""),
            response.read().decode(),
        )
    finally:
        connection.close()


PREPARATION = [
    Step("PUT", "/api/users/mon", {"password": USERS["mon"], "tags": "management"}),
    Step("PUT", "/api/permissions/%2F/mon", dict.fromkeys(("configure", "write", "read"), PATTERN)),
]  # fmt: skip


if __name__ == "__main__":
    address = urlsplit(sys.argv[1])
    assert address.hostname is not None
    assert address.port is not None
    for step in PREPARATION:
        assert ask(address.hostname, address.port, step).status in (201, 204), step
    told = [[step.name, *ask(address.hostname, address.port, step)] for step in STEPS]
    json.dump(told, sys.stdout, indent=1)
    print()
