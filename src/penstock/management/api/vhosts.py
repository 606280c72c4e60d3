"""One virtual host over HTTP: created, described and traced, in the form of RabbitMQ's API.

    PUT  /api/vhosts/{vhost}    {"description": "...", "tags": "a,b" or ["a", "b"],
                                 "tracing": true or false, "default_queue_type": "quorum",
                                 "protected_from_deletion": true or false}
    POST /api/vhosts/{vhost}/start/{node}    a virtual host runs whenever its node does
    POST, DELETE /api/vhosts/{vhost}/deletion/protection    the last of these fields, true or false
    DELETE                       with everything in it; its connections are closed; one more of
                                 these takes up a removal that was interrupted, and so does a
                                 start; 412 for one that is protected from deletion

``PUT`` makes a virtual host that is not there (201) and changes one that is (204); what the body
does not name stays as it is.  Only administrators may; who makes one may do everything in it.
``tracing`` switches the firehose, until the node ends or is told otherwise.
"""

import asyncio
import logging
from functools import partial
from typing import Final

from aiohttp import web

from penstock.broker.definitions.importing import tags_in
from penstock.broker.rules.arguments import UNSAID, check_default_type
from penstock.broker.topology.vhost import Vhost
from penstock.broker.vhost_removal import VhostRemoval
from penstock.core.errors import AccessRefused, NotFound, NotImplementedYet, PreconditionFailed
from penstock.core.pending import Pending
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import flag, json_body, json_response
from penstock.management.http.endpoints import Context, Endpoints
from penstock.management.http.listing import BadQuery, ListQuery
from penstock.storage.definitions.records import NO_METADATA, VhostRecord

STEP_PAUSE_S: Final = 0.001
"""Between two slices of a removal others have the data loop for so long."""
FLAGS: Final = ("tracing", "protected_from_deletion")
KNOWN: Final = ("name", "vhost", "description", "tags", "default_queue_type", *FLAGS)
"""The name is in the path already; some clients say it twice, under one of two names."""
PROTECTED: Final = "Refusing to delete virtual host '{}' because it is protected from deletion"

log = logging.getLogger("penstock.management")


