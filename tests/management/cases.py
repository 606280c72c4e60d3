"""Requests that RabbitMQ 3.10.8 was asked, and the program that recorded its answers.

    python tests/management/cases.py http://127.0.0.1:15672 > tests/management/recorded.json

records them anew from a fresh RabbitMQ with the management plugin.  Both brokers hold the
queues q1 to q7 in the virtual host ``/``, the user ``mon`` with the tag management and no
permissions, and the user ``none`` without tags; all else is as installed.
"""

from __future__ import annotations

import base64
import json
import sys
from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlsplit

QUEUES = [f"q{number}" for number in range(1, 8)]
USERS = {"guest": "guest", "mon": "m", "none": "m", "wrong": "wrong"}


class Case(NamedTuple):
    method: str
    path: str
    user: str = "guest"

    @property
    def name(self) -> str:
        return f"{self.method} {self.path} {self.user or 'without credentials'}"


class Answer(NamedTuple):
    status: int
    allow: str
    content_type: str
    body: str


CASES = [
    Case("GET", "/api/whoami"),
    Case("GET", "/api/whoami/"),
    Case("HEAD", "/api/whoami"),
    Case("GET", "/api/whoami", ""),
    Case("GET", "/api/whoami", "wrong"),
    Case("GET", "/api/whoami", "mon"),
    Case("GET", "/api/whoami", "none"),
    Case("GET", "/api/nosuch"),
    Case("GET", "/api/nosuch", ""),
    Case("GET", "/nosuch"),
    Case("POST", "/api/overview"),
    Case("DELETE", "/api/overview", ""),
    Case("OPTIONS", "/api/overview"),
    Case("OPTIONS", "/api/overview", ""),
    Case("PATCH", "/api/queues"),
    Case("GET", "/api/queues?columns=name"),
    Case("GET", "/api/queues/?columns=name"),
    Case("GET", "/api/queues/%2F/?columns=name"),
    Case("GET", "/api/queues/%2f?columns=name,vhost"),
    Case("GET", "/api/queues?columns=name&name=q1"),
    Case("GET", "/api/queues?columns=name&page_size=1"),
    Case("GET", "/api/queues?columns=name&sort=name&sort_reverse=true"),
    Case("GET", "/api/queues?columns=name,durable&sort=nosuch.field"),
    Case("GET", "/api/queues?columns=name,durable,nosuch,arguments.x"),
    Case("GET", "/api/queues?columns=name&page=1"),
    Case("GET", "/api/queues?columns=name&page=1&page_size=2"),
    Case("GET", "/api/queues?columns=name&page=4&page_size=2"),
    Case("GET", "/api/queues?columns=name&page=2&page_size=2&sort=name&sort_reverse=true"),
    Case("GET", "/api/queues?columns=name&page=2&page_size=7"),
    Case("GET", "/api/queues?columns=name&page=9&page_size=2"),
    Case("GET", "/api/queues?columns=name&page=1&page_size=501"),
    Case("GET", "/api/queues?columns=name&page=1&page_size=0"),
    Case("GET", "/api/queues?columns=name&page=0"),
    Case("GET", "/api/queues?columns=name&page=-1&page_size=3"),
    Case("GET", "/api/queues?columns=name&page=x"),
    Case("GET", "/api/queues?columns=name&page="),
    Case("GET", "/api/queues?columns=name&page=1&page_size=x"),
    Case("GET", "/api/queues?columns=name&page=1&name=zzz"),
    Case("GET", "/api/queues?columns=name&page=2&name=zzz"),
    Case("GET", "/api/queues?columns=name&page=1&name=Q"),
    Case("GET", "/api/queues?columns=name&page=1&name=Q%5B12%5D"),
    Case("GET", "/api/queues?columns=name&page=1&name=Q%5B12%5D&use_regex=true"),
    Case("GET", "/api/queues?columns=name&page=1&name=%5B&use_regex=true"),
    Case("GET", "/api/queues?columns=name", "mon"),
    Case("GET", "/api/queues/%2F", "mon"),
    Case("GET", "/api/queues/nosuch"),
    Case("GET", "/api/queues/nosuch", "mon"),
    Case("GET", "/api/queues/%2F/q1?columns=name"),
    Case("GET", "/api/queues/%2F/q1/?columns=name,durable"),
    Case("GET", "/api/queues/%2F/nosuch"),
    Case("GET", "/api/queues/nosuch/q1"),
    Case("POST", "/api/queues/%2F/q1/contents"),
    Case("GET", "/api/queues/%2F/q1/contents"),
    Case("DELETE", "/api/queues/%2F/q1/contents"),
    Case("DELETE", "/api/queues/%2F/nosuch/contents"),
    Case("DELETE", "/api/queues/nosuch/q1/contents"),
    Case("DELETE", "/api/queues/%2F/q1/contents", "mon"),
    Case("DELETE", "/api/queues/%2F/q1/contents", ""),
    Case("GET", "/api/exchanges?columns=name,type,durable,auto_delete,internal,vhost"),
    Case("GET", "/api/exchanges/%2F?columns=name&page=1&page_size=1"),
    Case("GET", "/api/exchanges/%2F/amq.default?columns=name,type"),
    Case("GET", "/api/exchanges/%2F/amq.match?columns=name,type"),
    Case("GET", "/api/exchanges/%2F/nosuch"),
    Case("GET", "/api/bindings"),
    Case("GET", "/api/bindings/%2F?page=1&page_size=1&columns=destination,properties_key"),
    Case("GET", "/api/bindings/nosuch"),
    Case("GET", "/api/bindings/%2F", "mon"),
    Case("GET", "/api/vhosts?columns=name,tracing"),
    Case("GET", "/api/vhosts?columns=name&page=1"),
    Case("GET", "/api/vhosts", "mon"),
    Case("GET", "/api/connections"),
    Case("GET", "/api/connections?page=1&page_size=2"),
    Case("GET", "/api/channels"),
    Case("GET", "/api/consumers"),
    Case("GET", "/api/consumers/%2F"),
    Case("GET", "/api/consumers?page=1"),
    Case("GET", "/api/nodes", "mon"),
    Case("GET", "/api/nodes?columns=running,type"),
]


