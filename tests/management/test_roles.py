"""The role that a route asks for is a column of the table of routes."""

from __future__ import annotations

import re

from tests.management.conftest import Served

WITHOUT_ROLE = {
    *("bindings", "exchanges", "queues", "stream", "connections", "login", "session", "traces")
}
"""First parts of paths: permissions decide, or the visitor changes what is their own."""


def test_a_route_refuses_users_without_its_role(served: Served) -> None:
    served.add_user("mon", "m", ["management"], "/")
    for route in served.routes():
        for method in route.endpoints:
            role = route.role_for(method)
            if role is not None:
                answer = served.ask(re.sub(r"\{\w+\}", "x", route.path), "mon", method)
                assert (answer.status, role.refusal in answer.body) == (401, True), route.path


def test_changes_without_a_role_are_known(served: Served) -> None:
    found = {
        re.findall(r"\w+", route.path.removeprefix("/api").removeprefix("/penstock"))[0]
        for route in served.routes()
        for method in route.endpoints
        if method != "GET" and route.role_for(method) is None
    }
    assert found == WITHOUT_ROLE
