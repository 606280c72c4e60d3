"""Links to other sites, which no test can open: known hosts, https, no fragments."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
SOURCES += (one for end in ("py", "js", "html") for one in (REPOSITORY / "src").rglob(f"*.{end}"))
HOSTS = {
    "amqp-node.github.io": "amqplib, the client of the tutorial in JavaScript",
    "etcd.io": "the coordinator of a cluster",
    "github.com": "clients of the tutorials; rabbitmqadmin of RabbitMQ 3.10.8",
    "keepachangelog.com": "the form of the changelog",
    "pika.readthedocs.io": "pika, the client of the tutorial in Python",
    "pkg.go.dev": "amqp091-go, the client of the tutorial in Go",
    "py.iceberg.apache.org": "the configuration of catalogs",
    "semver.org": "what version numbers mean",
    "www.rabbitmq.com": "the clients of the tutorials in Java and C#",
    "www.w3.org": "the standard of trace contexts",
}
EXAMPLE = re.compile(r"(^|\.)example(\.com)?$")
LINK = re.compile(r"(https?)://(?:[^\s/@]*@)?((?:[\w-]+\.)+[a-z]{2,})\b([^\s)>\"'`\]]*)")


def test_external_links() -> None:
    found = set()
    for path in SOURCES:
        text = "" if "vendor" in path.parts else path.read_text(encoding="utf-8")
        for scheme, host, rest in LINK.findall(text):
            if EXAMPLE.search(host):
                continue
            found.add(host)
            assert host in HOSTS, f"{path}: a new host, or a misspelt one: {host}"
            assert (scheme, "#" in rest) == ("https", False), f"{path}: {host}{rest}"
    assert found == HOSTS.keys()
