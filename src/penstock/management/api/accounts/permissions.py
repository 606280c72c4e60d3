"""Permissions over HTTP, in the form of RabbitMQ's API; for administrators.

    PUT   {"configure": "^a", "write": ".*", "read": ""}
          {"exchange": "amq.topic", "write": "^a", "read": ".*"}

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
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery, ListQuery

RowsOf = Callable[[User], list[Row]]


class PermissionsApi(Endpoints):
    has_lists = True
    heading = "permissions"
    table = """
        administrator  permissions  GET=all  What users may do
        administrator  permissions/{vhost}/{user}  GET=one PUT=put DELETE=delete  Of one user
        administrator  users/{user}/permissions  GET=all  Of one user
        administrator  vhosts/{vhost}/permissions  GET=all  In one virtual host
        administrator  topic-permissions  GET=all  Which routing keys users may use
        administrator  topic-permissions/{vhost}/{user}  \
          GET=one PUT=put DELETE=delete  Which routing keys users may use
        administrator  topic-permissions/{vhost}/{user}/{exchange}  \
          GET=one PUT=put DELETE=delete  Which routing keys users may use
        administrator  users/{user}/topic-permissions  GET=all  Which routing keys users may use
        administrator  vhosts/{vhost}/topic-permissions  GET=all  Which routing keys users may use
    """

    # -- looking -------------------------------------------------------------------------

    async def all(self, request: web.Request, visitor: Visitor) -> web.Response:
        place, rows_of = dict(request.match_info), _rows_of(request)
        users = await self._on_loop(self._users, place)
        rows = await self._lists.gathered(users, lambda some: _rows_at(place, some, rows_of))
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def one(self, request: web.Request, visitor: Visitor) -> web.Response:
        """Of a user in a virtual host; topic permissions may be several."""
        query = ListQuery(request.query)
        rows = await self._on_loop(self._rows, dict(request.match_info), _rows_of(request))
        if _is_of_topics(request):
            return await self._lists.answer_rows(query, rows, pageable=False)
        return json_response(query.project(rows[0]))

    def _rows(self, place: dict[str, str], rows_of: RowsOf) -> list[Row]:
        """Of the user that the path names; raises NotFound when there are none."""
        rows = _rows_at(place, self._users(place), rows_of)
        if not rows:
            kind = "topic permissions" if rows_of is topic_rows else "permissions"
            raise NotFound(f"no {kind}")
        return rows

    def _users(self, place: dict[str, str]) -> list[User]:
        """Who may be meant by a path; raises NotFound for what is not there."""
        if "vhost" in place:
            self._broker.vhost(place["vhost"])
        if "user" in place:
            return [self.admin().user(place["user"])]
        return list(self._broker.users.users.values())

    # -- changing ------------------------------------------------------------------------

    async def put(self, request: web.Request, visitor: Visitor) -> bool:
        first = "exchange" if _is_of_topics(request) else "configure"
        texts = _texts(await json_body(request), first, "write", "read")
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        users, vhosts = self._broker.users.users, self._broker.vhosts
        if not await self._on_loop(lambda: user in users and vhost in vhosts):
            raise BadQuery("vhost_or_user_not_found")
        return await self.change(self._put, user, vhost, texts, _is_of_topics(request))

    def _put(self, user: str, vhost: str, texts: list[str], of_topics: bool) -> bool:
        found = self.admin().user(user)
        if of_topics:
            is_new = not any(place[0] == vhost for place in found.topics)
            self.admin().put_topic_permission(user, vhost, *texts)
        else:
            is_new = vhost not in found.vhosts
            self.admin().put_permission(user, vhost, *texts)
        return is_new

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        await self.change(self._delete, dict(request.match_info), _rows_of(request))

    def _delete(self, place: dict[str, str], rows_of: RowsOf) -> None:
        self._rows(place, rows_of)
        user, vhost = place["user"], place["vhost"]
        if rows_of is topic_rows:
            self.admin().delete_topic_permissions(user, vhost, place.get("exchange"))
        else:
            self.admin().delete_permission(user, vhost)


def _is_of_topics(request: web.Request) -> bool:
    resource = request.match_info.route.resource  # its path has no names of users in it
    return resource is not None and "topic-permissions" in resource.canonical


def _rows_of(request: web.Request) -> RowsOf:
    return topic_rows if _is_of_topics(request) else permission_rows


def _rows_at(place: dict[str, str], users: Sequence[User], rows_of: RowsOf) -> list[Row]:
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
            raise BadQuery(f"{key} is no text")
        if key != "exchange":
            _check_pattern(text)
    return [str(text) for text in texts]


def _check_pattern(text: str) -> None:
    try:
        patterns.check(without_variables(text))
    except patterns.Refused as error:
        raise BadQuery(["invalid_regexp", text, str(error)]) from error
