"""Policies over HTTP, in the form of RabbitMQ's API.

    PUT   {"pattern": "^a", "definition": {"max-length": 10},
           "priority": 0, "apply-to": "queues", "exchanges" or "all"}

Policies are for administrators and policymakers in the virtual hosts they may enter; operator
policies may be looked at by everybody there and changed by administrators.  A change holds at once.
"""

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from penstock.broker.definitions.exporting import policy_value
from penstock.broker.rules.erlang_terms import term
from penstock.broker.rules.policies import Policy, PolicyBook
from penstock.broker.rules.queue_options import OPTIONS, Option
from penstock.core.errors import NotFound, NotImplementedYet, PreconditionFailed
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery, ListQuery

OPERATOR: Final = "/api/operator-policies"
PRIORITY_BITS: Final = 31


class PoliciesApi(Endpoints):
    has_lists = True
    heading = "policies"
    table = """
        user                penstock/options  GET=options  Options of queues
        user                policies  GET=policies  All policies
        user                policies/{vhost}  GET=policies  The policies of a virtual host
        policymaker         policies/{vhost}/{policy}  GET=policy PUT=put DELETE=delete  \
            One of the policies
        user                operator-policies  GET=policies  All operator policies
        user                operator-policies/{vhost}  GET=policies  \
            The operator policies of a virtual host
        user/administrator  operator-policies/{vhost}/{policy}  GET=policy PUT=put DELETE=delete  \
            One of the operator policies
    """

    # -- looking -------------------------------------------------------------------------

    async def options(self, request: web.Request, visitor: Visitor) -> web.Response:
        return json_response([option_row(option) for option in OPTIONS])

    async def policies(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhosts = await self.asked_vhosts(request, visitor)
        operator = _is_operator(request)
        rows = await self._lists.gathered(vhosts, lambda some: self._rows(some, operator))
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def policy(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = request.match_info["policy"]
        vhosts = await self.asked_vhosts(request, visitor)
        row = await self._on_loop(self._row, vhosts[0], name, _is_operator(request))
        return json_response(ListQuery(request.query).project(row))

    def _row(self, vhost: str, name: str, operator: bool) -> Row:
        policy = policies_in(self._broker.vhost(vhost).policies, operator).get(name)
        if policy is None:
            raise NotFound(f"no policy '{name}'")
        return policy_row(vhost, policy)

    def _rows(self, vhosts: Sequence[str], operator: bool) -> list[Row]:
        found = [self._broker.vhosts[name] for name in vhosts if name in self._broker.vhosts]
        return [
            policy_row(vhost.name, policy)
            for vhost in found
            for policy in policies_in(vhost.policies, operator).values()
        ]

    # -- changing ------------------------------------------------------------------------

    async def put(self, request: web.Request, visitor: Visitor) -> bool:
        operator = _is_operator(request)
        vhost = await self.changed_vhost(request, visitor)
        policy = policy_in(request.match_info["policy"], await json_body(request))
        return await self.change(self._put, vhost, policy, operator)

    def _put(self, vhost: str, policy: Policy, operator: bool) -> bool:
        known = policies_in(self._broker.vhost(vhost).policies, operator)
        is_new = policy.name not in known
        try:
            self.admin().put_policy(vhost, policy, operator)
        except (PreconditionFailed, NotImplementedYet) as error:
            raise invalid(str(error)) from error
        return is_new

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["policy"]
        operator = _is_operator(request)
        await self.change(self.admin().delete_policy, vhost, name, operator)


def _is_operator(request: web.Request) -> bool:
    return request.path.startswith(OPERATOR)


def policies_in(book: PolicyBook, operator: bool) -> dict[str, Policy]:
    return book.operator_policies if operator else book.policies


def policy_row(vhost: str, policy: Policy) -> Row:
    return {"vhost": vhost, "name": policy.name, **policy_value(policy)}


def option_row(option: Option) -> Row:
    """Without the words of refusals, and the rules of single types."""
    row = option._asdict()
    for name in ("noun", "refusal", "operator", "unsuited", "quorum_merge"):
        del row[name]
    row["argument"] = option.argument
    row["policy"], row["operator_policy"] = option.in_policies, option.in_operator_policies
    return row


def policy_in(name: str, asked: dict[str, Any]) -> Policy:
    """What a body says; raises BadQuery and PreconditionFailed with RabbitMQ's words."""
    must_have(asked, "pattern", "definition")
    definition = asked["definition"]
    if definition == []:  # how some clients spell an empty object
        definition = {}
    if not isinstance(definition, dict):
        raise invalid(f"definition should be an object, actually was {term(definition)}")
    pattern, apply_to = asked["pattern"], asked.get("apply-to", "all")
    if not isinstance(pattern, str):
        raise invalid(f"pattern should be a binary but was {term(pattern)}")
    if not isinstance(apply_to, str):
        raise invalid(f"apply-to should be a binary but was {term(apply_to)}")
    return Policy(name, pattern, apply_to, _priority(asked.get("priority", 0)), definition)


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >> PRIORITY_BITS:
        raise invalid(f"priority should be a number, actually was {term(value)}")
    return value


def invalid(text: str) -> BadQuery:
    """As RabbitMQ refuses what a parameter says."""
    return BadQuery(f"Validation failed\n\n{text}\n")
