"""Every route is in the document the broker serves, and in the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from penstock.management.http.openapi import plain_path
from tests.management.conftest import Served

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "management-api.md"


def test_the_document_has_every_route_and_nothing_else(served: Served) -> None:
    answer = served.raw("/api/penstock/openapi.json")
    assert answer.status == 200
    document = served.get("/api/penstock/openapi.json")
    assert document["openapi"] == "3.1.0"
    routes = served.routes()
    named = {
        (plain_path(route.path), method.lower()) for route in routes for method in route.endpoints
    }
    operations = {
        (path, method): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == named
    identities = [operation["operationId"] for operation in operations.values()]
    assert len(set(identities)) == len(identities)
    for (path, _method), operation in operations.items():
        assert operation["summary"], path
        in_path = [one["name"] for one in operation["parameters"] if one.get("in") == "path"]
        assert in_path == re.findall(r"\{(\w+)\}", path)
        for one in operation["parameters"]:
            reference = one.get("$ref", "")
            if reference:
                assert reference.rpartition("/")[2] in document["components"]["parameters"]


def test_what_wants_no_log_in_says_so(served: Served) -> None:
    document = served.get("/api/penstock/openapi.json")
    for path, methods in document["paths"].items():
        is_open = all("security" not in operation for operation in methods.values())
        if "{" not in path and "get" in methods:
            assert (served.raw(path).status != 401) is is_open, path


def test_every_route_is_in_the_reference(served: Served) -> None:
    spelt = {_nameless(path) for path in _spelt(REFERENCE.read_text())}
    routes = [plain_path(route.path) for route in served.routes()]
    assert [path for path in routes if _nameless(path) not in spelt] == []


def test_no_path_has_two_lines() -> None:
    lines = [line for line in REFERENCE.read_text().splitlines() if line.startswith("| `/")]
    paths = [_nameless(path) for line in lines for path in _spelt(line.split("|")[1])]
    assert [path for path in set(paths) if paths.count(path) > 1] == []


def _spelt(text: str) -> Iterator[str]:
    """All paths; behind one of them ``…/other`` is the same with another last part."""
    before = ""
    for path in re.findall(r"`((?:/|…/)[^`\s?]*)", text):
        if path.startswith("/"):
            before = path
        yield before.rpartition("/")[0] + path[1:] if path.startswith("…") else path


def _nameless(path: str) -> str:
    """What a parameter is called is another thing in the reference."""
    return re.sub(r"\{\w+\}", "{}", path)


def test_a_pattern_in_a_path_is_no_part_of_its_name() -> None:
    assert plain_path("/api/a/{vhost}/{name:.+}/{n:[0-9]{1,3}}") == "/api/a/{vhost}/{name}/{n}"
