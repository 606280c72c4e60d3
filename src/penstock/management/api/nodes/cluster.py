"""The cluster and who logs in, over HTTP: names, features, log-ins; RabbitMQ's small endpoints.

    GET PUT     /api/cluster-name                 {"name": "..."}
    GET         /api/extensions, /api/version
    GET         /api/feature-flags                PUT /api/feature-flags/{name}/enable
    GET         /api/deprecated-features[/used]   none
    GET DELETE  /api/auth/attempts/{node}     log-ins since the start, by protocol that had some
    GET         /api/auth/attempts/{node}/source  none: RabbitMQ does not track them by default
    DELETE      /api/penstock/auth-cache          answers of servers that know users
    GET         /api/penstock/lockouts            users that are locked out, until when
    DELETE      /api/penstock/lockouts/{user}     not any more
    GET         /api/auth/hash_password/{password}
    GET         /api/auth                         how a browser is to log in
    POST        /api/login                        a form with username and password, or with the
                                                  access_token of a provider: begins a session
    GET         /api/config/effective             the node's settings, without passwords
    DELETE      /api/reset[/{node}]               samples are forgotten, counts stay
    GET         /api/penstock/cluster             its nodes, the links of this one to them, and how
                                                  many masters and mirrors each has
    DELETE      /api/penstock/cluster/nodes/{name}   one that is down, and never comes back

Feature flags are what a RabbitMQ of our dialect has switched on and what holds here as well;
streams are not among them.
"""

import asyncio
import secrets
from typing import Final, cast

from aiohttp import web

from penstock.broker.parameters import CLUSTER_NAME
from penstock.broker.rules.access import SALT_BYTES, hash_password
from penstock.broker.rules.judges import NAMELESS
from penstock.core.errors import AccessRefused, EntryRefused, NotFound, PreconditionFailed
from penstock.management.facts.rows import Row
from penstock.management.http.access import ADMINISTRATOR, MONITORING, Visitor, login_failed
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import DIALECT, Endpoints, Route
from penstock.management.http.listing import BadQuery, ListQuery
from penstock.management.http.lists import slices
from penstock.management.http.ui_sessions import set_cookie
from penstock.management.rows.mirrors import COUNTED
from penstock.settings.settings import DECLARED, SECRETS

FORGET: Final = "/api/penstock/cluster/nodes/{name}"
FORM_TIMEOUT_S: Final = 10.0
BEGUN: Final = "/?session"
"""The page of the web UI that takes up the session in the cookie."""
HIDDEN_SETTINGS: Final = SECRETS | {
    *("https_tls", "prometheus_tls", "nsq_tls", "nsqlookupd_tls", "cluster_tls")
}
FEATURE_FLAGS: Final = {
    "classic_mirrored_queue_version": "Support setting version for classic mirrored queues",
    "drop_unroutable_metric": "Count unroutable publishes to be dropped in stats",
    "empty_basic_get_metric": "Count AMQP `basic.get` on empty queues in stats",
    "implicit_default_bindings": (
        "Default bindings are now implicit, instead of being stored in the database"
    ),
    "maintenance_mode_status": "Maintenance mode status",
    "quorum_queue": "Support queues of type `quorum`",
    "user_limits": "Configure connection and channel limits for a user",
    "virtual_host_metadata": "Virtual host metadata (description, tags, etc)",
}


