"""A conversation of administrators with the management API, and RabbitMQ 3.10.8's half of it.

    python tests/management/admin_cases.py HOST:PORT NODE AMQP_PORT > admin_recorded.json

records it anew from a fresh RabbitMQ with the management plugin.  The steps build on each other:
users are made, get rights, ask as themselves, and go.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from http.client import HTTPConnection
from typing import Any, Final, NamedTuple

HASHED: Final = "yKaNBsg08fEff2GB5kqNF7K+3NPiUNtiGha/OYRqsNa3GHOF"
"""Of ``guest``."""
BOUNDARY: Final = "limit-of-a-part"
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = f"multipart/form-data; boundary={BOUNDARY}"


class Step(NamedTuple):
    method: str
    path: str
    body: Any = None  # text as it stands, anything else as JSON
    user: str = "guest"
    content_type: str = JSON

    @property
    def name(self) -> str:
        shown = "" if self.body is None else " " + _text(self.body)
        asks = "" if self.user == "guest" else f" as {self.user or 'nobody'}"
        return f"{self.method} {self.path}{shown}{asks}"


def _text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)


def _part(name: str, text: str) -> str:
    return (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="d.json"\r\n'
        f"Content-Type: application/json\r\n\r\n{text}\r\n--{BOUNDARY}--\r\n"
    )


ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}
RULE: Final = {"pattern": "^a", "definition": {"max-length": 10}}


def get(path: str, user: str = "guest") -> Step:
    return Step("GET", path, user=user)


def put(path: str, body: Any = None, user: str = "guest") -> Step:
    return Step("PUT", path, body, user)


def delete(path: str, user: str = "guest") -> Step:
    return Step("DELETE", path, user=user)


USERS_STEPS: Final = [
    put("/api/users/adm", {"password": "p", "tags": "administrator"}),
    put("/api/users/adm", {"password": "p", "tags": "administrator"}),
    put("/api/users/pol", {"password": "p", "tags": ["policymaker"]}),
    put("/api/users/mon", {"password": "p", "tags": "monitoring"}),
    put("/api/users/mgm", {"password": "p", "tags": "management"}),
    put("/api/users/plain", {"password": "p", "tags": ""}),
    put("/api/users/hashed", {"password_hash": HASHED, "tags": "a, b,c"}),
    get("/api/users/hashed"),
    put(
        "/api/users/hashed",
        {
            "password_hash": HASHED,
            "hashing_algorithm": "rabbit_password_hashing_sha512",
            "tags": ["x", "y"],
        },
    ),
    get("/api/users/hashed"),
    put("/api/users/hashed", {"password_hash": HASHED, "hashing_algorithm": "nosuch", "tags": ""}),
    put("/api/users/hashed", {"password_hash": "no base64", "tags": ""}),
    put("/api/users/hashed", {"password_hash": "", "tags": "gone"}),
    get("/api/users/hashed"),
    put("/api/users/hashed", {"password": "p"}),
    put("/api/users/untagged", {"password": "p"}),
    put("/api/users/hashed", {"tags": "only"}),
    get("/api/users/hashed"),
    put("/api/users/fresh", {"tags": "only"}),
    get("/api/users/fresh"),
    put("/api/users/hashed", {}),
    put("/api/users/hashed"),
    put("/api/users/hashed", "x"),
    put("/api/users/hashed", []),
    put("/api/users/hashed", {"password": "", "tags": ""}),
    put("/api/users/hashed", {"password": 5, "tags": ""}),
    put("/api/users/hashed", {"password": "p", "tags": 5}),
    put("/api/users/hashed", {"password": "p", "password_hash": HASHED, "tags": ""}),
    put("/api/users/named", {"name": "other", "username": "x", "password": "p", "tags": ""}),
    get("/api/users?columns=name,tags&sort=name"),
    get("/api/users?page=1&page_size=2&columns=name"),
    get("/api/users/nobody"),
    delete("/api/users/nobody"),
    get("/api/users?columns=name", "mgm"),
    get("/api/users?columns=name", "mon"),
    get("/api/users/mgm", "mgm"),
    get("/api/users/mgm/permissions", "mgm"),
    put("/api/users/mgm", {"password": "q", "tags": "administrator"}, "mgm"),
    delete("/api/users/mgm", "mgm"),
    get("/api/users/without-permissions?columns=name&sort=name"),
    get("/api/users/without-permissions", "mgm"),
    Step("POST", "/api/users/bulk-delete", {"users": ["named", "nobody"]}),
    Step("POST", "/api/users/bulk-delete", {"users": []}),
    Step("POST", "/api/users/bulk-delete", {}),
    Step("POST", "/api/users/bulk-delete", {"users": "fresh"}),
    Step("POST", "/api/users/bulk-delete", "x"),
    Step("POST", "/api/users/bulk-delete", {"users": ["adm"]}, "mgm"),
    get("/api/users/bulk-delete"),
    get("/api/users/named"),
    delete("/api/users/fresh"),
    get("/api/whoami", "fresh"),
]

PERMISSION_STEPS: Final = [
    put("/api/permissions/%2F/mgm", ALL),
    put("/api/permissions/%2F/mgm", ALL),
    put("/api/permissions/%2F/pol", ALL),
    put("/api/permissions/%2F/mgm", {"configure": ".*", "write": ".*"}),
    put("/api/permissions/%2F/mgm", {"read": ".*"}),
    put("/api/permissions/%2F/mgm", {**ALL, "read": "["}),
    put("/api/permissions/%2F/mgm", {**ALL, "read": 5}),
    put("/api/permissions/%2F/mgm", {**ALL, "more": 5}),
    put("/api/permissions/%2F/mgm", "x"),
    put("/api/permissions/%2F/nobody", ALL),
    put("/api/permissions/nowhere/mgm", ALL),
    put("/api/permissions/%2F/mgm", ALL, "mgm"),
    get("/api/permissions?sort=user"),
    get("/api/permissions", "mgm"),
    get("/api/permissions/%2F/mgm"),
    get("/api/permissions/%2F/nobody"),
    get("/api/permissions/%2F/plain"),
    get("/api/permissions/nowhere/mgm"),
    get("/api/users/mgm/permissions"),
    get("/api/users/plain/permissions"),
    get("/api/users/nobody/permissions"),
    get("/api/vhosts/%2F/permissions?sort=user"),
    get("/api/vhosts/nowhere/permissions"),
    get("/api/vhosts/%2F/permissions", "mgm"),
    put("/api/topic-permissions/%2F/mgm", {"exchange": "amq.topic", "write": "^a", "read": "^b"}),
    put("/api/topic-permissions/%2F/mgm", {"exchange": "amq.topic", "write": "^a", "read": "^b"}),
    put("/api/topic-permissions/%2F/mgm", {"exchange": "nosuch", "write": "", "read": ".*"}),
    put("/api/topic-permissions/%2F/mgm", {"write": "", "read": ""}),
    put("/api/topic-permissions/%2F/mgm", {"exchange": "amq.topic", "write": "["}),
    put("/api/topic-permissions/%2F/mgm", {"exchange": "amq.topic", "write": "[", "read": ""}),
    put("/api/topic-permissions/%2F/nobody", {"exchange": "amq.topic", "write": "", "read": ""}),
    put("/api/topic-permissions/nowhere/mgm", {"exchange": "amq.topic", "write": "", "read": ""}),
    get("/api/topic-permissions?sort=exchange"),
    get("/api/topic-permissions/%2F/mgm?sort=exchange"),
    get("/api/topic-permissions/%2F/nobody"),
    get("/api/topic-permissions/%2F/plain"),
    get("/api/topic-permissions/nowhere/mgm"),
    get("/api/users/mgm/topic-permissions?sort=exchange"),
    get("/api/users/nobody/topic-permissions"),
    get("/api/vhosts/%2F/topic-permissions?sort=exchange"),
    get("/api/vhosts/nowhere/topic-permissions"),
    get("/api/topic-permissions", "mgm"),
    delete("/api/topic-permissions/%2F/mgm"),
    delete("/api/topic-permissions/%2F/mgm"),
    delete("/api/topic-permissions/%2F/nobody"),
    get("/api/topic-permissions"),
    put("/api/permissions/%2F/adm", ALL),
    delete("/api/permissions/%2F/adm"),
    delete("/api/permissions/%2F/adm"),
    delete("/api/permissions/%2F/nobody"),
    delete("/api/permissions/%2F/mgm", "mgm"),
]

MIRRORED: Final = {
    "ha-mode": "exactly",
    "ha-params": 2,
    "ha-sync-mode": "automatic",
    "ha-promote-on-failure": "always",
    "queue-master-locator": "min-masters",
}
POLICY_STEPS: Final = [
    put("/api/policies/%2F/p", RULE),
    put("/api/policies/%2F/p", {**RULE, "priority": 3, "apply-to": "queues"}),
    put("/api/policies/%2F/spelt", {**RULE, "priority": "7"}),
    put("/api/policies/%2F/full", {**RULE, "name": "full", "vhost": "/", "more": 1}),
    put("/api/policies/%2F/bad", {**RULE, "priority": "x"}),
    put("/api/policies/%2F/bad", {**RULE, "apply-to": "nothing"}),
    put("/api/policies/%2F/bad", {**RULE, "pattern": "["}),
    put("/api/policies/%2F/bad", {**RULE, "pattern": 5}),
    put("/api/policies/%2F/bad", {"definition": {"max-length": 1}}),
    put("/api/policies/%2F/bad", {"pattern": ""}),
    put("/api/policies/%2F/bad", {**RULE, "definition": {}}),
    put("/api/policies/%2F/bad", {**RULE, "definition": []}),
    put("/api/policies/%2F/bad", {**RULE, "definition": "x"}),
    put("/api/policies/%2F/bad", {**RULE, "definition": {"nosuch": 5}}),
    put("/api/policies/%2F/bad", {**RULE, "definition": {"max-length": "x"}}),
    put("/api/policies/%2F/bad", {**RULE, "definition": {"max-length": -1}}),
    put("/api/policies/%2F/bad", {**RULE, "definition": {"overflow": "x"}}),
    *(
        put("/api/policies/%2F/bad", {**RULE, "definition": wrong})
        for wrong in (
            {"ha-mode": "some"},
            {"ha-params": 2, "max-length": 1},
            {"ha-mode": "all", "ha-params": 2},
            {"ha-mode": "exactly", "ha-params": "2"},
            {"ha-mode": "nodes", "ha-params": ["a@b", 1, None]},
            {"ha-mode": "all", "ha-sync-mode": {"now": True}},
            {"ha-mode": "all", "ha-sync-batch-size": 0},
            {"ha-mode": "all", "ha-promote-on-shutdown": ""},
            {"ha-mode": "some", "max-length": "x", "nosuch": 5},
            {"queue-master-locator": "near"},
        )
    ),
    put("/api/policies/%2F/mirrored", {**RULE, "definition": MIRRORED}),
    get("/api/policies/%2F/mirrored"),
    delete("/api/policies/%2F/mirrored"),
    put("/api/policies/%2F/bad", "x"),
    put("/api/policies/nowhere/bad", RULE),
    put("/api/policies/%2F/bad", RULE, "mgm"),
    put("/api/policies/%2F/bad", RULE, "mon"),
    put("/api/policies/%2F/own", RULE, "pol"),
    get("/api/policies?sort=name"),
    get("/api/policies?columns=name&sort=name", "pol"),
    get("/api/policies", "mgm"),
    get("/api/policies", "mon"),
    get("/api/policies/%2F?columns=name&sort=name"),
    get("/api/policies/%2F?page=1&page_size=1&columns=name"),
    get("/api/policies/nowhere"),
    get("/api/policies/%2F", "mgm"),
    get("/api/policies/%2F", "mon"),
    get("/api/policies/%2F/p"),
    get("/api/policies/%2F/nosuch"),
    get("/api/policies/%2F/p", "mgm"),
    delete("/api/policies/%2F/nosuch"),
    delete("/api/policies/nowhere/p"),
    delete("/api/policies/%2F/own", "mgm"),
    delete("/api/policies/%2F/own", "pol"),
    delete("/api/policies/%2F/spelt"),
    put("/api/operator-policies/%2F/o", RULE),
    put("/api/operator-policies/%2F/o", {**RULE, "priority": 2, "apply-to": "queues"}),
    put("/api/operator-policies/%2F/o", {**RULE, "apply-to": "exchanges"}),
    put("/api/operator-policies/%2F/bad", {**RULE, "definition": {"ha-mode": "all", "expires": 5}}),
    put("/api/operator-policies/%2F/bad", {"pattern": ""}),
    put("/api/operator-policies/nowhere/bad", RULE),
    put("/api/operator-policies/%2F/bad", RULE, "pol"),
    get("/api/operator-policies"),
    get("/api/operator-policies", "pol"),
    get("/api/operator-policies", "mgm"),
    get("/api/operator-policies/%2F"),
    get("/api/operator-policies/nowhere"),
    get("/api/operator-policies/%2F/o"),
    get("/api/operator-policies/%2F/nosuch"),
    delete("/api/operator-policies/%2F/nosuch"),
    delete("/api/operator-policies/%2F/o", "pol"),
    delete("/api/operator-policies/%2F/o"),
    delete("/api/policies/%2F/full"),
    delete("/api/policies/%2F/p"),
]

PARAMETER_STEPS: Final = [
    put("/api/parameters/shovel/%2F/s", {"value": {"src-uri": "amqp://", "dest-uri": "amqp://"}}),
    put("/api/parameters/nosuch/%2F/s", {"value": {}}),
    put("/api/parameters/nosuch/%2F/s", {}),
    put("/api/parameters/nosuch/nowhere/s", {"value": {}}),
    put("/api/parameters/operator_policy/%2F/o", {"value": {**RULE, "apply-to": "queues"}}),
    put("/api/parameters/operator_policy/%2F/o", {"value": RULE}),
    get("/api/operator-policies/%2F"),
    get("/api/parameters"),
    get("/api/parameters", "pol"),
    get("/api/parameters", "mgm"),
    get("/api/parameters/operator_policy"),
    get("/api/parameters/operator_policy/%2F"),
    get("/api/parameters/operator_policy/%2F/o"),
    get("/api/parameters/operator_policy/%2F/nosuch"),
    get("/api/parameters/operator_policy/nowhere"),
    get("/api/parameters/nosuch"),
    get("/api/parameters/nosuch/%2F"),
    delete("/api/parameters/operator_policy/%2F/nosuch"),
    delete("/api/parameters/operator_policy/%2F/o", "mgm"),
    delete("/api/parameters/operator_policy/%2F/o"),
    put("/api/parameters/vhost-limits/%2F/limits", {"value": {"max-queues": 100}}),
    put("/api/parameters/vhost-limits/%2F/limits", {"value": {"nosuch": 100}}),
    get("/api/vhost-limits/%2F"),
    get("/api/parameters/vhost-limits/%2F/limits"),
    delete("/api/parameters/vhost-limits/%2F/limits"),
    get("/api/vhost-limits/%2F"),
    put("/api/global-parameters/g", {"value": {"a": [1, "b", None]}}),
    put("/api/global-parameters/g", {"value": 5}),
    put("/api/global-parameters/g", {}),
    put("/api/global-parameters/g", "x"),
    put("/api/global-parameters/g", {"name": "g", "value": True}),
    get("/api/global-parameters/g"),
    get("/api/global-parameters/nosuch"),
    get("/api/global-parameters/g", "mgm"),
    get("/api/global-parameters/g", "pol"),
    get("/api/global-parameters?columns=name&sort=name"),
    put("/api/global-parameters/h", {"value": 1}, "pol"),
    delete("/api/global-parameters/g", "mgm"),
    delete("/api/global-parameters/g"),
    delete("/api/global-parameters/g"),
    put("/api/cluster-name", {"name": "ours"}),
    put("/api/cluster-name", {}),
    put("/api/cluster-name", "x"),
    put("/api/cluster-name", {"name": "theirs"}, "mgm"),
    get("/api/cluster-name"),
    get("/api/cluster-name", "mgm"),
    get("/api/overview?columns=cluster_name"),
    get("/api/global-parameters/cluster_name"),
]

OTHER_STEPS: Final = [
    get("/api/extensions"),
    get("/api/feature-flags", "mgm"),
    put("/api/feature-flags/quorum_queue/enable", {"name": "quorum_queue"}),
    put("/api/feature-flags/nosuch/enable", {"name": "nosuch"}),
    put("/api/feature-flags/nosuch/enable", {}),
    put("/api/feature-flags/quorum_queue/enable", {}, "mgm"),
    get("/api/auth/hash_password/", "mgm"),
    get("/api/auth", ""),
    get("/api/auth", "wrong"),
    get("/api/version"),
    delete("/api/reset"),
    delete("/api/reset/NODE"),
    delete("/api/reset/nosuch"),
    delete("/api/reset", "mgm"),
    get("/api/reset"),
    get("/api/auth/attempts/nosuch"),
    get("/api/auth/attempts/NODE", "mgm"),
    get("/api/auth/attempts/NODE/source"),
    delete("/api/auth/attempts/NODE"),
    Step("POST", "/api/login", "username=guest&password=guest", "", FORM),
    Step("POST", "/api/login", "username=guest&password=wrong", "", FORM),
    Step("POST", "/api/login", "username=guest", "", FORM),
    get("/api/login", ""),
    get("/api/shovels"),
    get("/api/federation-links"),
    get("/api/deprecated-features"),
    Step("POST", "/api/rebalance/queues", {}),
    Step("POST", "/api/rebalance/queues", {}, "mgm"),
]

HEALTH_STEPS: Final = [
    get("/api/aliveness-test/%2F"),
    get("/api/aliveness-test/nowhere"),
    get("/api/aliveness-test/%2F", "mon"),
    get("/api/aliveness-test/%2F", "mgm"),
    get("/api/healthchecks/node"),
    get("/api/healthchecks/node/NODE"),
    get("/api/healthchecks/node/nosuch"),
    get("/api/healthchecks/node", "mgm"),
    get("/api/health/checks/alarms", "mgm"),
    get("/api/health/checks/local-alarms"),
    get("/api/health/checks/virtual-hosts"),
    get("/api/health/checks/virtual-hosts", "mgm"),
    get("/api/health/checks/node-is-mirror-sync-critical"),
    get("/api/health/checks/node-is-quorum-critical"),
    get("/api/health/checks/port-listener/AMQP"),
    get("/api/health/checks/port-listener/x"),
    get("/api/health/checks/port-listener/-1"),
    get("/api/health/checks/port-listener/70000"),
    get("/api/health/checks/protocol-listener/amqp"),
    get("/api/health/checks/protocol-listener/amqp091"),
    get("/api/health/checks/protocol-listener/amqp0.9.1"),
    get("/api/health/checks/protocol-listener/http"),
    get("/api/health/checks/protocol-listener/HTTP"),
    get("/api/health/checks/certificate-expiration/1/weeks"),
    get("/api/health/checks/certificate-expiration/1/days"),
    get("/api/health/checks/certificate-expiration/1/week"),
    get("/api/health/checks/certificate-expiration/1/fortnights"),
    get("/api/health/checks/certificate-expiration/x/weeks"),
    get("/api/health/checks/certificate-expiration/-1/weeks"),
    get("/api/health/checks/certificate-expiration/0/weeks"),
    get("/api/health/checks/nosuch"),
    get("/api/nodes/NODE/memory", "mgm"),
    get("/api/nodes/NODE/memory?columns=memory.strategy"),
    get("/api/nodes/NODE?columns=name,running,type"),
]

VHOST_STEPS: Final = [
    put("/api/vhosts/v1"),
    put("/api/vhosts/v1", {"name": "v1", "tracing": "true"}),
    get("/api/vhosts/v1?columns=name,tracing,description,tags,metadata,default_queue_type"),
    put("/api/vhosts/v1", {"description": "d", "tags": "a, b"}),
    put("/api/vhosts/v1", {"description": "d", "tags": ["a", "b"], "tracing": False}),
    get("/api/vhosts/v1?columns=name,tracing,description,tags,metadata"),
    put("/api/vhosts/v1", {"tracing": "wat"}),
    put("/api/vhosts/v2", {"tracing": True}, "mgm"),
    put("/api/vhosts/v2", "x"),
    get("/api/vhosts/v1/permissions"),
    get("/api/permissions/v1/guest"),
    Step(
        "POST",
        "/api/definitions",
        _part("file", '{"vhosts": [{"name": "v3"}]}'),
        "guest",
        MULTIPART,
    ),
    get("/api/vhosts/v3?columns=name"),
    Step("POST", "/api/definitions", _part("other", "{}"), "guest", MULTIPART),
    Step("POST", "/api/definitions", _part("file", "{"), "guest", MULTIPART),
    Step("POST", "/api/definitions/v3", _part("file", "{}"), "guest", MULTIPART),
]

STEPS: Final = [
    *USERS_STEPS,
    *PERMISSION_STEPS,
    *POLICY_STEPS,
    *PARAMETER_STEPS,
    *OTHER_STEPS,
    *HEALTH_STEPS,
    *VHOST_STEPS,
]


class Said(NamedTuple):
    status: int
    content_type: str
    body: Any


SHOWN: Final = {"NODE": "NODE", "AMQP": "5672"}
PASSWORDS: Final = {"guest": "guest", "wrong": "wrong"}


def say(host: str, port: int, step: Step, names: dict[str, str]) -> Said:
    """``names``: what NODE and AMQP stand for; in answers they are written back."""
    headers = {"Content-Type": step.content_type}
    if step.user:
        password = PASSWORDS.get(step.user, "p")
        token = base64.b64encode(f"{step.user}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {token}"
    path = step.path
    for name, value in names.items():
        path = path.replace(name, value)
    connection = HTTPConnection(host, port, timeout=30)
    try:
        body = None if step.body is None else _text(step.body).encode()
        connection.request(step.method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    for name, value in names.items():
        text = re.sub(rf"(?<![0-9]){re.escape(value)}(?![0-9])", SHOWN[name], text)
    content_type = response.getheader("content-type", "").partition(";")[0]
    return Said(response.status, content_type, _parsed(text, content_type))


def _parsed(text: str, content_type: str) -> Any:
    if content_type != JSON or not text:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def main() -> None:
    host, _, port = sys.argv[1].partition(":")
    names = {"NODE": sys.argv[2], "AMQP": sys.argv[3]}
    answers = [{"step": step.name, **say(host, int(port), step, names)._asdict()} for step in STEPS]
    json.dump(answers, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
