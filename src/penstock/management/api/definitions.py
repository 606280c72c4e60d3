"""``/api/definitions``: everything declared, as RabbitMQ's JSON, out and in; administrators only.

The body of a POST is the JSON itself, or a form with a field ``file``, as browsers send it.

Both are done on the data loop in slices, between which clients are served; what comes is read in
a thread, row by row (``long_bodies``).  An import answers 204
when all was taken, as RabbitMQ does, and else 400 with ``{"left_out": [...]}``: what was not, and
why; the rest was taken.  A client that asks with ``?partial=true`` reads that list: it gets 200.
An import adds and changes; it removes nothing.
"""

import asyncio
import secrets
from functools import partial
from typing import Final

from aiohttp import BodyPartReader, web

from penstock.broker.definitions.exporting import DefinitionsExport
from penstock.broker.definitions.importing import DefinitionsImport, ImportPlan
from penstock.broker.rules.access import SALT_BYTES
from penstock.broker.rules.log_ins import HTTP
from penstock.core.events.book import Actor
from penstock.management.facts.on_loop import AGAIN_S
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import BODY_MAX_BYTES, json_response, must_be_plain
from penstock.management.http.endpoints import DIALECT, Endpoints
from penstock.management.http.listing import BadQuery
from penstock.management.http.long_bodies import parsed_by_rows

FORM: Final = "multipart/form-data"
STEPS: Final = 50
"""Rows per slice of an import: a declared queue costs some tens of microseconds."""
SHOWN: Final = 10
"""Lines of what was left out that a refusal has in its sentence, for tools that show only that."""
ROWS: Final = 200
"""The same of an export: a row costs some microseconds."""


class DefinitionsApi(Endpoints):
    has_lists = True
    heading = "definitions"
    table = """
        administrator  definitions          GET=export POST=take  All that is declared, out and in
        administrator  definitions/{vhost}  GET=export POST=take  Of one virtual host
        administrator  all-configuration    GET=export POST=take  As definitions, by an old name
    """

    async def export(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = await self._vhost(request, visitor, 400)
        work = await self._on_loop(
            DefinitionsExport, self._broker, DIALECT, self._context.version, name
        )
        while not await self._on_loop(work.run, ROWS):
            pass
        return await self._lists.answer_object(work.exported)

    async def take(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = await self._vhost(request, visitor, 404)
        plan = await asyncio.to_thread(_plan, await _sent(request), name)
        actor = Actor(visitor.acts_as, HTTP, request.remote or "")
        work = await self._on_loop(self._begin, plan, actor)
        while not await self._on_loop(work.run, STEPS):
            if work.waits:
                await asyncio.sleep(AGAIN_S)
        # Once more around: what was declared is on disk when the loop comes here.
        await self._on_loop(len, work.left_out)
        if not work.left_out:
            return web.Response(status=204)
        if request.query.get("partial") == "true":
            return json_response({"left_out": work.left_out})
        return json_response(_refusal(work.left_out), 400)

    def _begin(self, plan: ImportPlan, actor: Actor) -> DefinitionsImport:
        salt = partial(secrets.token_bytes, SALT_BYTES)
        return DefinitionsImport(self._broker, self.admin(), plan, salt, actor)

    async def _vhost(self, request: web.Request, visitor: Visitor, missing: int) -> str:
        """The one in the path, "" = all.  Raises BadQuery.

        ``missing``: the status where there is none of that name.
        """
        name = request.match_info.get("vhost", "")
        if name and not await self._on_loop(self._broker.vhosts.__contains__, name):
            raise BadQuery(
                "vhost_not_found", "not_found" if missing == 404 else "bad_request", missing
            )
        return name


async def _sent(request: web.Request) -> bytes:
    must_be_plain(request)
    whole = request.clone(client_max_size=BODY_MAX_BYTES)
    if request.content_type != FORM:
        return await whole.read()
    try:
        async for part in await whole.multipart():
            if isinstance(part, BodyPartReader) and part.name == "file":
                return bytes(await part.read())
    except (ValueError, AssertionError) as error:
        raise BadQuery("not_multipart") from error
    raise BadQuery("the form has no field 'file'")


def _refusal(left_out: list[str]) -> dict[str, object]:
    shown = left_out[:SHOWN]
    if len(left_out) > SHOWN:
        shown.append(f"and {len(left_out) - SHOWN} more")
    reason = "; ".join([f"{len(left_out)} left out, the rest was taken", *shown])
    return {"error": "bad_request", "reason": reason, "left_out": left_out}


def _plan(body: bytes, vhost: str) -> ImportPlan:
    return ImportPlan(parsed_by_rows(body, "failed_to_parse_json"), vhost)