class ClusterApi(Endpoints):
    heading = "cluster"

    def routes(self) -> list[Route]:
        name = {"GET": self.cluster_name, "PUT": self.put_cluster_name}
        nothing = {"GET": self.nothing}
        return [
            Route("/api/cluster-name", name, "The cluster's name", writer=ADMINISTRATOR),
            Route("/api/extensions", {"GET": self.extensions}, "Of the browser's pages"),
            Route("/api/penstock/cluster", {"GET": self.cluster}, "Nodes and links", MONITORING),
            Route(
                FORGET, {"DELETE": self.forget_node}, "Forget a node that is down", ADMINISTRATOR
            ),
            Route("/api/version", {"GET": self.version}, "The broker's version"),
            Route(
                "/api/feature-flags", {"GET": self.feature_flags}, "All are enabled", ADMINISTRATOR
            ),
            Route(
                "/api/feature-flags/{name}/enable",
                {"PUT": self.enable},
                "Enable one",
                ADMINISTRATOR,
            ),
            Route("/api/deprecated-features", nothing, "There are none"),
            Route("/api/deprecated-features/used", nothing, "There are none"),
            Route("/api/config/effective", {"GET": self.config}, "The settings", ADMINISTRATOR),
            Route("/api/reset", {"DELETE": self.reset}, "Forget the samples", ADMINISTRATOR),
            Route("/api/reset/{node}", {"DELETE": self.reset}, "Forget the samples", ADMINISTRATOR),
        ]

    # -- names ---------------------------------------------------------------------------

    async def cluster_name(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        return json_response({"name": await self._on_loop(self._broker.cluster_name)})

    async def put_cluster_name(self, request: web.Request, visitor: Visitor) -> None:
        asked = await json_body(request)
        must_have(asked, "name")
        await self.change(self.admin().put_global_parameter, CLUSTER_NAME, asked["name"])

    async def cluster(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._on_loop(self._cluster)
        totals: dict[str, Row] = {}
        down = 0
        pairs = await self._on_loop(self._broker.mirrors.mirrored)
        for some in slices(pairs):
            down += await self._on_loop(self._view.mirrors.count_copies, some, totals)
        row["mirrored_queues"] = len(pairs)
        row["mirrored_queues_down"] = down
        for node in cast(list[Row], row["nodes"]):
            node.update(totals.get(str(node["name"]), dict.fromkeys(COUNTED, 0)))
        return json_response(row)

    def _cluster(self) -> Row:
        """For use on the data loop."""
        row = {"name": self._broker.cluster_name(), **self._view.watch.cluster()}
        drained = self._broker.mirrors.drained()
        for node in cast(list[Row], row["nodes"]):
            node["drained"] = node["name"] in drained
        return row

    async def forget_node(self, request: web.Request, visitor: Visitor) -> None:
        name = request.match_info["name"]
        if name == self._view.node_name:
            raise PreconditionFailed(f"{name} cannot forget itself: ask another node")
        await self.change(self._view.watch.forget_node, name)

    async def extensions(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        """What RabbitMQ's pages load besides themselves, and wait for before they start.

        The file is theirs; the web UI here is of one piece and does not ask.
        """
        return json_response([{"javascript": "dispatcher.js"}])

    async def version(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        return json_response({"version": DIALECT, "product_version": self._context.version})

    # -- features ------------------------------------------------------------------------

    async def feature_flags(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        rows: list[Row] = [
            {
                "name": name,
                "desc": text,
                "doc_url": "",
                "state": "enabled",
                "stability": "stable",
                "provided_by": "penstock",
            }
            for name, text in FEATURE_FLAGS.items()
        ]
        return json_response([query.project(row) for row in rows])

    async def enable(self, request: web.Request, visitor: Visitor) -> None:
        if request.match_info["name"] not in FEATURE_FLAGS:
            raise BadQuery("bad_request", "unsupported")

    # -- the node ------------------------------------------------------------------------

    async def config(self, _request: web.Request, visitor: Visitor) -> web.Response:
        settings = self._context.node.settings
        shown = [name for name in DECLARED if name not in HIDDEN_SETTINGS]
        return json_response({name: _plain(settings.value_of(name)) for name in shown})

    async def reset(self, request: web.Request, visitor: Visitor) -> None:
        if "node" in request.match_info:
            self._context.must_be_us(request.match_info["node"])
        self._context.statistics.reset()

    async def nothing(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost = request.match_info.get("vhost")
        if vhost is not None and not await self._on_loop(self._view.has_vhost, vhost):
            raise NotFound(f"no vhost '{vhost}'")
        return json_response([])


class LogInsApi(Endpoints):
    """Log-ins so far by protocol, and how to log in."""

    heading = "log-ins"

    def routes(self) -> list[Route]:
        attempts = {"GET": self.attempts, "DELETE": self.forget_attempts}
        where = "/api/auth/attempts/{node}"
        return [
            Route(where, attempts, "Log-ins by protocol", MONITORING),
            Route(
                where + "/source",
                {"GET": self.sources, "DELETE": self.forget_attempts},
                "Not tracked",
                MONITORING,
            ),
            Route(
                "/api/penstock/lockouts", {"GET": self.lockouts}, "Locked-out users", ADMINISTRATOR
            ),
            Route(
                "/api/penstock/auth-cache",
                {"DELETE": self.forget_answers},
                "Ask servers of users anew",
                ADMINISTRATOR,
            ),
            Route(
                "/api/penstock/lockouts/{user}",
                {"DELETE": self.unlock},
                "Let the user log in again",
                ADMINISTRATOR,
            ),
            Route("/api/auth/hash_password/{password}", {"GET": self.hash}, "A hash"),
            Route("/api/auth", {"GET": self.auth}, "How to log in", is_open=True),
            Route("/api/login", {"POST": self.login}, "Try a password", is_open=True),
        ]

    async def attempts(self, request: web.Request, visitor: Visitor) -> web.Response:
        self._context.must_be_us(request.match_info["node"])
        counts = await self._on_loop(self._broker.users.counts)
        return json_response([_attempts(name, *of) for name, of in counts.items() if of[0]])

    async def forget_answers(self, _request: web.Request, _visitor: Visitor) -> None:
        for backend in await self._on_loop(self._broker.users.backends):
            backend.forget()

    async def lockouts(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        found = await self._on_loop(self._broker.users.lockouts)
        return json_response([dict(one._asdict()) for one in found])

    async def unlock(self, request: web.Request, _visitor: Visitor) -> None:
        name = request.match_info["user"]
        if not await self.change(self._broker.users.end_lockouts, name):
            raise NotFound(f"user '{name}' is not locked out")

    async def sources(self, request: web.Request, visitor: Visitor) -> web.Response:
        self._context.must_be_us(request.match_info["node"])
        return json_response([])

    async def forget_attempts(self, request: web.Request, visitor: Visitor) -> None:
        self._context.must_be_us(request.match_info["node"])
        await self._on_loop(self._broker.users.forget_attempts)

    async def hash(self, request: web.Request, _visitor: Visitor) -> web.Response:
        password = request.match_info["password"]
        return json_response({"ok": hash_password(password, secrets.token_bytes(SALT_BYTES))})

    async def auth(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        without = {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}
        return json_response(self._context.sign_on.answer or without)

    async def login(self, request: web.Request, _visitor: Visitor) -> web.Response:
        """Whether name and password would do.  RabbitMQ sets a cookie that opens nothing."""
        try:
            async with asyncio.timeout(FORM_TIMEOUT_S):  # its sender has not logged in yet
                form = await request.post()
        except TimeoutError as error:
            raise BadQuery("bad_request", "the form did not come in time", 408) from error
        name, password = str(form.get("username", "")), str(form.get("password", ""))
        token = str(form.get("access_token", "")) if self._context.sign_on.by_provider else ""
        try:
            if token:
                visitor = await self._context.log_in(NAMELESS, token, request)
                response = web.Response(status=302, headers={"Location": BEGUN})
                set_cookie(request, response, self._context.sessions.begin(visitor))
                return response
            await self._context.log_in(name, password, request)
        except EntryRefused as error:
            return json_response({"error": "not_authorized", "reason": str(error)}, 401)
        except AccessRefused as error:
            reason = login_failed(error) if token else "Login failed"
            return json_response({"error": "not_authorized", "reason": reason}, 401)
        return json_response("ok")


def _plain(value: object) -> object:
    """A setting's value; what JSON has no word for is written as in the file."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value)


def _attempts(protocol: str, total: int, failed: int) -> Row:
    return {
        "protocol": protocol,
        "auth_attempts": total,
        "auth_attempts_failed": failed,
        "auth_attempts_succeeded": total - failed,
    }
