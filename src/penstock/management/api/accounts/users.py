"""Users over HTTP, in the form of RabbitMQ's API; for administrators.

    GET              /api/users    /api/users/{user}
    GET              /api/users/without-permissions
    PUT              /api/users/{user}    {"password": "...", "tags": "a,b" or ["a", "b"]}
                                          or "password_hash" with "hashing_algorithm"
    DELETE           /api/users/{user}
    POST             /api/users/bulk-delete    {"users": ["a", "b"]}

``password_hash`` "" means that login with a password is refused; a body with neither says the
same, and so does the password "".  Passwords are hashed on this side: the data loop sees hashes
only.  The connections of a user who is deleted are closed, as RabbitMQ does it.
"""

import base64
import secrets
from collections.abc import Sequence

from aiohttp import web

from penstock.broker.administration import user_limits_of
from penstock.broker.definitions.importing import tags_in
from penstock.broker.rules.access import HASHING, HASHINGS, SALT_BYTES, User, hash_password
from penstock.core.errors import PreconditionFailed
from penstock.management.facts.rows import Row
from penstock.management.http.access import ADMINISTRATOR, Visitor
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import BadQuery, ListQuery


class UsersApi(Endpoints):
    """See the head of this file."""

    has_lists = True
    heading = "users"

    def routes(self) -> list[Route]:
        return [
            Route("/api/users", {"GET": self.users}, "All users", ADMINISTRATOR),
            Route(
                "/api/users/without-permissions",
                {"GET": self.without_permissions},
                "Users without a permission in any virtual host",
                ADMINISTRATOR,
            ),
            Route(
                "/api/users/bulk-delete",
                {"POST": self.delete_many},
                "Delete several",
                ADMINISTRATOR,
            ),
            Route(
                "/api/users/{user}",
                {"GET": self.user, "PUT": self.put, "DELETE": self.delete},
                "One user",
                ADMINISTRATOR,
            ),
        ]

    # -- looking -------------------------------------------------------------------------

    async def users(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._lists.gathered(await self._names(), self._rows)
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def without_permissions(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._lists.gathered(await self._names(), self._rows_of_strangers)
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def user(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._on_loop(self._row_of, request.match_info["user"])
        return json_response(ListQuery(request.query).project(row))

    async def _names(self) -> list[str]:
        return sorted(await self._on_loop(list, self._broker.users.users))

    def _rows(self, names: Sequence[str]) -> list[Row]:
        users = self._broker.users.users
        return [user_row(users[name]) for name in names if name in users]

    def _rows_of_strangers(self, names: Sequence[str]) -> list[Row]:
        users = self._broker.users.users
        strangers = [name for name in names if name in users and not users[name].vhosts]
        return self._rows(strangers)

    def _row_of(self, name: str) -> Row:
        return user_row(self.admin().user(name))

    # -- changing ------------------------------------------------------------------------

    async def put(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = await json_body(request)
        hashed = hashed_password(asked)
        if "tags" not in asked:
            raise BadQuery("bad_request", "tags_not_present")
        tags = _tags(asked["tags"])
        is_new = await self.change(self._put, request.match_info["user"], hashed, tags)
        return web.Response(status=201 if is_new else 204)

    def _put(self, name: str, hashed: tuple[str, str], tags: list[str]) -> bool:
        """Whether it is a new one."""
        is_new = name not in self._broker.users.users
        self.admin().put_user(name, *hashed, tags)
        return is_new

    async def delete(self, request: web.Request, visitor: Visitor) -> web.Response:
        return await self._delete([request.match_info["user"]])

    async def delete_many(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = await json_body(request)
        must_have(asked, "users")
        names = asked["users"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadQuery("bad_request", "users is no list of names")
        for name in names:
            if not await self._on_loop(self._broker.users.users.__contains__, name):
                raise BadQuery("bad_request", ["no_such_user", name])
        return await self._delete(list(dict.fromkeys(names)))

    async def _delete(self, names: list[str]) -> web.Response:
        for name in names:
            await self.change(self.admin().delete_user, name)
        return web.Response(status=204)


def user_row(user: User) -> Row:
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing,
        "tags": list(user.tags),
        "limits": user_limits_of(user),
    }


def hashed_password(asked: dict[str, object]) -> tuple[str, str]:
    """Hash and algorithm a body asks for."""
    if "password" in asked and "password_hash" in asked:
        raise BadQuery("bad_request", "both_password_and_password_hash_are_provided")
    if "password" in asked:
        password = asked["password"]
        if not isinstance(password, str):
            raise BadQuery("bad_request", "password is no text")
        return hash_password(password, secrets.token_bytes(SALT_BYTES)) if password else "", HASHING
    hashed, hashing = asked.get("password_hash", ""), asked.get("hashing_algorithm", HASHING)
    if not isinstance(hashing, str) or hashing not in HASHINGS:
        raise BadQuery("bad_request", f"unknown hashing algorithm '{hashing}'")
    try:
        base64.b64decode(str(hashed), validate=True)
    except ValueError as error:
        raise BadQuery("bad_request", "password_hash is no base64") from error
    return str(hashed), hashing


def _tags(value: object) -> list[str]:
    try:
        return tags_in(value)
    except PreconditionFailed as error:
        raise BadQuery("bad_request", str(error)) from error