class VhostsApi(Endpoints):
    has_lists = True
    heading = "virtual hosts"
    table = """
        user                vhosts  GET=vhosts  All virtual hosts
        user/administrator  vhosts/{vhost}  GET=get PUT=put DELETE=delete  One virtual host
        administrator       vhosts/{vhost}/start/{node}  POST=start  It runs already
        administrator       vhosts/{vhost}/deletion/protection  POST=protect DELETE=protect  \
            Whether it can be deleted
    """

    def __init__(self, context: Context) -> None:
        """Before the data loop turns, or there is none whose removal was interrupted."""
        super().__init__(context)
        self._interrupted = {
            vhost.name: self._removal(vhost)
            for vhost in self._broker.vhosts.values()
            if vhost.closing
        }
        self._resuming: asyncio.Task[None] | None = None

    async def vhosts(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        names = await self._on_loop(self._view.vhost_names)
        if not visitor.may_monitor:
            names = [name for name in names if visitor.may_enter(name)]
        rows = []
        for name in sorted(names):
            ready, unacked, _ = await self._lists.message_counts([name])
            row = await self._on_loop(self._view.vhost_row, name)
            row.update(
                messages=ready + unacked, messages_ready=ready, messages_unacknowledged=unacked
            )
            rows.append(row)
        return await self._lists.answer_rows(query, rows, pageable=True)

    async def get(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = request.match_info["vhost"]
        row = await self._on_loop(self._view.vhost_row, name)
        if not (visitor.may_monitor or visitor.may_enter(name)):
            raise AccessRefused("User not authorised to access virtual host")
        return json_response(ListQuery(request.query).project(row))

    async def start(self, request: web.Request, visitor: Visitor) -> None:
        await self.asked_vhosts(request, visitor)
        self._context.must_be_us(request.match_info["node"])

    async def protect(self, request: web.Request, visitor: Visitor) -> None:
        """Or, by DELETE, no longer."""
        [name] = await self.asked_vhosts(request, visitor)
        is_protected = request.method == "POST"
        await self.change(self._put, name, {"protected_from_deletion": is_protected})

    async def put(self, request: web.Request, visitor: Visitor) -> bool:
        asked = await json_body(request)
        _check(asked)
        name = request.match_info["vhost"]
        is_new = await self.change(self._put, name, asked)
        if is_new:
            await self.change(lambda: self.admin().seed_vhost(name))
            if visitor.external is None:
                await self.change(self._let_in, name, visitor.name)
        return is_new

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        """Returns when it is gone, with everything in it."""
        name = request.match_info["vhost"]
        if self._broker.changes.follows:
            await self._delete_everywhere(name)
            return
        removal = await self.change(self._remove, name)
        while True:
            if await self._on_loop(self._step, removal):
                break
            await asyncio.sleep(STEP_PAUSE_S)
        await self.change(len, "")

    async def begin(self) -> None:
        if self._interrupted:
            self._resuming = asyncio.create_task(self._resume())

    async def close(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()

    async def _resume(self) -> None:
        """What the end of the process before this one has interrupted."""
        for name, removal in self._interrupted.items():
            log.warning("virtual host '%s' was being deleted when the node ended: going on", name)
            while True:
                if await self._step_at_last(removal):
                    break
                await asyncio.sleep(STEP_PAUSE_S)
            log.info("virtual host '%s' is deleted", name)

    async def _step_at_last(self, removal: VhostRemoval) -> bool:
        try:
            return await self._on_loop(self._step, removal)
        except TimeoutError:  # the data loop has much to do, or does not turn yet
            return False

    async def _delete_everywhere(self, name: str) -> None:
        """The cluster agrees that it goes; then each node ends what it has of it."""
        vhost = await self.change(self._let_go, name)
        while True:
            if await self._on_loop(self._broker.vhosts.get, name) is not vhost:
                break
            await asyncio.sleep(STEP_PAUSE_S)

    def _let_go(self, name: str) -> Vhost:
        vhost = self._deletable(name)
        if not vhost.closing:
            self._broker.changes.delete(VhostRecord(name))
        return vhost

    def _remove(self, name: str) -> VhostRemoval:
        """One that was begun and is not at its end goes on with this one."""
        return self._removal(self._deletable(name))

    def _deletable(self, name: str) -> Vhost:
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"vhost {name} not found")
        if vhost.metadata.protected_from_deletion and not vhost.closing:
            raise BadQuery(PROTECTED.format(name), "precondition_failed", 412)
        return vhost

    def _removal(self, vhost: Vhost) -> VhostRemoval:
        return VhostRemoval(self._broker, vhost, self._view.watch.close_some)

    def _step(self, removal: VhostRemoval) -> bool:
        done, lost = removal.step()
        self._view.watch.cancelled(lost)
        return done

    def _put(self, name: str, asked: dict[str, object]) -> bool | Pending:
        admin = self.admin()
        known = self._broker.vhosts.get(name)
        if known is not None and known.closing:
            raise PreconditionFailed(f"vhost '{name}' is being deleted")
        metadata = NO_METADATA if known is None else known.metadata
        if "description" in asked:
            metadata = metadata._replace(description=str(asked["description"]))
        if "tags" in asked:
            metadata = metadata._replace(tags=tuple(tags_in(asked["tags"])))
        if asked.get("default_queue_type") not in UNSAID:
            metadata = metadata._replace(default_queue_type=str(asked["default_queue_type"]))
        if "protected_from_deletion" in asked:
            is_protected = flag(asked["protected_from_deletion"])
            metadata = metadata._replace(protected_from_deletion=is_protected)
        if known is None or metadata != known.metadata:
            admin.put_vhost(name, metadata)
        is_new = self._broker.changes.at_first(known is None)
        if "tracing" not in asked:
            return is_new
        return self._broker.changes.then(partial(self._trace, name, flag(asked["tracing"]), is_new))

    def _trace(self, name: str, traced: bool, is_new: bool) -> bool:
        self.admin().trace(name, on=traced)
        return is_new

    def _let_in(self, vhost: str, user: str) -> None:
        """Not everybody who administrates is a user here."""
        if user in self._broker.users.users:
            self.admin().put_permission(user, vhost, ".*", ".*", ".*")


def _check(asked: dict[str, object]) -> None:
    """All of it is right, or nothing is done."""
    for key in asked:
        if key not in KNOWN:
            raise BadQuery(f"unknown field '{key}'; known: {', '.join(KNOWN)}")
    if not isinstance(asked.get("description", ""), str):
        raise BadQuery("'description' is no text")
    try:
        check_default_type(asked.get("default_queue_type"))
        tags_in(asked.get("tags", []))
    except (NotImplementedYet, PreconditionFailed) as error:
        raise BadQuery(str(error)) from error
    for key in FLAGS:
        if key in asked:
            flag(asked[key])
