"""Health checks over HTTP, as RabbitMQ answers them: 200, or 503 with the reason.

The last three are RabbitMQ 4's and want no log-in, as there, since load balancers ask them.
``protocol`` may be several with commas between; the answer then names them as RabbitMQ 4 does.
Alarms are in ``api.resources``.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from penstock.broker.broker import Broker
from penstock.broker.mirrors import MirrorFacts
from penstock.broker.rules.access import NO_LIMIT
from penstock.broker.rules.judges import CONFIGURE
from penstock.broker.topology import declaring
from penstock.clocks import wall_ms
from penstock.core import patterns
from penstock.core.errors import AccessRefused
from penstock.core.pending import Pending
from penstock.management.api.queues.messages import HEAD_WAIT_S, leave
from penstock.management.facts.rows import Row
from penstock.management.facts.sessions import InternalClient, ListenerFacts, date_text
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery
from penstock.management.http.lists import slices
from penstock.queues.context import CLASSIC, QUORUM
from penstock.tls.dates import Certificate

FAILED: Final = 503
NO_LISTENER: Final = "No active listener"
NOT_SERVING: Final = "the rabbit node is not currently available to serve"
LIMIT_REACHED: Final = "node connection limit is reached"
NOT_SYNCHRONISED: Final = "There are classic mirrored queues without online synchronised mirrors"
MINORITY: Final = (
    "There are quorum queues that would lose their quorum if the target node is shut down"
)
NO_LEADER: Final = "Detected quorum queues without an elected leader"
NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
DAY_S: Final = 86_400
FAR_S: Final = 10**12
"""Later than any certificate can end; a clock cannot be asked for what is much later."""
UNITS_S: Final = {
    "days": DAY_S,
    "weeks": 7 * DAY_S,
    "months": 365 * DAY_S // 12,
    "years": 365 * DAY_S,
}
ALSO_CALLED: Final = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqp0_9_1": "amqp",
    "amqps": "amqp/ssl",
    "https": "http/ssl",
}
TEST_QUEUE: Final = "aliveness-test"
TEST_BODY: Final = b"test_message"
TEST_S: Final = 5.0


class HealthApi(Endpoints):
    heading = "health checks"
    table = """
        user  healthchecks/node  GET=old_check  No alarm is in effect
        user  healthchecks/node/{node}  GET=old_check  The same of a node
        user  health/checks/virtual-hosts  GET=fine  Every virtual host runs
        user  health/checks/port-listener/{port}  GET=port_listener  Something listens on the port
        user  health/checks/protocol-listener/{protocol}  GET=protocol_listener  \
            The protocol is served
        user  health/checks/certificate-expiration/{within}/{unit}  GET=certificate_expiration  \
            No certificate of a listener expires within that time
        user  health/checks/node-is-mirror-sync-critical  GET=sync_critical  \
            No mirrored queue would be down without this node
        user  health/checks/node-is-quorum-critical  GET=quorum_critical  \
            Every quorum queue has a majority without this node
        user  health/checks/metadata-store/initialized  GET=fine  The definitions are read
        user  health/checks/metadata-store/initialized/with-data  GET=fine  The definitions are read
        user  health/checks/reached-target-cluster-size  GET=fine  No node waits for others to join
        user  health/checks/quorum-queues-without-elected-leaders/all-vhosts  GET=leaderless  \
            No quorum queue lacks a leader
        user  health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}  \
            GET=leaderless  No quorum queue lacks a leader
        user  health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}  GET=leaderless  \
            No quorum queue lacks a leader
        user  health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}  \
            GET=leaderless  No quorum queue lacks a leader
        open  health/checks/is-in-service  GET=in_service  The node takes clients
        open  health/checks/ready-to-serve-clients  GET=ready_to_serve  AMQP clients may come
        open  health/checks/below-node-connection-limit  GET=below_limit  One more connection fits
        user  aliveness-test/{vhost}  GET=aliveness  Publishes and gets a test message
    """

    # -- listeners -----------------------------------------------------------------------

    async def _listeners(self) -> list[ListenerFacts]:
        facts = await self._on_loop(self._view.watch.listeners)
        return [*facts, *self._context.own_listeners]

    async def port_listener(self, request: web.Request, _visitor: Visitor) -> web.Response:
        text = request.match_info["port"]
        if not NUMBER.fullmatch(text):
            raise BadQuery("Invalid port")
        port = int(text)
        ports = [listener.port for listener in await self._listeners() if listener.port]
        if port in ports:
            return json_response({"status": "ok", "port": port})
        return _failed(NO_LISTENER, missing=port, ports=ports)

    async def protocol_listener(self, request: web.Request, _visitor: Visitor) -> web.Response:
        asked = request.match_info["protocol"].lower().split(",")
        known = [ALSO_CALLED.get(one, one) for one in asked]
        protocols = [listener.protocol for listener in await self._listeners()]
        missing = [one for one in known if one not in protocols]
        if len(known) > 1:
            if missing:
                return _failed(NO_LISTENER, missing=missing, protocols=protocols)
            return json_response({"status": "ok", "protocols": protocols})
        if missing:
            return _failed(NO_LISTENER, missing=known[0], protocols=protocols)
        return json_response({"status": "ok", "protocol": known[0]})

    async def certificate_expiration(self, request: web.Request, _visitor: Visitor) -> web.Response:
        until_s = time.time() + _seconds(request.match_info["within"], request.match_info["unit"])
        listeners = await self._listeners()
        rows = [_expiring(one, until_s, self._view.node_name) for one in listeners]
        expired = [row for row in rows if row is not None]
        if expired:
            return _failed("Certificates expiring", expired=expired)
        return json_response({"status": "ok"})

    # -- the node ------------------------------------------------------------------------

    async def fine(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        """True whenever the node answers; while it starts, another page answers, with 503."""
        return json_response({"status": "ok"})

    async def quorum_critical(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        here = self._view.node_name
        return await self._critical(QUORUM, MINORITY, lambda facts: facts.is_quorum_critical(here))

    async def leaderless(self, request: web.Request, _visitor: Visitor) -> web.Response:
        vhost = request.match_info.get("vhost")
        try:
            pattern = patterns.compiled(request.match_info.get("pattern", ""))
        except patterns.Refused as error:
            raise BadQuery(f"pattern: {error}") from error
        if vhost is not None:
            await self._on_loop(self._broker.vhost, vhost)
        found = [
            _queue_row(QUORUM, *pair)
            for pair in await self._queues_that(MirrorFacts.lacks_leader)
            if pair[0] == (vhost or pair[0]) and pattern.search(pair[1])
        ]
        return _failed(NO_LEADER, queues=found) if found else json_response({"status": "ok"})

    async def _queues_that(self, holds: Callable[[MirrorFacts], bool]) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for some in slices(await self._on_loop(self._broker.mirrors.mirrored)):
            found += await self._on_loop(self._view.mirrors.those_that, holds, some)
        return found

    async def _critical(
        self, kind: str, reason: str, holds: Callable[[MirrorFacts], bool]
    ) -> web.Response:
        answer = await self._on_loop(self._how_many_nodes)
        if "reason" in answer:
            return json_response(answer)
        found = [_queue_row(kind, *pair) for pair in await self._queues_that(holds)]
        return _failed(reason, queues=found) if found else json_response(answer)

    def _how_many_nodes(self) -> Row:
        """For use on the data loop; RabbitMQ says so where a check has no meaning."""
        nodes = self._view.watch.cluster()["nodes"]
        is_one = not isinstance(nodes, list) or len(nodes) < 2
        answer: Row = {"status": "ok"}
        if is_one:
            answer["reason"] = "single node cluster"
        return answer

    async def sync_critical(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        here = self._view.node_name
        return await self._critical(
            CLASSIC, NOT_SYNCHRONISED, lambda facts: facts.is_sync_critical(here)
        )

    async def old_check(self, request: web.Request, _visitor: Visitor) -> web.Response:
        node = request.match_info.get("node")
        if node is not None:
            self._context.must_be_us(node)
        reason = await self._on_loop(_alarms_in_words, self._broker)
        if reason:
            return _failed(reason)
        return json_response({"status": "ok"})

    async def _why_not_serving(self) -> str:
        return self._context.why_closed() or await self._on_loop(self._context.cut_off)

    async def in_service(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        if await self._why_not_serving():
            return _failed("this rabbit node is not currently available to serve")
        return json_response({"status": "ok"})

    async def ready_to_serve(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        if await self._why_not_serving():
            return _failed(NOT_SERVING)
        protocols = {listener.protocol for listener in await self._listeners()}
        if protocols.isdisjoint(("amqp", "amqp/ssl")):
            return _failed("no active listeners for AMQP/AMQPS")
        count, limit = await self._on_loop(_connections, self._broker)
        if count >= limit > NO_LIMIT:
            return _failed(LIMIT_REACHED, connections=count)
        return json_response({"status": "ok"})

    async def below_limit(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        count, limit = await self._on_loop(_connections, self._broker)
        row: Row = {"limit": "infinity" if limit == NO_LIMIT else limit, "connections": count}
        if count >= limit > NO_LIMIT:
            return _failed(LIMIT_REACHED, **row)
        return json_response({"status": "ok"} | row)

    async def aliveness(self, request: web.Request, visitor: Visitor) -> web.Response:
        """Declare a queue, publish a message to it and get one from it, by the visitor's rights.

        The queue stays: RabbitMQ leaves it too, and the next test finds it.
        """
        vhost = request.match_info["vhost"]
        await self.must_be_there(vhost, visitor)
        if not await self._on_loop(visitor.may, CONFIGURE, vhost, TEST_QUEUE):
            raise AccessRefused("User not authorised to access object")
        await self.change(self._declare, vhost, visitor)
        await self.learn_rights(visitor, vhost, lambda rights: rights.publish(None, "", TEST_QUEUE))
        await self.learn_rights(visitor, vhost, lambda rights: rights.read("queue", TEST_QUEUE))
        sender = await self._on_loop(self.sender, visitor, vhost)
        watch, entered = self._view.watch, list[InternalClient]()
        try:
            await self._on_loop(lambda: entered.append(watch.enter(sender, vhost, wall_ms())))
            agent = entered[0]
            async with asyncio.timeout(TEST_S):
                routed = await self._on_loop(
                    agent.publish, "", TEST_QUEUE, {}, TEST_BODY, wall_ms()
                )
                await asyncio.shield(asyncio.wrap_future(routed))
                await self._get_one(agent)
        finally:
            await self._on_loop(leave, entered)
        return json_response({"status": "ok"})

    async def _get_one(self, agent: InternalClient) -> None:
        while True:
            if await self._on_loop(_got_one, agent):
                return
            await asyncio.sleep(HEAD_WAIT_S)

    def _declare(self, vhost: str, visitor: Visitor) -> None:
        found, rights = self._broker.vhost(vhost), self.rights(visitor, vhost)
        declaring.declare_queue(found, rights, TEST_QUEUE, False, None, False, {})


def _failed(reason: str, **more: object) -> web.Response:
    return json_response({"status": "failed", "reason": reason} | more, FAILED)


def _queue_row(kind: str, vhost: str, name: str) -> Row:
    return {
        "name": name,
        "readable_name": f"queue '{name}' in vhost '{vhost}'",
        "type": kind,
        "virtual_host": vhost,
    }


def _connections(broker: Broker) -> tuple[int, int]:
    return int(broker.connection_count), int(broker.options.connection_max)


def _alarms_in_words(broker: Broker) -> str:
    alarms = broker.admission.alarms
    found = [name for name, is_set in (("disk", alarms.disk), ("memory", alarms.memory)) if is_set]
    return f"resource alarm(s) in effect: {', '.join(found)}" if found else ""


def _seconds(within: str, unit: str) -> int:
    size = UNITS_S.get(unit.lower())
    try:
        count = int(within)
    except ValueError as error:
        raise BadQuery("Invalid expiration value.") from error
    if size is None:
        raise BadQuery("Time unit not recognised. Supported units: days, weeks, months, years.")
    return max(-FAR_S, min(count * size, FAR_S))


def _expiring(listener: ListenerFacts, until_s: float, node: str) -> Row | None:
    """A listener with certificates that end before then, and when; None = it has none."""
    dates = {
        f"{key}_expires_on": [date_text(end) for end in ends if end < until_s]
        for key, ends in listener.expiry_dates.items()
    }
    if not any(dates.values()):
        return None
    return {
        "node": node,
        "protocol": listener.protocol,
        "interface": listener.host,
        "port": listener.port,
        **dates,
    }


class CertificatesApi(Endpoints):
    """Each with its setting, file, names and dates.

    They are those in force: of a file that was replaced, what was read at the last reload.
    """

    heading = "certificates"
    table = """
        monitoring  penstock/certificates  GET=certificates  \
            Names and dates of the listeners' certificates
    """

    async def certificates(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        listeners = await self._on_loop(self._view.watch.listeners)
        used: dict[tuple[str, Certificate], list[Row]] = {}
        for listener in (*listeners, *self._context.own_listeners):
            for setting, some in listener.certificates.items():
                for one in some:
                    used.setdefault((setting, one), []).append(_place(listener))
        now_s = time.time()
        return json_response(
            [
                {
                    "node": self._view.node_name,
                    "setting": setting,
                    "file": one.path,
                    "subject": one.subject,
                    "issuer": one.issuer,
                    "names": list(one.names),
                    "not_before": date_text(one.begins_s),
                    "not_after": date_text(one.ends_s),
                    "days_left": int((one.ends_s - now_s) // DAY_S),
                    "listeners": places,
                }
                for (setting, one), places in sorted(used.items(), key=lambda pair: pair[0][1][-1])
            ]
        )


def _place(listener: ListenerFacts) -> Row:
    return {"protocol": listener.protocol, "ip_address": listener.host, "port": listener.port}


def _got_one(agent: InternalClient) -> bool:
    """For use on the data loop; a test at the same time may have got our message, and we its."""
    found = agent.get(TEST_QUEUE, wall_ms())
    if found is None or isinstance(found, Pending):
        return False
    agent.accept(wall_ms())
    return True