def ask(host: str, port: int, case: Case) -> Answer:
    headers = {}
    if case.user:
        token = base64.b64encode(f"{case.user}:{USERS[case.user]}".encode()).decode()
        headers["Authorization"] = f"Basic {token}"
    connection = HTTPConnection(host, port, timeout=10)
    try:
        connection.request(case.method, case.path, headers=headers)
        response = connection.getresponse()
        return Answer(
            response.status,
            response.getheader("allow", ""),
            response.getheader("content-type", ""),
            response.read().decode(),
        )
    finally:
        connection.close()


def prepare(host: str, port: int) -> None:
    """Bring a fresh RabbitMQ into the state the cases expect."""
    token = base64.b64encode(b"guest:guest").decode()
    wanted = {f"/api/queues/%2F/{name}": {"durable": True} for name in QUEUES} | {
        "/api/users/mon": {"password": USERS["mon"], "tags": "management"},
        "/api/users/none": {"password": USERS["none"], "tags": ""},
    }
    for path, body in wanted.items():
        connection = HTTPConnection(host, port, timeout=10)
        headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        connection.request("PUT", path, json.dumps(body), headers)
        assert connection.getresponse().status in (201, 204), path
        connection.close()


if __name__ == "__main__":
    address = urlsplit(sys.argv[1])
    assert address.hostname is not None
    assert address.port is not None
    prepare(address.hostname, address.port)
    answers = {case.name: ask(address.hostname, address.port, case) for case in CASES}
    json.dump({name: answer._asdict() for name, answer in answers.items()}, sys.stdout, indent=1)
    print()
