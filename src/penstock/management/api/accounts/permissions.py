"""Permissions over HTTP, in the form of RabbitMQ's API; for administrators.

    GET              /api/permissions              /api/topic-permissions
    GET PUT DELETE   /api/permissions/{vhost}/{user}
                        {"configure": "^a", "write": ".*", "read": ""}
    GET PUT DELETE   /api/topic-permissions/{vhost}/{user}
                        {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    GET              the same of one user or one virtual host: /api/users/{user}/permissions,
                     /api/vhosts/{vhost}/permissions, and with topic-permissions

A change holds at once, for sessions that are there too.  Deleting topic permissions takes those
for all exchanges, or for the one that stands behind the user in the path.
"""

from collections.abc import Callable, Sequence

from aiohttp import web

from penstock.broker.administration import without_variables
from penstock.broker.definitions.exporting import permission_rows, topic_rows
from penstock.broker.rules.access import User
from penstock.core import patterns
from penstock.core.errors import NotFound
from penstock.management.facts.rows import Row
from penstock.management.http.access import ADMINISTRATOR, Visitor
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import Endpoint, Endpoints, Route
from penstock.management.http.listing import BadQuery, ListQuery

RowsOf = Callable[[User], list[Row]]


class PermissionsApi(Endpoints):
    has_lists = True
    heading = "permissions"

    def routes(self) -> list[Route]:
        of_one: dict[str, Endpoint] = {
            "GET": self.permission,
            "PUT": self.put,
            "DELETE": self.delete,
        }
        of_topics: dict[str, Endpoint] = {
            "GET": self.topic_permission,
            "PUT": self.put_topic,
            "DELETE": self.delete_topics,
        }
        all_of_them, all_topics = {"GET": self.permissions}, {"GET": self.topic_permissions}
        what, topics = "What users may do", "Which routing keys users may use"
        return [
            Route("/api/permissions", all_of_them, what, ADMINISTRATOR),
            Route("/api/permissions/{vhost}/{user}", of_one, "Of one user", ADMINISTRATOR),
            Route("/api/users/{user}/permissions", all_of_them, "Of one user", ADMINISTRATOR),
            Route(
                "/api/vhosts/{vhost}/permissions", all_of_them, "In one virtual host", ADMINISTRATOR
            ),
            Route("/api/topic-permissions", all_topics, topics, ADMINISTRATOR),
            Route("/api/topic-permissions/{vhost}/{user}", of_topics, topics, ADMINISTRATOR),
            Route(
                "/api/topic-permissions/{vhost}/{user}/{exchange}", of_topics, topics, ADMINISTRATOR
            ),
            Route("/api/users/{user}/topic-permissions", all_topics, topics, ADMINISTRATOR),
            Route("/api/vhosts/{vhost}/topic-permissions", all_topics, topics, ADMINISTRATOR),
        ]

    # -- looking -------------------------------------------------------------------------

    async def permissions(self, request: web.Request, visitor: Visitor) -> web.Response:
        return await self._list(request, visitor, permission_rows)

    async def topic_permissions(self, request: web.Request, visitor: Visitor) -> web.Response:
        return await self._list(request, visitor, topic_rows)

    async def permission(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._on_loop(self._rows, dict(request.match_info), permission_rows)
        if not rows:
            raise NotFound("no permissions")
        return json_response(ListQuery(request.query).project(rows[0]))

    async def topic_permission(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._on_loop(self._rows, dict(request.match_info), topic_rows)
        if not rows:
            raise NotFound("no topic permissions")
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def _list(self, request: web.Request, visitor: Visitor, rows_of: RowsOf) -> web.Response:
        place = dict(request.match_info)
        users = await self._on_loop(self._users, place)
        rows = await self._lists.gathered(users, lambda some: _rows_at(place, some, rows_of))
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    def _rows(self, place: dict[str, str], rows_of: RowsOf) -> list[Row]:
        """Of the user that the path names; raises NotFound."""
        return _rows_at(place, self._users(place), rows_of)

    def _users(self, place: dict[str, str]) -> list[User]:
        """Who may be meant by a path; raises NotFound for what is not there."""
        if "vhost" in place:
            self._broker.vhost(place["vhost"])
        if "user" in place:
            return [self.admin().user(place["user"])]
        return list(self._broker.users.users.values())

    # -- changing ------------------------------------------------------------------------

    async def put(self, request: web.Request, visitor: Visitor) -> bool:
        patterns = _texts(await json_body(request), "configure", "write", "read")
        user, vhost = await self._place(request)
        return await self.change(self._put, user, vhost, patterns)

    def _put(self, user: str, vhost: str, patterns: list[str]) -> bool:
        is_new = vhost not in self.admin().user(user).vhosts
        self.admin().put_permission(user, vhost, *patterns)
        return is_new

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        await self.change(self._delete, dict(request.match_info))

    def _delete(self, place: dict[str, str]) -> None:
        if not self._rows(place, permission_rows):
            raise NotFound("no permissions")
        self.admin().delete_permission(place["user"], place["vhost"])

    async def put_topic(self, request: web.Request, visitor: Visitor) -> bool:
        values = _texts(await json_body(request), "exchange", "write", "read")
        user, vhost = await self._place(request)
        return await self.change(self._put_topic, user, vhost, values)

    def _put_topic(self, user: str, vhost: str, values: list[str]) -> bool:
        is_new = not any(place[0] == vhost for place in self.admin().user(user).topics)
        self.admin().put_topic_permission(user, vhost, *values)
        return is_new

    async def delete_topics(self, request: web.Request, visitor: Visitor) -> None:
        await self.change(self._delete_topics, dict(request.match_info))

    def _delete_topics(self, place: dict[str, str]) -> None:
        if not self._rows(place, topic_rows):
            raise NotFound("no topic permissions")
        self.admin().delete_topic_permissions(place["user"], place["vhost"], place.get("exchange"))

    async def _place(self, request: web.Request) -> tuple[str, str]:
        """User and virtual host of the path, for a change; raises BadQuery."""
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        if not await self._on_loop(self._are_known, user, vhost):
            raise BadQuery("bad_request", "vhost_or_user_not_found")
        return user, vhost

    def _are_known(self, user: str, vhost: str) -> bool:
        return user in self._broker.users.users and vhost in self._broker.vhosts


def _rows_at(place: dict[str, str], users: Sequence[User], rows_of: RowsOf) -> list[Row]:
    """What these users have there."""
    return [
        row
        for user in users
        for row in rows_of(user)
        if all(row.get(key) == place[key] for key in ("vhost", "exchange") if key in place)
    ]


def _texts(asked: dict[str, object], *keys: str) -> list[str]:
    """The texts of these names; raises BadQuery with RabbitMQ's words for those that lack."""
    must_have(asked, *keys)
    texts = [asked[key] for key in keys]
    for key, text in zip(keys, texts, strict=True):
        if not isinstance(text, str):
            raise BadQuery("bad_request", f"{key} is no text")
        if key != "exchange":
            _check_pattern(text)
    return [str(text) for text in texts]


def _check_pattern(text: str) -> None:
    try:
        patterns.check(without_variables(text))
    except patterns.Refused as error:
        raise BadQuery("bad_request", ["invalid_regexp", text, str(error)]) from error
