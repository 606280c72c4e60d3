"""The API's own description: an OpenAPI 3.1 document, made from the routes of the endpoints.

In: every route, with its summary and the heading it stands under.  Out: paths, methods, parameters
of paths and lists, and how one logs in.  It wants no log-in: it tells nothing of the broker.
Bodies are objects: what is in them, and what comes back, says the reference.  A route without a
summary is described by its endpoint's own first line, else by its name.
"""

import re
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoint, Endpoints, Route

OPENAPI: Final = "3.1.0"
WITH_BODY: Final = ("PUT", "POST", "PATCH")
LIST_PARAMETERS: Final = {
    "columns": "Only these fields, dotted, with commas",
    "sort": "The field to sort by",
    "sort_reverse": "true: the largest first",
    "page": "Number of the page, from 1; without it there are no pages",
    "page_size": "At most 500",
    "name": "With a page: only names with this in them",
    "use_regex": "true: name is a regular expression",
}
_PARAMETER: Final = re.compile(r"\{(\w+)(?::[^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}")
"""One in a path, with a pattern of its own or not."""


class OpenApi(Endpoints):
    heading = "description"
    table = """
        open  penstock/openapi.json  GET=document  This document
    """

    async def document(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        context = self._context
        return json_response(document(context.endpoints, context.version))


def document(all_endpoints: Sequence[Endpoints], version: str) -> Row:
    paths: dict[str, Row] = {}
    for endpoints in all_endpoints:
        for route in endpoints.routes():
            operations = {
                method.lower(): _operation(endpoints, route, method) for method in route.endpoints
            }
            paths.setdefault(plain_path(route.path), {}).update(operations)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "Penstock management API",
            "version": version,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "parameters": {
                name: {
                    "name": name,
                    "in": "query",
                    "description": text,
                    "schema": {"type": "string"},
                }
                for name, text in LIST_PARAMETERS.items()
            },
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error", "reason"],
                    "properties": {"error": {"type": "string"}, "reason": {}},
                }
            },
        },
    }


def plain_path(path: str) -> str:
    return _PARAMETER.sub(r"{\1}", path)


def _operation(endpoints: Endpoints, route: Route, method: str) -> Row:
    operation: Row = {
        "operationId": _operation_id(route.path, method),
        "summary": route.summary or _in_words(route.endpoints[method]),
        "tags": [endpoints.heading or _first_part(route.path)],
        "parameters": [*_path_parameters(route.path), *_list_parameters(method, endpoints)],
        "responses": _responses(route, method),
    }
    if method in WITH_BODY:
        operation["requestBody"] = {"content": {"application/json": {"schema": {}}}}
    if not route.is_open:
        operation["security"] = [{"basic": []}]
    return operation


def _operation_id(path: str, method: str) -> str:
    parts = re.findall(r"\w+", plain_path(path).removeprefix("/api"))
    return "_".join([method.lower(), *parts])


def _in_words(endpoint: Endpoint) -> str:
    text = (endpoint.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    name = getattr(endpoint, "__name__", "")
    return text or name.replace("_", " ").capitalize()


def _first_part(path: str) -> str:
    parts = path.removeprefix("/api/").removeprefix("penstock/").split("/")
    return parts[0] or "page"


def _path_parameters(path: str) -> list[Row]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(path)
    ]


def _list_parameters(method: str, endpoints: Endpoints) -> list[Row]:
    if method != "GET" or not endpoints.has_lists:
        return []
    return [{"$ref": f"#/components/parameters/{name}"} for name in LIST_PARAMETERS]


def _responses(route: Route, method: str) -> Row:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses: Row = {}
    if method == "GET":
        content: Row = {"application/json": {}}
        responses["200"] = {"description": "What was asked for", "content": content}
    else:
        done = "Done: 201 when it is new, 204 when there is nothing to say"
        responses["2XX"] = {"description": done}
    responses["400"] = {"description": "Nonsense, or refused", "content": error}
    if not route.is_open:
        responses["401"] = {"description": "Not logged in, or not allowed", "content": error}
    if "{" in route.path:
        responses["404"] = {"description": "There is no such thing", "content": error}
    return responses
