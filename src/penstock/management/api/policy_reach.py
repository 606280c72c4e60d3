"""What policies reach, over HTTP: the queues and exchanges that one applies to, or would.

    GET /api/penstock/policies/{vhost}           rows of policies, with the numbers of "queues" and
                                                 "exchanges" that each applies to
    GET /api/penstock/policies/{vhost}/{policy}  one row, with the first hundred "queue_names" and
                                                 "exchange_names"
    GET /api/penstock/covered/{vhost}            ?pattern=REGEX&apply_to=queues
        {"count": N, "names": [the first hundred], "of": M}: what a policy would reach

Names are matched on management's own thread, with a copy of them, as patterns can be slow.  The
result of a virtual host is kept until its topology or its policies change.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from aiohttp import web

from penstock.broker.rules.policies import APPLY_TO, EXCHANGES, QUEUES_OF, Policy, best_policy
from penstock.core import patterns
from penstock.core.errors import NotFound
from penstock.management.api.policies import policies_in, policy_row
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Context, Endpoints
from penstock.management.http.listing import BadQuery, ListQuery
from penstock.queues.context import queue_type

NAMES_SHOWN: Final = 100
RESULTS_KEPT: Final = 100
"""Of virtual hosts, with policies and operator policies apart."""
OPERATOR: Final = "/api/penstock/operator-policies"

Entity = tuple[str, str]
"""Its kind as policies apply to it, and its name."""
Place = tuple[str, bool]
"""A virtual host; True: its operator policies."""
Reach = Mapping[str, tuple[list[str], list[str]]]
"""Name of a policy -> names of the queues and of the exchanges that it applies to."""


class PolicyReachApi(Endpoints):
    has_lists = True
    heading = "policies"
    table = """
        user  penstock/policies                            GET=policies  \
            All policies, and how many queues and exchanges each applies to
        user  penstock/policies/{vhost}                    GET=policies  \
            The same of a virtual host
        user  penstock/policies/{vhost}/{policy}           GET=policy    \
            The names that a policy applies to
        user  penstock/operator-policies                   GET=policies  \
            All operator policies, and how many queues each applies to
        user  penstock/operator-policies/{vhost}           GET=policies  \
            The same of a virtual host
        user  penstock/operator-policies/{vhost}/{policy}  GET=policy    \
            The names that an operator policy applies to
        user  penstock/covered/{vhost}                     GET=covered   What a policy would reach
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._known: dict[Place, tuple[int, Reach]] = {}

    async def policies(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows: list[Row] = []
        for vhost in await self.asked_vhosts(request, visitor):
            policies, reach = await self._reach((vhost, request.path.startswith(OPERATOR)))
            rows += [_counted(vhost, policy, reach) for policy in policies.values()]
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def policy(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["policy"]
        policies, reach = await self._reach((vhost, request.path.startswith(OPERATOR)))
        if name not in policies:
            raise NotFound(f"no policy '{name}'")
        queues, exchanges = (sorted(names)[:NAMES_SHOWN] for names in reach[name])
        row = _counted(vhost, policies[name], reach)
        return json_response(row | {"queue_names": queues, "exchange_names": exchanges})

    async def covered(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost = request.match_info["vhost"]
        await self.must_be_there(vhost, visitor)
        apply_to = request.query.get("apply_to", "queues")
        if apply_to not in APPLY_TO:
            raise BadQuery(f"apply_to: one of {', '.join(APPLY_TO)}")
        try:
            pattern = patterns.compiled(request.query.get("pattern", ""))
        except patterns.Refused as error:
            raise BadQuery(f"pattern: {error}") from error
        kinds = APPLY_TO[apply_to]
        names = [name for kind, name in await self._entities(vhost) if kind in kinds]
        found = await asyncio.to_thread(lambda: sorted(filter(pattern.search, names)))
        return json_response({"count": len(found), "names": found[:NAMES_SHOWN], "of": len(names)})

    # -- matching ----------------------------------------------------------------------------

    async def _reach(self, place: Place) -> tuple[dict[str, Policy], Reach]:
        epoch, policies = await self._on_loop(self._policies, place)
        known = self._known.get(place)
        if known is not None and known[0] == epoch:
            return policies, known[1]
        entities = await self._entities(place[0]) if policies else []
        reach = await asyncio.to_thread(_applied, policies, entities, place[1])
        self._known.pop(place, None)
        self._known[place] = epoch, reach
        if len(self._known) > RESULTS_KEPT:
            del self._known[next(iter(self._known))]
        return policies, reach

    def _policies(self, place: Place) -> tuple[int, dict[str, Policy]]:
        """With the epoch of the virtual host, which moves with its policies too."""
        name, operator = place
        vhost = self._broker.vhost(name)
        return int(vhost.epoch), dict(policies_in(vhost.policies, operator))

    async def _entities(self, vhost: str) -> list[Entity]:
        """All but the default exchange, which no policy reaches."""
        names = await self._on_loop(self._view.queues.names, vhost)
        entities = await self._lists.gathered(names, partial(self._queues, vhost))
        exchanges = await self._on_loop(self._view.exchanges.names, vhost)
        return entities + [(EXCHANGES, name) for name in exchanges if name != ""]

    def _queues(self, vhost: str, names: Sequence[str]) -> list[Entity]:
        queues = self._broker.vhost(vhost).queues
        here = [queues[name] for name in names if name in queues]
        return [(QUEUES_OF[queue_type(one.arguments)], one.name) for one in here]


def _applied(policies: dict[str, Policy], entities: Sequence[Entity], operator: bool) -> Reach:
    """Operator policies hold for queues only."""
    reach: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for name in policies}
    # Patterns of lower priority than one that was found are not searched for.
    policies = dict(sorted(policies.items(), key=lambda one: -one[1].priority))
    for kind, name in entities:
        if operator and kind == EXCHANGES:
            continue
        policy = best_policy(policies, kind, name)
        if policy is not None:
            reach[policy.name][kind == EXCHANGES].append(name)
    return reach


def _counted(vhost: str, policy: Policy, reach: Reach) -> Row:
    queues, exchanges = map(len, reach[policy.name])
    return policy_row(vhost, policy) | {"queues": queues, "exchanges": exchanges}
