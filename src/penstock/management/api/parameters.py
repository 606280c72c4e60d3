"""Parameters over HTTP, in the form of RabbitMQ's API.

``PUT`` takes ``{"value": ...}``.  Two components are the real thing by another name:
``operator_policy`` and ``vhost-limits``.  The others are those of
``broker/rules/parameter_values.py``; an unknown one is refused as by RabbitMQ.
URIs are shown with their passwords to administrators only.
A shovel is a parameter of the component ``shovel``; its node runs it (``links``).  Static shovels
are in the list of all, without a virtual host, and nowhere else.
Global parameters are kept and given back; the node itself goes by ``cluster_name`` only.
"""

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from penstock.broker.administration import limits_of
from penstock.broker.definitions.exporting import policy_value
from penstock.broker.rules.parameter_values import (
    SHOVEL,
    UPSTREAM,
    UPSTREAM_SET,
    uris_of,
    without_credentials,
)
from penstock.broker.rules.policies import Policy
from penstock.broker.topology.vhost import Vhost
from penstock.core.errors import NotFound, NotImplementedYet, PreconditionFailed
from penstock.management.api.policies import invalid, policy_in
from penstock.management.facts.rows import Row
from penstock.management.http.access import ADMINISTRATOR, Visitor
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import ListQuery
from penstock.storage.definitions.parameters import ParameterRecord

OPERATOR_POLICY: Final = "operator_policy"
VHOST_LIMITS: Final = "vhost-limits"
LIMITS_NAME: Final = "limits"


