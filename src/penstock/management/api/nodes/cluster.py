"""The cluster over HTTP: names, features; RabbitMQ's small endpoints.

    GET PUT  /api/cluster-name            {"name": "..."}
    GET      /api/config/effective        the node's settings, without passwords
    DELETE   /api/reset[/{node}]          samples are forgotten, counts stay
    GET      /api/penstock/cluster        its nodes, the links of this one to them, and how many
                                          masters and mirrors each has

Feature flags are what a RabbitMQ of our dialect has switched on and what holds here as well;
streams are not among them.
"""

from typing import Final, cast

from aiohttp import web

from penstock.broker.parameters import CLUSTER_NAME
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import DIALECT, Endpoints
from penstock.management.http.listing import BadQuery, ListQuery
from penstock.management.http.lists import slices
from penstock.management.rows.mirrors import COUNTED
from penstock.settings.settings import DECLARED, SECRETS

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
    table = """
        user/administrator  cluster-name  GET=cluster_name PUT=put_cluster_name  The cluster's name
        user                extensions  GET=extensions  Of the browser's pages
        monitoring          penstock/cluster  GET=cluster  Nodes and links
        administrator       penstock/cluster/nodes/{name}  DELETE=forget_node  \
            Forget a node that is down
        user                version  GET=version  The broker's version
        administrator       feature-flags  GET=feature_flags  All are enabled
        administrator       feature-flags/{name}/enable  PUT=enable  Enable one
        user                deprecated-features  GET=nothing  There are none
        user                deprecated-features/used  GET=nothing  There are none
        administrator       config/effective  GET=config  The settings
        administrator       reset  DELETE=reset  Forget the samples
        administrator       reset/{node}  DELETE=reset  Forget the samples
    """

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
            raise BadQuery("unsupported")

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


def _plain(value: object) -> object:
    """A setting's value; what JSON has no word for is written as in the file."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value)
