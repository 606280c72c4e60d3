"""Links to other sites, which no test can open: few, known hosts, https, no fragments.

``make links`` asks for those of the pages.
"""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
PAGES = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
PAGES.remove(README)  # which is no page of the site
SOURCES = [one for end in ("py", "js", "html") for one in (REPOSITORY / "src").rglob(f"*.{end}")]
HOSTS = {
    "github.com": "rabbitmqadmin of RabbitMQ 3.10.8, which no package has alone",
    "py.iceberg.apache.org": "the configuration of catalogs",
}
EXAMPLE = re.compile(r"(^|\.)example(\.com)?$")
LINK = re.compile(r"(https?)://(?:[^\s/@]*@)?((?:[\w-]+\.)+[a-z]{2,})\b([^\s)>\"'`\]]*)")


def links(paths: list[Path]) -> set[str]:
    """To other sites; each is of a known host, and well formed."""
    found = set()
    for path in paths:
        text = "" if "vendor" in path.parts else path.read_text(encoding="utf-8")
        for scheme, host, rest in LINK.findall(text):
            if EXAMPLE.search(host):
                continue
            assert host in HOSTS, f"{path}: a new host, or a misspelt one: {host}"
            assert (scheme, "#" in rest) == ("https", False), f"{path}: {host}{rest}"
            found.add(host + rest)
    return found


def test_external_links() -> None:
    of_pages = links(PAGES)
    assert {link.partition("/")[0] for link in of_pages} == HOSTS.keys()
    assert links([*SOURCES, README]) <= of_pages, "an address that `make links` does not ask for"