class ParametersApi(Endpoints):
    has_lists = True
    heading = "parameters"
    table = """
        policymaker             parameters  GET=parameters  All parameters
        policymaker             parameters/{component}  GET=parameters  Those of a component
        policymaker             parameters/{component}/{vhost}  GET=parameters  \
            Those in a virtual host
        policymaker             parameters/{component}/{vhost}/{name}  \
            GET=parameter PUT=put DELETE=delete  One parameter
        policymaker             global-parameters  GET=global_parameters  Of the whole node
        policymaker             global-parameters/{name}  \
            GET=global_parameter PUT=put_global DELETE=delete_global  One of the whole node
        monitoring              shovels  GET=shovels  All shovels
        monitoring              shovels/{vhost}  GET=shovels  Of a virtual host
        monitoring/policymaker  shovels/vhost/{vhost}/{name}  GET=shovel DELETE=delete_shovel  \
            One shovel
        policymaker             shovels/vhost/{vhost}/{name}/restart  DELETE=restart  Connect anew
        monitoring              federation-links  GET=federation_links  All federation links
        monitoring              federation-links/state/down  GET=federation_links  \
            Those that do not run
        monitoring              federation-links/{vhost}  GET=federation_links  Of a virtual host
        monitoring              federation-links/{vhost}/state/down  GET=federation_links  \
            Those that do not run
        policymaker             federation-links/vhost/{vhost}/{id}/{node}/restart  \
            DELETE=restart_link  Connect anew
    """

    # -- looking -------------------------------------------------------------------------

    async def parameters(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._asked_rows(request, visitor)
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def parameter(self, request: web.Request, visitor: Visitor) -> web.Response:
        for row in await self._asked_rows(request, visitor):
            if row["name"] == request.match_info["name"]:
                return json_response(ListQuery(request.query).project(row))
        raise NotFound("no such parameter")

    async def _asked_rows(self, request: web.Request, visitor: Visitor) -> list[Row]:
        vhosts = await self.asked_vhosts(request, visitor)
        rows = await self._lists.gathered(vhosts, self._rows)
        component = request.match_info.get("component")
        rows = [row for row in rows if component in (None, row["component"])]
        if not visitor.is_administrator:
            rows = [row | {"value": without_credentials(row["value"])} for row in rows]
        return rows

    def _rows(self, vhosts: Sequence[str]) -> list[Row]:
        found = [self._broker.vhosts[name] for name in vhosts if name in self._broker.vhosts]
        rows = [row for vhost in found for row in _rows_of(vhost)]
        return rows + [
            _row(one.component, vhost.name, one.name, one.value)
            for vhost in found
            for one in self._broker.parameters.of_vhost(vhost.name)
        ]

    # -- changing ------------------------------------------------------------------------

    async def put(self, request: web.Request, visitor: Visitor) -> bool:
        value = _value(await json_body(request))
        await self.changed_vhost(request, visitor)
        place = dict(request.match_info)
        _check_rights(place, visitor)
        _check_local(place["component"], value, visitor)
        return await self.change(self._put, place, value, visitor.acts_as)

    def _put(self, place: dict[str, str], value: Any, user: str) -> bool:
        component, vhost, name = place["component"], place["vhost"], place["name"]
        known = [row["name"] for row in self._rows([vhost]) if row["component"] == component]
        try:
            if component == OPERATOR_POLICY:
                policy = operator_policy_in(name, value)
                self.admin().put_policy(vhost, policy, operator=True)
            elif component == VHOST_LIMITS and isinstance(value, dict):
                self.admin().set_vhost_limits(vhost, value)
            else:
                self.admin().put_parameter(ParameterRecord(name, value, vhost, component, user))
        except (PreconditionFailed, NotImplementedYet) as error:
            raise invalid(str(error)) from error
        return name not in known

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        await self.asked_vhosts(request, visitor)
        place = dict(request.match_info)
        _check_rights(place, visitor)
        await self.change(self._delete, place)

    def _delete(self, place: dict[str, str]) -> None:
        component, vhost, name = place["component"], place["vhost"], place["name"]
        if component == OPERATOR_POLICY:
            self.admin().delete_policy(vhost, name, operator=True)
        elif (
            component == VHOST_LIMITS
            and name == LIMITS_NAME
            and limits_of(self._broker.vhost(vhost))
        ):
            self.admin().set_vhost_limits(vhost, {})
        else:
            self.admin().delete_parameter(vhost, component, name)

    # -- of the whole node ---------------------------------------------------------------

    async def global_parameters(self, request: web.Request, visitor: Visitor) -> web.Response:
        rows = await self._on_loop(self._global_rows)
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def global_parameter(self, request: web.Request, visitor: Visitor) -> web.Response:
        for row in await self._on_loop(self._global_rows):
            if row["name"] == request.match_info["name"]:
                return json_response(ListQuery(request.query).project(row))
        raise NotFound("no such parameter")

    def _global_rows(self) -> list[Row]:
        known = self._broker.parameters.of_vhost("")
        return [{"name": one.name, "value": one.value} for one in known]

    async def put_global(self, request: web.Request, visitor: Visitor) -> bool:
        value = _value(await json_body(request))
        return await self.change(self._put_global, request.match_info["name"], value)

    def _put_global(self, name: str, value: object) -> bool:
        is_new = self._broker.parameters.find(name) is None
        self.admin().put_global_parameter(name, value)
        return is_new

    async def delete_global(self, request: web.Request, visitor: Visitor) -> None:
        await self.change(self.admin().delete_global_parameter, request.match_info["name"])

    # -- shovels -------------------------------------------------------------------------

    async def shovels(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhosts = await self.asked_vhosts(request, visitor)
        is_all = "vhost" not in request.match_info
        rows = [
            row
            for row in self._view.watch.links.shovels()
            if (row["vhost"] in vhosts if "vhost" in row else is_all)
        ]
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def shovel(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        return json_response(await self._on_loop(self._shovel, vhost, request.match_info["name"]))

    def _shovel(self, vhost: str, name: str) -> Row:
        found = self._broker.parameters.find(name, vhost, SHOVEL)
        if found is None:
            raise NotFound(f"no shovel '{name}' in vhost '{vhost}'")
        return _row(SHOVEL, vhost, name, without_credentials(found.value))

    async def delete_shovel(self, request: web.Request, visitor: Visitor) -> None:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["name"]
        await self.change(self.admin().delete_parameter, vhost, SHOVEL, name)

    async def restart(self, request: web.Request, visitor: Visitor) -> None:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["name"]
        if not self._view.watch.links.restart_shovel(vhost, name):
            raise NotFound(f"no shovel '{name}' in vhost '{vhost}' runs on this node")

    async def federation_links(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhosts = await self.asked_vhosts(request, visitor)
        rows = [row for row in self._view.watch.links.federation_links() if row["vhost"] in vhosts]
        if request.path.endswith("/state/down"):
            rows = [row for row in rows if row["status"] not in ("running", "starting")]
        return await self._lists.answer_rows(ListQuery(request.query), rows, pageable=False)

    async def restart_link(self, request: web.Request, visitor: Visitor) -> None:
        (vhost,) = await self.asked_vhosts(request, visitor)
        self._context.must_be_us(request.match_info["node"])
        link_id = request.match_info["id"]
        if not self._view.watch.links.restart_federation_link(vhost, link_id):
            raise NotFound(f"no federation link '{link_id}' in vhost '{vhost}' runs on this node")


def _rows_of(vhost: Vhost) -> list[Row]:
    rows = [
        _row(OPERATOR_POLICY, vhost.name, policy.name, policy_value(policy))
        for policy in vhost.policies.operator_policies.values()
    ]
    limits = limits_of(vhost)
    if limits:
        rows.append(_row(VHOST_LIMITS, vhost.name, LIMITS_NAME, limits))
    return rows


def _row(component: str, vhost: str, name: str, value: object) -> Row:
    return {"component": component, "vhost": vhost, "name": name, "value": value}


def _check_rights(place: dict[str, str], visitor: Visitor) -> None:
    """Parameters that bind all users of a virtual host are for administrators."""
    if place["component"] in (OPERATOR_POLICY, VHOST_LIMITS):
        ADMINISTRATOR.check(visitor)


def _check_local(component: str, value: object, visitor: Visitor) -> None:
    """A link to this node acts as the user who set it, an administrator's also as another.

    A user of another backend is not that one of the broker's own who is called the same.
    """
    is_foreign = visitor.external is not None
    none_of_ours = f'user "{visitor.name}" is none of the broker\'s own'
    if is_foreign and component in (UPSTREAM, UPSTREAM_SET):
        raise invalid(f"{none_of_ours}, in whose name a federation link acts here")
    for uri in uris_of(value):
        if uri.host:
            continue
        acts_as_other = uri.user not in (None, visitor.name) and not visitor.is_administrator
        if is_foreign and uri.user in (None, visitor.name):
            raise invalid(f"{none_of_ours}: name one in the URI")
        if acts_as_other or not visitor.may_enter(uri.vhost):
            raise invalid(
                f'user "{visitor.name}" may not connect to vhost "{uri.vhost}" as "{uri.user}"'
                if acts_as_other
                else f'user "{visitor.name}" may not connect to vhost "{uri.vhost}"'
            )


def operator_policy_in(name: str, value: Any) -> Policy:
    """As a parameter it is spelt in full; raises BadQuery and PreconditionFailed."""
    if not isinstance(value, dict):
        raise PreconditionFailed("value should be an object")
    for key in ("pattern", "definition", "priority"):
        if key not in value:
            raise PreconditionFailed(f'Key "{key}" not found in {name}')
    return policy_in(name, value)


def _value(asked: dict[str, Any]) -> Any:
    must_have(asked, "value")
    return asked["value"]
