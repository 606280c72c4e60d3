"""Users over HTTP, in the form of RabbitMQ's API; for administrators.

    PUT    /api/users/{user}          {"password": "...", "tags": "a,b" or ["a", "b"]}
                                      or "password_hash" with "hashing_algorithm"
    POST   /api/users/bulk-delete     {"users": ["a", "b"]}

``password_hash`` "" means that login with a password is refused; a body with neither says the
same, and so does the password "".  Passwords are hashed on this side: the data loop sees hashes
only.  The connections of a user who is deleted are closed, as RabbitMQ does it.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from penstock.broker.definitions.exporting import user_row
from penstock.broker.definitions.importing import tags_in
from penstock.broker.rules.access import HASHING, KNOWN_HASHINGS, PasswordHash
from penstock.broker.rules.passwords import Passwords
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery, ListQuery

WHICH: Final = ("newer", "older")
"""The passwords of a user; the only one is the newer one."""


class UsersApi(Endpoints):
    has_lists = True
    heading = "users"
    table = """
        administrator  penstock/users/{user}/passwords  GET=passwords POST=add_password  \
            Its passwords, and when each was last used
        administrator  penstock/users/{user}/passwords/{which}  DELETE=drop_password  \
            Drop one of two: older or newer
        administrator  users  GET=users  All users
        administrator  users/without-permissions  GET=without_permissions  \
            Users without a permission in any virtual host
        administrator  users/bulk-delete  POST=delete_many  Delete several
        administrator  users/{user}  GET=user PUT=put DELETE=delete  One user
    """

    # -- passwords -----------------------------------------------------------------------

    async def passwords(self, request: web.Request, _visitor: Visitor) -> web.Response:
        return json_response(await self._on_loop(self._passwords_of, request.match_info["user"]))

    def _passwords_of(self, name: str) -> list[Row]:
        user = self.admin().user(name)
        hashes = [one for one in user.hashes if one.text]
        return [
            {
                "which": which,
                "hashing_algorithm": one.hashing,
                "last_used_ms": user.password_used.get(one.text),
            }
            for which, one in zip(WHICH, hashes, strict=False)
        ]

    async def add_password(self, request: web.Request, _visitor: Visitor) -> bool:
        asked = await json_body(request)
        hashed = await asyncio.to_thread(hashed_password, asked, self._broker.users.passwords)
        if not hashed[0]:
            raise BadQuery("password: a text that is not empty")
        name = request.match_info["user"]
        await self.change(lambda: self.admin().add_password(name, PasswordHash(*hashed)))
        return True

    async def drop_password(self, request: web.Request, _visitor: Visitor) -> None:
        which = request.match_info["which"]
        if which not in WHICH:
            raise NotFound(which)
        name = request.match_info["user"]
        await self.change(lambda: self.admin().drop_password(name, which == WHICH[1]))

    # -- looking -------------------------------------------------------------------------

    async def users(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._lists.gathered(await self._names(), self._rows)
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def without_permissions(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._lists.gathered(await self._names(), self._rows_of_strangers)
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def user(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = request.match_info["user"]
        row = await self._on_loop(lambda: user_row(self.admin().user(name)))
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

    # -- changing ------------------------------------------------------------------------

    async def put(self, request: web.Request, visitor: Visitor) -> bool:
        asked = await json_body(request)
        passwords = self._broker.users.passwords
        # A slow hash, in a thread that no other request waits for.
        hashed = await asyncio.to_thread(hashed_password, asked, passwords)
        if "tags" not in asked:
            raise BadQuery("tags_not_present")
        tags = _tags(asked["tags"])
        return await self.change(self._put, request.match_info["user"], hashed, tags)

    def _put(self, name: str, hashed: tuple[str, str], tags: list[str]) -> bool:
        """Whether it is a new one."""
        is_new = name not in self._broker.users.users
        self.admin().put_user(name, *hashed, tags)
        return is_new

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        await self._delete([request.match_info["user"]])

    async def delete_many(self, request: web.Request, visitor: Visitor) -> None:
        asked = await json_body(request)
        must_have(asked, "users")
        names = asked["users"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadQuery("users is no list of names")
        for name in names:
            if not await self._on_loop(self._broker.users.users.__contains__, name):
                raise BadQuery(["no_such_user", name])
        await self._delete(list(dict.fromkeys(names)))

    async def _delete(self, names: list[str]) -> None:
        for name in names:
            await self.change(self.admin().delete_user, name)


def hashed_password(asked: dict[str, object], passwords: Passwords) -> tuple[str, str]:
    """Hash and algorithm a body asks for.  Raises BadQuery, PreconditionFailed."""
    if "password" in asked and "password_hash" in asked:
        raise BadQuery("both_password_and_password_hash_are_provided")
    if "password" in asked:
        password = asked["password"]
        if not isinstance(password, str):
            raise BadQuery("password is no text")
        passwords.rule.check(password)
        return (passwords.hashed(password), passwords.hashing) if password else ("", HASHING)
    hashed, hashing = asked.get("password_hash", ""), asked.get("hashing_algorithm", HASHING)
    if not isinstance(hashing, str) or hashing not in KNOWN_HASHINGS:
        raise BadQuery(f"unknown hashing algorithm '{hashing}'")
    try:
        base64.b64decode(str(hashed), validate=True)
    except ValueError as error:
        raise BadQuery("password_hash is no base64") from error
    return str(hashed), hashing


def _tags(value: object) -> list[str]:
    try:
        return tags_in(value)
    except PreconditionFailed as error:
        raise BadQuery(str(error)) from error
